"""A rule's pip command in the words of what manages the examined environment.

That is pip by the interpreter's full path, uv where it has no pip, conda or pixi for packages that
conda installed. What an environment lacks before that comes first: pip itself, or an environment
for a Python that belongs to the system.
"""

from __future__ import annotations

import ntpath
import re
from collections.abc import Sequence

from attn_doctor.facts import Facts, Python
from attn_doctor.requirement import normal_name

#: A requirement with a name: what an index, conda and pixi know. A URL or a path has none.
_REQUIREMENT = r"([A-Za-z0-9][\w.-]*)(\[[^\]]*\])?([<>=!~][^@]*)?"
#: Distributions that conda has under another name.
CONDA_NAMES = {"torch": "pytorch"}
#: Options of pip that take a value in the next word.
_VALUED = ("--index-url", "--extra-index-url", "-i", "--find-links", "-f", "-c", "--constraint")
#: The environment that is made beside a Python that belongs to the system.
_OWN = ".venv"


def commands(words: Sequence[str], facts: Facts) -> list[tuple[str, ...]]:
    """Return the commands that do what `pip …` does, in order; at least one."""
    python = facts.python
    if len(words) < 2 or not python.path:
        return [tuple(words)]
    changing = words[1] in ("install", "uninstall")
    if changing and (named := conda_named(words, facts)):
        return [conda_command(words, named, python.prefix or "")]
    if not changing or not python.externally_managed:
        return [*_pip_first(python), _direct(words, facts)]
    if words[1] == "install" and not keeps_system_packages(facts):
        return _in_own_environment(words, facts)
    return [*_pip_first(python), (*_direct(words, facts), "--break-system-packages")]


def obstacle(facts: Facts) -> str:
    """Return why nothing can be installed into the examined environment; empty if it can."""
    python = facts.python
    where = python.prefix or python.path
    if not python.path:
        return "the interpreter to install for is unknown; name it with --python"
    if python.externally_managed:
        return (
            f"{where} belongs to the system's package manager (PEP 668), so attn-doctor"
            " installs nothing there; make an environment (`python3 -m venv`) and name it with"
            " --python"
        )
    if python.site_packages_writable is False:
        site = (python.site_packages or (where,))[0]
        return (
            f"{site} cannot be written by this user; use an environment of your own, and name it"
            " with --python"
        )
    for folder in facts.system.unreachable_folders or ():
        return (
            f"{folder} does not answer, and an installer would wait for it; mount it again, or"
            " unmount it with `umount -l`"
        )
    if python.pip == "" and not python.uv and python.environment == "embeddable":
        return (
            f"{where} has no pip, and an embeddable Python has no ensurepip: install pip with"
            " get-pip.py (https://pip.pypa.io/en/stable/installation/)"
        )
    if python.pip == "" and not python.uv:
        return f"{where} has no pip, and no uv is on PATH: run `python -m ensurepip`, or install uv"
    return ""


def keeps_system_packages(facts: Facts) -> bool:
    """Whether pip installed torch into a Python of the system: then the user wants it there."""
    return facts.torch.installed is True and facts.torch.source not in (None, "system", "conda")


def _direct(words: Sequence[str], facts: Facts) -> tuple[str, ...]:
    """The command with pip of the interpreter, or with uv for an environment without pip."""
    python = facts.python
    path = python.path or "python"
    if python.pip == "" and python.uv and not pixi_project(python.prefix or ""):
        if words[1] == "cache":
            return (python.uv, "cache", "clean")
        return (python.uv, "pip", words[1], "--python", path, *_for_uv(words))
    return (path, *_without_user_site(python), "-m", "pip", *_overwriting(words, facts)[1:])


def _overwriting(words: Sequence[str], facts: Facts) -> Sequence[str]:
    """The command with what lets pip replace a package without `RECORD`; uv needs no option."""
    if words[1] != "install" or not {*names(words)} & {*(facts.unrecorded_packages or ())}:
        return words
    rest = [word for word in words[2:] if word != "--force-reinstall"]
    return (*words[:2], "--ignore-installed", *rest)


def _without_user_site(python: Python) -> tuple[str, ...]:
    """The option with which portable builds start their Python; else it sees the user's packages.

    Without it pip counts a package of the user's as installed, and ComfyUI does not see it.
    """
    return ("-s",) if python.environment == "embeddable" else ()


def _for_uv(words: Sequence[str]) -> list[str]:
    """The arguments for uv, which asks nothing.

    Its `--reinstall` is pip's `--force-reinstall`: the dependencies too, which may be damaged. Its
    `--upgrade` is not pip's: it takes the newest release of each dependency, torch too.
    """
    arguments: list[str] = []
    for word in words[2:]:
        if word in ("-U", "--upgrade"):
            upgraded = filter(re.compile(r"[a-z0-9-]+").fullmatch, names(words))
            arguments += [part for name in upgraded for part in ("--upgrade-package", name)]
        elif word not in ("-y", "--yes"):
            arguments.append(word)
    if words[1] == "install" and "--no-deps" not in words:
        return ["--reinstall" if word == "--force-reinstall" else word for word in arguments]
    return arguments


def _pip_first(python: Python) -> list[tuple[str, ...]]:
    """The command that gives an environment its pip, if it has neither pip nor uv."""
    if python.pip != "":
        return []
    if project := pixi_project(python.prefix or ""):
        return [("pixi", "add", "--manifest-path", project, "pip")]
    if python.uv:
        return []
    if python.environment == "conda":
        return [("conda", "install", "-y", "-p", python.prefix or "", "pip")]
    if python.environment == "embeddable":
        return []  # it has no ensurepip
    return [(python.path or "python", "-m", "ensurepip")]


def _in_own_environment(words: Sequence[str], facts: Facts) -> list[tuple[str, ...]]:
    """An environment in this folder first: the system's package manager forbids to install."""
    python = facts.python
    windows = facts.system.os == "windows"
    own = ntpath.join(_OWN, "Scripts", "python.exe") if windows else f"{_OWN}/bin/python"
    path = python.path or "python"
    if python.uv:
        first = (python.uv, "venv", "--allow-existing", "--python", path, _OWN)
        return [first, (python.uv, "pip", words[1], "--python", own, *_for_uv(words))]
    return [(path, "-m", "venv", _OWN), (own, "-m", "pip", *words[1:])]


def names(words: Sequence[str]) -> list[str]:
    """Return the packages that a pip command names; a URL or a path counts as it is written."""
    found: list[str] = []
    rest = iter(words[2:])
    for word in rest:
        if word in _VALUED:
            next(rest, "")
        elif not word.startswith("-"):
            match = re.fullmatch(_REQUIREMENT, word)
            found.append(normal_name(match[1]) if match else word)
    return found


def owned_by_conda(facts: Facts) -> dict[str, str]:
    """Return the packages with facts of their own that conda installed, without their channels."""
    found = {}
    for name in facts.__struct_fields__:
        one = getattr(facts, name)
        if getattr(one, "source", None) == "conda":
            found[normal_name(getattr(one, "distribution", None) or name)] = ""
    return found


def conda_named(words: Sequence[str], facts: Facts) -> list[str]:
    """Return the packages of a pip command that conda installed here: pip must not change them."""
    owned = owned_by_conda(facts)
    return [name for name in names(words) if name in owned]


def conda_command(
    words: Sequence[str], named: Sequence[str], prefix: str, channels: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the command of conda or pixi for the packages `named` of a pip command."""
    asked = {}
    for word in words[2:]:
        if (match := re.fullmatch(_REQUIREMENT, word)) and normal_name(match[1]) in named:
            asked[normal_name(match[1])] = match[3] or ""
    adds = words[1] == "install"
    specs = [_conda_spec(name, asked.get(name, "") if adds else "") for name in named]
    if project := pixi_project(prefix):
        return ("pixi", "add" if adds else "remove", "--manifest-path", project, *specs)
    where = ("-p", prefix) if prefix else ()
    sources = [part for one in channels for part in ("-c", one)] if adds else []
    return ("conda", "install" if adds else "remove", *where, *sources, *specs)


def _conda_spec(name: str, specifier: str) -> str:
    """A requirement for conda, which knows no `==2.11.*` and no local version such as `+cu130`."""
    parts = []
    for part in filter(None, specifier.split(",")):
        part = part.partition("+")[0].strip()
        parts.append("=" + part[2:].removesuffix(".*") if part.startswith("==") else part)
    return CONDA_NAMES.get(name, name) + ",".join(parts)


def pixi_project(prefix: str) -> str:
    """Return the folder of the pixi project that an environment belongs to; empty if none."""
    match = re.fullmatch(r"(.+)[/\\]\.pixi[/\\]envs[/\\][^/\\]+", prefix)
    return match[1] if match else ""
