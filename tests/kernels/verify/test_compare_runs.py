"""Two runs of a program: equal, wrong, or not to be compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor.kernels.verify.compare_runs import (
    Call,
    Compared,
    Sketch,
    compare,
    difference,
    runs,
)

ONE = Sketch((4, 8), "bfloat16", 3.0, 10.0, 0, (4.0, -7.0, 12.0, 9.0, -3.0, -14.0, 8.0, 11.0), 5.0)


def moved(by: float) -> Sketch:
    """A tensor that lies `by` times the length of `ONE` apart from it."""
    signs = (1, -1, 1, 1, -1, 1, -1, -1)
    products = tuple(a + sign * by * ONE.l2 for a, sign in zip(ONE.products, signs, strict=True))
    return Sketch(ONE.shape, ONE.dtype, ONE.sum, ONE.l2, 0, products, ONE.largest)


def call(out: Sketch = ONE, fed: Sketch = ONE, number: int = 0, **more: Any) -> Call:
    return Call("fabc" * 5, number, (fed,), (ONE, out), **more)


def test_the_distance_is_that_of_the_tensors() -> None:
    assert difference(ONE, ONE) == 0.0
    assert difference(moved(0.004), ONE) == pytest.approx(0.004)
    assert difference(moved(1.4), ONE) == pytest.approx(1.4)
    assert difference(Sketch((8, 4), *_rest(ONE)), ONE) == float("inf")


def _rest(one: Sketch) -> tuple[Any, ...]:
    return one.dtype, one.sum, one.l2, one.strange, one.products, one.largest


def test_zeros_and_what_is_not_finite() -> None:
    zeros = Sketch((4, 8), "bfloat16", 0.0, 0.0, 0, (0.0,) * 8, 0.0)
    assert difference(zeros, zeros) == 0.0
    assert difference(ONE, zeros) == float("inf")
    assert difference(zeros, ONE) == 1.0
    assert difference(replace(ONE, strange=1), ONE) == float("inf")


def test_equal_within_the_rounding() -> None:
    found = compare([[call(moved(0.002)), call(number=1)]], [[call(), call(number=1)]])
    assert found.equal
    assert (found.graphs, found.calls) == (1, 2)
    assert found.worst == pytest.approx(0.002)


def test_a_wrong_result_is_named() -> None:
    found = compare([[call(), call(moved(1.0), number=1)]], [[call(), call(number=1)]])
    assert not found.equal
    assert found.wrong == (
        "graph fabcfabcfabc, call 2: result 2 of 2 differs by about 100% from that of the same"
        " graph compiled here; 1% is allowed"
    )
    changed = compare([[call(changed=(moved(0.5),))]], [[call(changed=(ONE,))]])
    assert "result 3 of 3 differs by about 50%" in changed.wrong


@pytest.mark.parametrize(
    ("cached", "fresh", "doubt"),
    [
        ([], [], "called no graph"),
        ([[call()]], [[call()], [call()]], "1 processes called compiled graphs in one run, 2 in"),
        ([[call()]], [[call(number=1)]], "called other graphs, or in another order"),
        (
            [[call(fed=moved(0.3))]],
            [[call()]],
            "its inputs differ by about 30% between the two runs",
        ),
        ([[call(error="OutOfMemoryError: x")]], [[call()]], "could not be read: OutOfMemoryError"),
    ],
)
def test_what_cannot_be_compared_is_not_called_right(
    cached: list[list[Call]], fresh: list[list[Call]], doubt: str
) -> None:
    found = compare(cached, fresh)
    assert not found.equal
    assert doubt in found.doubt
    assert not found.wrong


def test_nothing_compared_is_not_equal() -> None:
    assert not Compared().equal


def test_records_are_read_by_rank(tmp_path: Path) -> None:
    line = {"key": "f", "number": 0, "in": [], "out": [], "changed": []}
    for pid, rank, began in ((7, "1", 1.0), (8, "0", 2.0)):
        lines = [{"pid": pid, "rank": rank, "began": began}, {**line, "key": f"f{pid}"}]
        text = "\n".join(json.dumps(one) for one in lines)
        (tmp_path / f"{pid}.jsonl").write_text(f"{text}\n", encoding="utf-8")
    assert [[one.key for one in calls] for calls in runs(tmp_path)] == [["f8"], ["f7"]]
