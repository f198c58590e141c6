"""Decides which changes of an environment are an installer's.

While an installer runs, the user may work in the same environment; after a run that was killed,
the user may have gone on before `fix undo`. So a changed path is the installer's only if it belongs
to a distribution that the installer changed. After an installer that was stopped, the metadata of a
distribution may be missing: then its folder and the time tell.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

from msgspec import Struct

from attn_doctor.fixes import link_copy
from attn_doctor.fixes.distributions import (
    info_folders,
    info_name,
    installed,
    owners,
)
from attn_doctor.fixes.path_state import Changes, Item, state_of
from attn_doctor.requirement import normal_name

#: Seconds after the last sign of life of a run during which its installer may have written.
_MARGIN = 0.3
#: What pip prints about the distributions that it changes, before it changes them.
_PIP_LINES = re.compile(
    r"^\s*(?:Installing collected packages: (.+)|Found existing installation: (\S+) )", re.MULTILINE
)
#: The end of the path of the file that names what installed a distribution.
_INSTALLER = os.path.join(".dist-info", "INSTALLER")
_PIP_END = re.compile(r"^\s*Successfully installed (.+)", re.MULTILINE)
#: `` + torch==2.11.0`` as uv prints it, at its end.
UV_LINE = re.compile(r"\s*([+~-]) ([A-Za-z0-9_.-]+)(?:==(\S+)| @ \S+|)(?: \(from .*\))?")


class Part(Struct, frozen=True):
    """One folder of an environment and its copy from before a step."""

    folder: str
    copy: str


class Stop(Struct, frozen=True):
    """The end of an installer that was stopped."""

    time: float = float("inf")
    """Its last sign of life, in seconds since 1970; infinite if it was alive just now."""

    def after(self, path: str, margin: float = _MARGIN) -> bool:
        """What is at `path` was put there later."""
        try:
            return os.lstat(path).st_ctime > self.time + margin
        except OSError:
            return False


class Printed(Struct, frozen=True):
    """The distributions that an installer named in its output."""

    changed: frozenset[str] = frozenset()
    installed: frozenset[str] = frozenset()
    """Those that it says it has installed; pip and uv say so at their end."""
    listed: frozenset[str] = frozenset()
    """Those that pip says it is going to install."""


def read_output(log: str) -> Printed:
    """Return what the output of pip or uv says about the distributions that it changes."""
    changed: set[str] = set()
    done: set[str] = set()
    listed: set[str] = set()
    for match in _PIP_LINES.finditer(log):
        names = {normal_name(one.strip()) for one in (match[1] or match[2]).split(",")}
        changed |= names
        listed |= names if match[1] else set()
    for match in _PIP_END.finditer(log):
        done |= {normal_name(one.rpartition("-")[0]) for one in match[1].split()}
    for line in filter(None, map(UV_LINE.fullmatch, log.splitlines())):
        changed.add(normal_name(line[2]))
        if line[1] in "+~":
            done.add(normal_name(line[2]))
    return Printed(frozenset(changed | done), frozenset(done), frozenset(listed))


def changes_of(
    parts: Sequence[Part],
    names: Collection[str],
    printed: Printed,
    stopped: Stop | None = None,
) -> Changes:
    """Return what an installer has changed.

    `names`: the distributions that it was asked to change; what it `printed` names the others.
    `stopped`: it did not run to its end.
    """
    before = installed(one.copy for one in parts)
    now = installed(one.folder for one in parts)
    wanted = {*names, *printed.changed}
    differing = {
        os.path.join(part.folder, path): os.path.join(part.copy, path)
        for part in parts
        for path in link_copy.changed(part.folder, part.copy)
    }
    since: set[str] = set()
    if stopped:
        missing = wanted & (before.keys() - now.keys())
        left = [path for path in differing if _is_file(path) and not stopped.after(path)]
        gone = {one for one in missing & printed.listed if not _has_files(parts, one, left)}
        since = _installed_since(parts, wanted, stopped)
        since |= _removed_since(parts, missing, gone, printed, stopped)
    ours = {one for one in wanted - since if before.get(one) != now.get(one)}
    # A whole folder, such as `share`, that was not there.
    differing |= {
        part.folder: part.copy
        for part in parts
        if os.path.isdir(part.folder) and not os.path.lexists(part.copy)
    }
    owner = _Owners(parts)
    mine = {path: name for path in differing for name in owner(path) if name in ours}
    later: list[str] = []
    unclear: list[str] = []
    if stopped:
        later = [
            path
            for path in mine
            if (_is_file(path) and stopped.after(path)) or owner.deleted_since(path, stopped)
        ]
        tops = _tops(parts, mine, ours | (wanted - since - now.keys()))
        ownerless = [path for path in differing if path not in mine and not owner(path)]
        mine |= {
            path: "" for path in ownerless if _top(parts, path) in tops and not stopped.after(path)
        }
        unclear = [one for one in ownerless if one not in mine and _is_unclear(one, stopped)]
    mine |= _folders(differing, mine)
    items = [
        Item(path, state_of(copy), state_of(path), copy * os.path.lexists(copy), mine[path])
        for path, copy in differing.items()
        if path in mine and path not in later
    ]
    return Changes(
        items=tuple(one for one in items if not one.before.same(one.after)),
        before={one: before[one] for one in sorted(ours & before.keys())},
        after={one: now[one] for one in sorted(ours & now.keys())},
        since=(*sorted(one for one in since if before.get(one) != now.get(one)), *sorted(later)),
        unclear=tuple(_topmost(unclear)),
    )


def _installed_since(parts: Sequence[Part], names: Collection[str], stopped: Stop) -> set[str]:
    """The distributions that were installed after the stop.

    RECORD is written anew by every installer; other files may be links to a cache.
    """
    found = set()
    for part in parts:
        for name, info in info_folders(part.folder).items():
            path = os.path.join(info, "RECORD")
            recorded = os.stat(path).st_mtime if os.path.exists(path) else 0.0
            if name in names and recorded > stopped.time + _MARGIN:
                found.add(name)
    return found


def _removed_since(
    parts: Iterable[Part],
    missing: Iterable[str],
    gone: Collection[str],
    printed: Printed,
    stopped: Stop,
) -> set[str]:
    """The distributions that someone removed after the stop, as far as that can be known.

    pip names what it changes before it does so, uv at its end. Without a word of the installer, a
    distribution was removed by someone else if the folder changed after the stop. So was one that
    pip was to install and of which no file is left (`gone`): pip puts the new files in place at
    once after it has put the old ones aside.
    """
    there = [part.folder for part in parts if os.path.isdir(part.folder)]
    later = any(os.stat(folder).st_mtime > stopped.time + _MARGIN for folder in there)
    return {
        name
        for name in missing
        if name in printed.installed or (later and (name in gone or name not in printed.changed))
    }


def _has_files(parts: Iterable[Part], name: str, left: Iterable[str]) -> bool:
    """Files of a distribution are in place: some of before, or some that the installer `left`."""
    old = (
        path
        for part in parts
        for path, names in owners(part.copy, part.folder).items()
        if name in names
    )
    expected = name.replace("-", "_")
    tops = (os.path.basename(_top(parts, path)).lower() for path in left)
    return any(map(_is_file, old)) or any(top.startswith(expected) for top in tops)


class _Owners:
    """The distributions of each path: by metadata of now, else of before."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self._now: dict[str, list[str]] = {}
        self._then: dict[str, list[str]] = {}
        self._folders = {part.folder for part in parts}
        for part in parts:
            self._now |= owners(part.folder, part.folder)
            self._then |= owners(part.copy, part.folder)

    def __call__(self, path: str) -> list[str]:
        """Return the distributions, or nothing."""
        found = self._now.get(path) or self._then.get(path, [])
        folder, name = os.path.split(path)
        if not found and os.path.basename(folder) == "__pycache__" and name.endswith(".pyc"):
            source = os.path.join(os.path.dirname(folder), name.partition(".")[0] + ".py")
            found = self._now.get(source) or self._then.get(source, [])
        while not found and folder:
            if folder in self._folders:
                return [owner] if (owner := info_name(name)) else []
            folder, name = os.path.split(folder) if folder != os.sep else ("", "")
        return found

    def deleted_since(self, path: str, stopped: Stop) -> bool:
        """Whether someone deleted `path` after the stop: a finished installation lists it."""
        names = self._now.get(path)
        if not names or os.path.lexists(path) or not self._finished.issuperset(names):
            return False
        while not os.path.lexists(folder := os.path.dirname(path)):
            path = folder
        return stopped.after(folder)

    @cached_property
    def _finished(self) -> set[str]:
        """The distributions of now whose RECORD is final: pip and uv add INSTALLER to it last."""
        ends = (names for path, names in self._now.items() if path.endswith(_INSTALLER))
        return {name for names in ends for name in names}


def _top(parts: Iterable[Part], path: str) -> str:
    """The path of the entry of an environment's folder that `path` is, or is in."""
    for part in parts:
        if path.startswith(part.folder + os.sep):
            name = path[len(part.folder) + 1 :].partition(os.sep)[0]
            return os.path.join(part.folder, name)
    return ""


def _tops(parts: Sequence[Part], mine: Iterable[str], names: Collection[str]) -> set[str]:
    """The entries of the environment's folders in which an installer of `names` writes.

    They are known from the metadata, or expected by the names of the distributions. While pip
    removes a distribution, its folders have names that begin with `~`.
    """
    known = {_top(parts, path) for path in mine if os.path.basename(path) != "__pycache__"}
    expected = tuple(name.replace("-", "_") for name in names)
    for part in parts if names else ():
        for entry in os.listdir(part.folder) if os.path.isdir(part.folder) else ():
            if entry.startswith("~") or entry.lower().startswith(expected):
                known.add(os.path.join(part.folder, entry))
    return {one for one in known if os.path.basename(one) != "__pycache__"}


def _is_unclear(path: str, stopped: Stop) -> bool:
    """Something new, put there while the installer ran."""
    return _is_file(path) and not stopped.after(path, margin=0.0)


def _is_file(path: str) -> bool:
    """A file that is not bytecode, which every Python makes anew."""
    return os.path.lexists(path) and not os.path.isdir(path) and not path.endswith(".pyc")


def _folders(differing: Iterable[str], mine: Iterable[str]) -> dict[str, str]:
    """The folders above changed paths that were made or removed with them."""
    above = set()
    for path in mine:
        while (path := os.path.dirname(path)) not in above and path != os.path.dirname(path):
            above.add(path)
    return {path: "" for path in differing if path in above and path not in {*mine}}


def _topmost(paths: Iterable[str]) -> list[str]:
    """The paths without those that are inside another one."""
    found: list[str] = []
    for path in sorted(paths):
        if not found or not path.startswith(found[-1] + os.sep):
            found.append(path)
    return found
