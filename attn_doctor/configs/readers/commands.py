"""Command lines and environment variables, from the files that hold them: scripts, containers."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.configs.readers import shell_words
from attn_doctor.configs.readers.settings import Setting
from attn_doctor.configs.readers.shell_branches import possible
from attn_doctor.configs.readers.yaml_lines import Entry

_DOCKER = re.compile(r"^\s*(FROM|ENV|CMD|ENTRYPOINT|ARG|WORKDIR)\s+(.*)$", re.IGNORECASE)
#: `RUN python3 - <<'PY'`: what follows up to the line PY is not an instruction.
_HEREDOC = re.compile(r"<<-?\s?[\"']?([A-Za-z_]\w{0,40})[\"']?")
_PAIR = re.compile(r"""([A-Za-z_]\w{0,100})=("[^"]{0,2000}"|'[^']{0,2000}'|\S{0,2000})""")
#: Keys of YAML below which words of a command are.
_COMMAND = ("command", "args", "entrypoint", "cmd", "run")
#: Keys below which values of Helm have further options of the program: `extraArgs`.
_EXTRA = re.compile(r"(?i)(?:extra|engine|server|serve|vllm|sglang|additional)_?args$")
_ENVIRONMENT = ("environment", "env", "envs", "env_vars", "environment_variables")
#: Keys of YAML below which containers are.
_CONTAINERS = ("services", "containers", "initContainers", "container")
_POD = {"containers", "initContainers"}
#: Variables with options of Stable Diffusion web UIs and of images with ComfyUI.
ARGUMENTS = ("COMMANDLINE_ARGS", "CLI_ARGS")
_PASSED_ON = re.compile(r"(?i)(?:^|_)(?:args|opts|options|flags)$")
#: `$CLI_ARGS`, `${EXTRA_OPTIONS}`, `%ARGS%`, `"$@"`, `%*`: further options of a command.
_OPEN = re.compile(
    r"(?i)\$\{?\w*(?:args|opts|options|flags|params)(?::?-)?\}?|%\w*(?:args|options)%|[$%]\*|\$@"
)
#: `"${ARGS[@]}"`: a word that holds others, which are not followed.
_LIST = re.compile(r"\$\{\w{1,100}\[[@*]\][^}]{0,100}\}")
#: `$MORE`: a word that may hold options, where its name says nothing else.
_ALONE = re.compile(
    r"(?i)\$\{?(?!\w*(?:model|path|dir|port|host|name|file|script|repo|image|config|ckpt|root|home"
    r"|python|gpu|num|node|key|tag|device|optarg|id\}?$))[a-z_]{3,100}\}?"
)
_SHORT = re.compile(r"\$\w{1,2}")
#: `CMD=(python`: an array, to which later lines may add.
_ARRAY = re.compile(r"([A-Za-z_]\w{0,100})\+?=")
#: What a container runs in place of its image's own program.
_IDLE = ("sleep", "tail", "bash", "sh", "true")
#: Commands that change the folder.
_ENTERS = ("cd", "pushd", "set-location", "push-location")
#: Assignments in branches whose ways are followed: 16 ways for four.
_MOST_WAYS = 4
#: Options of `docker run` without a value, and variables that hold options of its own.
_BARE = re.compile(
    r"--(?:rm|privileged|init|read-only|detach|interactive|tty|no-healthcheck|publish-all"
    r"|oom-kill-disable|replace)|-[ditPq]+|--?[\w-]+=.*"
)
_OWN = re.compile(
    r"(?i)\$\{?\w*(?:gpu|vol|mount|net|port|opt|arg|flag|env|docker)\w*(?:\[[@*]\])?\}?"
)
_MAY_SET = re.compile(r"(?i)(?!.*(?:gpu|vol|mount|net|port)).*(?:opt|arg|flag|env)")
_DEEPEST = 3
#: vLLM's short name of an option: `-ac.backend FLASHINFER`.
_SHORTENED = re.compile(r"-ac(?=$|[.=])")


class Command(Struct, frozen=True):
    """One command with the variables of its environment."""

    words: tuple[tuple[str, int], ...]
    """Each with its line."""
    variables: Mapping[str, Setting] = {}
    outside: str = ""
    """A file with further variables of its environment."""
    branched: Mapping[str, Sequence[int]] = {}
    """Variables and arrays that branches change, with the lines."""
    optional: Collection[str] = ()
    """Variables that hold options on one line of the script at least."""
    when: str = ""
    """The condition under which it is reached; empty if it always is."""
    folder: str = ""
    """The folder in which it runs, as `cd` has it; empty if nothing changes that."""
    contained: bool = False
    """It runs in a container, whose image is its first word."""

    def unset(self) -> str:
        """What may hold further options, of its words or beside them; empty if nothing does."""
        return " or ".join(filter(None, (self.opened(), self.outside)))

    def opened(self) -> str:
        """What among its words may hold further options; empty if nothing does."""
        words = [word for word, _ in self.words]
        array = _ARRAY.match(words[0]) if words else None
        if array is not None:
            return array[1]
        for at, word in enumerate(words):
            if _OPEN.fullmatch(word) and self._unknown(word):
                return word
            if _LIST.fullmatch(word) and not shell_words.is_value(
                word, words[at - 1] if at else ""
            ):
                return word
            # Behind an option it is the option's value.
            value = at and words[at - 1].startswith("-") and "=" not in words[at - 1]
            value = value and word.strip("${}") not in self.optional
            alone = _ALONE.fullmatch(word) or (_SHORT.fullmatch(word) and word[1:] in self.branched)
            if alone and at and not value and self._unknown(word):
                return word
            # Behind an option it is the option's value.
            read = word in ("$(cat", "$(<")  # a file with options, whatever is before it
            if at and word.startswith("$(") and (read or not words[at - 1].startswith("-")):
                return f"{word.rstrip(')')})" if word.strip("$()[") else "$(…)"
        return ""

    def _unknown(self, word: str) -> bool:
        name = word.strip("${}%").removesuffix("-").removesuffix(":")
        known = self.variables.get(name)
        # ARGS="${ARGS:-}": what it held before is not known.
        return known is None or name in self.branched or f"${name}" in known.text

    def options(self) -> dict[str, Setting]:
        """Its options by name, `-` in names read as `_`."""
        words = [(_SHORTENED.sub("--attention-config", word), line) for word, line in self.words]
        found: dict[str, Setting] = {}
        for name, one in shell_words.options_of(words).items():
            key = name.replace("-", "_")
            inner = _of_json(one, key)
            found |= inner or {key: Setting(key, one.value, one.line, one.written)}
        return found


def of_shell(
    text: str, known: Mapping[str, str] | None = None, runs: Mapping[int, bool] | None = None
) -> list[Command]:
    """The commands of a shell script. `known`: variables of its environment.

    `runs`: lines in branches, and whether each runs.
    """
    script = shell_words.read(text, known, runs)
    found = [
        replace(
            one,
            branched=script.branched,
            optional=script.optional,
            when=script.conditions.get(_line_of(one.words), ""),
        )
        for one in _inner(_split(script.words, script.variables))
    ]
    return [*found, *_within(found), *arguments(script.variables, script.branched)]


# --attention-config '{"backend": "FLASHINFER"}'
def _of_json(given: Setting, key: str) -> dict[str, Setting]:
    """The settings in an option whose value is an object of JSON; none for another value."""
    try:
        found = json.loads(given.text) if given.text.startswith("{") else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        f"{key}.{name}": Setting(
            f"{key}.{name}",
            value if isinstance(value, (str, int, float, bool)) else json.dumps(value),
            given.line,
            f"{name} of {given.name}",
        )
        for name, value in found.items()
    }


def _line_of(words: Sequence[tuple[str, int]]) -> int:
    return words[0][1] if words else 0


def ways(
    text: str, lines: Collection[int], known: Mapping[str, str] | None = None
) -> list[tuple[Mapping[int, bool], list[Command]]]:
    """The commands of a shell script for each way through branches: lines, and whether each runs.

    `lines`: those of assignments in branches that matter. It is empty if there are too many ways.
    """
    script = shell_words.read(text, known)
    several = [line for found in script.branched.values() for line in found]
    if not lines or len(lines) > _MOST_WAYS or any(several.count(one) > 1 for one in lines):
        return []
    if any(one not in script.arms for one in lines):  # one that only another way leads to
        return []
    arms = {line: script.arms[line] for line in lines}
    each = (
        dict(zip(sorted(lines), taken, strict=True))
        for taken in product((False, True), repeat=len(lines))
    )
    return [
        (runs, of_shell(text, known, runs)) for runs in each if possible(runs, arms, script.whole)
    ]


def of_docker(text: str) -> list[Command]:
    """The start command of a Dockerfile."""
    variables = image_variables(text)
    starts = [one for one in _instructions(text) if one[0] in ("CMD", "ENTRYPOINT")]
    words = [(word, line) for _, rest, line in starts for word in _words(rest)]
    filled = [part for one in words for part in _set_here(one, variables)]
    images = (one for one in _instructions(text) if one[0] == "FROM" and one[1].strip())
    image = [(one.split()[0], line) for _, one, line in images][-1:]
    if not any(one[0] == "ENTRYPOINT" for one in starts) and filled and filled[0][0][:1] == "-":
        filled = [*image, *filled]  # CMD ["--model", "a/b"]: options of the image's own program
    handed = [replace(one, words=(*image, *one.words)) for one in arguments(variables)]
    filled += _handed_options(variables) if filled else []
    before = next((_words(rest) for name, rest, _ in starts if name == "ENTRYPOINT"), [])
    script = before[-1] if before and before[-1].endswith(".sh") else ""
    folders = [rest.strip() for name, rest, _ in _instructions(text) if name == "WORKDIR"]
    folder = folders[-1] if folders else ""
    return [
        replace(one, contained=True, outside=script, folder=one.folder or folder)
        for one in (*_split(filled, variables), *handed)
    ]


def image_variables(text: str) -> dict[str, Setting]:
    """The variables that a Dockerfile sets."""
    variables: dict[str, Setting] = {}
    for name, rest, line in _instructions(text):
        if name in ("ENV", "ARG"):
            pairs = _PAIR.findall(rest) or [rest.partition(" ")[::2]]
            for key, value in pairs:
                variables[key] = Setting(key, value.strip("\"' "), line)
    return variables


def _instructions(text: str) -> Iterator[tuple[str, str, int]]:
    """Name, arguments and line of the instructions of a Dockerfile that are of use."""
    pending, start, ends = "", 1, ""
    for number, line in enumerate(text.splitlines(), 1):
        if ends:  # the text of a file or script inside RUN or COPY
            ends = "" if line.strip() == ends else ends
            continue
        start = start if pending else number
        pending += line.strip().removesuffix("\\") + " "
        inner = _HEREDOC.search(line)
        ends = inner[1] if inner is not None else ""
        if line.rstrip().endswith("\\"):
            continue
        match = _DOCKER.match(pending)
        pending = ""
        if match is not None:
            yield match[1].upper(), match[2], start


def _set_here(word: tuple[str, int], variables: Mapping[str, Setting]) -> list[tuple[str, int]]:
    """A word, or the words of the variable that it is."""
    value = variables.get(word[0].strip("${}"))
    if value is None or not _OPEN.fullmatch(word[0]):
        return [word]
    return [(one, value.line) for one in value.text.split()]


def _words(text: str) -> list[str]:
    """The words of a command, as a JSON list or as a shell line."""
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, list):
            return [str(one) for one in found]
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _words_of_line(line: str) -> list[str]:
    """The words of a line; an object of JSON by itself is one."""
    return [line] if line.startswith('{"') else _words(line)


def of_yaml(found: Sequence[Entry]) -> list[Command]:
    """The commands in compose files and Kubernetes manifests, one for each container."""
    containers = _Containers()
    for entry in found:
        containers.take(entry)
    commands = [*containers.commands()]
    return [*commands, *_within(commands)]


class _Containers:
    """The containers of a file, by the keys that lead to each."""

    def __init__(self) -> None:
        self._words: dict[tuple[str, ...], list[tuple[str, int]]] = {}
        self._variables: dict[tuple[str, ...], dict[str, Setting]] = {}
        self._further: dict[tuple[str, ...], list[tuple[str, int]]] = {}
        """Options beside the command, which a chart adds to it."""
        self._outside: dict[tuple[str, ...], str] = {}
        self._images: dict[tuple[str, ...], tuple[str, int]] = {}
        self._replaced: set[tuple[str, ...]] = set()
        """Those whose image's own program does not start."""
        self._name = ""
        """The variable whose value follows."""

    def take(self, entry: Entry) -> None:
        """Note what a value says of its container."""
        if "env_file" in entry.path and entry.value:
            path = entry.path[: entry.path.index("env_file")]
            self._outside.setdefault(path, entry.value)
            return
        if entry.path[-1:] in (("image",), ("repository",)) and entry.value:
            # image: vllm/vllm-openai:v0.25.0, or its `repository` and `tag`
            owner = entry.path[:-1]
            owner = owner[:-1] if owner[-1:] == ("image",) else owner
            self._images[owner] = (entry.value, entry.line)
            return
        if "extends" in entry.path and entry.value:
            self._outside.setdefault(entry.path[: entry.path.index("extends")], "`extends`")
            return
        place = next((at for at, key in enumerate(entry.path) if key in _COMMAND), -1)
        if place >= 0 and entry.path[place + 1 :] in ((), ("-",)):
            self._command(entry, place)
            return
        if place >= 0 and entry.path[-1].startswith("--") and len(entry.path) == place + 2:
            # args: {--attention-backend: FLASHINFER}
            words = self._words.setdefault(entry.path[:place], [])
            words += [(entry.path[-1], entry.line)]
            words += [(entry.value, entry.line)] if entry.value not in ("", "true") else []
            return
        place = next((at for at, key in enumerate(entry.path) if _EXTRA.search(key)), -1)
        if place >= 0 and entry.path[place + 1 :] in ((), ("-",)):
            further = self._further.setdefault(entry.path[:place], [])
            further += ((word, entry.line) for word in _words_of_line(entry.value))
            return
        place = next((at for at, key in enumerate(entry.path) if key in _ENVIRONMENT), -1)
        if place >= 0:
            self._variable(entry, place)

    def _command(self, entry: Entry, place: int) -> None:
        if entry.path[place] == ("command" if _POD & {*entry.path} else "entrypoint"):
            self._replaced.add(entry.path[:place])
        self._words.setdefault(entry.path[:place], []).extend(
            (shell_words.defaults(word), entry.line + at)
            for at, line in enumerate(entry.value.split("\n"))
            for word in _words_of_line(line.rstrip().removesuffix("\\"))
        )

    def _variable(self, entry: Entry, place: int) -> None:
        below = entry.path[place + 1 :]
        owner = self._variables.setdefault(entry.path[:place], {})
        if below == ("-", "name"):
            self._name = entry.value
        elif below == ("-", "value") and self._name:
            owner[self._name] = Setting(self._name, entry.value, entry.line)
        elif below == ("-",) and "=" in entry.value:
            key, _, value = entry.value.partition("=")
            owner[key] = Setting(key, value, entry.line)
        elif len(below) == 1 and below != ("-",):
            owner[below[0]] = Setting(below[0], entry.value, entry.line)

    def commands(self) -> Iterator[Command]:
        """The commands of all containers, in their order."""
        for one in dict.fromkeys([*self._images, *self._words, *self._variables]):
            image = [self._images[one]] if one in self._images.keys() - self._replaced else []
            more = (words for path, words in self._further.items() if path[: len(one)] == one)
            words = [*image, *self._words.get(one, []), *(each for part in more for each in part)]
            if words or one in self._variables:
                yield from _of_container(
                    one, words, self._variables.get(one, {}), self._outside.get(one, "")
                )


def _of_container(
    path: tuple[str, ...],
    words: list[tuple[str, int]],
    variables: Mapping[str, Setting],
    outside: str,
) -> Iterator[Command]:
    """The commands that a container may start: its own, and one of the variable with arguments."""
    if len(words) == 1 and not variables and not {*_CONTAINERS} & {*path}:
        return  # an image in values of Helm: what starts it is elsewhere
    names = [name for name in ARGUMENTS if name in variables]
    added = _handed_options(variables)
    # services: {auto: {…}, cpu: {…}}: each is started by itself.
    when = f"the service is {path[1]}" if len(path) == 2 and path[0] == "services" else ""
    yield Command((*words, *added), variables, outside=outside, contained=True, when=when)
    if names:
        yield Command(((names[0], variables[names[0]].line), *added), {}, when=when)


def _handed_options(variables: Mapping[str, Setting]) -> list[tuple[str, int]]:
    """The options in variables that the start of an image passes on: CLI_ARGS, COMFYUI_ARGS."""
    return [
        (word, one.line)
        for name, one in variables.items()
        if name in ARGUMENTS or (_PASSED_ON.search(name) and one.text[:1] in ("-", "$"))
        for word in one.text.split()
    ]


def _split(words: list[tuple[str, int]], variables: Mapping[str, Setting]) -> Iterator[Command]:
    """One command after another."""
    current: list[tuple[str, int]] = []
    # cd ComfyUI; python main.py
    parted = [
        each
        for word, line in words
        for each in (
            ((word[:-1], line), (";", line)) if word[1:].endswith(";") else ((word, line),)
        )
    ]
    folder = ""
    for word, line in [*parted, (";", 0)]:
        if word in (";", "&&", "||", "|", "&"):
            if current:
                yield Command(tuple(current), variables, folder=folder)
                folder = _entered([one for one, _ in current], folder)
            current = []
        else:
            current.append((word, line))


def _entered(words: Sequence[str], folder: str) -> str:
    """The folder behind a command, which may change it."""
    at = next((at for at, word in enumerate(words[:4]) if word.lower() in _ENTERS), -1)
    if at < 0:
        return folder
    target = words[-1] if len(words) > at + 1 else ""
    return "" if target.startswith("..") else target.replace("\\", "/")


def arguments(
    variables: Mapping[str, Setting], branched: Mapping[str, Sequence[int]] | None = None
) -> Iterator[Command]:
    """The commands that variables with options stand for.

    `branched`: variables that branches set, with the lines.
    """
    for name in ARGUMENTS:
        one = variables.get(name)
        if one is not None and name in (branched or {}):
            # What the branches leave of it is open: a list of this name stands for it.
            yield Command(((name, one.line), (f"${name}", one.line)), {}, branched=branched or {})
        elif one is not None:
            words = [(name, one.line), *((word, one.line) for word in one.text.split())]
            yield Command(tuple(words), {})


def _inner(found: Iterable[Command]) -> Iterator[Command]:
    """The commands, with what `eval` and variables hold, and what containers start."""
    for command in found:
        words = command.words
        if words[0][0] == "eval":
            words = words[1:]
        if not words:
            continue
        first, line = words[0]
        # CMD="vllm serve a/b"; eval $CMD
        if " " in first and len(words) < _DEEPEST:
            parts = [(word, line) for word in _words(first)]
            words = (*parts, *words[1:])
        names = [word for word, _ in words[:4]]
        at = names.index("run") if "run" in names else 0
        if at and any(one in names[:at] for one in ("docker", "podman", "nvidia-docker")):
            own = dict(_handed_over(words))
            inner = _contained(words[at + 1 :])
            variables = {**command.variables, **own}
            inner = (*inner, *_handed_options(own))
            yield replace(command, words=inner, variables=variables, contained=True)
        else:
            yield replace(command, words=words)


# docker run -e NAME=VALUE --entrypoint PROGRAM IMAGE …
def _contained(words: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """What `docker run` starts: the program of the image or the one that is named, its options."""
    start: list[tuple[str, int]] = []
    open_: list[tuple[str, int]] = []
    at = 0
    while at < len(words):
        word = words[at][0]
        if _OWN.fullmatch(word):
            open_ += [words[at]] if _MAY_SET.match(word) else []
            at += 1
        elif not word.startswith("-"):
            break
        else:
            if word == "--entrypoint":
                start = [*words[at + 1 : at + 2]]
            elif word.startswith("--entrypoint="):
                start = [(word.partition("=")[2], words[at][1])]
            at += 1 if _BARE.fullmatch(word) else 2
    idle = at + 1 < len(words) and words[at + 1][0].rpartition("/")[2] in _IDLE
    image = words[at : at + 1] if not (start or idle) else ()
    return (*image, *start, *words[at + 1 :], *open_)


# bash -c "cd /app && python main.py"
def _within(found: Sequence[Command], depth: int = 0) -> Iterator[Command]:
    """Commands in one quoted word."""
    for command in found:
        names = [word for word, _ in command.words]
        for at, (word, line) in enumerate(command.words[1:], 1):
            if names[at - 1].lower() in ("-c", "-lc", "-ic", "/c", "/k") and " " in word:
                script = shell_words.read(word)
                inner = [(each, line + inside - 1) for each, inside in script.words]
                below = [
                    replace(
                        one,
                        branched=command.branched,
                        optional=command.optional,
                        when=command.when,
                    )
                    for one in _inner(_split(inner, {**command.variables, **script.variables}))
                ]
                yield from below
                if depth < _DEEPEST:
                    yield from _within(below, depth + 1)


def _handed_over(words: Sequence[tuple[str, int]]) -> Iterator[tuple[str, Setting]]:
    """The variables of a container, from `-e NAME=VALUE` and `--env=NAME=VALUE`."""
    before = ""
    for word, line in words:
        given = word if before in ("-e", "--env") else word.partition("--env=")[2]
        name, equals, value = given.partition("=")
        if equals and name.isidentifier():
            yield name, Setting(name, value, line)
        before = word
