"""Times a call: the median after warming up, by the GPU's own clock if there is one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from attn_doctor.worker.backends import device as devices

_WARM, _LEAST, _MOST = 3, 5, 50


def median(call: Callable[[], Any], device: Any, seconds: float) -> float:
    """Median milliseconds of a call. Takes about `seconds`, more for very slow calls."""
    spent = 0.0
    for _ in range(_WARM):
        start = time.perf_counter()
        call()
        devices.wait(device)
        last = time.perf_counter() - start
        spent += last
        if spent > seconds:
            break
    else:
        start = time.perf_counter()
        call()
        devices.wait(device)
        last = time.perf_counter() - start
    times = int(min(_MOST, max(_LEAST, seconds / max(last, 1e-6))))
    if last > seconds:
        # A call this slow needs no repetition.
        times = 1
    if device.type != "cuda":
        return statistics.median(_clocked(call, device) for _ in range(times))
    pairs = [_events(call) for _ in range(times)]
    torch.cuda.synchronize(device)
    return statistics.median(float(begin.elapsed_time(end)) for begin, end in pairs)


def _clocked(call: Callable[[], Any], device: Any) -> float:
    start = time.perf_counter()
    call()
    devices.wait(device)
    return (time.perf_counter() - start) * 1e3


def _events(call: Callable[[], Any]) -> tuple[Any, Any]:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    return begin, end
