"""Lets Inductor compile the kernels of one graph in several processes.

A transformer block has some 50 kernels of Triton, and each takes a fraction of a second of one
core. By itself Inductor would start an interpreter that imports torch again; forks of this process
are there at once. Neither the number of processes nor how they start is in a cache key.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def compile_processes(torch: Any, count: int) -> Iterator[None]:
    """Within it, up to `count` processes compile; afterwards they have ended.

    With `count` 1, and for a torch whose processes cannot be started so, this process compiles.
    """
    if count < 2:
        yield
        return
    config = torch._inductor.config
    before = config.compile_threads, config.worker_start_method
    config.compile_threads, config.worker_start_method = count, "fork"
    end = _start()
    if end is None:
        config.compile_threads, config.worker_start_method = before
    try:
        yield
    finally:
        config.compile_threads, config.worker_start_method = before
        if end is not None:
            end()


def _start() -> Any:
    """Start the processes. Returns what ends them, or None if they could not be started."""
    try:
        from torch._inductor import async_compile

        end = async_compile.shutdown_compile_workers
        with warnings.catch_warnings():
            # Python warns of forks beside threads, and CUDA has some; torch forked so for years.
            warnings.simplefilter("ignore", DeprecationWarning)
            async_compile.AsyncCompile.use_process_pool()
    except Exception:
        return None
    return end
