"""The programs that a start script starts, each with its options, for each way through branches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from attn_doctor.configs.formats import Format, formats, named_in, of_command
from attn_doctor.configs.readers import commands
from attn_doctor.configs.readers.commands import Command
from attn_doctor.configs.readers.settings import Reading, Setting

#: Lines that are named.
_SHOWN = 10
#: Commands of a file that are looked at.
_COMMANDS = 5_000
#: Files with settings that a command line may name.
_FILES = (".yaml", ".yml", ".toml", ".json")


def started(base: Reading, text: str, known: Mapping[str, str] | None = None) -> list[Reading]:
    """What a shell script starts, for each way through branches that set its options.

    `known`: variables of its environment.
    """
    found = commands.of_shell(text, known)
    several = commands.ways(text, {line for one in found for line in _branching(one)}, known)
    if not several:
        return known_in(base, found)
    ways = frozenset(way for way, _ in several)
    reached: dict[tuple[str, str, str], tuple[Reading, set[str]]] = {}
    for way, its in several:
        for reading in _readings(base, its):
            key = (reading.format, _key(reading), reading.when)
            reached.setdefault(key, (reading, set()))[1].add(way)
    return _distinct(
        replace(one, when=" and ".join(filter(None, (one.when, " or ".join(sorted(taken))))))
        if taken < ways
        else one
        for one, taken in reached.values()
    )


def _branching(command: Command) -> Iterator[int]:
    """The lines in branches that set options, or values, on which the attention depends."""
    name = of_command(command)
    if not name or not command.branched:
        return
    options = command.options()
    wanted = [_name(command.unset())]
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
    keys = {choice.key for choice in formats()[reading.format].choice}
    both = {**reading.settings, **reading.variables}
    open_ = [one for one in (reading.unset, reading.branches, reading.own, reading.script) if one]
    return repr([*sorted((key, both[key].text) for key in keys if key in both), *open_])


def _readings(base: Reading, found: Sequence[Command]) -> Iterator[Reading]:
    for command in found[:_COMMANDS]:
        name = of_command(command)
        if not name:
            continue
        one, unset = formats()[name], command.unset()
        branched = {key: _at(key, lines) for key, lines in command.branched.items()}
        changed = branched.get(_name(unset), "")
        # What is before the program is its launcher's: `accelerate launch --config_file …`.
        own = replace(command, words=command.words[one.begins(command) :])
        yield replace(
            base,
            format=name,
            settings=own.options() | _overrides(own, name),
            variables=command.variables,
            abridged=any("..." in word or "…" in word for word, _ in command.words),
            unset="" if changed else unset or _read_by(one, command),
            when=command.when,
            branches=changed,
            branched=branched,
            script=one.may_be_own(command),
            files=tuple(
                word
                for word, _ in own.words
                if word.lower().endswith(_FILES) and not word.startswith("-")
            ),
        )


def _at(name: str, lines: Sequence[int]) -> str:
    """A variable with the lines that set it: `ARGS (lines 3, 5)`."""
    several = "s" if len(lines) > 1 else ""
    return f"{name} (line{several} {', '.join(map(str, lines[:_SHOWN]))})"


def _name(word: str) -> str:
    """The variable of `${ARGS[@]}`."""
    return word.strip("${}%").partition("[")[0]


def _read_by(one: Format, command: Command) -> str:
    """A file with options that the program reads by itself: webui-user.sh."""
    words = named_in(command)
    found = (
        file for pattern, file in one.reads.items() if any(re.fullmatch(pattern, w) for w in words)
    )
    return next(found, "")


def _overrides(command: Command, name: str) -> dict[str, Setting]:
    """The settings among the words of a command: `flash_attn=fa2`."""
    if not formats()[name].overrides:
        return {}
    pairs = ((*word.partition("="), line) for word, line in command.words)
    return {
        key: Setting(key, value, at)
        for key, sign, value, at in pairs
        if sign and key.isidentifier()
    }
