"""Finds files of installed packages that are gone, cut short, or not this user's to read.

Their RECORD lists them.

Only packages that attention needs are looked at, and of these only what an import may execute. A
source of another size counts only if it is empty, ends within a line, cannot be Python, or imports
a name of its own package that is not there: people edit installed files. Without a RECORD only
`__init__.py` is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from attn_doctor.facts import IncompletePackage
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Distribution, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.interpreter.shadowing import MODULES

#: Further packages that the known ones import, or that huggingface-hub does.
_FURTHER = (
    "anyio", "certifi", "charset-normalizer", "filelock", "fsspec", "h11", "httpcore", "httpx",
    "idna", "importlib-metadata", "packaging", "peft", "pillow", "pyyaml", "regex", "requests",
    "tokenizers", "tqdm", "typing-extensions", "urllib3", "zipp",
)  # fmt: skip
#: Seconds for each package; a cold disk takes longer.
SECONDS = 0.5
#: Files of one package that are read because their size differs.
MOST = 20


#: The fields of `Facts` that `read` returns.
FIELDS = ("incomplete_packages", "unrecorded_packages", "unreadable_files")
#: What `Host.changed_files` says of a file that this user may not read.
_UNREADABLE = -4


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return the fields `FIELDS` of `Facts`."""
    unread = gaps.reasons.get("python.distribution_count", "")
    folders = [one for one in site.folders if _denied(host.list, one)]
    if unread:
        for field in FIELDS:
            gaps.add(field, unread)
        return {**dict.fromkeys(FIELDS), "unreadable_files": tuple(folders) or None}
    known = {name for names in MODULES.values() for name in names} | {*_FURTHER}
    chosen = [
        one
        for one in site.distributions
        if (one.name in known or one.name.startswith("nvidia-")) and one.info.endswith(".dist-info")
    ]
    listed = [(one, host.try_list(one.info)) for one in chosen]
    # A folder of metadata that cannot be listed says nothing.
    without = [one for one, names in listed if names and "RECORD" not in names]
    changed = _changed(host, [one for one in chosen if one not in without])
    changed = _certain(host, site, changed)
    return {
        "unreadable_files": (*folders, *_unreadable(host, changed)),
        "incomplete_packages": (
            *_incomplete(host, changed),
            *_without_init(host, without),
            *_numpy(host, site),
        ),
        "unrecorded_packages": tuple(one.name for one in without),
    }


def _without_init(host: Host, chosen: list[Distribution]) -> Iterator[IncompletePackage]:
    """Yield the packages that Python imports as empty ones, without an error."""
    for one in chosen:
        for module, names in MODULES.items():
            there = host.try_list(host.join(one.site, module)) if one.name in names else ()
            if there and "__init__.py" not in there:
                yield IncompletePackage(
                    package=one.name,
                    version=one.version,
                    file=f"{module}/__init__.py",
                    reason="gone",
                    files=1,
                    link="",
                )


def _numpy(host: Host, site: Site) -> Iterator[IncompletePackage]:
    """Yield a numpy folder without metadata and `__init__.py`, as some uninstalls leave it.

    torch continues without numpy, and not with an empty one.
    """
    there = site.module(host, "numpy") if site.distributions.get("numpy") is None else ""
    names = host.try_list(there) if there else ()
    if names and "__init__.py" not in names:
        yield IncompletePackage(
            package="numpy", version="", file="numpy/__init__.py", reason="gone", files=1, link=""
        )


def _denied(ask: Callable[[str], object], path: str) -> bool:
    """Whether this user may not read the file or folder."""
    try:
        ask(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


#: Distributions with the files that differ from their RECORD.
_Changed = list[tuple[Distribution, tuple[tuple[str, int], ...]]]


def _changed(host: Host, chosen: list[Distribution]) -> _Changed:
    found: _Changed = []
    for one in chosen:
        try:
            found.append((one, host.changed_files(one.info, SECONDS * host.patience)))
        except PermissionError:
            found.append((one, ((host.join(one.info, "RECORD"), _UNREADABLE),)))
        except OSError:
            continue
    return found


def _certain(host: Host, site: Site, changed: _Changed) -> _Changed:
    """Leave out what only one of several metadata of a package in one folder says.

    Such metadata list the files of a version that was replaced.
    """
    kept: _Changed = []
    for one, files in changed:
        others = [
            other
            for other in site.distributions.copies(one.name)
            if other.site == one.site and other.info != one.info
            if "RECORD" in host.try_list(other.info)
        ]
        for _, same in _changed(host, others):
            paths = {path for path, _ in same}
            files = tuple(file for file in files if file[0] in paths)
        kept.append((one, files))
    return kept


def _unreadable(host: Host, changed: _Changed) -> Iterator[str]:
    """Yield the first file of each package that this user may not read."""
    for one, files in changed:
        named = [host.join(one.site, path) for path, size in files if size == _UNREADABLE]
        metadata = host.join(one.info, "METADATA")
        if named or _denied(host.head, metadata):
            yield next(iter(named), metadata)


def _incomplete(host: Host, changed: _Changed) -> Iterator[IncompletePackage]:
    for one, files in changed:
        faults = [(path, _WORDS[size]) for path, size in files if size in _WORDS]
        faults = [each for each in faults if each[0] != _SHARED]
        known = (*_WORDS, _UNREADABLE)
        differ = [(path, size >= 0) for path, size in files if size not in known]
        for path, shorter in differ[:MOST]:
            fault = _damage(host, host.join(one.site, path), shorter)
            if fault:
                faults.append((path, fault))
        if faults:
            path, reason = faults[0]
            yield IncompletePackage(
                package=one.name,
                version=one.version,
                file=path,
                reason=reason,
                files=len(faults),
                link=_link_to_nothing(host, one.site, path) if reason == _WORDS[-1] else "",
            )


def _link_to_nothing(host: Host, site: str, path: str) -> str:
    """Return a folder above a file of a RECORD that is a link to nothing; empty if none is."""
    folder = site
    for part in path.split("/")[:-1]:
        inside = host.join(folder, part)
        if part in host.try_list(folder) and host.try_stat(inside) is None:
            return inside
        folder = inside
    return ""


#: An empty file of all CUDA wheels, which the removal of one deletes. Python needs no such file.
_SHARED = "nvidia/__init__.py"
#: A negative size → what it means.
_WORDS = {-1: "gone", -2: "for another processor", -5: "for another system"}
#: What Git writes into a file where two changes meet.
_CONFLICT = "<<<<<<< "


def _damage(host: Host, path: str, shorter: bool) -> str:
    """Return how a file of another size is damaged; empty if it may be edited."""
    if not path.endswith(".py"):
        try:
            return "cut short" if host.binary(path).damaged else ""
        except OSError:
            return ""
    text = host.try_read(path, 1 << 20)
    if not text.strip():
        return "empty"
    if "\0" in text or text.startswith("\ufffd"):
        return "not text"
    if any(line.startswith(_CONFLICT) for line in text.splitlines()):
        return "with a conflict of Git"
    if shorter and not text.endswith("\n"):
        return "cut short"
    return "with an import of what is not there" if _imports_nothing(host, path, text) else ""


#: from ..utils import (deprecate, logging)
_IMPORT = re.compile(r"(?m)^from (\.+)([\w.]*) import (\([^)]*\)|[^\n(]+)")
#: What lets a module have names that its text does not have.
_DYNAMIC = ("__getattr__", "_LazyModule", "import *", "globals()")


def _imports_nothing(host: Host, path: str, text: str) -> bool:
    """Whether a module imports from its package what this does not have, as another release does.

    Looked at are the statements at the left margin.
    """
    for dots, module, names in _IMPORT.findall(text):
        folder = host.parent(path)
        for _ in dots[1:]:
            folder = host.parent(folder)
        target = host.join(folder, *filter(None, module.split(".")))
        package = host.join(target, "__init__.py")
        source = next(filter(host.is_file, (package, f"{target}.py")), "")
        if not source:
            return not host.is_dir(target) and not _compiled(host, target)
        there = host.try_read(source, 1 << 20)
        if any(one in there for one in _DYNAMIC):
            continue
        wanted = re.findall(r"(\w+)(?:\s+as\s+\w+)?", re.sub(r"#[^\n]*", "", names))
        beside = {one.partition(".")[0] for one in host.try_list(target)}
        if any(one not in beside and not re.search(rf"\b{one}\b", there) for one in wanted):
            return True
    return False


def _compiled(host: Host, module: str) -> bool:
    """Whether a module is an extension."""
    name = module.rpartition("/")[2].rpartition("\\")[2]
    return any(one.startswith(f"{name}.") for one in host.try_list(host.parent(module)))
