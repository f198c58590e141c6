"""Runs an audit: programs of advisories, then the calls of all backends, by turns, within its time.

By turns, so that each backend has got the telling calls when the time ends. What the audit cannot
know: whether a fault needs another process, another GPU, or a machine that is warm for days.
"""

from __future__ import annotations

import logging
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
from attn_doctor.backends.audit.shrink import Shrunk, covers, shrink
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

_log = logging.getLogger(__name__)

#: Faults of one backend that are shrunk; more are counted with the first of their kind.
_FAULTS = 5
#: How far compiled calls are ahead of others, so that the end does not wait for them.
_AHEAD = 2.0
#: The share of its other parts after which a backend may begin one that needs most of the GPU.
_BEFORE_ALONE = 0.5
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


class _Wrong(Struct, frozen=True, kw_only=True):
    """A wrong answer of a part."""

    number: int
    """Of the part."""
    part: plan.Part
    cases: tuple[Case, ...]
    """All calls of its process."""
    probe: str
    answer: Answer


class _Backend:
    """One backend: its parts, and what was seen so far. Change it with `lock` held."""

    def __init__(
        self, runner: Runner, parts: Sequence[plan.Part], result: Audited, done: Iterable[int] = ()
    ) -> None:
        self.runner, self.parts, self.result = runner, parts, result
        self.digest = plan.digest(parts)
        #: Numbers of parts that are done, and of those that were begun.
        self.done = set(done)
        self.begun = set(self.done)
        self.lock = threading.Lock()
        #: What each part has that is not done showed so far.
        self.open: dict[int, Audited] = {}
        #: Wrong answers that may show a fault that is new.
        self.waiting: list[_Wrong] = []
        #: Signs of the faults that are being shrunk, each on one lane.
        self.shrinking: set[tuple[str, str]] = set()
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
    def tried(self) -> int:
        """Calls that were tried."""
        return self.result.done + sum(one.done for one in [*self.open.values()])

    def next(self, *, alone: bool) -> tuple[float, int] | None:
        """The part that comes next, behind the share that was begun; None if there is none.

        The backend with the least share is the next one. Compiled calls take longest.
        """
        if self.result.failure is not None:
            return None
        ahead = _AHEAD if self.runner.attempt.route == "compiled" else 1.0
        share = len(self.begun) / len(self.parts) / ahead
        left = [number for number in range(len(self.parts)) if number not in self.begun]
        ordinary = [number for number in left if not self.parts[number].alone]
        if alone and len(ordinary) < len(left) and (share > _BEFORE_ALONE or not ordinary):
            return share, next(number for number in left if self.parts[number].alone)
        return (share, ordinary[0]) if ordinary else None


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
        #: A part runs that needs most of the memory of the GPU.
        self._alone = False

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
        side_by_side(lanes, self._work)
        self._keep_advisories()
        return self._finished(absent=_absent(options.names, found))

    def _lane(self, number: int) -> Lane:
        folder = Path(self._folder) / f"lane-{number}"
        return Lane(self._facts, self._limits, folder, self._stack)

    def _work(self, lane: Lane) -> None:
        """Take what comes next until nothing is left for this lane."""
        while True:
            with self._lock:
                advised = self._advised.pop(0) if self._advised else None
                chosen = None if advised is not None else self._next()
                if chosen is not None:
                    number, backend = chosen
                    backend.begun.add(number)
                    self._alone = self._alone or backend.parts[number].alone
            if advised is not None:
                self._reproduce(advised, lane)
            elif chosen is not None:
                self._run(backend, number, lane)
            else:
                return

    def _next(self) -> tuple[int, _Backend] | None:
        """A part that was not begun, of the backend with the least share of its parts begun."""
        if time.monotonic() > self._end:
            return None
        waiting = ((one.next(alone=not self._alone), one) for one in self._backends)
        found = [(*chosen, one) for chosen, one in waiting if chosen is not None]
        least = min(found, key=lambda one: one[0], default=None)
        return least and least[1:]

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
        start = time.monotonic()
        one = programs.reproduced(finding, self._python, lane.folder, self._env, _PROGRAM)
        _log.debug("%s: its program in %.1f s", finding.rule, time.monotonic() - start)
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

    def _run(self, backend: _Backend, number: int, lane: Lane) -> None:
        """Run a part of a backend."""
        part, start = backend.parts[number], time.monotonic()
        self._tell(f"{backend.result.title}: {part.title}")
        self._answer(backend, number, lane)
        took = time.monotonic() - start
        _log.debug("%s: %s calls in %.1f s: %s", backend.key, part.size, took, part.title)
        self._settle(backend, lane, alone=part.alone)
        if part.alone:
            self._alone = False

    def _runner(self, backend: _Backend, part: plan.Part, lane: Lane) -> Runner:
        """What runs calls of a part on a lane: an interpreter runs one job at a time."""
        runner = backend.runner
        interpreter = lane.through() if runner.attempt.route == "diffusers" else lane.plain
        share = Limits().share if part.alone else runner.share
        return replace(runner, interpreter=interpreter, share=share)

    def _answer(self, backend: _Backend, number: int, lane: Lane) -> None:
        """Run all calls of a part, up to one at which the backend does not start any more."""
        part = backend.parts[number]
        runner = self._runner(backend, part, lane)
        cases, probes, start = list(part.cases), list(part.probes), 0
        names = list(part.scripts)
        tally = Audited(name="", route="")
        wrong: list[_Wrong] = []
        while start < len(cases) + len(names):
            rest = tuple(cases[start:])
            answers, ended = runner.run(rest, names)
            versions = [event["version"] for event in ended.of("imported")]
            with backend.lock:
                if versions:
                    backend.result = replace(backend.result, version=versions[-1])
                if not answers:
                    failure = failure_of(ended)
                    failure = failure or Failure(stage="import", message="it did not start")
                    backend.result = replace(backend.result, failure=failure)
                    backend.waiting += wrong
                    return
            for answer in answers:
                tally = _counted(tally, answer)
                if answer.kind is not None and answer.held:
                    at = answer.number
                    probe = names[at - len(rest)] if at >= len(rest) else probes[start + at]
                    wrong.append(
                        _Wrong(number=number, part=part, cases=rest, probe=probe, answer=answer)
                    )
            start += answers[-1].number + 1
            if start > len(cases):
                names = names[start - len(cases) :]
                cases, start = [], 0
        with backend.lock:
            backend.open[number] = tally
            backend.waiting += wrong

    def _settle(self, backend: _Backend, lane: Lane, *, alone: bool) -> None:
        """Shrink what is new of the faults that wait, and keep the parts that are done.

        Two lanes do not shrink faults of one kind, which may be the same. What waits for that is
        settled by the lane that shrinks. `alone`: this lane may use most of the GPU, and settles
        all faults that need it.
        """
        while True:
            with backend.lock:
                one = _taken(backend, alone=alone)
                waits = alone and any(other.part.alone for other in backend.waiting)
            if one is None and not waits:
                break
            if one is None:
                time.sleep(0.1)
                continue
            try:
                self._fault(backend, one, lane)
            finally:
                with backend.lock:
                    backend.shrinking.discard(one.answer.sign)
        self._keep(backend)

    def _fault(self, backend: _Backend, one: _Wrong, lane: Lane) -> None:
        """Add a fault that is new."""
        runner = self._runner(backend, one.part, lane)
        attempt, device, answer = runner.attempt, self._device.device, one.answer
        if answer.number >= len(one.cases):
            fault = faults.of_script(
                one.probe, answer, attempt, device, self._where, self._findings
            )
            self._add(backend, fault, None, lane)
            return
        cases = one.cases
        if answer.forward_only:
            cases = tuple(case._replace(training=False) for case in cases)
        case = cases[answer.number]
        self._tell(f"{backend.result.title}: shrinking a fault of {described(case)}")
        start = time.monotonic()
        shrunk = shrink(runner, cases, answer, start + _SHRINK)
        _log.debug("%s: shrunk in %.1f s", backend.key, time.monotonic() - start)
        fault = faults.of_case(
            shrunk, case, one.probe, attempt, device, self._where, self._findings
        )  # fmt: skip
        self._add(backend, fault, shrunk, lane)

    def _add(self, backend: _Backend, fault: Fault, shrunk: Shrunk | None, lane: Lane) -> None:
        """Add a fault, after its own program was run."""
        self._tell(f"{backend.result.title}: the program of a fault")
        start = time.monotonic()
        seconds = 60.0 if fault.kind is Kind.HUNG else _PROGRAM
        confirmed, printed = programs.confirmed(
            fault, self._python, lane.folder, self._env, seconds
        )
        _log.debug("%s: program of a fault in %.1f s", backend.key, time.monotonic() - start)
        fault = replace(fault, confirmed=confirmed, printed=printed)
        with backend.lock:
            if shrunk is not None:
                number = len(backend.result.faults)
                backend.small[number] = (shrunk.cases[-1], shrunk.answer.sign)
            backend.result = replace(backend.result, faults=(*backend.result.faults, fault))
        self._tell(backend.result.title, fault=fault, backend=backend.result.title)

    @property
    def _where(self) -> str:
        return f"torch {self._torch}, {self._device.name}"

    def _keep(self, backend: _Backend) -> None:
        """Keep what the parts of a backend showed of which no fault waits."""
        with self._lock, backend.lock:
            held = {one.number for one in backend.waiting}
            if backend.shrinking:  # its part is not done; the lane that shrinks keeps the rest
                return
            ready = [number for number in backend.open if number not in held]
            for number in ready:
                backend.result = _sum(backend.result, backend.open.pop(number))
                backend.done.add(number)
            if not ready:
                return
            kept = progress_file.Done(
                digest=backend.digest,
                parts=tuple(sorted(backend.done)),
                result=replace(backend.result, failure=None),
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
            done = sum(one.tried for one in self._backends)
            total = sum(one.result.planned for one in self._backends)
            self._progress(Step(done=done, total=total, title=title, **more))


def _counted(tally: Audited, answer: Answer) -> Audited:
    """A tally with one answer more."""
    if answer.forward_only:
        tally = replace(tally, forward_only=tally.forward_only + 1)
    if answer.refusal:
        refusals = {**tally.refusals, answer.refusal: tally.refusals.get(answer.refusal, 0) + 1}
        return replace(tally, refusals=refusals)
    if answer.kind is None:
        return replace(tally, right=tally.right + 1)
    if not answer.held:
        return replace(tally, not_counted=tally.not_counted + 1)
    return replace(tally, wrong=tally.wrong + 1)


def _sum(result: Audited, tally: Audited) -> Audited:
    """A result with the answers of one part more."""
    refusals = {**result.refusals}
    for reason, more in tally.refusals.items():
        refusals[reason] = refusals.get(reason, 0) + more
    return replace(
        result,
        refusals=refusals,
        **{
            name: getattr(result, name) + getattr(tally, name)
            for name in ("right", "wrong", "not_counted", "forward_only")
        },
    )


def _taken(backend: _Backend, *, alone: bool) -> _Wrong | None:
    """The next wrong answer that shows a fault that is new; those of known ones are counted."""
    for one in [*backend.waiting]:
        if one.answer.sign in backend.shrinking or (one.part.alone and not alone):
            continue
        backend.waiting.remove(one)
        number = _known(backend, one)
        if number is None:
            backend.shrinking.add(one.answer.sign)
            return one
        known = [*backend.result.faults]
        known[number] = replace(known[number], count=known[number].count + 1)
        backend.result = replace(backend.result, faults=tuple(known))
    return None


def _known(backend: _Backend, one: _Wrong) -> int | None:
    """The number of the fault that a wrong answer probably shows; None: a new one."""
    if one.answer.number >= len(one.cases):
        return None
    case = one.cases[one.answer.number]
    if one.answer.forward_only:
        case = case._replace(training=False)
    sign = one.answer.sign
    alike = [
        number
        for number, (_, own) in backend.small.items()
        if own[0] == sign[0] and own[1] in ("", sign[1])
    ]
    covering = [number for number in alike if covers(backend.small[number][0], case)]
    if not covering and len(backend.small) >= _FAULTS:
        covering = alike or [
            number for number, (_, own) in backend.small.items() if own[0] == sign[0]
        ]
        covering = covering or [*backend.small]
    return covering[0] if covering else None


def _absent(names: Sequence[str], found: Mapping[str, bool]) -> dict[str, str]:
    """Named backends whose package is not installed."""
    return {name: NAMES[name] for name in names if not found.get(NAMES[name])}
