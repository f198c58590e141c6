"""Keeps processes of the examined interpreter at hand, and runs one job after another in them.

A server has imported what many jobs need and forks for each of them; where it cannot fork, it
serves one job itself and the next one is started ahead of need. However a job ends, `Server.run`
returns what it said and how it ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from attn_doctor import worker
from attn_doctor.backends.live.child_process import Child
from attn_doctor.backends.live.limits import LOOK, Watch

_SCRIPT = Path(worker.__file__).parent / "backends" / "server.py"

_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"

Heard = Callable[[dict[str, Any]], None]


class Ended(Struct, frozen=True, kw_only=True):
    """How a job ended and what it said."""

    said: tuple[dict[str, Any], ...]
    how: str
    """`done`; `died`; `late`: killed at the time limit; `memory`: killed at the memory limit;
    `lost`: the server is gone."""
    code: int | None = None
    """Exit code of the process, negative for a signal; None if it is not known."""
    text: str = ""
    """What it printed."""
    log: str = ""
    seconds: float = 0.0
    most_mib: int = 0
    """Most memory that it was seen to hold."""
    left_behind: int | None = None
    """The process, if it could not be killed."""

    def of(self, event: str) -> list[dict[str, Any]]:
        """What it said of one kind."""
        return [one for one in self.said if one["event"] == event]

    @property
    def stage(self) -> dict[str, Any]:
        """The last step that it began."""
        stages = self.of("stage")
        return stages[-1] if stages else {"stage": "import"}


class Server:
    """An interpreter that has imported `modules` and runs jobs. Use it in a `with` block.

    `seconds`: how long those imports may take. `fork`: run jobs in forks, where that can be; if
    it cannot, so many `spares` are kept that have imported already; 0 if none may be, because
    the GPU takes one process only.
    """

    def __init__(
        self,
        python: str,
        modules: Sequence[str],
        folder: str,
        env: Mapping[str, str],
        seconds: float,
        *,
        fork: bool = True,
        spares: int = 1,
    ) -> None:
        self.modules = tuple(modules)
        self._argv = [python, "-B", str(_SCRIPT)]
        self._folder, self._env, self._seconds = folder, env, seconds
        self._jobs, self._fork, self._ahead = 0, fork, spares
        self._child: Child | None = None
        self._spares: list[Child] = []
        self._started: dict[int, float] = {}
        self.left_behind: list[int] = []
        self.hello: dict[str, Any] = {}
        self.failed: Ended | None = None
        """How its start went wrong, if it did."""
        self._child = self._start()

    def __enter__(self) -> Server:  # noqa: PYI034 (Self is newer than Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        for child in (self._child, *self._spares):
            self._stop(child)
        self._child, self._spares = None, []

    def ready(self) -> bool:
        """Wait until it has imported its modules; false if it `failed` to."""
        if self.hello:
            return True
        if self.failed is None and self._child is not None:
            self.failed = self._await_ready(self._child)
            if self.hello and not self.hello["fork"] and self._ahead == 0:
                # It has opened the GPU, and nobody else may while it lives.
                self._stop(self._child)
                self._child = None
        return self.failed is None

    def run(
        self, job: Mapping[str, Any], seconds: float, memory_mib: int, heard: Heard | None = None
    ) -> Ended:
        """Run one job. It is killed at `seconds`, or when it holds more than `memory_mib`."""
        self._jobs += 1
        number = self._jobs
        log = self._log(str(number))
        if not self.ready() and self.failed is not None:
            return self.failed
        child = self._fresh()
        if child is None:
            return self.failed or Ended(said=(), how="lost")
        message = {**job, **_own_check(), "job": number, "log": log, "seconds": seconds}
        start = time.monotonic()
        if not child.send(message):
            ended = Ended(said=(), how="lost", code=child.status())
        else:
            if not self.hello["fork"]:
                self._keep_ahead()
            ended = self._follow(child, number, seconds, memory_mib, heard)
        if not self.hello["fork"] or ended.how == "lost" or ended.left_behind is not None:
            self._stop(self._child)
            self._child = None
        if ended.left_behind is not None:
            self.left_behind.append(ended.left_behind)
        took = time.monotonic() - start
        return _with(ended, text=_tail(log), log=log, seconds=took)

    def _follow(
        self, child: Child, number: int, seconds: float, memory_mib: int, heard: Heard | None
    ) -> Ended:
        """Listen to a job until it has ended, one way or another."""
        watch = Watch(time.monotonic() + seconds, memory_mib)
        said: list[dict[str, Any]] = []
        while True:
            event = child.next(LOOK)
            if event is not None and event.get("job") == number:
                if event["event"] == "ended":
                    return _ended(said, watch.how(said), int(event["code"]), watch.most)
                if event["event"] == "started":
                    watch.pid = int(event["pid"])
                else:
                    said.append(event)
                if heard is not None:
                    heard(event)
            elif child.gone:
                how = watch.how(said)
                if self.hello["fork"] and not watch.killed:
                    # The server itself is gone, and nobody knows how its job ended.
                    how = "lost"
                return _ended(said, how, child.status(), watch.most)
            if watch.hopeless():
                left = watch.pid or None
                how = watch.killed or "lost"
                return _with(_ended(said, how, None, watch.most), left_behind=left)

    def _fresh(self) -> Child | None:
        """A child that takes a job: the one there is, the spare, or a new one."""
        if self._child is not None:
            return self._child
        self._child = self._spares.pop(0) if self._spares else self._start()
        if self._child is not None:
            failed = self._await_ready(self._child)
            if failed is not None:
                self._stop(self._child)
                self._child, self.failed = None, failed
        return self._child

    def _keep_ahead(self) -> None:
        while len(self._spares) < self._ahead:
            spare = self._start()
            if spare is None:
                return
            self._spares.append(spare)

    def _start(self) -> Child | None:
        """Start an interpreter; it imports while others work."""
        began = time.monotonic()
        try:
            # Otherwise `torch.cuda.is_available()`, which packages call when they are imported,
            # initialises CUDA, and no fork could use it any more. Jobs have the user's own value.
            env = {**self._env, _CHECK: "1"}
            child = Child(self._argv, folder=self._folder, env=env)
        except OSError as error:
            message = f"{self._argv[0]} cannot be started: {error.strerror or error}"
            self.failed = Ended(
                said=({"event": "failed", "stage": "start", "message": message},), how="done"
            )
            return None
        self._started[child.pid] = began
        child.send(
            {
                "modules": self.modules,
                "log": self._log("start"),
                "parent": os.getpid(),
                "seconds": self._seconds,
                "fork": self._fork,
            }
        )
        return child

    def _await_ready(self, child: Child) -> Ended | None:
        """None once `child` is ready, else how it failed."""
        said: list[dict[str, Any]] = []
        began = self._started[child.pid]
        end = max(began + self._seconds, time.monotonic() + 1.0)
        while True:
            event = child.next(max(0.0, min(0.2, end - time.monotonic())))
            if event is not None:
                said.append(event)
                if event["event"] == "ready":
                    self.hello = event
                    return None
            elif child.gone or time.monotonic() > end:
                log = self._log("start")
                late = not child.gone
                left = child.pid if late and not child.stop() else None
                failed = any(one["event"] == "failed" for one in said)
                how = "late" if late else "done" if failed else "died"
                ended = _ended(said, how, child.status(), 0)
                took = time.monotonic() - began
                text = _tail(log) or child.errors
                return _with(ended, text=text, log=log, seconds=took, left_behind=left)

    def _stop(self, child: Child | None) -> None:
        if child is not None and not child.stop():
            self.left_behind.append(child.pid)

    def _log(self, name: str) -> str:
        return os.path.join(self._folder, f"{'-'.join(self.modules)}-{name}.log")


def _own_check() -> dict[str, Any]:
    """What a job has to set and unset to be in the user's environment again."""
    own = os.environ.get(_CHECK)
    return {"env": {} if own is None else {_CHECK: own}, "unset": [_CHECK] if own is None else []}


def _ended(said: Sequence[dict[str, Any]], how: str, code: int | None, most: int) -> Ended:
    return Ended(said=tuple(said), how=how, code=code, most_mib=most)


def _with(ended: Ended, **changes: Any) -> Ended:
    import msgspec

    return msgspec.structs.replace(ended, **changes)


def _tail(log: str, size: int = 1 << 16) -> str:
    """The end of a log; empty if there is none."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.path.getsize(log) - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
