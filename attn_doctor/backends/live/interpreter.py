"""The examined interpreter as `--live` uses it: one job after another, within limits.

Jobs run in the user's own environment, but for where things are written and fetched from. They run
one after the other because their times are compared.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attn_doctor.backends.live.plan import Limits
from attn_doctor.facts import Facts
from attn_doctor.pool.pool import Pool, PoolError
from attn_doctor.pool.task import Outcome, Task


class Interpreter:
    """An interpreter that imports `modules`, and then runs jobs. Use it in a `with` block.

    `patience`: seconds that those imports may take. `spares`: interpreters that are kept ready
    where jobs cannot run in forks; 0 if none may be, because the GPU takes one process only.
    """

    def __init__(
        self,
        python: str,
        modules: Sequence[str],
        folder: str,
        env: Mapping[str, str],
        patience: float,
        *,
        spares: int = 1,
    ) -> None:
        self._folder, self._name, self._jobs = Path(folder), "-".join(modules), 0
        self._pool = Pool(
            python, env, self._folder,
            jobs="backends.job", modules=modules, patience=patience, spares=spares, fresh=False,
        )  # fmt: skip
        self.failed: Outcome | None = None
        """How its start went wrong, if it did."""

    def __enter__(self) -> Interpreter:  # noqa: PYI034 (Self is newer than Python 3.10)
        try:
            self._pool.__enter__()
        except PoolError as error:
            self.failed = error.outcome
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    @property
    def hello(self) -> Mapping[str, Any]:
        """What it said of itself when it was ready: `torch`, a version, and `packages`."""
        return self._pool.hello

    @property
    def left_behind(self) -> list[int]:
        """Processes that could not be killed."""
        return self._pool.left_behind

    def ready(self) -> bool:
        """Wait until it has imported its modules; false if it `failed` to."""
        while self.failed is None and not self.hello:
            self._wait()
        return self.failed is None

    def run(self, job: Mapping[str, Any], seconds: float, memory_mib: int) -> Outcome:
        """Run one job. It is killed at `seconds`, or when it holds more than `memory_mib`."""
        if not self.ready() and self.failed is not None:
            return self.failed
        self._jobs += 1
        task = Task(
            id=self._jobs,
            job={**job, "seconds": seconds},
            log=self._folder / f"{self._name}-{self._jobs}.log",
            limit=seconds,
            memory_mib=memory_mib,
            wait_for_exit=True,
        )
        try:
            self._pool.start(task)
        except PoolError as error:
            self._fail(error)
        while self.failed is None:
            for outcome in self._wait():
                return outcome
        return self.failed

    def _wait(self) -> list[Outcome]:
        try:
            return self._pool.wait(0.2)
        except PoolError as error:
            self._fail(error)
            return []

    def _fail(self, error: PoolError) -> None:
        self.failed = error.outcome
        self._pool.close()


def memory_limit(facts: Facts) -> int:
    """MiB that one job may hold: most of what is available now."""
    available = facts.system.ram_available_mib
    if available is None:
        import psutil

        available = psutil.virtual_memory().available >> 20
    return max(2048, int(available * 0.6))


def environment(facts: Facts, folder: str, limits: Limits) -> dict[str, str]:
    """The user's own environment, with all caches in `folder` and, by default, no network."""
    env = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
        "TRITON_CACHE_DIR": os.path.join(folder, "triton"),
        # One compiler at a time: jobs run one after the other, and are killed with all they start.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
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
    """A private folder for logs and compiled code, removed afterwards."""
    folder = tempfile.mkdtemp(prefix="attn-doctor-live-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
