"""What an ordinary program does with torch, on the stub GPU, as JSON on the last line."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

library = ctypes.CDLL(os.environ["ATTN_DOCTOR_STUB_GPU"])
library.stub_gpu_unknown.restype = ctypes.c_char_p
library.stub_gpu_launches.restype = ctypes.c_ulong
library.stub_gpu_refuse.argtypes = [ctypes.c_char_p]
reads: list[int] = []
threads: list[bool] = []
refusal: list[bytes] = []


def _read(function: bytes, address: int | None, size: int) -> None:
    reads.append(size)
    threads.append(threading.get_ident() == threading.main_thread().ident)
    if refusal:
        library.stub_gpu_refuse(refusal[0])


on_read = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)(_read)
library.stub_gpu_on_read(on_read)


def result_of(deed: Callable[[], Any]) -> list[Any]:
    """What `deed` gives, or its error in short, and how many bytes were read unknown."""
    reads.clear()
    threads.clear()
    try:
        found = deed()
    except Exception as error:
        found = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return [found, list(reads)]


def properties() -> dict[str, Any]:
    """torch's own view of the device."""
    names = sys.argv[1].split(",")
    found = torch.cuda.get_device_properties(0)
    return {name: getattr(found, name) for name in names if hasattr(found, name)}


def train() -> list[Any]:
    """Two steps of a small transformer."""
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(2, 8, 32, device="cuda")
    for _ in range(2):
        loss = model(batch).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return [str(loss.device), library.stub_gpu_launches() > 50]


def hooked() -> list[bool]:
    """A read while autograd runs, which it does in a thread of its own."""
    one = torch.ones(4, device="cuda", requires_grad=True)
    one.register_hook(lambda gradient: (gradient.sum().item(), gradient)[1])
    (one * 2).sum().backward()
    return list(threads)


def refused() -> float:
    """A read that is not allowed."""
    refusal.append(b"not while compiling (train.py:12)")
    try:
        return float(torch.ones(1, device="cuda").sum().item())
    finally:
        refusal.clear()


def graph() -> None:
    """CUDA graphs. After it, torch's generator is stuck as on a real GPU, so it comes last."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.ones(3, device="cuda")


def streams() -> list[int]:
    """Another stream, an event, and memory that is used on both."""
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        one = torch.arange(3).cuda(non_blocking=True)
    torch.cuda.current_stream().wait_stream(other)
    one.record_stream(other)
    torch.cuda.synchronize()
    return list(one.tolist())


out = {
    "properties": result_of(properties),
    "count": result_of(torch.cuda.device_count),
    "capability": result_of(torch.cuda.get_device_capability),
    "known": result_of(lambda: list(torch.arange(100).cuda()[10:13].tolist())),
    "large": result_of(lambda: list(torch.arange(10_000_000).cuda()[-2:].tolist())),
    "item": result_of(lambda: torch.ones(5, device="cuda").sum().item()),
    "matmul": result_of(
        lambda: list((torch.ones(8, 9, device="cuda") @ torch.ones(9, 7).cuda()).shape)
    ),
    "train": result_of(train),
    "hooked": result_of(hooked),
    "refused": result_of(refused),
    "after": result_of(lambda: torch.tensor([1.5]).cuda().item()),
    "streams": result_of(streams),
    "other": result_of(lambda: str((torch.arange(3).to("cuda:1") + 1).device)),
    "peer": result_of(lambda: torch.arange(3).to("cuda:0").to("cuda:1").tolist()),
    "memory": result_of(lambda: torch.empty(1 << 41, dtype=torch.uint8, device="cuda")),
    "conv": result_of(lambda: torch.nn.functional.conv1d(*[torch.ones(1, 1, 3).cuda()] * 2)),
    "graph": result_of(graph),
    "unknown": library.stub_gpu_unknown().decode().split(),
}
print(json.dumps(out))
