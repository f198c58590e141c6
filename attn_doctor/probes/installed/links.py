"""What a loader finds for one extension, and the files that it reads for that."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from msgspec import Struct

from attn_doctor.binaries.binary import Binary
from attn_doctor.host import Host


class Links(Struct, frozen=True):
    """The libraries for one extension, as a loader finds them."""

    missing: tuple[str, ...]
    """Libraries that the loader would not find."""
    elsewhere: tuple[str, ...]
    """Paths of some of these, in folders that the loader does not search."""
    providers: tuple[str, ...]
    """Libraries in which its symbols are looked up, in the loader's order."""
    too_old: tuple[str, ...]
    """Libraries without a symbol version that is needed."""
    versions: tuple[str, ...]
    """These symbol versions: `GLIBC_2.34 of libc.so.6`."""
    unclear: str
    """Why some of this is unknown; empty if all is known."""
    fault: str = ""
    """What is wrong with the file itself; empty if nothing is, or if it could not be read."""


def reader(host: Host) -> Callable[[str], Binary]:
    """Return a function that reads each file once; `damaged` if it cannot be read."""

    @cache
    def binary(path: str) -> Binary:
        try:
            return host.binary(path)
        except OSError as error:
            return Binary(damaged=f"it cannot be read: {error.strerror}", unread=True)

    return binary


def fault(binary: Binary, machine: str) -> str:
    """Return what is wrong with a file that could be read, on a processor named by `uname -m`."""
    if binary.damaged:
        return "" if binary.unread else binary.damaged
    if differs(binary, machine):
        return f"it is made for {binary.machine}, and this machine is {machine}"
    return ""


def differs(binary: Binary, machine: str) -> bool:
    """Whether a file is made for another processor."""
    return machine in ("x86_64", "aarch64") and binary.machine not in ("", machine)
