"""From what a job said to verdicts: figures against bounds, failures against the rulebook."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attn_doctor.backends.live.outcome import (
    Cause,
    Failure,
    Figures,
    Imported,
    LiveResult,
    Outcome,
    Shape,
    Verdict,
)
from attn_doctor.backends.live.plan import Attempt, Workload
from attn_doctor.backends.live.server_process import Ended
from attn_doctor.redact import redact

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
#: What says: there is nothing of this in the local cache, and nothing may be fetched.
_OFFLINE = ("LocalEntryNotFoundError", "OfflineModeIsEnabled")
_NOT_CACHED = re.compile(r"not available in the local cache|offline mode is enabled", re.IGNORECASE)
#: How a stack begins that a crash or a time limit has left.
_DUMPS = ("Fatal Python error", "Timeout (", "Windows fatal exception")
_UNFUSED = "unfused implementation"


def result(
    attempt: Attempt,
    ended: Ended,
    wish: Workload,
    shapes: Sequence[Shape],
    bounds: Mapping[str, float],
    explain: Explain,
) -> LiveResult:
    """The result of one attempt."""
    outcomes = {phase: _outcome(phase, ended, shapes, bounds, explain) for phase in wish.phases}
    versions = [one["version"] for one in ended.of("imported") if one.get("version")]
    return LiveResult(
        name=attempt.name,
        route=attempt.route,
        wished=wish.phases[0],
        outcomes=outcomes,
        version=versions[-1] if versions else "",
        seconds=ended.seconds,
    )


def _outcome(
    phase: str,
    ended: Ended,
    shapes: Sequence[Shape],
    bounds: Mapping[str, float],
    explain: Explain,
) -> Outcome:
    measured = {one["shape"]: one for one in ended.of("measured") if one["phase"] == phase}
    figures = tuple(
        _figures(measured[shape.name], shape, bounds) for shape in shapes if shape.name in measured
    )
    failure = failure_of(ended, explain, phase)
    if failure is not None:
        verdict = _verdict_of(failure, ended)
        if verdict is Verdict.NOT_RUN and failure.type:
            # It is we who keep it from the network: that is no fault to be explained.
            return Outcome(verdict=verdict, sentence=_sentence(failure, verdict), figures=figures)
        return Outcome(
            verdict=verdict, sentence=_sentence(failure, verdict), figures=figures, failure=failure
        )
    wrong = [one for one in figures if one.wrong]
    if wrong:
        return Outcome(verdict=Verdict.WRONG, sentence=wrong[-1].wrong, figures=figures)
    refused = [one for one in ended.of("refused") if one["phase"] == phase]
    if not figures:
        words = _refusal(refused[0]) if refused else "it was not reached: an earlier step failed"
        return Outcome(verdict=Verdict.NOT_RUN, sentence=words)
    if any(_UNFUSED in told for one in figures for told in one.warnings):
        words = "it runs unfused: all scores are written to memory"
        return Outcome(verdict=Verdict.SLOW, sentence=words, figures=figures)
    words = _refusal(refused[0]) if refused else "it runs, and its numbers are right"
    return Outcome(verdict=Verdict.VERIFIED, sentence=words, figures=figures)


def _refusal(refused: Mapping[str, Any]) -> str:
    return (
        f"the {refused['shape']} shape was left out: it needs about {_gib(refused['need'])} of GPU"
        f" memory, and {_gib(refused['free'])} are free, of which {_gib(refused['allowed'])} may be"
        " taken"
    )


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"


def _figures(said: Mapping[str, Any], shape: Shape, bounds: Mapping[str, float]) -> Figures:
    errors = {name: one["error"] for name, one in said["errors"].items()}
    worst = {name: one["worst"] for name, one in said["errors"].items()}
    peak = said.get("peak_bytes")
    return Figures(
        shape=shape,
        errors=errors,
        worst=worst,
        milliseconds=said.get("milliseconds"),
        tflops=said.get("tflops"),
        peak_mib=None if peak is None else peak / (1 << 20),
        wrong=said.get("wrong") or _beyond(said["errors"], shape, bounds),
        warnings=tuple(said.get("warnings", ())),
    )


_TENSORS = {
    "out": "the output",
    "dq": "the gradient of the queries",
    "dk": "the gradient of the keys",
    "dv": "the gradient of the values",
}


def _beyond(errors: Mapping[str, Any], shape: Shape, bounds: Mapping[str, float]) -> str:
    """What is wrong with some errors, with figures; empty if nothing is."""
    for name, one in errors.items():
        what = f"{_TENSORS[name]} ({shape.name} shape)"
        if one["not_finite"]:
            return f"{what} holds {one['not_finite']} values that are not finite (NaN or infinity)"
        bound = bounds["out" if name == "out" else "gradient"]
        # `not <=`: a NaN is beyond every bound.
        if one["error"] is None or not one["error"] <= bound:
            return f"{what} is off by {_number(one['error'])}, at most {bound:g} is allowed"
        limit = bound * bounds["worst"]
        if one["worst"] is None or not one["worst"] <= limit:
            return (
                f"one row of {what} is off by {_number(one['worst'])}, at most {limit:g} is allowed"
            )
    return ""


def _number(value: float | None) -> str:
    return "NaN" if value is None else f"{value:.2g}"


def failure_of(ended: Ended, explain: Explain, phase: str = "") -> Failure | None:
    """How a job failed, for one phase of it; None if it did not."""
    for said in ended.of("failed"):
        if said.get("phase") in (None, phase):
            return Failure(
                stage=_stage_before(ended, said),
                message=_printable(said.get("message", "")),
                type=said.get("type", ""),
                text=_last_lines(ended.text),
                cause=explain(ended.log) if ended.log else None,
            )
    if ended.how == "done":
        return None
    stage = ended.stage
    if phase and stage.get("phase") not in (None, phase):
        # It died in the other phase: before this one was reached, or after it was done.
        return None
    return Failure(
        stage=stage["stage"],
        message=_how(ended),
        text=_last_lines(ended.text),
        cause=explain(ended.log) if ended.log else None,
    )


def _stage_before(ended: Ended, failed: Mapping[str, Any]) -> str:
    """The step that was being done when `failed` was said."""
    stage = str(failed.get("stage", "import"))
    for said in ended.said:
        if said is failed:
            break
        if said["event"] == "stage":
            stage = str(said["stage"])
    return stage


def _how(ended: Ended) -> str:
    if ended.how == "late":
        left = f"; process {ended.left_behind} is left behind" if ended.left_behind else ""
        return f"no end after {ended.seconds:.0f} s; it was killed{left}"
    if ended.how == "memory":
        return f"it held {ended.most_mib} MiB of memory, more than its limit; it was killed"
    if ended.code is None:
        return "its process is gone without a word"
    if ended.code < 0:
        try:
            name = signal.Signals(-ended.code).name
        except ValueError:
            name = f"signal {-ended.code}"
        words = {
            "SIGSEGV": "segmentation fault", "SIGABRT": "aborted", "SIGILL": "illegal instruction",
            "SIGFPE": "arithmetic exception", "SIGBUS": "bus error",
            "SIGKILL": "killed, as the kernel does when memory runs out",
        }  # fmt: skip
        return f"its process died: {words.get(name, 'killed')} ({name})"
    return f"its process ended by itself, with exit code {ended.code} and without a result"


def _verdict_of(failure: Failure, ended: Ended) -> Verdict:
    kinds = {kind for said in ended.of("failed") for kind in said.get("kinds", ())}
    if not failure.type:
        if ended.how == "late":
            return Verdict.HUNG
        if ended.how == "memory":
            return Verdict.OUT_OF_MEMORY
        return Verdict.CRASHED if failure.stage != "start" else Verdict.NOT_RUN
    if failure.type in ("OutOfMemoryError", "MemoryError"):
        return Verdict.OUT_OF_MEMORY
    if kinds.intersection(_OFFLINE) or _NOT_CACHED.search(failure.message):
        return Verdict.NOT_RUN
    return Verdict.FAILED


def _sentence(failure: Failure, verdict: Verdict) -> str:
    if verdict is Verdict.NOT_RUN and failure.type:
        return "its kernel is not in this machine's cache; --live-network lets it be downloaded"
    where = _STAGES.get(failure.stage, "")
    first = next((line for line in failure.message.splitlines() if line.strip()), "")
    if failure.type:
        return f"{failure.type} {where}: {first}" if first else f"{failure.type} {where}"
    return f"{where}: {failure.message}" if where else failure.message


def imported(module: str, ended: Ended, explain: Explain) -> Imported:
    """How the import of a package went."""
    failure = failure_of(ended, explain)
    said = next(iter(ended.of("imported")), {})
    if failure is None and said:
        return Imported(
            module=module,
            verdict=Verdict.VERIFIED,
            sentence="it imports",
            version=str(said.get("version", "")),
            seconds=float(said.get("seconds", 0.0)),
        )
    failure = failure or Failure(stage="import", message="it ended without a word")
    verdict = _verdict_of(failure, ended)
    return Imported(
        module=module,
        verdict=verdict,
        sentence=_sentence(failure, verdict),
        seconds=ended.seconds,
        failure=failure,
    )


def _last_lines(text: str) -> str:
    """The end of a log; where a stack was dumped into it, from there on: its top comes first."""
    lines = text.splitlines()
    dumps = [number for number, line in enumerate(lines) if line.startswith(_DUMPS)]
    first = max(dumps[0] - 3, 0) if dumps else max(len(lines) - _LINES, 0)
    return "\n".join(_printable(line) for line in lines[first : first + _LINES])


def _printable(text: str) -> str:
    return "\n".join(redact(line) for line in text.splitlines())
