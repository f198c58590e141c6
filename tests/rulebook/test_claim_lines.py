"""What is printed of a claim whose wheel does not have what the claim names."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.version import Version

ROOT = Path(__file__).parents[2]
tool = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "claim_lines.py")))
TEXT = "import torch\n\n)\nvalue = 1\n"


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("torch==2.11.0+cu130 torch/version.py:1", ""),
        ("torch==2.11.0 torch/version.py:1-4", ""),
        ("torch==2.11.0 torch/version.py:1,4", ""),
        ("torch==2.11.0 torch/version.py:2-4", ""),
        ("torch==2.11.0 torch/version.py:3", "line 3 has no text"),
        ("torch==2.11.0 torch/version.py:4-5", "line 5 is after the end, line 4"),
        ("torch==2.11.0 torch/version.py without hip", ""),
        ("torch==2.11.0 torch/version.py without value", "value is in it"),
        ("torch==2.11.0 torch/version.py value = 2", ""),
        ("torch==2.11.0 torch/version.py, absent", "the file is there"),
    ],
)
def test_faults_of_a_place(source: str, wrong: str) -> None:
    (place,) = tool.sources([("a/b", source)])
    assert (place.version, place.path) == (Version("2.11.0"), "torch/version.py")
    assert tool.fault(place, TEXT) == wrong


@pytest.mark.parametrize(
    "source", ["torch==2.11.0 torch/lib/libtorch_cuda.so with x", "torch==2.9.1 torch/nn/attention"]
)
def test_what_has_no_lines_is_left_out(source: str) -> None:
    assert list(tool.sources([("a/b", source)])) == []


def test_a_file_is_taken_from_a_wheel_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names = tool.faults.__globals__
    monkeypatch.setitem(names, "_wheels", lambda *_: ["url"])
    monkeypatch.setitem(names, "_texts", lambda *_: {"a.py": TEXT})
    places = list(
        tool.sources([("x/y", "p==1 a.py:9"), ("x/z", "p==1 b.py:1"), ("x/w", "p==1 b.py missing")])
    )
    assert list(tool.faults(places)) == [
        "x/y: p==1 a.py: line 9 is after the end, line 4",
        "x/z: p==1 b.py: no wheel has this file",
    ]
