"""Command lines and environment variables, from the files that hold them: scripts, containers."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from attn_doctor.configs.readers import shell_words
from attn_doctor.configs.readers.settings import Setting
from attn_doctor.configs.readers.yaml_lines import Entry

_SET = re.compile(r'^@?set\s+"?([A-Za-z_]\w{0,100})=([^"\r\n]{0,4000})"?\s*$', re.IGNORECASE)
_REMARK = re.compile(r"^(?:rem\b|::|@rem\b)", re.IGNORECASE)
_DOCKER = re.compile(r"^\s*(ENV|CMD|ENTRYPOINT|ARG)\s+(.*)$", re.IGNORECASE)
_PAIR = re.compile(r"""([A-Za-z_]\w{0,100})=("[^"]{0,2000}"|'[^']{0,2000}'|\S{0,2000})""")
#: Keys of YAML below which words of a command are.
_COMMAND = ("command", "args", "entrypoint", "cmd", "run")
_ENVIRONMENT = ("environment", "env", "envs", "env_vars", "environment_variables")
#: A variable with options of Stable Diffusion web UIs.
_ARGUMENTS = "COMMANDLINE_ARGS"


class Command(Struct, frozen=True):
    """One command with the variables of its environment."""

    words: tuple[tuple[str, int], ...]
    """Each with its line."""
    variables: Mapping[str, Setting] = {}

    def options(self) -> dict[str, Setting]:
        """Its options by name, `-` in names read as `_`."""
        found = shell_words.options_of([*self.words])
        return {
            name.replace("-", "_"): Setting(
                name.replace("-", "_"), one.value, one.line, one.written
            )
            for name, one in found.items()
        }


def of_shell(text: str) -> list[Command]:
    """The commands of a shell script; one with all words comes last."""
    script = shell_words.read(text)
    return [*_split(script.words, script.variables), *_arguments(script.variables)]


def of_batch(text: str) -> list[Command]:
    """The commands of a Windows batch file or of a PowerShell script."""
    variables: dict[str, Setting] = {}
    kept = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        match = _SET.match(stripped)
        if match:
            variables[match[1]] = Setting(match[1], match[2].strip(), number)
            stripped = ""
        if _REMARK.match(stripped):
            stripped = ""
        stripped = stripped.removesuffix("^").removesuffix("`") + (
            "\\" if stripped.endswith(("^", "`")) else ""
        )
        # A path of Windows: its backslashes quote nothing.
        kept.append(re.sub(r"\\(?!$)", "/", stripped))
    script = shell_words.read("\n".join(kept))
    known = variables | script.variables
    return [*_split(script.words, known), *_arguments(known)]


def of_docker(text: str) -> list[Command]:
    """The start command of a Dockerfile."""
    variables: dict[str, Setting] = {}
    words: list[tuple[str, int]] = []
    pending, start = "", 1
    for number, line in enumerate(text.splitlines(), 1):
        start = start if pending else number
        pending += line.strip().removesuffix("\\") + " "
        if line.rstrip().endswith("\\"):
            continue
        match = _DOCKER.match(pending)
        pending = ""
        if match is None:
            continue
        if match[1].upper() in ("ENV", "ARG"):
            pairs = _PAIR.findall(match[2]) or [match[2].partition(" ")[::2]]
            for name, value in pairs:
                variables[name] = Setting(name, value.strip("\"' "), start)
        else:
            words += [(word, start) for word in _words(match[2])]
    return [Command(tuple(words), variables), *_arguments(variables)]


def _words(text: str) -> list[str]:
    """The words of a command, as a JSON list or as a shell line."""
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if isinstance(found, list):
            return [str(one) for one in found]
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def of_yaml(found: Sequence[Entry]) -> list[Command]:
    """The commands in compose files and Kubernetes manifests, one for each container."""
    words: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    variables: dict[tuple[str, ...], dict[str, Setting]] = {}
    name = ""
    for entry in found:
        if entry.path[-1:] == ("image",) and entry.value:
            # vllm/vllm-openai:v0.25.0
            words.setdefault(entry.path[:-1], []).insert(0, (entry.value, entry.line))
            continue
        place = next((at for at, key in enumerate(entry.path) if key in _COMMAND), -1)
        if place >= 0 and entry.path[place + 1 :] in ((), ("-",)):
            several = [*enumerate(entry.value.split("\n"))]
            words.setdefault(entry.path[:place], []).extend(
                (word, entry.line + at) for at, line in several for word in _words(line)
            )
            continue
        place = next((at for at, key in enumerate(entry.path) if key in _ENVIRONMENT), -1)
        if place < 0:
            continue
        below, owner = entry.path[place + 1 :], variables.setdefault(entry.path[:place], {})
        if below == ("-", "name"):
            name = entry.value
        elif below == ("-", "value") and name:
            owner[name] = Setting(name, entry.value, entry.line)
        elif below == ("-",) and "=" in entry.value:
            key, _, value = entry.value.partition("=")
            owner[key] = Setting(key, value, entry.line)
        elif len(below) == 1 and below != ("-",):
            owner[below[0]] = Setting(below[0], entry.value, entry.line)
    owners = dict.fromkeys([*words, *variables])
    commands = [Command(tuple(words.get(one, ())), variables.get(one, {})) for one in owners]
    return [*commands, *(more for one in commands for more in _arguments(one.variables))]


def _split(words: list[tuple[str, int]], variables: Mapping[str, Setting]) -> Iterator[Command]:
    """One command after another."""
    current: list[tuple[str, int]] = []
    for word, line in [*words, (";", 0)]:
        if word in (";", "&&", "||", "|", "&"):
            if current:
                yield Command(tuple(current), variables)
            current = []
        else:
            current.append((word, line))


def _arguments(variables: Mapping[str, Setting]) -> Iterator[Command]:
    one = variables.get(_ARGUMENTS)
    if one is not None:
        words = [(_ARGUMENTS, one.line), *((word, one.line) for word in one.text.split())]
        yield Command(tuple(words), {})
