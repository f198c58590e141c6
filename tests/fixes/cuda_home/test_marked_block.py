"""The marked block: what is outside of it stays byte for byte."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_doctor.errors import AttnDoctorError
from attn_doctor.fixes.cuda_home.marked_block import NAME, with_block

LINES = ["export CUDA_HOME='/a'"]
#: Text of start files: no zero bytes, and no marks of ours.
TEXTS = st.binary(max_size=200).filter(
    lambda data: b"\0" not in data and not data.startswith((b"\xff\xfe", b"\xfe\xff"))
)


def put(data: bytes, lines: list[str] = LINES, part: str = "", after: str = "") -> bytes:
    found = with_block(data, lines, "file", part, after)
    assert found is not None
    return found


@given(TEXTS)
def test_what_was_there_stays_in_front(data: bytes) -> None:
    there = put(data)
    assert there.startswith(data)
    assert there[len(data) :].count(NAME.encode()) == 2
    if not data:
        assert there.startswith(b"# >>> ")


@given(TEXTS, TEXTS)
def test_a_second_run_replaces_the_block_in_place(data: bytes, tail: bytes) -> None:
    once = put(data) + tail
    again = put(once, ["other"])
    assert again.endswith(tail)
    assert put(again, ["other"]) == again
    assert put(again) == once


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_are_those_of_the_file(end: str) -> None:
    data = f"a{end}b{end}".encode()
    new = put(data)[len(data) :].decode()
    assert new.count("\n") == new.count(end) == 5
    assert ("\r" in new) == (end == "\r\n")


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ],
)
def test_the_encoding_of_a_profile_stays(mark: bytes, encoding: str) -> None:
    data = mark + "# grüß\r\n".encode(encoding)
    there = put(data)
    assert there.startswith(data)
    assert NAME in there[len(mark) :].decode(encoding)
    assert put(there) == there


def test_bytes_that_are_no_utf_8_survive() -> None:
    data = b"alias gr\xfc='ls'\n"
    assert put(data).startswith(data)


def test_a_block_goes_below_the_line_it_belongs_to() -> None:
    data = b"deactivate () {\n    unset X\n}\n"
    there = put(data, ["unset Y"], "deactivate", r"^deactivate\s*\(\)\s*\{")
    assert there.splitlines()[:3] == [
        b"deactivate () {", f"    # >>> {NAME}, deactivate >>>".encode(), b"    unset Y",
    ]  # fmt: skip
    assert put(there, ["unset Y"], "deactivate", r"^deactivate\s*\(\)\s*\{") == there
    assert with_block(b"nothing\n", ["x"], "file", "deactivate", "^deactivate") is None


@pytest.mark.parametrize(
    "text",
    [
        f"# >>> {NAME} >>>\nexport A=1\n",
        f"# <<< {NAME} <<<\n",
        f"# <<< {NAME} <<<\n# >>> {NAME} >>>\n",
        f"# >>> {NAME} >>>\n# <<< {NAME} <<<\n# >>> {NAME} >>>\n# <<< {NAME} <<<\n",
    ],
)
def test_a_damaged_block_is_not_guessed_at(text: str) -> None:
    with pytest.raises(AttnDoctorError, match=r"/x/\.bashrc, line 2: the block .* is damaged"):
        with_block(b"first\n" + text.encode(), LINES, "/x/.bashrc")


@pytest.mark.parametrize("data", [b"a\0b", codecs.BOM_UTF16_LE + b"\x00"])
def test_what_is_no_text_is_left_alone(data: bytes) -> None:
    with pytest.raises(AttnDoctorError, match="was not changed"):
        with_block(data, LINES, "file")
