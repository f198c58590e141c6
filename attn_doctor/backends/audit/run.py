"""Runs an audit: programs of advisories, then the calls of all backends, by turns, within its time.

By turns, so that each backend has got the telling calls when the time ends. What the audit cannot
know: whether a fault needs another process, another GPU, or a machine that is warm for days.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.backends.audit import faults, plan, programs, progress_file
from attn_doctor.backends.audit.calls import Answer, Runner, failure_of
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
from attn_doctor.findings import Diagnosis, Verdict
from attn_doctor.rulebook import library
from attn_doctor.worker.audit.case import Case, described

_DIFFUSERS = "diffusers.models.attention_dispatch"
#: The first backward imports it, with hundreds of modules; so it is imported before the forks.
_DYNAMO = "torch._dynamo"
#: Faults of one backend that are shrunk; more are counted with the first of their kind.
_FAULTS = 5
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
        self, runner: Runner, parts: Sequence[plan.Part], result: Audited, done: int
    ) -> None:
        self.runner, self.parts, self.result, self.done = runner, parts, result, done
        self.digest = plan.digest(parts)
        #: The shrunk call of each fault, with its sign.
        self.small: list[tuple[Case, tuple[str, str]]] = [
            (Case(**one.cases[-1]), (one.kind.value, "")) for one in result.faults if one.cases
        ]

    @property
    def key(self) -> str:
        """Name and route, as the progress file has them."""
        return f"{self.runner.attempt.name}/{self.runner.attempt.route}"


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
        self._advisories: tuple[Reproduced, ...] = ()

    def report(self) -> AuditReport:
        """Run everything, and report it."""
        self._tell(f"starting {self._python}")
        plain = self._interpreter("torch", _DYNAMO)
        if not plain.ready() and plain.failed is not None:
            return self._finished(failure=failure_of(plain.failed))
        self._torch = str(plain.hello["torch"])
        failure = self._open(plain)
        if failure is not None:
            return self._finished(failure=failure)
        options = self._options
        self._state = progress_file.read(options.progress_file, self._torch, self._device.name)
        found = plain.hello["packages"]
        through = self._interpreter("torch", _DYNAMO, _DIFFUSERS) if self._hub(found) else plain
        for attempt in plan.attempts(options.names or tuple(NAMES), found, self._table):
            interpreter = through if attempt.route == "diffusers" else plain
            self._backends.append(self._backend(attempt, interpreter))
        self._advisories = self._reproduce()
        for number in range(max((len(one.parts) for one in self._backends), default=0)):
            for backend in self._backends:
                if number >= backend.done and number < len(backend.parts):
                    if time.monotonic() > self._end or backend.result.failure is not None:
                        continue
                    self._run(backend, backend.parts[number])
        return self._finished(absent=_absent(options.names, found))

    def _hub(self, found: Mapping[str, bool]) -> bool:
        names = self._options.names or tuple(NAMES)
        return bool(found.get("diffusers") and found.get("kernels")) and any(
            NAMES[name] == "kernels" for name in names
        )

    def _interpreter(self, *modules: str) -> Interpreter:
        seconds = self._limits.import_seconds
        return self._stack.enter_context(
            Interpreter(self._python, modules, self._folder, self._env, seconds)
        )

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

    def _backend(self, attempt: Attempt, interpreter: Interpreter) -> _Backend:
        parts = plan.parts(attempt, self._options, self._device.device)
        result = Audited(
            name=attempt.name, route=attempt.route, planned=sum(part.size for part in parts)
        )
        runner = Runner(
            attempt=attempt, interpreter=interpreter, device=self._device.device,
            memory_mib=self._memory, table=self._table,
        )  # fmt: skip
        backend = _Backend(runner, parts, result, 0)
        kept = self._state.backends.get(backend.key)
        if kept is not None and kept.digest == backend.digest:
            return _Backend(runner, parts, kept.result, kept.parts)
        return backend

    # The programs of advisories

    def _reproduce(self) -> tuple[Reproduced, ...]:
        if self._state.advisories is not None:
            return self._state.advisories
        names = set(self._options.names)
        found = []
        for finding in self._findings:
            if finding.advisory is None or finding.verdict is not Verdict.PROBLEM:
                continue
            if names and not names.intersection(finding.backends):
                continue
            self._tell(f"the program of {finding.rule.partition('/')[2]}")
            one = programs.reproduced(finding, self._python, self._folder, self._env, _PROGRAM)
            found += [one] if one is not None else []
        self._state = replace(self._state, advisories=tuple(found))
        return tuple(found)

    # Calls

    def _run(self, backend: _Backend, part: plan.Part) -> None:
        title = f"{backend.result.title}: {part.probe}"
        self._tell(title)
        cases, start = list(part.cases), 0
        names = list(part.scripts)
        while start < len(cases) + len(names):
            answers, ended = backend.runner.run(cases[start:], names)
            versions = [event["version"] for event in ended.of("imported")]
            if versions:
                backend.result = replace(backend.result, version=versions[-1])
            if not answers:
                failure = failure_of(ended) or Failure(stage="import", message="it did not start")
                backend.result = replace(backend.result, failure=failure)
                return
            for answer in answers:
                self._count(backend, part, cases[start:], names, answer)
            start += answers[-1].number + 1
            if start > len(cases):
                names = names[start - len(cases) :]
                cases, start = [], 0
        backend.done += 1
        self._keep(backend)

    def _count(
        self,
        backend: _Backend,
        part: plan.Part,
        cases: Sequence[Case],
        names: Sequence[str],
        answer: Answer,
    ) -> None:
        """Count one answer; shrink a fault that is new."""
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
                name, attempt = names[answer.number - len(cases)], backend.runner.attempt
                device = self._device.device
                self._add(backend, faults.of_script(name, answer, attempt, device, self._where))
            else:
                self._fault(backend, part, cases, answer)

    def _fault(
        self, backend: _Backend, part: plan.Part, cases: Sequence[Case], answer: Answer
    ) -> None:
        case, result = cases[answer.number], backend.result
        for number, (small, sign) in enumerate(backend.small):
            same = sign[0] == answer.sign[0] and sign[1] in ("", answer.sign[1])
            if (same and covers(small, case)) or len(backend.small) >= _FAULTS:
                known = list(result.faults)
                known[number] = replace(known[number], count=known[number].count + 1)
                backend.result = replace(result, faults=tuple(known))
                return
        self._tell(f"{result.title}: shrinking a fault of {described(case)}")
        end = time.monotonic() + _SHRINK
        shrunk = shrink(backend.runner, cases, answer, end)
        backend.small.append((shrunk.cases[-1], shrunk.answer.sign))
        self._add(
            backend,
            faults.of_case(
                shrunk, case, part.probe, backend.runner.attempt, self._device.device,
                self._where, self._findings,
            ),
        )  # fmt: skip

    def _add(self, backend: _Backend, fault: Fault) -> None:
        """Add a fault, after its own program was run."""
        self._tell(f"{backend.result.title}: the program of a fault")
        seconds = 60.0 if fault.kind is Kind.HUNG else _PROGRAM
        confirmed, printed = programs.confirmed(
            fault, self._python, self._folder, self._env, seconds
        )
        fault = replace(fault, confirmed=confirmed, printed=printed)
        backend.result = replace(backend.result, faults=(*backend.result.faults, fault))
        self._tell(backend.result.title, fault=fault, backend=backend.result.title)

    @property
    def _where(self) -> str:
        return f"torch {self._torch}, {self._device.name}"

    def _keep(self, backend: _Backend) -> None:
        done = progress_file.Done(digest=backend.digest, parts=backend.done, result=backend.result)
        self._state = replace(
            self._state,
            backends={**self._state.backends, backend.key: done},
            seconds=self._state.seconds,
        )
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
        if self._progress is not None:
            done = sum(one.result.done for one in self._backends)
            total = sum(one.result.planned for one in self._backends)
            self._progress(Step(done=done, total=total, title=title, **more))


def _absent(names: Sequence[str], found: Mapping[str, bool]) -> dict[str, str]:
    """Named backends whose package is not installed."""
    return {name: NAMES[name] for name in names if not found.get(NAMES[name])}
