"""Compares two runs of a program: what each of its compiled graphs computed.

The records are those of `graph_outputs.py`. Two tensors whose products with eight vectors
of random signs differ by d on average are about d apart (give or take a quarter). A graph is
compared only if its inputs were equal in both runs. A program that draws its own random numbers, or
whose order changes, cannot be compared; the result says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from attn_doctor.files import DATA, read_bytes
from attn_doctor.json_files import decode

#: Relative distance of two results that counts as equal; bfloat16 keeps three digits.
LIMIT = 1e-2


class Sketch(Struct, frozen=True):
    """Sums over one tensor, as the recorder writes them."""

    shape: tuple[int, ...]
    dtype: str
    sum: float
    l2: float
    strange: int
    """Elements that are not finite."""
    products: tuple[float, ...]
    largest: float


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
        first, *lines = read_bytes(path, DATA).splitlines()
        process = decode(first, _Process)
        calls = [decode(line, Call) for line in lines]
        found.append((process.rank, process.began, calls))
    return [calls for _, _, calls in sorted(found, key=lambda one: one[:2])]


def compare(cached: Sequence[Sequence[Call]], fresh: Sequence[Sequence[Call]]) -> Compared:
    """The run that used the cache against the one that compiled everything itself."""
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
    fed = max(_differences(call.inputs, true.inputs), default=0.0)
    if not fed <= LIMIT:
        return Compared(
            doubt=f"{name}: its inputs differ by about {fed:.0%} between the two runs: the program"
            " has to draw the same random numbers each time (torch's, Python's and NumPy's are"
            " seeded)"
        )
    found = [*_differences(call.outputs, true.outputs), *_differences(call.changed, true.changed)]
    worst = max(found, default=0.0)
    if not worst <= LIMIT:
        number = next(index for index, one in enumerate(found) if not one <= LIMIT)
        return Compared(
            wrong=f"{name}: result {number + 1} of {len(found)} differs by about"
            f" {found[number]:.0%} from that of the same graph compiled here; {LIMIT:.0%} is"
            " allowed",
            worst=worst,
        )
    return Compared(worst=worst)


def _differences(one: Sequence[Sketch], other: Sequence[Sketch]) -> Iterator[float]:
    if len(one) != len(other):
        yield float("inf")
        return
    for mine, true in zip(one, other, strict=True):
        yield difference(mine, true)


def difference(one: Sketch, true: Sketch) -> float:
    """The distance of two tensors, relative to the length of `true`; infinite for other shapes."""
    if (one.shape, one.dtype, one.strange) != (true.shape, true.dtype, true.strange):
        return float("inf")
    apart = sum((a - b) ** 2 for a, b in zip(one.products, true.products, strict=True))
    distance = max((apart / len(true.products)) ** 0.5, abs(one.l2 - true.l2))
    if distance == 0.0:
        return 0.0
    return distance / true.l2 if true.l2 > 0 else float("inf")
