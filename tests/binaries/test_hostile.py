"""Files that are cut, damaged or made to mislead: an answer, quickly, and never an exception."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attn_doctor.binaries.read import binary, gpu_code, versions
from attn_doctor.binaries.unresolved import unresolved
from tests.binaries.test_pe import pe
from tests.effort import at_most

FATBINS = Path(__file__).parent / "fatbins"
SEED = (FATBINS / "variants.so").read_bytes()
MANY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def ask_everything(path: Path) -> None:
    """Ask all there is to ask; a file of this size takes some milliseconds."""
    with at_most(5):
        binary(str(path))
        versions(str(path))
        gpu_code(str(path))
        (as_user, as_provider) = unresolved(
            [(str(path), [str(FATBINS / "plain.so")]), (str(FATBINS / "plain.so"), [str(path)])]
        )
    assert as_user.count >= 0
    assert as_provider.count >= 0


@MANY
@given(st.integers(0, len(SEED)))
def test_cut_short(tmp_path: Path, length: int) -> None:
    path = tmp_path / "x.so"
    path.write_bytes(SEED[:length])
    ask_everything(path)


NUMBERS = st.sampled_from(
    [0, 1, 7, 8, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63, 2**64 - 1]
)


@MANY
@given(
    st.lists(
        st.tuples(st.integers(0, len(SEED) - 8), NUMBERS, st.sampled_from([1, 2, 4, 8])),
        min_size=1,
        max_size=12,
    )
)
def test_numbers_changed_anywhere(tmp_path: Path, changes: list[tuple[int, int, int]]) -> None:
    data = bytearray(SEED)
    for place, number, width in changes:
        data[place : place + width] = (number % 2 ** (8 * width)).to_bytes(width, "little")
    path = tmp_path / "x.so"
    path.write_bytes(data)
    ask_everything(path)


@MANY
@given(st.lists(st.tuples(st.integers(0, 900), NUMBERS, st.sampled_from([1, 2, 4, 8])), min_size=1))
def test_numbers_changed_in_the_headers(
    tmp_path: Path, changes: list[tuple[int, int, int]]
) -> None:
    data = bytearray(SEED)
    for place, number, width in changes:
        data[place : place + width] = (number % 2 ** (8 * width)).to_bytes(width, "little")
    path = tmp_path / "x.so"
    path.write_bytes(data)
    ask_everything(path)


@MANY
@given(st.lists(st.tuples(st.integers(2, 700), NUMBERS, st.sampled_from([1, 2, 4, 8])), min_size=1))
def test_a_damaged_dll(tmp_path: Path, changes: list[tuple[int, int, int]]) -> None:
    path = pe(tmp_path / "x.dll", ["a.dll", "b.dll"])
    data = bytearray(path.read_bytes())
    for place, number, width in changes:
        data[place : place + width] = (number % 2 ** (8 * width)).to_bytes(width, "little")
    path.write_bytes(data[: len(data)])
    ask_everything(path)


@given(st.binary(max_size=300))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.so"
    for head in (b"", b"\x7fELF\x02\x01", b"MZ"):
        path.write_bytes(head + data)
        ask_everything(path)


def test_a_folder_and_a_pipe(tmp_path: Path) -> None:
    import os

    with pytest.raises(OSError):  # noqa: PT011 — which one depends on the system
        binary(str(tmp_path))
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="a pipe"):  # and does not wait for a writer
            binary(str(tmp_path / "pipe"))
