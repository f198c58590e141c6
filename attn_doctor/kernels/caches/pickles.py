"""Pickles read as a list of instructions, never carried out: nothing in them can run.

torch keeps graphs as pickles, which execute whatever their writer put in when they are loaded. To
see whether one is whole, and what it mentions, its instructions are enough.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator


def fault(data: bytes) -> str:
    """What is wrong with the framing of a pickle; empty if it is whole."""
    if not data:
        return "it is empty"
    if data[:1] != b"\x80":
        return "it does not begin as a pickle does"
    end = -1
    try:
        for opcode, _, position in pickletools.genops(data):
            if opcode.name == "STOP":
                end = position or 0
    except (ValueError, IndexError, UnicodeDecodeError, OverflowError) as error:
        return f"it is no whole pickle ({str(error)[:60]})"
    return "" if end == len(data) - 1 else "bytes follow after its end"


def texts(data: bytes) -> Iterator[bytes]:
    """Every text and every run of bytes in a pickle, as far as it can be read."""
    try:
        for _, argument, _ in pickletools.genops(data):
            if isinstance(argument, str):
                yield argument.encode("utf-8", "replace")
            elif isinstance(argument, (bytes, bytearray)):
                yield bytes(argument)
    except (ValueError, IndexError, UnicodeDecodeError, OverflowError):
        return
