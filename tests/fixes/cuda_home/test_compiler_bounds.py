"""torch's own table of host compilers, read as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_doctor.fixes.cuda_home import compiler_bounds
from attn_doctor.host.local import LocalHost

TEXT = """import torch
MINIMUM_GCC_VERSION = (5, 0, 0)
VersionRange = tuple[tuple[int, ...], tuple[int, ...]]
CUDA_GCC_VERSIONS: VersionMap = {
    '11.8': (MINIMUM_GCC_VERSION, (12, 0)),
    '12.4': ((6, 0, 0), (14, 0)),
}
CUDA_CLANG_VERSIONS = {'12.4': ((7, 0), (17, 0))}
"""


@pytest.fixture
def torch(tmp_path: Path) -> str:
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "cpp_extension.py").write_text(TEXT)
    return str(tmp_path)


def test_the_tables_of_both_families(torch: str) -> None:
    gcc = compiler_bounds.read(LocalHost(), torch, "gcc")
    assert gcc == {"11.8": ((5, 0, 0), (12, 0)), "12.4": ((6, 0, 0), (14, 0))}
    assert compiler_bounds.read(LocalHost(), torch, "clang") == {"12.4": ((7, 0), (17, 0))}
    assert compiler_bounds.read(LocalHost(), torch, "msvc") == {}


@pytest.mark.parametrize(
    ("version", "cuda", "said"),
    [
        ("13.3.0", "12.4", ""),
        ("14.2.0", "12.4", "torch refuses g++ 14.2.0 with CUDA 12.4: it accepts those before 14.0"),
        ("12.2.0", "11.8", "torch refuses g++ 12.2.0 with CUDA 11.8: it accepts those before 12.0"),
        ("4.8.5", "12.4", "torch refuses g++ 4.8.5 with CUDA 12.4: it accepts 6.0.0 and newer"),
        ("14.2.0", "13.9", ""),
        ("", "12.4", ""),
    ],
)
def test_refusals(torch: str, version: str, cuda: str, said: str) -> None:
    table = compiler_bounds.read(LocalHost(), torch, "gcc")
    assert compiler_bounds.refusal(table, cuda, "g++", version) == said


def test_a_file_that_cannot_be_read_refuses_nothing(tmp_path: Path) -> None:
    assert compiler_bounds.read(LocalHost(), str(tmp_path), "gcc") == {}
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils" / "cpp_extension.py").write_text("def f(:\n")
    assert compiler_bounds.read(LocalHost(), str(tmp_path), "gcc") == {}


@pytest.mark.parametrize(
    "table",
    ["((1, 0), x)", "((1, 0), (2, 0), (3, 0))", "((1, 'x'), (2, 0))", "{(): 1}[0]", "5", "()"],
)
def test_a_table_of_another_form_refuses_nothing(torch: str, table: str) -> None:
    text = f"CUDA_GCC_VERSIONS = {{'12.4': {table}, {{}}: 1}}\n"
    Path(torch, "utils", "cpp_extension.py").write_text(text)
    assert compiler_bounds.read(LocalHost(), torch, "gcc") == {}
    Path(torch, "utils", "cpp_extension.py").write_text(text.replace(", {}: 1", ""))
    assert compiler_bounds.read(LocalHost(), torch, "gcc") == {}


def test_a_deep_table_refuses_nothing(torch: str) -> None:
    deep = "(" * 150 + ")" * 150
    Path(torch, "utils", "cpp_extension.py").write_text(
        f"CUDA_GCC_VERSIONS = {deep}\n" + "-" * 99_999
    )
    assert compiler_bounds.read(LocalHost(), torch, "gcc") == {}
