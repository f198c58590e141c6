"""The programs that a start script starts, each with its options, for each way through branches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from attn_doctor.configs.formats import Format, formats, named_in, of_command
from attn_doctor.configs.readers import commands
from attn_doctor.configs.readers.commands import Command
from attn_doctor.configs.readers.settings import Reading, Setting

#: Lines that are named.
_SHOWN = 10
#: How often a way may lead to further branches.
_DEEPEST = 3
#: Commands of a file that are looked at.
_COMMANDS = 5_000
#: What examples write for options that they leave out.
_LEFT_OUT = re.compile(r"[(\[<]*(?:\.{3}|…)[)\]>]*")
#: Programs without an image of their authors: what another's image starts is not known.
_WITHOUT_IMAGE = ("comfyui", "forge", "sdnext")
#: `add_param() {`
_FUNCTION = re.compile(r"^\s*(?:function\s+)?([A-Za-z_]\w{0,100})\s*\(\)", re.MULTILINE)
#: Start scripts of programs other than web UIs of Stable Diffusion.
_LAUNCHERS = re.compile(
    r"(?i)[\w.-]*(?:comfy|fooocus|invoke|swarm|kohya|onetrainer|musubi)[\w.-]*\.(?:bat|cmd|sh|py)"
)
#: Files with settings that a command line may name.
_FILES = (".yaml", ".yml", ".toml", ".json")

#: The condition of a branch, and the way through branches by its number.
_Case = tuple[str, int]


def started(base: Reading, text: str, known: Mapping[str, str] | None = None) -> list[Reading]:
    """What a shell script starts, for each way through branches that set its options.

    `known`: variables of its environment.
    """
    found = commands.of_shell(text, known)
    base = replace(base, functions=tuple(_FUNCTION.findall(text)))
    ways = _followed_ways(text, {line for one in found for line in _branching(one)}, known)
    if not ways:
        return known_in(base, found)
    # The condition and the way under which each reading holds.
    cases: dict[tuple[str, str], tuple[Reading, set[_Case]]] = {}
    for at, (_, its) in enumerate(ways):
        for reading in _readings(base, its):
            own = cases.setdefault((reading.format, _key(reading)), (reading, set()))
            own[1].add((reading.when, at))
    every: dict[str, set[_Case]] = {}
    for (name, _), (_, own_cases) in cases.items():
        every.setdefault(name, set()).update(own_cases)
    runs = [one for one, _ in ways]
    return _distinct(
        replace(reading, when=_condition(own_cases, every[name], runs))
        for (name, _), (reading, own_cases) in cases.items()
    )


def _followed_ways(
    text: str, lines: set[int], known: Mapping[str, str] | None
) -> list[tuple[Mapping[int, bool], list[Command]]]:
    """The ways through branches, also those that only another way leads to; empty for too many."""
    ways = commands.ways(text, lines, known)
    for _ in range(_DEEPEST):
        further = {line for _, its in ways for one in its for line in _branching(one)} - lines
        if not further:
            break
        lines = lines | further
        more = commands.ways(text, lines, known)
        if not more:
            break  # the ways that are known so far leave the others open
        ways = more
    return ways


def _condition(own: set[_Case], every: set[_Case], runs: Sequence[Mapping[int, bool]]) -> str:
    """The condition of a reading in words, as short as the other readings allow."""
    ways, whens = {at for _, at in own}, {when for when, _ in own}
    if {one for one in every if one[1] in ways} == own:
        return _ways(ways, runs)
    if {one for one in every if one[0] in whens} == own:
        return "" if "" in whens else " or ".join(sorted(whens))
    parts = [
        " and ".join(filter(None, (when, _ways({at for one, at in own if one == when}, runs))))
        for when in sorted(whens)
    ]
    return " or ".join(parts) if all(parts) else ""


def _ways(own: set[int], runs: Sequence[Mapping[int, bool]]) -> str:
    """Ways in words, without lines that make no difference; empty for all ways."""
    lines = [*runs[0]]
    for line in runs[0]:
        rest = [one for one in lines if one != line]
        kept = {tuple(runs[at][one] for one in rest) for at in own}
        if all(
            (tuple(each[one] for one in rest) in kept) == (at in own)
            for at, each in enumerate(runs)
        ):
            lines = rest
    if not lines:
        return ""
    said = [_said(own, lines, runs), _said(own, [*runs[0]], runs)]
    return next((one for one in said if " not " not in one and "neither" not in one), said[0])


def _said(own: set[int], lines: Sequence[int], runs: Sequence[Mapping[int, bool]]) -> str:
    each = (_way({line: runs[at][line] for line in lines}, runs) for at in sorted(own))
    return " or ".join(dict.fromkeys(each))


def _way(way: Mapping[int, bool], runs: Sequence[Mapping[int, bool]]) -> str:
    """`line 3 runs and line 5 does not`; a line that cannot run with line 3 is left out."""
    positive = [line for line, does in way.items() if does]
    together = [one for one in runs if all(one[line] for line in positive)]
    negative = [
        line for line, does in way.items() if not does and any(one[line] for one in together)
    ]
    without = [f"line {line}" for line in negative]
    neither = f"neither {' nor '.join(without)}"
    if not positive:
        return f"{without[0]} does not run" if len(without) == 1 else f"{neither} runs"
    said = " and ".join(f"line {line}" for line in positive)
    said += " runs" if len(positive) == 1 else " run"
    if not without:
        return said
    return f"{said} and {f'{without[0]} does not' if len(without) == 1 else f'{neither} does'}"


def _branching(command: Command) -> Iterator[int]:
    """The lines in branches that set options, or values, on which the attention depends."""
    name = of_command(command)
    if not name or not command.branched:
        return
    options = command.options()
    wanted = [_name(command.opened())]
    for choice in formats()[name].choice:
        wanted.append(choice.key)
        wanted += [_name(options[choice.key].text)] if choice.key in options else []
    for one in wanted:
        yield from command.branched.get(one, ())


def known_in(base: Reading, found: Sequence[Command]) -> list[Reading]:
    """The commands whose program is known."""
    return _distinct(_readings(base, found))


def _distinct(readings: Iterable[Reading]) -> list[Reading]:
    """Readings that differ, each with the conditions of those that are alike.

    One that says less than another of its program is left out, but not one of another branch.
    """
    known: dict[tuple[str, str], list[Reading]] = {}
    for one in readings:
        known.setdefault((one.format, _key(one)), []).append(one)
    says = {name for name, key in known if key != "[]"}
    kept = {
        (name, key): alike
        for (name, key), alike in known.items()
        if key != "[]" or name not in says or all(one.when for one in alike)
    }
    count = Counter(name for name, _ in kept)
    return [
        replace(alike[0], when=_either(alike) if count[name] > 1 else "")
        for (name, _), alike in kept.items()
    ]


def _either(alike: Sequence[Reading]) -> str:
    """The conditions of readings that are alike; empty if one of them has none."""
    every = dict.fromkeys(one.when for one in alike)
    return "" if "" in every else " or ".join(every)


def _key(reading: Reading) -> str:
    given = set()
    for one in formats()[reading.format].choice:
        setting = (reading.variables if one.variable else reading.settings).get(one.key)
        if setting is not None and one.counts(setting.text):
            given.add((one.key, setting.text))
    open_ = [one for one in (reading.unset, reading.branches, reading.own, reading.script) if one]
    return repr([*sorted(given), *open_])


def _readings(base: Reading, found: Sequence[Command]) -> Iterator[Reading]:
    named = [(of_command(one), one) for one in found[:_COMMANDS]]
    # What its own words start makes the variable of other commands no start.
    words = {name for name, one in named if name and _started(name, one)}
    words |= {
        name
        for name in formats()
        for other in words
        if {*formats()[name].variables} & {one.key for one in formats()[other].choice}
    }
    helper = {name: _helper(formats()[name], base.functions, found) for name in words}
    elsewhere = next(filter(None, map(_other_start, found[:_COMMANDS])), "")
    for name, command in named:
        if not name or (name in words and not _started(name, command)):
            continue
        one, unset = formats()[name], command.unset()
        branched = {key: _at(key, lines) for key, lines in command.branched.items()}
        changed = branched.get(_name(command.opened()), "")
        # What is before the program is its launcher's: `accelerate launch --config_file …`.
        own = replace(command, words=command.words[one.begins(command) :])
        yield replace(
            base,
            format=name,
            program=_said_by(one, command),
            started=True,
            loose=not one.is_certain(command),
            settings=own.options() | _overrides(own, name),
            variables=command.variables,
            abridged=any(_LEFT_OUT.fullmatch(word) for word, _ in command.words),
            unset=""
            if changed or not _started(name, command)
            else " or ".join(
                filter(
                    None,
                    (unset, _by_image(name, command), _read_by(one, command), helper.get(name)),
                )
            ),
            when=command.when,
            branches=changed,
            branched=branched,
            script=one.may_be_own(command),
            own=elsewhere if command.words and command.words[0][0] in commands.ARGUMENTS else "",
            files=tuple(_files([word for word, _ in own.words])),
        )


def _started(name: str, command: Command) -> bool:
    """The words of a command start the program, and not only a variable speaks of it."""
    return of_command(replace(command, variables={})) == name


# add_param "--attention-backend" "${ATTENTION_BACKEND:-}"
def _helper(one: Format, functions: Sequence[str], found: Sequence[Command]) -> str:
    """A function of the script that gets an option of the program, and may add it."""
    keys = {choice.key for choice in one.choice}
    for command in found[:_COMMANDS]:
        if command.words and command.words[0][0] in functions and keys & {*command.options()}:
            word, line = command.words[0]
            return f"{word} in line {line}"
    return ""


def _other_start(command: Command) -> str:
    """Why options in a variable may be another program's: `call comfyui.bat`."""
    for word, line in command.words[:3]:
        if _LAUNCHERS.fullmatch(word.replace("\\", "/").rpartition("/")[2]):
            return f"{word} in line {line} may start another program with these options"
    return ""


def _said_by(one: Format, command: Command) -> Setting | None:
    """The word of a command, or the variable, that says which program it is."""
    variable = next(
        (command.variables[key] for key in one.variables if key in command.variables), None
    )
    if variable is not None and not one.is_certain(replace(command, variables={})):
        return variable
    if not command.words:
        return None
    scripts = [each for each in command.words if each[0].endswith(".py")]
    first = command.words[one.begins(command)]
    word, line = scripts[0] if one.names_of_others and scripts else first
    return Setting(word, True, line)


def _files(words: Sequence[str]) -> Iterator[str]:
    """The files with settings, which stand alone or behind `--config`."""
    for before, word in pairwise(["", *words]):
        option = before.startswith("-") and "=" not in before and not before.startswith("--config")
        name = word.removeprefix("--config=").removeprefix("--config_file=")
        if name.lower().endswith(_FILES) and not name.startswith("-") and not option:
            yield name


def _at(name: str, lines: Sequence[int]) -> str:
    """A variable with the lines that set it: `ARGS (lines 3, 5)`."""
    several = "s" if len(lines) > 1 else ""
    return f"{name} (line{several} {', '.join(map(str, lines[:_SHOWN]))})"


def _name(word: str) -> str:
    """The variable of `${ARGS[@]}`."""
    return word.strip("${}%").partition("[")[0]


def _by_image(name: str, command: Command) -> str:
    """An image that alone says what starts, of a program whose authors publish none."""
    if name not in _WITHOUT_IMAGE or not command.contained or len(command.words) != 1:
        return ""
    return f"the image {command.words[0][0]}"


def _read_by(one: Format, command: Command) -> str:
    """A file with options that the program reads: webui-user.sh, or the one of `--config`."""
    words = named_in(command)
    options = command.options()
    given = next((options[name].text for name in one.config if name in options), "")
    file = given.partition(" ")[0].strip("'\"")
    if file and not any(re.fullmatch(pattern, file) for pattern in one.supplied):
        return file
    found = (
        file for pattern, file in one.reads.items() if any(re.fullmatch(pattern, w) for w in words)
    )
    return next(found, "")


def _overrides(command: Command, name: str) -> dict[str, Setting]:
    """The settings among the words of a command: `flash_attn=fa2`."""
    if not formats()[name].overrides:
        return {}
    # Hydra's +a.b=c adds a setting that its files do not have.
    pairs = ((*word.lstrip("+").partition("="), line) for word, line in command.words)
    return {
        key: Setting(key, value.strip("\"'"), at)
        for key, sign, value, at in pairs
        if sign and all(one.isidentifier() for one in key.split("."))
    }
