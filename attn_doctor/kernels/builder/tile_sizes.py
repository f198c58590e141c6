"""What one compile for a GPU came to, and the smaller settings that are tried after it.

The numbers are Triton's own, from the message with which it gives a kernel up. It cannot know
whether another kernel of the same graph, which was not come to, asks for too much as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from attn_doctor.pool.task import Outcome
from attn_doctor.record.spec import Option

_OVER = re.compile(
    r"out of resource: (?P<what>shared memory|\S+?),? ?Required: ?(?P<needed>\d+),? ?"
    r"Hardware limit(?:ation)?: ?(?P<limit>\d+)"
)
#: Settings that take less and less, by kernel. Fewer stages first: they keep the tiles.
_FORWARD: tuple[dict[str, Option], ...] = (
    {"num_stages": 1},
    {"num_stages": 1, "BLOCK_M": 32, "BLOCK_N": 32},
    {"num_stages": 1, "BLOCK_M": 16, "BLOCK_N": 16},
)
_BACKWARD: tuple[dict[str, Option], ...] = (
    {"num_stages": 1},
    {"num_stages": 1, "BLOCK_M1": 32, "BLOCK_N1": 32, "BLOCK_M2": 32, "BLOCK_N2": 32},
    {"num_stages": 1, "BLOCK_M1": 16, "BLOCK_N1": 16, "BLOCK_M2": 16, "BLOCK_N2": 16},
)


class Tried(Struct, frozen=True, kw_only=True):
    """What came of compiling a spec with some settings."""

    options: dict[str, Option] = {}
    """kernel_options besides the spec's own."""
    fits: bool | None
    """None: it could not be told, since something else failed."""
    kernel: str = ""
    """`forward` or `backward`: the one that asks for too much; empty: none, or not told."""
    needed: int | None = None
    """Bytes of shared memory a block that it asks for."""
    limit: int | None = None
    """Bytes that the GPU has for one."""
    why: str = ""
    """What torch refuses, or what failed, where it was not shared memory."""
    seconds: float = 0.0


def ladder(kernel: str, torch: str) -> Iterator[dict[str, Option]]:
    """Settings for a kernel, each smaller than the one before. "": which one is not told."""
    # Prefixes for one of the two kernels came with torch 2.7.
    old = [int(part) for part in re.findall(r"\d+", torch)[:2]] < [2, 7]
    if kernel == "" or old:
        for forward, backward in zip(_FORWARD, _BACKWARD, strict=True):
            yield {**forward, **backward}
        return
    prefix, rungs = ("fwd_", _FORWARD) if kernel == "forward" else ("bwd_", _BACKWARD)
    for rung in rungs:
        yield {f"{prefix}{name}": value for name, value in rung.items()}


def seen(outcome: Outcome, options: Mapping[str, Option]) -> Tried:
    """What a compile came to."""
    result: Mapping[str, Any] = outcome.result or {}
    common: dict[str, Any] = {"options": dict(options), "seconds": outcome.seconds}
    if result.get("ok"):
        return Tried(fits=True, **common)
    message = str((result.get("failure") or {}).get("message") or outcome.reason)
    over = _OVER.search(message) or _last(outcome.task.log)
    if over is None:
        return Tried(fits=None, why=message, **common)
    what = over["what"]
    kernel = "" if what == "shared memory" else "backward" if "backward" in what else "forward"
    return Tried(
        fits=False,
        kernel=kernel,
        needed=int(over["needed"]),
        limit=int(over["limit"]),
        **common,
    )


def _last(log: Path) -> re.Match[str] | None:
    """The last complaint in what a process printed."""
    try:
        found = list(_OVER.finditer(log.read_text("utf-8", "replace")))
    except OSError:
        return None
    return found[-1] if found else None
