"""The float64 reference, the rows that are compared, and what a comparison finds wrong."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.worker.proof.rounding import rounding
from attn_doctor.worker.proof.rows import boundaries, sample

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow


def run(torch_python: str, code: str) -> Any:
    """The last line that a program with torch prints, as JSON."""
    head = f"import json, math, sys, torch\nsys.path.insert(0, {str(ROOT)!r})\n"
    done = subprocess.run(
        [torch_python, "-W", "ignore", "-c", head + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_roundings_are_those_that_were_measured() -> None:
    """On an H200 with normal inputs: native 2.3e-3, SageAttention 1.2e-2 to 3.8e-2."""
    native = rounding("fused", "bfloat16", "cuda:0")
    assert math.hypot(native.out, native.weights) == pytest.approx(2.35e-3, rel=0.01)
    fp8 = rounding("int8-fp8", "bfloat16", "cuda:0")
    assert math.hypot(fp8.values, fp8.weights) == pytest.approx(3.75e-2, rel=0.01)
    assert rounding("unfused", "bfloat16", "cpu").scores == native.out
    assert rounding("fused", "float32", "cpu").out < rounding("fused", "float32", "cuda:0").out


def test_every_boundary_and_every_head_is_compared() -> None:
    shape = (1, 40, 75600, 128)
    part = sample(shape, 75600, training=True, allowed=1e13, call=0)
    assert not part.whole
    assert part.each >= 2
    tight = sample(shape, 75600, training=True, allowed=0.0, call=0)
    seen = {row for head in range(40) for row in _edges(tight, head)}
    assert seen >= set(boundaries(75600))
    for allowed in (0.0, 1e12):
        short = sample((2, 4, 5, 64), 32768, training=False, allowed=allowed, call=1)
        assert short.each == 5, "a short call is compared as a whole, whatever it costs"
    assert sample((1, 2, 256, 64), 256, training=True, allowed=1e12, call=0).whole


def _edges(part: Any, head: int) -> list[int]:
    edges = boundaries(part.length)
    step = -(-len(edges) // (part.each - 2))
    return edges[(head + part.seed) % step :: step]


def test_the_rows_of_a_sample(torch_python: str) -> None:
    found = run(
        torch_python,
        """
from attn_doctor.worker.proof.rows import sample
part = sample((1, 3, 1000, 64), 1000, training=False, allowed=0.0, call=2, seed=2)
print(json.dumps([part.each, [part.rows(torch, head, "cpu").tolist() for head in range(3)]]))
""",
    )
    each, rows = found
    for one in rows:
        assert one == sorted(set(one))
        assert {0, 999} <= set(one)
        assert each // 2 < len(one) <= each
    assert set(boundaries(1000)) <= {row for one in rows for row in one}
    assert rows[0] != rows[1]


#: Compares exact parts with torch's own gradients, and changes each result a little.
CHECK = """
from attn_doctor.worker.proof import compare, exact, rows, rounding
exact._CHUNK = 400  # a few rows at once
torch.manual_seed(0)
answers = []
for heads, causal, uneven in ((2, False, False), (4, True, False), (4, False, True)):
    keys = 70 if uneven else 130
    made = lambda heads, length: torch.randn(2, heads, length, 16, dtype=torch.float64)
    q, k, v = made(4, 130), made(heads, keys), made(heads, keys)
    for one in (q, k, v):
        one.requires_grad_()
    up = made(4, 130)
    past = torch.ones(130, keys, dtype=torch.bool).tril()
    mask = past if causal else None
    def adjust(scores, batch, head, rows):
        return scores.masked_fill(~past[rows], -math.inf) if causal else scores
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, enable_gqa=True)
    grads = torch.autograd.grad(out, (q, k, v), up)
    results = dict(zip(("out", "dq", "dk", "dv"), (out.detach(), *grads)))
    part = rows.sample((2, 4, 130, 16), keys, training=True, allowed=1e15, call=0)
    units = rounding.rounding("fused", "bfloat16", "cpu")
    def compared(results):
        tensors = tuple(one.detach() for one in (q, k, v))
        found = compare.compare(torch, tensors, results, adjust, 0.25, units, part, up)
        return {name: [one.error, one.allowed, one.rows, one.wrong] for name, one in found.items()}
    answers.append(["right", "", compared(results)])
    for name, one in results.items():
        answers.append(["all", name, compared({**results, name: one * 1.02})])
        row = one.clone(); row[1, 1, 66] *= 1.05
        answers.append(["row", name, compared({**results, name: row})])
        nan = one.clone(); nan[1, 0, 5, 3] = math.nan
        answers.append(["nan", name, compared({**results, name: nan})])
print(json.dumps(answers))
"""


def test_the_reference_is_right_and_sees_what_is_wrong(torch_python: str) -> None:
    for kind, name, found in run(torch_python, CHECK):
        assert set(found) == {"out", "dq", "dk", "dv"}
        for other, (error, allowed, rows, wrong) in found.items():
            assert rows in (130 * 8, 130 * 4, 70 * 8, 70 * 4)
            assert 2e-3 < allowed < 1e-2
            if other != name:
                assert error < 1e-12, (kind, name, other)
                assert wrong == ""
                continue
            assert wrong, (kind, name)
            if kind == "all":
                assert error == pytest.approx(0.02)
            if kind == "row":
                assert "row 66 of head 1 of sample 1" in wrong
                assert error < allowed, "it does not show in all rows together"
            if kind == "nan":
                assert "holds 1 values that are not finite" in wrong


def test_nothing_is_transferred_before_the_end(torch_python: str) -> None:
    """Beside other jobs, each transfer from a GPU waits for its turn."""
    count = run(
        torch_python,
        """
import torch.utils._python_dispatch
from attn_doctor.worker.proof import exact, rows, rounding
class Fetches(torch.utils._python_dispatch.TorchDispatchMode):
    count = 0
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += "_local_scalar_dense" in str(function)
        return function(*args, **(kwargs or {}))
q = torch.randn(1, 2, 100, 16)
part = rows.sample((1, 2, 100, 16), 100, training=True, allowed=1e12, call=0)
units = rounding.rounding("int8-fp8", "bfloat16", "cpu")
with Fetches() as fetches:
    parts = list(exact.parts(torch, (q, q, q), lambda s, *_: s, 0.25, units, part, q))
assert len(parts) == 8
print(fetches.count)
""",
    )
    assert count == 0


def test_a_proof_that_compares_nothing_fails(torch_python: str) -> None:
    found = run(
        torch_python,
        """
from attn_doctor.worker.proof import compare
print(json.dumps(compare._Rows(torch).evaluated("dk", 0.001, False).wrong))
""",
    )
    assert found == "no row of the gradient of the keys was compared"


KINDS: list[dict[str, Any]] = [
    {"mask": "causal"},
    {"mask": "causal", "per_head": True},
    {"mask": "document", "kv_heads": 2},
    {"mask": "sliding-window", "window": 17},
    {"mask": "bool", "layout": "bshd"},
    {"mask": "bool", "mask_rows": True},
    {"mask": "float", "kv_length": 40, "layout": "bshd"},
    {"mask": "none", "layout": "fused-v", "fused_width": 500},
    {"mask": "none", "layout": "fused-qkv", "value_dim": 32},
    {"mask": "none", "layout": "fused-qkv", "kv_length": 50},
    {"mask": "masks:plain"},
    {"mask": "masks:made", "kv_length": 70},
]
MASKS = """
import torch
def plain(b, h, q, kv):
    return (q + kv) % 3 != 0
def made(length, kv_length, device):
    kind = torch.arange(max(length, kv_length), device=device) % 5
    return lambda b, h, q, kv: kind[q] != kind[kv]
def wrong(a, b):
    return True
"""


def test_each_mask_and_layout_means_to_torch_what_it_means_to_us(
    torch_python: str, tmp_path: Path
) -> None:
    """Torch's own dense flex_attention passes the proof for every kind of call, and no other."""
    (tmp_path / "masks.py").write_text(MASKS)
    *found, arguments, absent, module = run(
        torch_python,
        f"""
sys.path.insert(0, {str(tmp_path)!r})
from attn_doctor.worker.kernels import spec_inputs as inputs
from attn_doctor.worker.proof.calls import Call, prove
from attn_doctor.worker.proof.rounding import rounding
from torch.nn.attention.flex_attention import flex_attention
answer = []
for kind in json.loads({json.dumps(KINDS)!r}):
    spec = dict(heads=4, head_dim=16, dtype="float32", batch=2, phase="inference", **kind)
    user = inputs.own_mask(spec["mask"]) if ":" in spec["mask"] else None
    call = inputs.make(torch, spec, 150, "cpu", user)
    given = dict(block_mask=call.block_mask, score_mod=call.score_mod,
                 enable_gqa="kv_heads" in kind)
    def proof(scale):
        return prove(Call(
            torch=torch, device="cpu", inputs=(call.query, call.key, call.value),
            run=lambda: flex_attention(call.query, call.key, call.value, **given), turned=False,
            adjust=inputs.adjusting(torch, call), scale=scale, training=False,
            rounding=rounding("fused", "float32", "cpu"), wait=lambda: None,
        ))
    answer.append([proof(0.25).wrong, proof(0.2501).wrong, list(map(list, (call.query.stride(),)))])
for name in ("masks:wrong", "masks:absent", "absent:x"):
    try: inputs.own_mask(name)
    except ValueError as error: answer.append(str(error))
print(json.dumps(answer))
""",
    )
    assert len(found) == len(KINDS)
    for kind, (right, wrong, _) in zip(KINDS, found, strict=True):
        assert right == "", kind
        assert wrong, kind
    assert "takes (a, b); a mask takes (batch, head, q_index, kv_index)" in arguments
    assert "has no attribute 'absent'" in absent
    assert "No module named 'absent'" in module
