"""What is at a path, and what a run changed there.

A file is identified by the digest of its contents, so that undo can tell a file that the run left
from one that was changed since.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.files import open_binary
from attn_doctor.fixes.distributions import Installed


class State(Struct, frozen=True):
    """What is at a path."""

    kind: Literal["nothing", "file", "link", "folder", "other"] = "nothing"
    content: str = ""
    """SHA-256 of a file in hexadecimal; the target of a link."""
    mark: tuple[int, int, int, int] | None = None
    """Size, times of change in ns, and inode of a file. While they stay, so do its contents."""
    user: int | None = None
    """The number of the user who owns a file; None if it does not matter."""

    def same(self, other: State) -> bool:
        """It is the same file, link or folder of the same user, or nothing again."""
        users = {self.user, other.user} - {None}
        return (self.kind, self.content) == (other.kind, other.content) and len(users) < 2


class Item(Struct, frozen=True):
    """One path that a run changed."""

    path: str
    """Absolute."""
    before: State
    after: State
    kept: str = ""
    """The copy of what was there before; empty if there was nothing."""
    owner: str = ""
    """The distribution that it belongs to, if any."""
    between: tuple[State, ...] = ()
    """What earlier steps of the run left there."""

    def left_by_run(self, now: State) -> bool:
        """`now` is what a step of the run left."""
        return any(now.same(one) for one in (self.after, *self.between))


class Changes(Struct, frozen=True, kw_only=True):
    """What one step changed."""

    items: tuple[Item, ...] = ()
    before: dict[str, Installed] = {}
    """The distributions that it changed, as they were; those it added are missing."""
    after: dict[str, Installed] = {}
    """The same, as it left them."""
    since: tuple[str, ...] = ()
    """Distributions and files of the step that someone changed after it was stopped."""
    unclear: tuple[str, ...] = ()
    """Paths that changed while a step ran that was stopped, and that belong to no distribution."""


def state_of(path: str, *known: State) -> State:
    """Return what is at `path`. A file whose mark is that of a `known` state is not read.

    A file that cannot be read is `other`.
    """
    try:
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            return State("link", os.readlink(path))
        if stat.S_ISDIR(found.st_mode):
            return State("folder")
        if not stat.S_ISREG(found.st_mode):
            return State("other")
        mark = (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
        for one in known:
            if one.mark == mark:
                return one
        return State("file", digest(path), mark, found.st_uid)
    except (FileNotFoundError, NotADirectoryError):
        return State()
    except OSError:
        return State("other")


def digest(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file in hexadecimal; empty if there is no file."""
    try:
        with open_binary(path, follow=False) as file:
            found = hashlib.sha256()
            while piece := file.read(1 << 20):
                found.update(piece)
            return found.hexdigest()
    except FileNotFoundError:
        return ""


def joined(items: Iterable[Item]) -> list[Item]:
    """Return one item for each path, from what was there first to what was left last.

    Where someone else changed a path between two steps, only what came after that is the run's.
    """
    found: dict[str, Item] = {}
    for item in items:
        first = found.get(item.path)
        if first is not None and first.after.same(item.before):
            item = replace(
                item,
                before=first.before,
                kept=first.kept,
                owner=item.owner or first.owner,
                between=(*first.between, first.after),
            )
        found[item.path] = item
    return list(found.values())


def walk(folder: str, below: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield all paths below `folder`, relative, each folder before its contents.

    Links are not followed. A folder that does not exist has none.
    """
    try:
        opened = os.scandir(os.path.join(folder, below))
    except FileNotFoundError:
        if below:
            raise
        return
    with opened as entries:
        for entry in entries:
            path = os.path.join(below, entry.name)
            yield path, entry
            if entry.is_dir(follow_symlinks=False):
                yield from walk(folder, path)


def contents(folder: str) -> tuple[Item, ...]:
    """Return a folder that did not exist before, with all that is in it."""
    inside = [os.path.join(folder, path) for path, _ in walk(folder)]
    return tuple(Item(path, State(), state_of(path)) for path in (folder, *inside))
