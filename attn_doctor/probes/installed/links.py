"""What a loader, of Linux or of Windows, finds for the needs of an extension."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from attn_doctor.binaries.binary import Binary
from attn_doctor.host import Host


class Links(NamedTuple):
    """How the needs of one extension are met."""

    missing: tuple[str, ...]
    """Libraries that the loader would not find."""
    elsewhere: tuple[str, ...]
    """Where some of these lie all the same."""
    providers: tuple[str, ...]
    """Libraries in whose symbols its own are looked up, in the loader's order."""
    too_old: tuple[str, ...]
    """Libraries that do not offer a version that is needed."""
    versions: tuple[str, ...]
    """These versions: `GLIBC_2.34 of libc.so.6`."""
    unclear: str
    """Why some of this could not be told; empty if it could."""


def reader(host: Host) -> Callable[[str], Binary]:
    """What reads the needs of a file, of each file once; `damaged` if it cannot be read."""

    @cache
    def binary(path: str) -> Binary:
        try:
            return host.binary(path)
        except OSError as error:
            return Binary(damaged=f"it cannot be read: {error.strerror}")

    return binary
