"""Where jobs run: their environment, the memory they may hold, a folder that goes with them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from attn_doctor.backends.live.plan import Limits
from attn_doctor.facts import Facts


def memory_limit(facts: Facts) -> int:
    """MiB that one job may hold: most of what is available now."""
    available = facts.system.ram_available_mib
    if available is None:
        import psutil

        available = psutil.virtual_memory().available >> 20
    return max(2048, int(available * 0.6))


def environment(facts: Facts, folder: str, limits: Limits) -> dict[str, str]:
    """The user's own environment, but for where things are written and fetched from."""
    env = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
        "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
        # One compiler at a time: jobs come one after the other, and die in one piece.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
    }
    modern = (facts.driver.best_sm or 0) >= 80 and facts.triton.installed
    if modern and "XFORMERS_FORCE_DISABLE_TRITON" not in env:
        # xformers would ask CUDA itself when it is imported, and nothing could be forked then. The
        # answer is this one for every GPU from Ampere on.
        env.setdefault("XFORMERS_ENABLE_TRITON", "1")
    if not limits.network:
        env.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1")
    return env


@contextmanager
def scratch() -> Iterator[str]:
    """A private folder for logs and compiled code, gone afterwards."""
    folder = tempfile.mkdtemp(prefix="attn-doctor-live-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
