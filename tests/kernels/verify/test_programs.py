"""A warm-up verified by its own program, with a real torch on the CPU: right, wrong, missing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.kernels.verify.programs import missing
from attn_doctor.record import store
from attn_doctor.record.manifest import Warmup

TORCH = os.environ.get("ATTN_DOCTOR_TORCH_PYTHON", "")
SKETCHES = """
import json, os, sys, importlib.util
root = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "attn_doctor", os.path.join(root, "__init__.py"), submodule_search_locations=[root]
)
sys.modules["attn_doctor"] = importlib.util.module_from_spec(spec)
import torch
from attn_doctor.worker.kernels import graph_outputs as outputs
torch.manual_seed(1)
x = torch.randn(64, 70).to(torch.bfloat16)
noise = torch.randn(64, 70)
y = (x.double() + 0.05 * x.double().norm() / noise.norm() * noise).to(torch.float32)
holed = x.clone(); holed[3] = 0
nan = x.clone(); nan[0, 0] = float("nan")
large = x.clone(); large[40, 3] = 30
many = torch.randn(110592, 64).to(torch.bfloat16)
five = many.clone(); five[70000:70005] = 0
ulp = (many.float() * (1 + 2**-9 * torch.randn(110592, 64).sign())).to(torch.bfloat16)
found = {"x": x, "same": x.clone(), "near": y.to(torch.bfloat16), "turned": x.flip(0),
         "holed": holed, "nan": nan, "large": large,
         "many": many, "five": five, "ulp": ulp, "zeros": torch.zeros_like(x),
         "complex": torch.view_as_complex(torch.randn(3, 2)), "whole": torch.arange(10),
         "empty": torch.empty(0, 3)}
answer = {name: outputs.sketch(torch, one) for name, one in found.items()}
outputs.CHUNK = 1000
assert outputs.sketch(torch, x) == answer["x"]
print(json.dumps(answer))
"""
PROGRAM = """
import torch

@torch.compile
def step(x, w):
    return torch.nn.functional.silu(x @ w).sum(-1)

w = torch.randn(16, 16, requires_grad=True)
for _ in range(2):
    step(torch.randn(32, 16), w).square().mean().backward()
"""


@pytest.mark.torch
def test_sketches_of_tensors() -> None:
    import msgspec

    import attn_doctor
    from attn_doctor.kernels.verify.compare_runs import Sketch, difference

    root = str(Path(attn_doctor.__file__).parent)
    ended = subprocess.run(
        [TORCH, "-c", SKETCHES, root], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = msgspec.json.decode(ended.stdout, type=dict[str, Sketch])
    true = found["x"]
    assert difference(found["same"], true) == 0.0
    assert 0.025 < difference(found["near"], true) < 0.1
    assert difference(found["turned"], true) > 0.5
    assert 0.2 < difference(found["holed"], true) < 0.4  # all of one block
    assert difference(found["large"], true) > 0.5
    assert difference(found["nan"], true) == float("inf")
    assert difference(found["zeros"], true) > 0.9
    assert found["complex"].shape == (3,)
    assert difference(found["empty"], found["empty"]) == 0.0
    # Five rows of zeros among 110,592, which are a hundredth of a percent of it.
    assert difference(found["five"], found["many"]) > 0.02
    assert difference(found["ulp"], found["many"]) < 0.005


@pytest.fixture(scope="module")
def warmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, and the cache that it filled, recorded as unverified."""
    room = tmp_path_factory.mktemp("warmed")
    (room / "warm.py").write_text(PROGRAM, encoding="utf-8")
    built = doctor(room, "build-kernels", "--device", "cpu", "--cache-dir", "c", *PROG)
    assert built.returncode == 0, built.stderr
    wait_again(room / "c")
    return room


PROG = ("--", "python", "warm.py")


def wait_again(cache: Path) -> None:
    """Record the warm-ups as if a stub GPU had run them."""
    manifest = store.load(cache)
    assert manifest is not None
    waiting = {key: replace(one, unverified=True) for key, one in manifest.warmups.items()}
    store.save(cache, replace(manifest, warmups=waiting))


def doctor(room: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    at = words.index("--") if "--" in words else len(words)
    argv = [*words[:at], "--python", TORCH, *words[at:]]
    return subprocess.run(
        [sys.executable, "-m", "attn_doctor", *argv],
        cwd=room,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def room(warmed: Path, tmp_path: Path) -> Path:
    shutil.copytree(warmed, tmp_path / "room")
    return tmp_path / "room"


Waits = Callable[[Path], list[bool]]


def waits(room: Path) -> list[bool]:
    manifest = store.load(room / "c")
    assert manifest is not None
    return [one.unverified for one in manifest.warmups.values()]


@pytest.mark.torch
@pytest.mark.slow
def test_the_program_proves_it(room: Path) -> None:
    reported = doctor(room, "cache", "verify", "--cache-dir", "c")
    assert reported.returncode == 0
    assert "a warm-up is unverified: attn-doctor cache verify" in reported.stdout
    required = doctor(room, "cache", "verify", "--cache-dir", "c", "--require-hit")
    assert required.returncode == 1
    assert "its results were not compared on this GPU yet: attn-doctor" in " ".join(
        required.stdout.split()
    )
    done = doctor(room, "cache", "verify", "--cache-dir", "c", "--format", "json", *PROG)
    assert done.returncode == 0, done.stdout + done.stderr
    (kernel,) = json.loads(done.stdout)["kernels"]
    assert (kernel["hit"], kernel["state"], kernel["previous_state"]) == (
        True,
        "built",
        "unverified",
    )
    assert kernel["errors"] == {"2 graphs": 0.0}
    assert waits(room) == [False]


@pytest.mark.torch
@pytest.mark.slow
def test_a_graph_that_computes_something_else_is_found(room: Path) -> None:
    # A wrong gradient, with every cache hit: torch loads the code that it finds.
    code = next(
        path
        for path in (room / "c").glob("??/c*.py")
        if "def call" in (text := path.read_text(encoding="utf-8")) and "silu_backward" in text
    )
    change = "[one if one is None else one * 1.5 for one in right(args)]"
    wrong = f"\nright = call\ndef call(args):\n    return {change}\n"
    code.write_text(code.read_text(encoding="utf-8") + wrong, encoding="utf-8")
    done = doctor(room, "cache", "verify", "--cache-dir", "c", "--format", "json", *PROG)
    assert done.returncode == 1, done.stdout
    (kernel,) = json.loads(done.stdout)["kernels"]
    reported = re.search(r"result 1 of 1 differs by about ([\d.]+)% from that", kernel["message"])
    assert reported is not None, kernel["message"]
    assert 40 < float(reported[1]) < 60  # half of it
    assert waits(room) == [True]


@pytest.mark.torch
@pytest.mark.slow
def test_another_program_proves_nothing_and_a_miss_is_named(room: Path) -> None:
    text = (room / "warm.py").read_text(encoding="utf-8").replace("randn(32, 16)", "randn(48, 16)")
    (room / "other.py").write_text(text, encoding="utf-8")
    done = doctor(room, "cache", "verify", "--cache-dir", "c", "--", "python", "other.py")
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert "lookups missed and were compiled here" in said
    assert "size=[32, 16]" in said or "shape=Size([32, 16])" in said or "48" in said
    assert waits(room) == [True]
    failing = doctor(
        room, "cache", "verify", "--cache-dir", "c", "--", "python", "-c", "raise SystemExit(7)"
    )
    assert failing.returncode == 1
    assert "it ended with exit code 7" in failing.stdout
    nothing = doctor(room, "cache", "verify", "--cache-dir", "c", "--", "python", "-c", "pass")
    assert "it compiled nothing with torch.compile" in nothing.stdout


def test_a_recorded_program_has_to_be_where_it_was(tmp_path: Path) -> None:
    warmup = Warmup(
        argv=(sys.executable, "warm.py", "--steps", "1"), folder=str(tmp_path), device_slot="cpu",
        at="", seconds=1.0,
    )  # fmt: skip
    assert missing(warmup) == f"{tmp_path / 'warm.py'} is not on this machine"
    (tmp_path / "warm.py").write_text("", encoding="utf-8")
    assert missing(warmup) == ""
    assert (
        missing(replace(warmup, folder="/nowhere")) == "its folder /nowhere is not on this machine"
    )
    assert missing(replace(warmup, argv=("/no/python", "x"))) == "/no/python is not on this machine"


@pytest.mark.posix
def test_two_dashes_and_nothing_behind() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "attn_doctor", "cache", "verify", "--"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "after -- a program is expected" in " ".join(ended.stderr.replace("│", "").split())
