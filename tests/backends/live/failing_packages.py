"""Packages that fail, for the PYTHONPATH of a real worker process.

`IMPORTS` fail while they are imported, without torch. `LIBRARIES` have the names of attention
packages, and fail or return wrong numbers when they are called.
"""

from __future__ import annotations

from pathlib import Path

#: Enough of torch for a worker to start.
FAKE_TORCH = """
__version__ = "2.99.0"
class version:
    cuda = None
    hip = None
class cuda:
    @staticmethod
    def is_initialized():
        return False
_C = None
"""
IMPORTS = {
    "good": "__version__ = '1.5'",
    "segfault": "import ctypes\nctypes.string_at(1)",
    "abort": "import os\nos.abort()",
    "hang": "import time\nprint('waiting', flush=True)\nwhile True: time.sleep(1)",
    "unkillable": "import signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(99)",
    "leaves": "import os\nos._exit(0)",
    "exits": "raise SystemExit('not here')",
    "breaks": "raise ImportError('libcudart.so.12: cannot open shared object file')",
    "eats": "import time\nkept = []\nwhile True:\n    kept.append(bytearray(b'x') * (8 << 20))\n"
    "    time.sleep(0.005)",
    "talks": "import os, json\n"
    "for line in ('{\"event\": \"done\", \"job\": 1}', '\\x00\\xff{', '[1]', 'null', '{' * 9000):\n"
    "    print(line, flush=True)\n"
    'os.write(1, b\'{"event": "ended", "job": 1, "code": 0}\\n\' * 2000)',
    "reads": "import sys\nassert sys.stdin.read() == ''",
    "deep": "def f(): f()\nf()",
    "starts": "import subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)', __file__],"
    " start_new_session=True)\ntime.sleep(99)",
}
_NATIVE = """
import torch

def attention(q, k, v, causal=False):
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return out.transpose(1, 2)
"""
LIBRARIES = {
    "flash_attn": """
def flash_attn_func(q, k, v, softmax_scale=None, causal=False):
    return attention(q, k, v, causal) * 1.03          # wrong by three percent

def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                           causal=False):
    batch = len(cu_seqlens_q) - 1
    out = attention(*(one.unflatten(0, (batch, -1)) for one in (q, k, v)), causal).clone()
    out[0, 3, 1] = float("nan")                       # one row of 64
    return out.flatten(0, 1)
""",
    "flash_attn_interface": """
import ctypes

def flash_attn_func(q, k, v, softmax_scale=None, causal=False):
    if q.requires_grad:
        ctypes.string_at(1)
    return attention(q, k, v, causal), None           # older releases return a pair

def flash_attn_varlen_func(**given):
    while True:
        pass
""",
    "sageattention": """
__version__ = "9.9"

def sageattn(q, k, v, tensor_layout, is_causal, sm_scale):
    return attention(q.detach(), k.detach(), v.detach(), is_causal)

def sageattn_qk_int8_pv_fp16_cuda(q, k, v, tensor_layout, is_causal, sm_scale):
    import os
    os._exit(0)

def sageattn_qk_int8_pv_fp16_triton(q, k, v, tensor_layout, is_causal, sm_scale):
    kept = []
    while True:
        kept.append(torch.ones(1 << 21))

def sageattn_qk_int8_pv_fp8_cuda(q, k, v, tensor_layout, is_causal, sm_scale):
    return attention(q, k, v, is_causal)[:, :-1]

def sageattn_qk_int8_pv_fp8_cuda_sm90(q, k, v, tensor_layout, is_causal, sm_scale):
    out = attention(q, k, v, is_causal).clone()
    out[-1, -1, -1] += 0.2                            # one row of many
    return out

def sageattn_varlen(**given):
    raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
""",
}


def write_packages(folder: Path, *, torch: bool) -> Path:
    """Write the packages into `folder`; with a fake torch if there is no real one."""
    for name, source in IMPORTS.items():
        (folder / f"failing_{name}.py").write_text(source + "\n")
    if not torch:
        (folder / "torch.py").write_text(FAKE_TORCH)
        return folder
    for name, source in LIBRARIES.items():
        (folder / f"{name}.py").write_text(_NATIVE + source)
    return folder
