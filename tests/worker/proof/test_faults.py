"""Wrong attentions through the real child of `--live` and the builder's real proof, on the CPU.

`python benchmarks/proof.py` runs them on a GPU, with more seeds, and right backends beside them;
docs/development.md has the figures.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.worker.proof import run_faults
from tests.worker.proof.run_faults import Answer

pytestmark = pytest.mark.slow
#: A fault and what a call must have for it to matter.
Faults = dict[str, list[str]]


@pytest.fixture(scope="module")
def faults(torch_python: str) -> Faults:
    found = run_faults.faults(torch_python)
    assert len(found) > 80
    return found


def expect(found: dict[str, Answer]) -> None:
    """All wrong ones were found wrong by their numbers, and the right one right."""
    assert found.pop("").right
    missed = {name: one.sentence for name, one in found.items() if one.right or not one.compared}
    assert missed == {}


def test_the_builder_finds_every_fault(torch_python: str, faults: Faults) -> None:
    jobs = [
        (name, {"action": "build", "device": "cpu", "spec": run_faults.spec(needs)})
        for name, needs in faults.items()
    ]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    answers = run_faults.build(torch_python, jobs, environ)
    expect(dict(zip(faults, answers, strict=True)))


def test_live_finds_every_fault(
    torch_python: str, faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = {}
    with run_faults.live(torch_python, tmp_path, "cpu", monkeypatch.setenv) as live:
        for name, needs in faults.items():
            workload = run_faults.workload(needs, 192)
            if workload is not None:
                found[name] = live.run(name, workload)
    assert len(found) > 80
    expect(found)


def test_a_wrong_kernel_with_a_length_below_a_tile(torch_python: str) -> None:
    """Its comparison costs more than is allowed, and no row was compared once."""
    spec = {
        "heads": 64, "kv_heads": 1, "head_dim": 128, "lengths": [32], "kv_length": 4096,
        "phase": "inference",
    }  # fmt: skip
    job = {"action": "build", "device": "cpu", "spec": spec}
    jobs = [("", job), ("scale 2 % too large", job)]
    environ = {**os.environ, "OMP_NUM_THREADS": "2"}
    right, wrong = run_faults.build(torch_python, jobs, environ)
    assert right.right, right
    assert not wrong.right
    assert "the output is off by" in wrong.sentence


#: Emulates SageAttention: int8 queries and keys, and fp8 or float16 products.
SAGE = """
import json, math, sys, torch
sys.path.insert(0, {root!r})
from attn_doctor.worker.proof.calls import Call, prove
from attn_doctor.worker.proof.rounding import rounding

def int8(x):
    step = x.abs().amax((-2, -1), keepdim=True) / 127
    return (x / step).round() * step

def sage(q, k, v, products, weights=None, scale=1.0):
    q, k = int8(q.float()), int8(k.float() - k.float().mean(2, keepdim=True))
    scores = q @ k.mT * q.shape[-1] ** -0.5 * scale
    p = torch.exp(scores - scores.amax(-1, keepdim=True))
    total = p.sum(-1, keepdim=True)
    fp8 = torch.float8_e4m3fn
    if products == "fp8":
        step = v.float().abs().amax(2, keepdim=True) / 448
        v = (v.float() / step).to(fp8).float() * step
    if "fp8" in (products, weights):
        p = (p * 448).to(fp8).float() / 448
    else:
        p = p.half().float()
    return ((p @ v.float()) / total).bfloat16()

def proved(products, more, heads, seed):
    q, k, v = (torch.zeros(1, heads, n, 64, dtype=torch.bfloat16) for n in (320, 448, 448))
    gain = more.get("out", 1.0)
    given = {{key: one for key, one in more.items() if key != "out"}}
    return prove(Call(
        torch=torch, device="cpu", inputs=(q, k, v), turned=False, seed=seed,
        run=lambda: (sage(q, k, v, products, **given).float() * gain).bfloat16(),
        adjust=lambda scores, *_: scores, scale=64**-0.5, training=False,
        rounding=rounding("int8-" + products, "bfloat16", "cpu"), wait=lambda: None,
    )).wrong

answers = {{"one head": [proved("fp16", {{}}, 1, seed) for seed in range(40)]}}
for name, products, more in (
    ("fp8", "fp8", {{}}), ("fp16", "fp16", {{}}),
    ("fp8, scale +2 %", "fp8", {{"scale": 1.02}}), ("fp8, scale -2 %", "fp8", {{"scale": 0.98}}),
    ("fp16, scale +2 %", "fp16", {{"scale": 1.02}}),
    ("fp16, weights in fp8", "fp16", {{"weights": "fp8"}}),
    ("fp8, output +2 %", "fp8", {{"out": 1.02}}),
):
    words = [proved(products, more, 4, seed) for seed in range({seeds})]
    answers[name] = words
print(json.dumps(answers))
"""


def test_eight_bits_do_not_hide_a_fault(torch_python: str) -> None:
    """Their error is 16 times that of bfloat16; a scale 2 % off is less than it."""
    code = SAGE.format(root=str(run_faults.ROOT), seeds=3)
    done = subprocess.run(
        [torch_python, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for name, words in json.loads(done.stdout).items():
        right = "," not in name
        assert all(bool(one) is not right for one in words), (name, words)
