"""Compares two runs of a program: what each of its compiled graphs computed.

The records are those of `graph_outputs.py`. Two blocks of rows whose products with eight vectors
of random signs differ by d on average are about d apart (give or take a quarter). Blocks, their
largest elements and whole tensors are compared. A graph is compared only if its inputs were equal
in both runs. A program that draws its own random numbers, or whose order changes, cannot be
compared; the result says so.
"""

from __future__ import annotations

import array
import base64
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from attn_doctor.files import DATA, read_bytes
from attn_doctor.json_files import decode

#: Products of each block.
SIGNS = 8
#: Relative distance of the inputs of two calls that can still be compared.
LIMIT = 1e-2
#: Dtype → relative distance of two results as a whole that counts as equal. Two compilations of one
#: graph differ in the order of sums, and then in the last digit of some elements: in bfloat16 two
#: independent roundings of every element would be 2.4e-3 apart.
_WHOLE = {"bfloat16": 5e-3, "float16": 1e-3, "float32": 1e-3, "float64": 1e-6}
#: The same of a block and of its largest element, over that of the whole.
_BLOCK = 4.0
#: A block is compared with its own length, or with this share of the usual one if it is shorter:
#: in gradients that nearly cancel, any rounding would look large.
_SHORT = 0.1


class Sketch(Struct, frozen=True):
    """Sums over blocks of one tensor, as the recorder writes them."""

    shape: tuple[int, ...]
    dtype: str
    strange: int
    """Elements that are not finite."""
    blocks: str
    """float32 in base64: of each block eight products, the length and the largest element."""


class Call(Struct, frozen=True):
    """One call of a graph."""

    key: str
    number: int
    """Which call of this graph it was."""
    inputs: tuple[Sketch, ...] = msgspec.field(name="in", default=())
    outputs: tuple[Sketch, ...] = msgspec.field(name="out", default=())
    changed: tuple[Sketch, ...] = ()
    """Inputs that the graph wrote to, as they were afterwards."""
    error: str = ""


class _Process(Struct, frozen=True):
    pid: int
    rank: str
    began: float


class Compared(Struct, frozen=True, kw_only=True):
    """The result of a comparison."""

    graphs: int = 0
    calls: int = 0
    worst: float = 0.0
    """Largest relative distance of two results."""
    wrong: str = ""
    """The first graph that computes something else, in a sentence; empty if none does."""
    doubt: str = ""
    """Why the two runs cannot be compared; empty if they can."""

    @property
    def equal(self) -> bool:
        """Every graph was compared and computes the same."""
        return bool(self.calls) and not (self.wrong or self.doubt)


def runs(folder: Path) -> list[list[Call]]:
    """The calls of each process that wrote to `folder`, by rank and in the order of their start.

    Raises `ValueError` for a record that cannot be read.
    """
    found: list[tuple[str, float, list[Call]]] = []
    for path in sorted(folder.glob("*.jsonl")):
        first, *lines = read_bytes(path, DATA).splitlines() or [b""]
        process = decode(first, _Process)
        calls = [decode(line, Call) for line in lines]
        found.append((process.rank, process.began, calls))
    return [calls for _, _, calls in sorted(found, key=lambda one: one[:2])]


def compare(cached: Sequence[Sequence[Call]], fresh: Sequence[Sequence[Call]]) -> Compared:
    """The run that used the cache against the one that compiled everything itself.

    Raises `ValueError` for a record that cannot be read.
    """
    if not any(cached) and not any(fresh):
        return Compared(doubt="the program called no graph that torch.compile had made")
    if len(cached) != len(fresh):
        return Compared(
            doubt=f"{len(cached)} processes called compiled graphs in one run, {len(fresh)} in the"
            " other"
        )
    worst, calls = 0.0, 0
    graphs: set[str] = set()
    for one, other in zip(cached, fresh, strict=True):
        named = [(call.key, call.number) for call in one]
        if named != [(call.key, call.number) for call in other]:
            return Compared(doubt="the two runs called other graphs, or in another order")
        for call, true in zip(one, other, strict=True):
            result = _compared(call, true)
            if result.wrong or result.doubt:
                return result
            worst, calls = max(worst, result.worst), calls + 1
            graphs.add(call.key)
    return Compared(graphs=len(graphs), calls=calls, worst=worst)


def _compared(call: Call, true: Call) -> Compared:
    name = f"graph {call.key[:12] or '(without a key)'}, call {call.number + 1}"
    failed = call.error or true.error
    if failed:
        return Compared(doubt=f"{name}: its results could not be read: {failed}")
    inputs = [distance for distance, _ in _differences(call.inputs, true.inputs)]
    fed = max(inputs, default=0.0)
    if not fed <= LIMIT:
        return Compared(
            doubt=f"{name}: its inputs differ by about {fed:.0%} between the two runs: the program"
            " has to draw the same random numbers each time (torch's, Python's and NumPy's are"
            " seeded)"
        )
    found = [*_differences(call.outputs, true.outputs), *_differences(call.changed, true.changed)]
    for number, (apart, limit) in enumerate(found):
        # What comes out of inputs that differ a little may differ more.
        allowed = limit + 4 * fed
        if not apart <= allowed:
            return Compared(
                wrong=f"{name}: result {number + 1} of {len(found)} differs by about"
                f" {apart:.1%} from that of the same graph compiled here; {allowed:.1%} is"
                " allowed",
                worst=apart,
            )
    return Compared(worst=max((apart for apart, _ in found), default=0.0))


def _differences(one: Sequence[Sketch], other: Sequence[Sketch]) -> Iterator[tuple[float, float]]:
    """The distance of each pair of tensors, and what is allowed."""
    if len(one) != len(other):
        yield float("inf"), 0.0
        return
    for mine, true in zip(one, other, strict=True):
        yield difference(mine, true), _WHOLE.get(true.dtype, 1e-2)


def difference(one: Sketch, true: Sketch) -> float:
    """The distance of two tensors, relative to `true`; infinite for other shapes.

    It is that of the whole, or a quarter of that of the block or the largest element that differs
    most, whichever is larger: so much more those may differ.
    """
    if (one.shape, one.dtype, one.strange) != (true.shape, true.dtype, true.strange):
        return float("inf")
    if one.blocks == true.blocks:
        return 0.0
    pairs = [
        (_apart(mine, other), other[-2], abs(mine[-1] - other[-1]), other[-1])
        for mine, other in zip(_blocks(one), _blocks(true), strict=True)
    ]
    whole = sum(length**2 for _, length, _, _ in pairs) ** 0.5
    off = sum(apart**2 for apart, _, _, _ in pairs) ** 0.5
    if off == 0.0:
        return 0.0
    usual = whole / len(pairs) ** 0.5 * _SHORT
    blocks = [_over(apart, max(length, usual)) for apart, length, _, _ in pairs]
    most = max(largest for _, _, _, largest in pairs) * _SHORT
    elements = [_over(moved, max(largest, most)) for _, _, moved, largest in pairs]
    return max(_over(off, whole), max(blocks) / _BLOCK, max(elements) / _BLOCK)


def _blocks(sketch: Sketch) -> list[tuple[float, ...]]:
    numbers = array.array("f")
    numbers.frombytes(base64.b64decode(sketch.blocks))
    width = SIGNS + 2
    if len(numbers) % width:
        raise ValueError("a block is incomplete")
    return [tuple(numbers[start : start + width]) for start in range(0, len(numbers), width)]


def _apart(one: Sequence[float], true: Sequence[float]) -> float:
    """The distance of two blocks, estimated from their products and their lengths."""
    products = zip(one[:SIGNS], true[:SIGNS], strict=True)
    estimated = (sum((a - b) ** 2 for a, b in products) / SIGNS) ** 0.5
    return float(max(estimated, abs(one[SIGNS] - true[SIGNS])))


def _over(apart: float, size: float) -> float:
    return apart / size if size > 0 else (0.0 if apart == 0 else float("inf"))
