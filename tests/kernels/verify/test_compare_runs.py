"""Two runs of a program: equal, wrong, or not to be compared."""

from __future__ import annotations

import array
import base64
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

#: Two blocks, and each with eight products, a length and the largest element.
PRODUCTS = (4.0, -7.0, 12.0, 9.0, -3.0, -14.0, 8.0, 11.0)


def sketch(*blocks: tuple[float, ...], dtype: str = "bfloat16", strange: int = 0) -> Sketch:
    numbers = array.array("f", [number for block in blocks for number in block])
    return Sketch((4, 8), dtype, strange, base64.b64encode(numbers.tobytes()).decode())


def block(by: float = 0.0, largest: float = 5.0) -> tuple[float, ...]:
    """A block that lies `by` times its length apart from the usual one."""
    signs = (1, -1, 1, 1, -1, 1, -1, -1)
    products = (one + sign * by * 10.0 for one, sign in zip(PRODUCTS, signs, strict=True))
    return (*products, 10.0, largest)


ONE = sketch(block(), block())


def moved(by: float) -> Sketch:
    """A tensor that lies `by` times the length of `ONE` apart from it."""
    return sketch(block(by), block(by))


def call(out: Sketch = ONE, fed: Sketch = ONE, number: int = 0, **more: Any) -> Call:
    return Call("fabc" * 5, number, (fed,), (ONE, out), **more)


def test_the_distance_is_that_of_the_tensors() -> None:
    assert difference(ONE, ONE) == 0.0
    assert difference(moved(0.004), ONE) == pytest.approx(0.004, rel=1e-4)
    assert difference(moved(1.4), ONE) == pytest.approx(1.4)
    assert difference(replace(ONE, shape=(8, 4)), ONE) == float("inf")


def test_one_wrong_block_of_many_is_seen() -> None:
    many = [block()] * 1000
    assert difference(sketch(*many, block(0.1)), sketch(*many, block())) == pytest.approx(0.025)
    whole = 0.1 / 1001**0.5
    assert whole < 0.005, "it does not show in the whole tensor"
    found = compare([[call(sketch(*many, block(0.1)))]], [[call(sketch(*many, block()))]])
    assert "differs by about 2.5%" in found.wrong


def test_one_large_element_is_seen() -> None:
    assert difference(sketch(block(0.001, largest=30.0)), sketch(block())) == pytest.approx(1.25)


def test_a_block_that_is_nearly_zero_may_round() -> None:
    small = tuple(number * 1e-3 for number in block())
    off = tuple(number * 1e-3 for number in block(0.5))
    assert difference(sketch(block(), off), sketch(block(), small)) < 0.005


def test_zeros_and_what_is_not_finite() -> None:
    zeros = sketch((0.0,) * 10)
    one = sketch(block())
    assert difference(zeros, zeros) == 0.0
    assert difference(one, zeros) == float("inf")
    assert difference(zeros, one) == 1.0
    assert difference(replace(one, strange=1), one) == float("inf")


def test_each_dtype_has_its_limit() -> None:
    for dtype, equal in (("bfloat16", True), ("float32", False)):
        pair = sketch(block(0.002), dtype=dtype), sketch(block(), dtype=dtype)
        assert compare([[call(pair[0])]], [[call(pair[1])]]).equal is equal


def test_equal_within_the_rounding() -> None:
    found = compare([[call(moved(0.002)), call(number=1)]], [[call(), call(number=1)]])
    assert found.equal
    assert (found.graphs, found.calls) == (1, 2)
    assert found.worst == pytest.approx(0.002, rel=1e-4)


def test_a_wrong_result_is_named() -> None:
    found = compare([[call(), call(moved(1.0), number=1)]], [[call(), call(number=1)]])
    assert not found.equal
    assert found.wrong == (
        "graph fabcfabcfabc, call 2: result 2 of 2 differs by about 100.0% from that of the same"
        " graph compiled here; 0.5% is allowed"
    )
    changed = compare([[call(changed=(moved(0.5),))]], [[call(changed=(ONE,))]])
    assert "result 3 of 3 differs by about 50.0%" in changed.wrong


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


@pytest.mark.parametrize("text", ["", '{"pid": 1, "rank": "0", "began": 1.5}\n{"key": "k", "num'])
def test_a_record_that_was_cut_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "1.jsonl").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        runs(tmp_path)


@pytest.mark.parametrize("blocks", [ONE.blocks[:-8], ONE.blocks[:-1], "AACAPw=="])
def test_blocks_that_were_cut_are_an_error(blocks: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        difference(ONE, replace(ONE, blocks=blocks))
