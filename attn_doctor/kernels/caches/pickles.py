"""Reads pickles as lists of instructions, and never runs them.

torch keeps graphs as pickles, which run their writer's code when they are loaded. The instructions
show whether a pickle is complete, and which texts it contains.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator


def fault(data: bytes) -> str:
    """Say what is wrong with the framing of a pickle; empty if it is complete."""
    if not data:
        return "it is empty"
    if data[:1] != b"\x80":
        return "it does not begin like a pickle"
    end = -1
    try:
        for opcode, _, position in pickletools.genops(data):
            if opcode.name == "STOP":
                end = position or 0
    except (ValueError, IndexError, UnicodeDecodeError, OverflowError) as error:
        return f"it is not a complete pickle ({str(error)[:60]})"
    return "" if end == len(data) - 1 else "bytes follow after its end"


def texts(data: bytes) -> Iterator[bytes]:
    """Yield every text and every run of bytes in a pickle, up to the first error."""
    try:
        for _, argument, _ in pickletools.genops(data):
            if isinstance(argument, str):
                yield argument.encode("utf-8", "replace")
            elif isinstance(argument, (bytes, bytearray)):
                yield bytes(argument)
    except (ValueError, IndexError, UnicodeDecodeError, OverflowError):
        return
