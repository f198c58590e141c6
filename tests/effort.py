"""Bounds on work in tests of hostile input, in processor time: other work does not stretch it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

__all__ = ["SLOWER", "at_most"]

#: An emulated processor (`tools/qemu.sh`) is 18 to 28 times as slow.
SLOWER = 30 if os.environ.get("ATTN_DOCTOR_TESTS_EMULATED") else 1


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """What is done within takes no more of this thread's processor time.

    Raises:
        AssertionError: it took more.
    """
    start = time.thread_time()
    yield
    took = time.thread_time() - start
    assert took < seconds * SLOWER, f"took {took:.1f} s of processor time"
