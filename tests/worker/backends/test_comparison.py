"""The float64 reference against torch's own gradients, in a real torch."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import attn_doctor

CHECK = """
import itertools, math, torch
from attn_doctor.worker.backends import comparison as reference
reference.ROWS = 7
torch.manual_seed(0)
sdpa = torch.nn.functional.scaled_dot_product_attention
for heads, kv, kind, causal in itertools.product([4], [4, 2], ["none", "keys", "full"], [0, 1]):
    size = lambda n: (2, 19, n, 8)
    q, k, v = (torch.randn(size(n), dtype=torch.float64, requires_grad=True)
               for n in (heads, kv, kv))
    up = torch.randn(size(heads), dtype=torch.float64)
    mask = {"none": None, "keys": torch.rand(2, 1, 1, 19) > 0.3,
            "full": torch.rand(2, 4, 19, 19) > 0.3}[kind]
    if mask is not None:
        mask[..., 0] = True
    seen = torch.ones(2, 4, 19, 19, dtype=torch.bool) if mask is None else mask.expand(2, 4, 19, 19)
    seen = seen.tril() if causal else seen
    out = sdpa(*(one.transpose(1, 2) for one in (q, k, v)), attn_mask=seen,
               enable_gqa=heads != kv).transpose(1, 2)
    grads = torch.autograd.grad(out, (q, k, v), up)
    ask = dict(mask=mask, causal=bool(causal), upstream=up)
    found = reference.compare((q, k, v), out, gradients=grads, **ask)
    assert set(found) == {"out", "dq", "dk", "dv"}
    for name, one in found.items():
        assert one["error"] < 1e-12 and one["worst"] < 1e-11 and not one["not_finite"], (name, one)
    # It must be able to fail: each tensor a little wrong, a row very wrong, a NaN.
    wrong = reference.compare((q, k, v), out * 1.01, gradients=grads, **ask)
    assert abs(wrong["out"]["error"] - 0.01) < 1e-9 and wrong["dq"]["error"] < 1e-12
    for place, name in enumerate(("dq", "dk", "dv")):
        bad = list(grads)
        bad[place] = bad[place].clone()
        bad[place][1, 11, 1] += 1
        wrong = reference.compare((q, k, v), out, gradients=tuple(bad), **ask)
        assert wrong[name]["worst"] > 0.05 > 1e-12 > wrong["out"]["error"], (name, wrong)
        assert wrong[name]["error"] < wrong[name]["worst"]
    bad = out.detach().clone()
    bad[0, 5, 0, 3] = float("nan")
    wrong = reference.compare((q, k, v), bad, mask=mask, causal=bool(causal))["out"]
    assert wrong == {"error": None, "worst": None, "not_finite": 1}, wrong
print("right")
"""


@pytest.mark.slow
def test_the_reference_is_right_and_sees_what_is_wrong(torch_python: str) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = str(Path(attn_doctor.__file__).parent.parent)
    done = subprocess.run(
        [torch_python, "-c", CHECK],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "right", done.stderr
