"""The index of messages, how it is made, and how much of it gets a true answer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from attn_doctor.explain.components import component_table
from attn_doctor.explain.guess import guess
from attn_doctor.explain.messages import known_message
from attn_doctor.explain.normalize import NormalizedLog

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from mine_messages import (  # type: ignore[import-not-found]
    FILE,
    Message,
    Row,
    Source,
    cpp_messages,
    merged,
    python_messages,
    read,
    rows_of,
    says_enough,
    template,
)

#: Share of messages that name their component without a traceback. It may not fall.
LEAST = 0.75


def test_messages_of_python() -> None:
    source = """
def f(q, k):
    if q.shape != k.shape:
        raise ValueError(f"shapes differ: {q.shape} and " "{}".format(k.shape))
    else:
        raise RuntimeError("a %s" % q)
    assert q.dim() == 4, "must have " + "four dimensions"
    raise NotImplementedError
"""
    assert list(python_messages(source)) == [
        Message("shapes differ: \0 and \0", "f", "q.shape != k.shape"),
        Message("a \0", "f", "not (q.shape != k.shape)"),
        Message("must have four dimensions", "f", "not (q.dim() == 4)"),
    ]
    assert list(python_messages("def (")) == []


def test_messages_of_cpp() -> None:
    source = """
    TORCH_CHECK(head_size % 8 == 0, "head_size should be a "
                "multiple of 8, got ", head_size, " (\\"x\\")");
    TORCH_CHECK(ok);
    throw std::runtime_error("no kernel for it");
    """
    assert list(cpp_messages(source)) == [
        Message(
            'head_size should be a multiple of 8, got \0 ("x")', "", "not (head_size % 8 == 0)"
        ),
        Message("no kernel for it", "", ""),
    ]


def test_rows() -> None:
    source = Source("x", "", (("hopper/", "flash-attn-3"), ("", "flash-attn-2")), general="api")
    code = 'raise E("this flash kernel needs four dimensions")\nraise E("another one without it")'
    (row,) = rows_of("hopper/api.py", code, "1.0", source)
    assert (row.component, row.text) == (
        "flash-attn-3",
        "this flash kernel needs four dimensions",
    )
    later = row._replace(first="10.0", last="10.0", condition="x")
    assert merged([row, later]) == [later._replace(first="1.0")]
    assert merged([later, row]) == [later._replace(first="1.0")]
    development = row._replace(last="main")
    assert merged([development, later]) == [development]


def test_templates() -> None:
    assert template("a\0 \0\n  b {} c") == "a{} b {} c"
    assert says_enough("the head size must be {}")
    assert not says_enough("must be {} or {} or {}")


def test_the_table_is_whole() -> None:
    rows = read(FILE)
    assert len(rows) > 3000
    components = {one.id for one in component_table().component}
    assert {row.component for row in rows} <= components
    assert len({(row.component, row.text) for row in rows}) == len(rows)
    assert FILE.stat().st_size < 1_000_000


def test_a_message_is_found() -> None:
    found = known_message(
        "RuntimeError: Number of heads in key/value must divide number of heads\nin query"
    )
    assert found is not None
    assert (found.component, found.condition) == (
        "flash-attn-2",
        "not (num_heads % num_heads_k == 0)",
    )
    assert known_message("KeyError: 'a_key_of_my_own'") is None


@pytest.mark.parametrize(
    "message",
    ["TypeError: F.__init__() got an unexpected keyword argument 'x'", "ValueError: Invalid value"],
)
def test_a_message_of_python_names_no_component(message: str) -> None:
    assert guess("x", NormalizedLog(1, f"{message}\n".encode())) is None


def test_how_many_messages_name_their_component() -> None:
    rows: list[Row] = read(FILE)[::40]
    answers = [
        guess("x", NormalizedLog(1, f"RuntimeError: {row.text.replace('{}', '8')}\n".encode()))
        for row in rows
    ]
    right = [
        found is not None and found.component == row.component
        for found, row in zip(answers, rows, strict=True)
    ]
    assert sum(right) / len(rows) >= LEAST


def test_a_message_without_its_full_stop() -> None:
    said = (
        "Input axes must be greater than or equal to the product of kernel size and dilation. Got"
        " kernel size 11, dilation 20, but dimension size was 200"
    )
    known = known_message(said)
    assert known is not None
    assert known.component == "natten"


def test_a_message_of_torch_names_no_component() -> None:
    said = "RuntimeError: Expected all tensors to be on the same device, but found two devices!"
    assert guess("x", NormalizedLog(1, f"{said}\n".encode())) is None


def test_a_message_that_other_code_raises_names_no_component() -> None:
    said = "ValueError: embed_dim must be divisible by num_heads (got 1024 and 12)."
    log = f'  File "/work/m.py", line 3, in __init__\n    raise ValueError(\n{said}\n'
    assert guess("x", NormalizedLog(1, log.encode())) is None
    there = log.replace("/work/m.py", "/venv/lib/site-packages/flash_attn/modules/mha.py")
    assert guess("x", NormalizedLog(1, there.encode())) is not None
