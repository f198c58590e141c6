"""Logs with the words of a symptom that show another failure: its rule must not explain them."""

from __future__ import annotations

import pytest

from tests.explain.posted_logs import answer

REFUSED = {
    "sage/black-output": """
Black images even with sage attention off, so it is my model
---
I get black images with sage attention disabled in settings
---
Sage attention is not the problem, black images come from the VAE
---
SageAttention not found, using split attention: black images
---
Xformers / Flash Attn / Sage Attn is not installed!
nodes.py:1594: RuntimeWarning: invalid value encountered in cast
---
sage_attn: False
Using xformers attention
nodes.py:1594: RuntimeWarning: invalid value encountered in cast
---
Could not load sageattention: No module named sageattention
NansException: A tensor with all NaNs was produced in VAE.
---
sageattention disabled
step 12: grad norm is nan
""",
    "flash/flash-attn-3-not-on-index": """
ERROR: Could not find a version that satisfies the requirement flash-attn-3 (from versions: 3.0.0)
---
ERROR: No matching distribution found for flash-attn-3==3.1
""",
    "flash/release-packaging-fault": """
WARNING: Requested flash-attention from file:///tmp/flash_attn-2.8.3.tar.gz has inconsistent name: \
expected 'flash-attention', but metadata has 'flash-attn'
""",
    "flash/build-out-of-memory": """
nvcc version ..... 12.4
Loading checkpoint shards:  50%|#####     | 1/2
Killed
""",
    "flash/flash-attn-4-compile": """
  File "/venv/flash_attn/cute/interface.py", line 402, in _flash_attn_fwd
DSLRuntimeError: 💥💥💥 Runtime Crash 💥💥💥
---
  File "/venv/flash_attn/cute/interface.py", line 402, in _flash_attn_fwd
DSLRuntimeError: input args/kwargs length does not match runtime function signature!
""",
    "flex/mixed-dtype": """
  File "/venv/torch/nn/attention/bias.py", line 234, in _dispatch
ValueError: Expected query, key, and value to have the same dtype, but got query.dtype: torch.half
""",
    "caches/windows-path-too-long": r"""
Error: No such file or directory: 'C:\\t\\RSBZ\\triton_poi_fused_add_cat_mul_native_layer_norm.json'
""",
    "triton/ptxas-too-old": """
NVIDIA GeForce RTX 5090
RuntimeError: `ptxas` failed with error code 255
`ptxas` stderr:
ptxas error : Entry function '_fwd' uses too much shared data (0x24000 bytes, 0x18c00 max)
---
E tensorflow/core: ptxas fatal : Value 'sm_86' is not defined for option 'gpu-name'
""",
    "torch/ninja-missing": """
  File "/app/django/apps/config.py", line 193, in create
ModuleNotFoundError: No module named 'ninja'
""",
    "diffusers/env-backend-invalid": """
  File "/venv/olmo_core/nn/attention/backend.py", line 20
ValueError: 'flash' is not a valid AttentionBackendName
""",
    "driver/wsl-stub": """
Linux 5.15.0-1057-aws
Failed to initialize NVML: GPU access blocked by the operating system
---
$ docker run --gpus all ubuntu nvidia-smi  # in WSL2
Failed to initialize NVML: GPU access blocked by the operating system
""",
}
CASES = [(rule, log) for rule, logs in REFUSED.items() for log in logs.split("---\n")]


@pytest.mark.parametrize(("rule", "log"), CASES)
def test_the_rule_does_not_explain_it(rule: str, log: str) -> None:
    assert rule not in [match.rule for match in answer(log).matches]
