"""Verdicts from what a job reported: figures against bounds, failures against the rulebook."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attn_doctor.backends.live.outcome import (
    Cause,
    Compared,
    Failure,
    Figures,
    Imported,
    LiveResult,
    PhaseResult,
    Shape,
    Verdict,
)
from attn_doctor.backends.live.plan import NAMES, Attempt, Workload
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.pool.task import Ending, Outcome
from attn_doctor.processes import signal_name
from attn_doctor.redact import presentable
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import Rule

#: Finds the cause of a failure in the log at a path.
Explain = Callable[[str], "Cause | None"]
#: Lines of a log that a failure keeps.
_LINES = 30
_STAGES = {
    "import": "while it was imported",
    "device": "when the device was opened",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "reference": "while its result was compared",
    "timing": "while it was timed",
}
#: Exceptions that say: the local cache does not have it, and nothing may be downloaded.
_OFFLINE = ("LocalEntryNotFoundError", "OfflineModeIsEnabled")
_NOT_CACHED = re.compile(r"not available in the local cache|offline mode is enabled", re.IGNORECASE)
#: The first words of a stack that a crash or a time limit has written.
_DUMPS = ("Fatal Python error", "Timeout (", "Windows fatal exception")
_UNFUSED = "unfused implementation"


def result(
    attempt: Attempt,
    ended: Outcome,
    workload: Workload,
    shapes: Sequence[Shape],
    explain: Explain,
) -> LiveResult:
    """The result of one attempt."""
    outcomes = {phase: _outcome(phase, ended, shapes, explain) for phase in workload.phases}
    versions = [event["version"] for event in ended.of("imported") if event.get("version")]
    return LiveResult(
        name=attempt.name,
        route=attempt.route,
        decisive=workload.phases[0],
        outcomes=outcomes,
        version=versions[-1] if versions else "",
        seconds=ended.seconds,
    )


def _outcome(
    phase: str,
    ended: Outcome,
    shapes: Sequence[Shape],
    explain: Explain,
) -> PhaseResult:
    events = {event["shape"]: event for event in ended.of("measured") if event["phase"] == phase}
    figures = tuple(_figures(events[shape.name], shape) for shape in shapes if shape.name in events)
    failure = failure_of(ended, explain, phase)
    if failure is not None:
        verdict = _verdict_of(failure, ended)
        if verdict is Verdict.NOT_RUN and failure.type:
            # attn-doctor keeps it from the network: that is not a fault to be explained.
            return PhaseResult(
                verdict=verdict, sentence=_sentence(failure, verdict), figures=figures
            )
        return PhaseResult(
            verdict=verdict, sentence=_sentence(failure, verdict), figures=figures, failure=failure
        )
    wrong = [measured.wrong for measured in figures if measured.wrong]
    if wrong:
        return PhaseResult(verdict=Verdict.WRONG, sentence=wrong[-1], figures=figures)
    refused = [event for event in ended.of("refused") if event["phase"] == phase]
    if not figures:
        words = _refusal(refused[0]) if refused else "it was not reached: an earlier step failed"
        return PhaseResult(verdict=Verdict.NOT_RUN, sentence=words)
    if any(_UNFUSED in warning for measured in figures for warning in measured.warnings):
        words = "it runs unfused: all scores are written to memory"
        return PhaseResult(verdict=Verdict.SLOW, sentence=words, figures=figures)
    words = (
        _refusal(refused[0]) if refused else f"it runs, and its numbers are right{_much(figures)}"
    )
    return PhaseResult(verdict=Verdict.VERIFIED, sentence=words, figures=figures)


def _much(figures: Sequence[Figures]) -> str:
    """How much was compared of the shape of which least was."""
    least = min((one.compared for one in figures), key=lambda one: one.share)
    return (
        f": {least.rows:,} rows of all {least.heads} heads compared in {least.calls} calls"
        f" ({least.share:.0%})"
    )


def _refusal(refused: Mapping[str, Any]) -> str:
    return (
        f"the {refused['shape']} shape was left out: it needs about {_gib(refused['need'])} of GPU"
        f" memory, and {_gib(refused['free'])} are free, of which {_gib(refused['allowed'])} may be"
        " taken"
    )


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _figures(event: Mapping[str, Any], shape: Shape) -> Figures:
    def each(figure: str) -> dict[str, float | None]:
        return {name: error[figure] for name, error in event["errors"].items()}

    peak = event.get("peak_bytes")
    wrong = event.get("wrong")
    return Figures(
        shape=shape,
        errors=each("error"),
        allowed=each("allowed"),
        worst=each("worst"),
        compared=Compared(**event["compared"]),
        milliseconds=event.get("milliseconds"),
        tflops=event.get("tflops"),
        peak_mib=None if peak is None else peak / (1 << 20),
        wrong=f"{wrong} ({shape.name} shape)" if wrong else "",
        warnings=tuple(event.get("warnings", ())),
    )


def failure_of(ended: Outcome, explain: Explain, phase: str = "") -> Failure | None:
    """How a job failed, for one phase of it; None if it did not."""
    log = str(ended.task.log)
    for event in ended.of("failed"):
        if event.get("phase") in (None, phase):
            return Failure(
                stage=_stage_before(ended, event),
                message=presentable(event.get("message", "")),
                type=event.get("type", ""),
                text=_last_lines(ended.output()),
                cause=explain(log),
            )
    if ended.ending is Ending.DONE:
        return None
    stages = ended.of("stage") or [{"stage": "import"}]
    if phase and stages[-1].get("phase") not in (None, phase):
        # It died in the other phase: before this one was reached, or after it was done.
        return None
    return Failure(
        stage=stages[-1]["stage"],
        message=_how(ended),
        text=_last_lines(ended.output()),
        cause=explain(log),
    )


def _stage_before(ended: Outcome, failed: Mapping[str, Any]) -> str:
    """The step that was being done when the event `failed` was sent."""
    stage = str(failed.get("stage", "import"))
    for event in ended.events:
        if event is failed:
            break
        if event["event"] == "stage":
            stage = str(event["stage"])
    return stage


def _how(ended: Outcome) -> str:
    if ended.timed_out:
        left = f"; process {ended.left_behind} is left behind" if ended.left_behind else ""
        return f"no end after {ended.seconds:.0f} s; it was killed{left}"
    if ended.ending is Ending.OUT_OF_MEMORY:
        return f"it held {ended.most_mib} MiB of memory, more than its limit; it was killed"
    if ended.code is None:
        return "its process ended without a message"
    if ended.signal:
        name = signal_name(ended.signal)
        words = {
            "SIGSEGV": "segmentation fault", "SIGABRT": "aborted", "SIGILL": "illegal instruction",
            "SIGFPE": "arithmetic exception", "SIGBUS": "bus error",
            "SIGKILL": "killed, as the kernel does when memory runs out",
        }  # fmt: skip
        return f"its process died: {words.get(name, 'killed')} ({name})"
    return f"its process ended by itself, with exit code {ended.code} and without a result"


def _verdict_of(failure: Failure, ended: Outcome) -> Verdict:
    kinds = {kind for event in ended.of("failed") for kind in event.get("kinds", ())}
    if not failure.type:
        if ended.timed_out:
            return Verdict.HUNG
        if ended.ending is Ending.OUT_OF_MEMORY:
            return Verdict.OUT_OF_MEMORY
        return Verdict.CRASHED if failure.stage != "start" else Verdict.NOT_RUN
    if failure.type in ("OutOfMemoryError", "MemoryError"):
        return Verdict.OUT_OF_MEMORY
    if kinds.intersection(_OFFLINE) or _NOT_CACHED.search(failure.message):
        return Verdict.NOT_RUN
    return Verdict.FAILED


def _sentence(failure: Failure, verdict: Verdict) -> str:
    if verdict is Verdict.NOT_RUN and failure.type:
        return "its kernel is not in this machine's cache; --live-network allows the download"
    where = _STAGES.get(failure.stage, "")
    first = next((line for line in failure.message.splitlines() if line.strip()), "")
    if failure.type:
        return f"{failure.type} {where}: {first}" if first else f"{failure.type} {where}"
    return f"{where}: {failure.message}" if where else failure.message


def imported(module: str, ended: Outcome, explain: Explain) -> Imported:
    """How the import of a package went."""
    failure = failure_of(ended, explain)
    event = next(iter(ended.of("imported")), None)
    if failure is None and event is not None:
        return Imported(
            module=module,
            verdict=Verdict.VERIFIED,
            sentence="it imports",
            version=str(event.get("version", "")),
            seconds=float(event.get("seconds", 0.0)),
        )
    failure = failure or Failure(stage="import", message="it ended without a message")
    verdict = _verdict_of(failure, ended)
    return Imported(
        module=module,
        verdict=verdict,
        sentence=_sentence(failure, verdict),
        seconds=ended.seconds,
        failure=failure,
    )


def _last_lines(text: str) -> str:
    """The end of a log, or what follows a dumped stack, whose top comes first."""
    lines = text.splitlines()
    dumps = [number for number, line in enumerate(lines) if line.startswith(_DUMPS)]
    first = max(dumps[0] - 3, 0) if dumps else max(len(lines) - _LINES, 0)
    return presentable("\n".join(lines[first : first + _LINES]))


class Explaining:
    """Finds the cause of a failure in its log. The rules are read once, when they are needed."""

    def __init__(self, facts: Facts) -> None:
        """`facts`: of the machine that wrote the log."""
        self._facts = facts
        self._rules: tuple[Rule, ...] = ()

    def __call__(self, log: str) -> Cause | None:
        """The likeliest cause; None if no rule knows the text."""
        from attn_doctor.explain.engine import explain
        from attn_doctor.explain.explanation import Confirmation

        self._rules = self._rules or library.load()
        try:
            causes = explain([log], self._rules, self._facts).matches
        except AttnDoctorError:
            return None  # it printed nothing, and its log does not exist
        # The log was written on this machine: what its facts confirm goes first, and what they
        # deny is not the cause.
        possible = [match for match in causes if match.confirmation is not Confirmation.NO]
        confirmed = [match for match in possible if match.confirmation is Confirmation.BY_MACHINE]
        match = next(iter(confirmed + possible), None)
        if match is None:
            return None
        return Cause(
            rule=match.rule,
            title=match.title,
            why=match.why,
            verdict=match.verdict,
            fixes=match.fixes,
        )


# Backends that were not run, because the result is known


def as_imported(attempt: Attempt, workload: Workload, broken: Imported) -> LiveResult:
    """The result of a backend whose package was already seen not to import."""
    return _in_every_phase(
        attempt,
        workload,
        PhaseResult(verdict=broken.verdict, sentence=broken.sentence, failure=broken.failure),
    )


def not_run(attempt: Attempt, workload: Workload, reason: str) -> LiveResult:
    """The result of a backend that could not be tried, with the reason."""
    return _in_every_phase(attempt, workload, PhaseResult(verdict=Verdict.NOT_RUN, sentence=reason))


def absent(
    names: Iterable[str], found: Mapping[str, bool], workload: Workload
) -> Iterator[LiveResult]:
    """The results of backends whose package is not installed."""
    for name in names:
        module = NAMES[name]
        missing = [module] if not found.get(module) else []
        if module == "kernels" and not found.get("diffusers"):
            missing.append("diffusers")
        if missing:
            sentence = f"{' and '.join(missing)} not installed"
            attempt = Attempt(name=name, route="direct", score_bytes={})
            result = PhaseResult(verdict=Verdict.ABSENT, sentence=sentence)
            yield _in_every_phase(attempt, workload, result)


def _in_every_phase(attempt: Attempt, workload: Workload, result: PhaseResult) -> LiveResult:
    return LiveResult(
        name=attempt.name,
        route=attempt.route,
        decisive=workload.phases[0],
        outcomes=dict.fromkeys(workload.phases, result),
    )
