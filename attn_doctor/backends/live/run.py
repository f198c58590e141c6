"""Runs the backends, each in a process of its own, one after the other.

One after the other because times are compared. Two interpreters start side by side, one with torch
and one with diffusers on top; while the second still imports, packages are imported on their own in
forks of the first. Everything compiled goes to a private folder that is removed at the end.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.backends.live import verdicts
from attn_doctor.backends.live.interpreter import (
    Interpreter,
    environment,
    memory_limit,
    scratch,
)
from attn_doctor.backends.live.outcome import (
    Device,
    Failure,
    Imported,
    LiveReport,
    LiveResult,
    Verdict,
)
from attn_doctor.backends.live.plan import (
    NAMES,
    PACKAGES,
    Attempt,
    Limits,
    Workload,
    attempts,
    job,
    shapes,
)
from attn_doctor.backends.live.ranking import ranked
from attn_doctor.facts import Facts
from attn_doctor.pool.task import Outcome
from attn_doctor.rulebook import library

_DIFFUSERS = "diffusers.models.attention_dispatch"


class Step(Struct, frozen=True, kw_only=True):
    """The progress of a run."""

    done: int
    total: int
    """Steps known so far; it grows once."""
    title: str
    """What is being done."""
    result: LiveResult | None = None
    """The backend that was just run."""
    imported: Imported | None = None
    """The package that was just imported."""
    device: str = ""
    """The device that was just opened."""
    left: float | None = None
    """Seconds until the last backend has run, roughly; None until one has run."""


Progress = Callable[[Step], None]


def run(
    facts: Facts,
    names: Sequence[str] = (),
    workload: Workload | None = None,
    limits: Limits | None = None,
    device: str = "",
    progress: Progress | None = None,
) -> LiveReport:
    """Run the backends `names` (none: all) in the interpreter that `facts` are about.

    `device`: as torch calls it, such as `cuda:1` or `cpu`; empty: the first GPU, or the processor
    if torch can use no GPU.
    """
    with scratch() as folder, ExitStack() as stack:
        running = _Run(
            facts, workload or Workload(), limits or Limits(), device, progress, folder, stack
        )
        return running.report(tuple(names) or tuple(NAMES))


class _Run:
    """One run, with everything that its jobs share."""

    def __init__(
        self,
        facts: Facts,
        workload: Workload,
        limits: Limits,
        device: str,
        progress: Progress | None,
        folder: str,
        stack: ExitStack,
    ) -> None:
        self._facts, self._workload, self._limits = facts, workload, limits
        self._wanted, self._folder, self._stack = device, folder, stack
        self._progress = progress
        self._table: Mapping[str, Any] = library.tables()["live"]
        self._memory = limits.memory_mib or memory_limit(facts)
        self._explain = verdicts.Explaining(facts)
        self._interpreters: list[Interpreter] = []
        self._start = time.perf_counter()
        self._done, self._total = 0, 1
        self._through: set[str] = set()
        #: Weights of the backends that have run, their seconds, and weights of those to come.
        self._ran, self._seconds, self._waiting = 0.0, 0.0, 0.0

    def report(self, names: Sequence[str]) -> LiveReport:
        """Run everything, and report it."""
        plain = self._interpreter("torch")
        through = (
            self._interpreter("torch", _DIFFUSERS) if self._facts.diffusers.installed else None
        )
        self._tell(f"starting {self._facts.python.path}")
        if not plain.ready() and plain.failed is not None:
            return self._nothing(plain.failed)
        found = plain.hello["packages"]
        if found.get("diffusers") and through is None:
            through = self._interpreter("torch", _DIFFUSERS)
        todo = attempts(names, found, self._workload, self._table)
        self._through = {one.name for one in todo if one.route == "diffusers"}
        alone = sum(found.get(_top(module), False) for module in PACKAGES)
        self._total = 2 + alone + len(todo)
        self._step(
            imported=Imported(
                module="torch",
                verdict=Verdict.VERIFIED,
                sentence="it imports",
                version=str(plain.hello["torch"]),
                seconds=time.perf_counter() - self._start,
            )
        )
        if through is not None and self._exclusive:
            through.ready()
        device = self._device(plain)
        imports = [*self._imports(plain, found), *self._import_of(through)]
        results = [
            *self._attend(todo, plain, through, device, imports),
            *verdicts.absent(names, found, self._workload),
        ]
        order = {name: number for number, name in enumerate(names)}
        results.sort(key=lambda result: order[result.name])
        return LiveReport(
            python=self._facts.python.path or "",
            torch=str(plain.hello["torch"]),
            device=device,
            dtype=self._workload.torch_dtype,
            imports=tuple(imports),
            results=ranked(results, self._slow(device)),
            left_behind=tuple(
                pid for interpreter in self._interpreters for pid in interpreter.left_behind
            ),
            seconds=time.perf_counter() - self._start,
        )

    def _slow(self, device: Device) -> float:
        """From which ratio on a backend is slow. A processor's times vary too much to say."""
        return float(self._table["slow"]) if device.device.startswith("cuda") else math.inf

    def _interpreter(self, *modules: str) -> Interpreter:
        python = self._facts.python.path or ""
        seconds = self._limits.import_seconds
        env = environment(self._facts, self._folder, self._limits)
        # With many idle processors, interpreters may start while a job runs on the GPU.
        spares = 0 if self._exclusive else 3 if (self._facts.system.cpus or 1) >= 8 else 1
        interpreter = self._stack.enter_context(
            Interpreter(python, modules, self._folder, env, seconds, spares=spares)
        )
        self._interpreters.append(interpreter)
        return interpreter

    @property
    def _exclusive(self) -> bool:
        """A GPU here takes one process at a time."""
        return any((gpu.compute_mode or "").startswith("excl") for gpu in self._facts.gpus or ())

    def _nothing(self, failed: Outcome) -> LiveReport:
        """The report if not even torch can be imported."""
        failure = verdicts.failure_of(failed, self._explain) or Failure(
            stage="import", message="it ended without a message"
        )
        return LiveReport(
            python=self._facts.python.path or "",
            torch="",
            device=Device(device=""),
            dtype=self._workload.torch_dtype,
            imports=(verdicts.imported("torch", failed, self._explain),),
            results=(),
            failure=failure,
            seconds=time.perf_counter() - self._start,
        )

    def _device(self, interpreter: Interpreter) -> Device:
        """The device to measure; the processor if no GPU was named and none can be used."""
        self._tell("opening the device")
        opened = self._open(interpreter, self._wanted)
        if opened.failure is not None and not self._wanted:
            note = "torch can use no GPU here; measured on the processor"
            opened = replace(self._open(interpreter, "cpu"), note=note, failure=opened.failure)
        self._step(device=opened.name or opened.device)
        return replace(opened, note=opened.note or self._others(opened.device))

    def _open(self, interpreter: Interpreter, name: str) -> Device:
        ended = interpreter.run({"action": "device", "device": name}, 60, self._memory)
        failure = verdicts.failure_of(ended, self._explain)
        if failure is not None:
            return Device(device=name or "cuda:0", failure=failure)
        opened = ended.of("device")[0]
        return Device(
            device=opened["device"],
            name=opened["name"],
            free_mib=opened["free"] >> 20 if "free" in opened else None,
            total_mib=opened["total"] >> 20 if "total" in opened else None,
        )

    def _others(self, device: str) -> str:
        """A note on other processes that use the GPU."""
        if not device.startswith("cuda"):
            return ""
        busy = sum(gpu.processes or 0 for gpu in self._facts.gpus or () if gpu.visible)
        if not busy:
            return ""
        others = "another process uses" if busy == 1 else f"{busy} other processes use"
        return f"{others} the GPU: times may be longer than on an idle one"

    def _imports(self, interpreter: Interpreter, found: Mapping[str, bool]) -> Iterator[Imported]:
        for module, package in PACKAGES.items():
            if not found.get(_top(module)):
                continue
            self._tell(f"importing {module}")
            job = {"action": "import", "module": module, "package": package}
            ended = interpreter.run(job, self._limits.import_seconds, self._memory)
            imported = verdicts.imported(module, ended, self._explain)
            self._step(imported=imported)
            yield imported

    def _import_of(self, through: Interpreter | None) -> Iterator[Imported]:
        """The import of diffusers, which its own interpreter has done."""
        if through is None:
            return
        self._tell("importing diffusers")
        version = self._facts.diffusers.version or ""
        if through.ready() or through.failed is None:
            words, good = "it imports", Verdict.VERIFIED
            yield Imported(module="diffusers", verdict=good, sentence=words, version=version)
        else:
            yield verdicts.imported("diffusers", through.failed, self._explain)

    def _attend(
        self,
        todo: Sequence[Attempt],
        plain: Interpreter,
        through: Interpreter | None,
        device: Device,
        imports: Iterable[Imported],
    ) -> Iterator[LiveResult]:
        if device.failure is not None and self._wanted:
            words = f"{self._wanted} cannot be used: {device.failure.message.splitlines()[0]}"
            for attempt in todo:
                yield verdicts.not_run(attempt, self._workload, words)
            return
        self._waiting = sum(_weight(attempt, device) for attempt in todo)
        broken = {_top(module.module): module for module in imports if module.failure is not None}
        for attempt in todo:
            how = {"compiled": "compiled, ", "diffusers": "through diffusers, "}
            self._tell(f"{attempt.name} ({how.get(attempt.route, '')}{self._workload.dtype})")
            first = "diffusers" if attempt.route == "diffusers" else NAMES[attempt.name]
            if first in broken:
                # It was seen just now; a second crash would show nothing new.
                self._waiting -= _weight(attempt, device)
                yield self._stepped(verdicts.as_imported(attempt, self._workload, broken[first]))
                continue
            interpreter = through if attempt.route == "diffusers" and through else plain
            begun = time.perf_counter()
            result = self._run(attempt, interpreter, device)
            self._seconds += time.perf_counter() - begun
            self._ran += _weight(attempt, device)
            self._waiting -= _weight(attempt, device)
            yield self._stepped(result)

    def _run(self, attempt: Attempt, interpreter: Interpreter, device: Device) -> LiveResult:
        task = job(attempt, self._workload, self._limits, device.device, self._table)
        ended = interpreter.run(task, self._limits.seconds, self._memory)
        sizes = shapes(self._workload, device.device, self._table)
        return verdicts.result(attempt, ended, self._workload, sizes, self._explain)

    def _tell(self, title: str, **more: Any) -> None:
        if self._progress is not None:
            left = self._seconds / self._ran * self._waiting if self._ran >= 1 else None
            self._progress(Step(done=self._done, total=self._total, title=title, left=left, **more))

    def _step(self, **more: Any) -> None:
        self._done += 1
        self._tell("", **more)

    def _stepped(self, result: LiveResult) -> LiveResult:
        # `ranked` says it of all results at the end; the line of this step names it now.
        beside = result.route == "direct" and result.name in self._through
        self._step(result=replace(result, beside=beside))
        return result


#: Backends that a processor can run; the others end there at once.
_ON_PROCESSORS = ("native", "_native_flash", "_native_math", "flex")


def _weight(attempt: Attempt, device: Device) -> float:
    """How long a backend takes beside another, roughly."""
    if not device.device.startswith("cuda") and attempt.name not in _ON_PROCESSORS:
        return 0.01
    return 1.5 if attempt.route == "compiled" else 1.0


def _top(module: str) -> str:
    return module.partition(".")[0]
