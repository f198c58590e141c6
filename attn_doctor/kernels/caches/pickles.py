"""Reads pickles as lists of instructions, and never runs them.

torch keeps graphs as pickles, which run their writer's code when they are loaded. The instructions
show whether a pickle is complete, and which texts it contains.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from itertools import islice
from typing import Any

#: Instructions that are read; graphs have some ten thousand. A million take about three seconds.
_MOST = 1_000_000


def fault(data: bytes) -> str:
    """Say what is wrong with the framing of a pickle; empty if it is complete.

    Of one with more than a million instructions, the rest is not read.
    """
    if wrong := fault_of_ends(data[:1], data[-1:]):
        return wrong
    read, end = 0, -1
    try:
        for name, _, position in _instructions(data):
            read += 1
            if name == "STOP":
                end = position
    except _ERRORS as error:
        return f"it is not a complete pickle ({str(error)[:60]})"
    return "" if end == len(data) - 1 or read == _MOST else "bytes follow after its end"


def fault_of_ends(first: bytes, last: bytes) -> str:
    """Say what is wrong with the first and the last byte of a pickle; empty if nothing is."""
    if not first:
        return "it is empty"
    if first != b"\x80":
        return "it does not begin like a pickle"
    return "" if last == b"." else "it is not a complete pickle (its end is missing)"


#: What `pickletools` raises for bytes that are not a pickle.
_ERRORS = (ValueError, IndexError, UnicodeDecodeError, OverflowError)


def _instructions(data: bytes) -> Iterator[tuple[str, Any, int]]:
    """The name, the argument and the place of each instruction, at most `_MOST`."""
    for opcode, argument, position in islice(pickletools.genops(data), _MOST):
        yield opcode.name, argument, position or 0


def texts(data: bytes) -> Iterator[bytes]:
    """Yield texts and runs of bytes in a pickle, up to the first error."""
    try:
        for _, argument, _ in _instructions(data):
            if isinstance(argument, str):
                yield argument.encode("utf-8", "replace")
            elif isinstance(argument, (bytes, bytearray)):
                yield bytes(argument)
    except _ERRORS:
        return
