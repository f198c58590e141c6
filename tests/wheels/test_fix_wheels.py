"""`attn-doctor fix wheels WHEEL…`."""

from __future__ import annotations

import json
from pathlib import Path

from attn_doctor.facts import Facts, Torch
from attn_doctor.fixes.read_wheel import read_wheel
from attn_doctor.render.fix.wheels import read_wheels_text
from attn_doctor.render.terminal import Terminal
from tests.binaries.sources import library
from tests.command import run
from tests.wheels.range_server import Served
from tests.wheels.test_reading import TORCH, server, user, wheel

__all__ = ["server"]


def facts(folder: Path) -> Facts:
    library(folder / "torch/lib/libc10.so", TORCH)
    path = str(folder / "torch")
    return Facts(torch=Torch(installed=True, version="2.9.1", path=path, build="cpu"))


def test_shows_the_verdict_and_what_was_fetched(server: Served, tmp_path: Path) -> None:
    address = wheel(server, user(tmp_path, "newer"), padding=900_000)
    text = read_wheels_text([read_wheel(address, facts(tmp_path))], Terminal())
    assert text.splitlines()[:2] == [
        "✗ x-1.0-py3-none-any.whl",
        "  Does not load: torch 2.9.1 lacks `_ZN3c105newerEi` (c10::newer(…)).",
    ]
    assert " of 0.9 MB were fetched" in text


def test_without_torch(server: Served, tmp_path: Path) -> None:
    found = read_wheel(wheel(server, user(tmp_path, "old")), Facts(torch=Torch(installed=False)))
    assert found.verdict.text == "unknown: torch is not installed"


def test_the_command(server: Served, tmp_path: Path) -> None:
    address = wheel(server, user(tmp_path, "old"))
    ended = run("fix", "wheels", address, "--json")
    (one,) = json.loads(ended.stdout)["wheels"]
    assert (one["source"], ended.returncode) == (address, 0 if one["loads"] == "yes" else 1)
    gone = run("fix", "wheels", server.url("gone.whl"))
    assert (gone.returncode, "the server answered 404 Not Found" in gone.text) == (1, True)
    absent = run("fix", "wheels", str(tmp_path / "absent.whl"))
    assert (absent.returncode, "is not a file" in absent.stderr) == (2, True)
