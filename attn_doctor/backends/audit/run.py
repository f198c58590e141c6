"""Runs an audit: programs of advisories, then the calls of all backends, by turns, within its time.

By turns, so that each backend has got the telling calls when the time ends. What the audit cannot
know: whether a fault needs another process, another GPU, or a machine that is warm for days.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.backends.audit import faults, plan, programs, progress_file
from attn_doctor.backends.audit.calls import Answer, Runner, failure_of
from attn_doctor.backends.audit.lanes import Lane, count, side_by_side
from attn_doctor.backends.audit.outcome import Audited, AuditReport, Fault, Kind, Reproduced
from attn_doctor.backends.audit.shrink import covers, shrink
from attn_doctor.backends.live.interpreter import (
    Interpreter,
    environment,
    memory_limit,
    scratch,
)
from attn_doctor.backends.live.outcome import Device, Failure
from attn_doctor.backends.live.plan import NAMES, Attempt, Limits
from attn_doctor.findings import Diagnosis, Finding, Verdict
from attn_doctor.rulebook import library
from attn_doctor.worker.audit.case import Case, described

#: Faults of one backend that are shrunk; more are counted with the first of their kind.
_FAULTS = 5
#: How far compiled calls are ahead of others, so that the end does not wait for them.
_AHEAD = 1.3
#: Seconds that shrinking one fault may take.
_SHRINK = 90.0
#: Seconds that one program may take.
_PROGRAM = 240.0


class Step(Struct, frozen=True, kw_only=True):
    """The progress of an audit."""

    done: int
    total: int
    """Calls, of all backends."""
    title: str
    fault: Fault | None = None
    """What was just found, with `backend`."""
    backend: str = ""


Progress = Callable[[Step], None]


def run(
    diagnosis: Diagnosis, options: plan.Options, limits: Limits | None = None,
    progress: Progress | None = None,
) -> AuditReport:  # fmt: skip
    """Audit the backends in the interpreter that `diagnosis` is about.

    Raises `AttnDoctorError` where the progress file is about something else or cannot be written.
    """
    with scratch() as folder, ExitStack() as stack:
        running = _Run(diagnosis, options, limits or Limits(), progress, folder, stack)
        return running.report()


class _Backend:
    """One backend: its parts, and what was seen so far."""

    def __init__(
        self, runner: Runner, parts: Sequence[plan.Part], result: Audited, done: Iterable[int] = ()
    ) -> None:
        self.runner, self.parts, self.result = runner, parts, result
        self.digest = plan.digest(parts)
        #: Numbers of parts that are done, and of those that were begun.
        self.done = set(done)
        self.begun = set(self.done)
        #: Held while answers are counted, so that a fault is shrunk once.
        self.counting = threading.Lock()
        #: The shrunk call of each fault that has one, by the fault's number, with its sign.
        self.small: dict[int, tuple[Case, tuple[str, str]]] = {
            number: (Case(**one.cases[-1]), (one.kind.value, ""))
            for number, one in enumerate(result.faults)
            if one.cases
        }

    @property
    def key(self) -> str:
        """Name and route, as the progress file has them."""
        return f"{self.runner.attempt.name}/{self.runner.attempt.route}"

    @property
    def pace(self) -> float:
        """Parts begun over this are the same for all backends; compiled calls take longest."""
        return len(self.parts) * (_AHEAD if self.runner.attempt.route == "compiled" else 1.0)

    def next(self, *, alone: bool) -> int | None:
        """The number of the part that comes next; None if there is none."""
        if self.result.failure is not None:
            return None
        return next(
            (
                number
                for number, part in enumerate(self.parts)
                if number not in self.begun and (alone or not part.alone)
            ),
            None,
        )


class _Running(Struct, frozen=True, kw_only=True):
    """A part of a backend on a lane."""

    backend: _Backend
    runner: Runner
    folder: str
    """For programs."""


class _Run:
    def __init__(
        self,
        diagnosis: Diagnosis,
        options: plan.Options,
        limits: Limits,
        progress: Progress | None,
        folder: str,
        stack: ExitStack,
    ) -> None:
        self._facts, self._findings = diagnosis.facts, diagnosis.findings
        self._options, self._limits, self._progress = options, limits, progress
        self._folder, self._stack = folder, stack
        self._table: Mapping[str, Any] = library.tables()["live"]
        self._memory = limits.memory_mib or memory_limit(self._facts)
        self._start = time.monotonic()
        self._end = self._start + 60 * options.minutes
        self._env = environment(self._facts, folder, limits)
        self._python = self._facts.python.path or ""
        self._torch = ""
        self._device = Device(device="")
        self._backends: list[_Backend] = []
        self._state = progress_file.Progress()
        #: Advisories whose programs are to be run, and what those that ran showed, by rule.
        self._advised: list[Finding] = []
        self._reproduced: dict[str, Reproduced] = {}
        self._advisories: tuple[Reproduced, ...] = ()
        #: Held where results are changed or shown: lanes run side by side.
        self._lock = threading.RLock()

    def report(self) -> AuditReport:
        """Run everything, and report it."""
        self._tell(f"starting {self._python}")
        first = self._lane(0)
        plain = first.plain
        if not plain.ready() and plain.failed is not None:
            return self._finished(failure=failure_of(plain.failed))
        self._torch = str(plain.hello["torch"])
        failure = self._open(plain)
        if failure is not None:
            return self._finished(failure=failure)
        options = self._options
        self._state = progress_file.read(options.progress_file, self._torch, self._device.name)
        found = plain.hello["packages"]
        attempts = plan.attempts(options.names or tuple(NAMES), found, self._table)
        self._advised = self._to_reproduce()
        most = count(self._facts, self._device.device, self._memory)
        self._backends = [self._backend(one, first, most) for one in attempts]
        most = min(most, max(1, sum(len(one.parts) for one in self._backends)))
        lanes = [first, *(self._lane(number) for number in range(1, most))]
        side_by_side(lanes, lambda lane: self._work(lane, alone=False))
        self._keep_advisories()
        self._work(first, alone=True)
        return self._finished(absent=_absent(options.names, found))

    def _lane(self, number: int) -> Lane:
        folder = Path(self._folder) / f"lane-{number}"
        return Lane(self._facts, self._limits, folder, self._stack)

    def _work(self, lane: Lane, *, alone: bool) -> None:
        """Take what comes next until nothing is left; `alone`: also what needs the whole GPU."""
        while True:
            with self._lock:
                advised = self._advised.pop(0) if self._advised else None
                chosen = None if advised is not None else self._next(alone=alone)
                if chosen is not None:
                    chosen[1].begun.add(chosen[0])
            if advised is not None:
                self._reproduce(advised, lane)
            elif chosen is not None:
                self._run(chosen[1], chosen[0], lane, alone=alone)
            else:
                return

    def _next(self, *, alone: bool) -> tuple[int, _Backend] | None:
        """A part that was not begun, of the backend with the least share of its parts begun."""
        if time.monotonic() > self._end:
            return None
        waiting = ((one.next(alone=alone), one) for one in self._backends)
        found = [(number, one) for number, one in waiting if number is not None]
        return min(found, key=lambda one: one[0] / one[1].pace, default=None)

    def _open(self, interpreter: Interpreter) -> Failure | None:
        """Open the device; the processor if none was named and no GPU can be used."""
        failure = None
        for name in dict.fromkeys((self._options.device, self._options.device or "cpu")):
            job = {"action": "device", "device": name}
            ended = interpreter.run(job, 60, self._memory)
            failure = failure_of(ended)
            if failure is None:
                event = ended.of("device")[0]
                self._device = Device(device=event["device"], name=event["name"])
                return None
        return failure

    def _backend(self, attempt: Attempt, lane: Lane, lanes: int) -> _Backend:
        parts = plan.parts(attempt, self._options, self._device.device)
        result = Audited(
            name=attempt.name, route=attempt.route, planned=sum(part.size for part in parts)
        )
        runner = Runner(
            attempt=attempt, interpreter=lane.plain, device=self._device.device,
            memory_mib=self._memory, table=self._table, share=Limits().share / lanes,
        )  # fmt: skip
        backend = _Backend(runner, parts, result)
        kept = self._state.backends.get(backend.key)
        if kept is not None and kept.digest == backend.digest:
            return _Backend(runner, parts, kept.result, kept.parts)
        return backend

    # The programs of advisories

    def _to_reproduce(self) -> list[Finding]:
        if self._state.advisories is not None:
            self._advisories = self._state.advisories
            return []
        names = set(self._options.names)
        return [
            finding
            for finding in self._findings
            if finding.advisory is not None
            and finding.verdict is Verdict.PROBLEM
            and (not names or names.intersection(finding.backends))
        ]

    def _reproduce(self, finding: Finding, lane: Lane) -> None:
        self._tell(f"the program of {finding.rule.partition('/')[2]}")
        one = programs.reproduced(finding, self._python, lane.folder, self._env, _PROGRAM)
        if one is not None:
            with self._lock:
                self._reproduced[finding.rule] = one

    def _keep_advisories(self) -> None:
        """Keep what the programs showed, in the order of their rules."""
        if self._state.advisories is None:
            found = (self._reproduced.get(finding.rule) for finding in self._findings)
            self._advisories = tuple(one for one in found if one is not None)
            self._state = replace(self._state, advisories=self._advisories)
            progress_file.write(self._options.progress_file, self._state)

    # Calls

    def _run(self, backend: _Backend, number: int, lane: Lane, *, alone: bool) -> None:
        """Run a part of a backend."""
        part, runner = backend.parts[number], backend.runner
        interpreter = lane.through() if runner.attempt.route == "diffusers" else lane.plain
        share = Limits().share if alone else runner.share
        runner = replace(runner, interpreter=interpreter, share=share)
        running = _Running(backend=backend, runner=runner, folder=lane.folder)
        self._tell(f"{backend.result.title}: {part.title}")
        cases, probes, start = list(part.cases), list(part.probes), 0
        names = list(part.scripts)
        while start < len(cases) + len(names):
            answers, ended = runner.run(cases[start:], names)
            with backend.counting:
                versions = [event["version"] for event in ended.of("imported")]
                if versions:
                    backend.result = replace(backend.result, version=versions[-1])
                if not answers:
                    failure = failure_of(ended)
                    failure = failure or Failure(stage="import", message="it did not start")
                    backend.result = replace(backend.result, failure=failure)
                    return
                for answer in answers:
                    self._count(running, cases[start:], probes[start:], names, answer)
            start += answers[-1].number + 1
            if start > len(cases):
                names = names[start - len(cases) :]
                cases, start = [], 0
        self._keep(backend, number)

    def _count(
        self,
        running: _Running,
        cases: Sequence[Case],
        probes: Sequence[str],
        names: Sequence[str],
        answer: Answer,
    ) -> None:
        """Count one answer; shrink a fault that is new."""
        backend = running.backend
        if answer.forward_only:
            more = backend.result.forward_only + 1
            backend.result = replace(backend.result, forward_only=more)
            cases = [one._replace(training=False) for one in cases]
        result = backend.result
        if answer.refusal:
            refusals = {**result.refusals}
            refusals[answer.refusal] = refusals.get(answer.refusal, 0) + 1
            backend.result = replace(result, refusals=refusals)
        elif answer.kind is None:
            backend.result = replace(result, right=result.right + 1)
        elif not answer.held:
            backend.result = replace(result, not_counted=result.not_counted + 1)
        else:
            backend.result = replace(result, wrong=result.wrong + 1)
            if answer.number >= len(cases):
                name, attempt = names[answer.number - len(cases)], running.runner.attempt
                device = self._device.device
                fault = faults.of_script(name, answer, attempt, device, self._where)
                self._add(running, fault)
            else:
                self._fault(running, cases, probes[answer.number], answer)

    def _fault(self, running: _Running, cases: Sequence[Case], probe: str, answer: Answer) -> None:
        backend = running.backend
        case, result = cases[answer.number], backend.result
        for number, (small, sign) in backend.small.items():
            same = sign[0] == answer.sign[0] and sign[1] in ("", answer.sign[1])
            if (same and covers(small, case)) or len(backend.small) >= _FAULTS:
                known = list(result.faults)
                known[number] = replace(known[number], count=known[number].count + 1)
                backend.result = replace(result, faults=tuple(known))
                return
        self._tell(f"{result.title}: shrinking a fault of {described(case)}")
        end = time.monotonic() + _SHRINK
        shrunk = shrink(running.runner, cases, answer, end)
        backend.small[len(backend.result.faults)] = (shrunk.cases[-1], shrunk.answer.sign)
        fault = faults.of_case(
            shrunk, case, probe, running.runner.attempt, self._device.device,
            self._where, self._findings,
        )  # fmt: skip
        self._add(running, fault)

    def _add(self, running: _Running, fault: Fault) -> None:
        """Add a fault, after its own program was run."""
        backend = running.backend
        self._tell(f"{backend.result.title}: the program of a fault")
        seconds = 60.0 if fault.kind is Kind.HUNG else _PROGRAM
        confirmed, printed = programs.confirmed(
            fault, self._python, running.folder, self._env, seconds
        )
        fault = replace(fault, confirmed=confirmed, printed=printed)
        backend.result = replace(backend.result, faults=(*backend.result.faults, fault))
        self._tell(backend.result.title, fault=fault, backend=backend.result.title)

    @property
    def _where(self) -> str:
        return f"torch {self._torch}, {self._device.name}"

    def _keep(self, backend: _Backend, number: int) -> None:
        """Keep what a backend showed after one more part."""
        with self._lock:
            backend.done.add(number)
            kept = progress_file.Done(
                digest=backend.digest, parts=tuple(sorted(backend.done)), result=backend.result
            )
            backends = {**self._state.backends, backend.key: kept}
            self._state = replace(self._state, backends=backends)
            progress_file.write(self._options.progress_file, self._state)

    def _finished(
        self, failure: Failure | None = None, absent: dict[str, str] | None = None
    ) -> AuditReport:
        return AuditReport(
            python=self._python,
            torch=self._torch,
            device=self._device,
            dtype=self._options.dtype,
            phases=self._options.phases,
            seed=self._options.seed,
            results=tuple(one.result for one in self._backends),
            advisories=self._advisories,
            absent=absent or {},
            failure=failure,
            seconds=time.monotonic() - self._start,
        )

    def _tell(self, title: str, **more: Any) -> None:
        if self._progress is None:
            return
        with self._lock:
            done = sum(one.result.done for one in self._backends)
            total = sum(one.result.planned for one in self._backends)
            self._progress(Step(done=done, total=total, title=title, **more))


def _absent(names: Sequence[str], found: Mapping[str, bool]) -> dict[str, str]:
    """Named backends whose package is not installed."""
    return {name: NAMES[name] for name in names if not found.get(NAMES[name])}
