"""Lists the content of a folder without following links.

Other file systems mounted inside are not entered. Changes during the walk may be missed; `deletion`
checks each file again.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from attn_doctor.files import read_bytes

NodeKind = Literal["file", "dir", "link", "mount", "other"]


class Node(Struct, frozen=True):
    """One file or folder. `kind` is mount for another file system."""

    path: str
    """Relative to the folder, with `/` on every system."""
    kind: NodeKind
    size: int = 0
    mtime: float = 0.0
    uid: int = 0
    device: int = 0
    inode: int = 0

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]

    @property
    def folder(self) -> str:
        """The path without its last part; empty at the top."""
        return self.path.rpartition("/")[0]


class Tree(Struct, frozen=True):
    """Everything below `root`."""

    root: str
    nodes: dict[str, Node] = {}
    complete: bool = True
    """False if the time limit ended the walk."""
    unreadable: tuple[str, ...] = ()
    """Folders that this user may not list."""

    def full(self, path: str) -> str:
        """The absolute path of something in the tree."""
        return os.path.join(self.root, *path.split("/"))

    @property
    def files(self) -> Iterator[Node]:
        """The regular files."""
        return (node for node in self.nodes.values() if node.kind == "file")

    def read(self, path: str, limit: int = 1 << 26) -> bytes:
        """The first `limit` bytes of a file; a link in its place is not followed.

        Raises OSError if it does not exist, is not a regular file any more, or may not be read.
        """
        return read_bytes(self.full(path), limit, cut=True, follow=False)


def read_tree(root: str, seconds: float = float("inf")) -> Tree:
    """Walk `root` for at most `seconds`. Returns an empty tree if `root` cannot be listed."""
    end = time.monotonic() + seconds
    nodes: dict[str, Node] = {}
    unreadable: list[str] = []
    pending = [""]
    try:
        device = os.lstat(root).st_dev
    except OSError:
        return Tree(root, unreadable=(root,))
    while pending and time.monotonic() <= end:
        folder = pending.pop()
        try:
            with os.scandir(os.path.join(root, *folder.split("/"))) as entries:
                found = [_node(entry, folder, device) for entry in entries]
        except OSError:
            unreadable.append(folder or root)
            continue
        for node in found:
            if node is not None:
                nodes[node.path] = node
                if node.kind == "dir":
                    pending.append(node.path)
    ordered = {path: nodes[path] for path in sorted(nodes)}
    return Tree(root, ordered, not pending, tuple(unreadable))


def _node(entry: os.DirEntry[str], folder: str, device: int) -> Node | None:
    path = f"{folder}/{entry.name}" if folder else entry.name
    try:
        found = entry.stat(follow_symlinks=False)
        # On Windows, listing a folder gives neither device nor inode.
        if os.name == "nt":
            found = os.lstat(entry.path)
    except OSError:
        return None
    kind = _kind(found, entry)
    if kind == "dir" and found.st_dev != device:
        kind = "mount"
    return Node(path, kind, found.st_size, found.st_mtime, found.st_uid, found.st_dev, found.st_ino)


def _kind(found: os.stat_result, entry: os.DirEntry[str]) -> NodeKind:
    # A junction of Windows is a kind of symbolic link.
    junction = getattr(entry, "is_junction", None)
    if stat.S_ISLNK(found.st_mode) or (junction is not None and junction()):
        return "link"
    return (
        "file" if stat.S_ISREG(found.st_mode) else "dir" if stat.S_ISDIR(found.st_mode) else "other"
    )
