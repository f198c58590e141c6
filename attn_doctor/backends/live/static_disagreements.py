"""Compares the results of a run with the verdicts from facts. Where they differ, we are wrong.

Only the same phase and call on the same kind of device are compared. A run that is not conclusive
(it ran out of memory, it was cut short) contradicts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.backends.live.outcome import LiveReport, LiveResult, PhaseResult, Verdict
from attn_doctor.backends.readiness import Answer, Matrix, Readiness


class Disagreement(Struct, frozen=True, kw_only=True):
    """One backend on which the static and the live verdict differ."""

    name: str
    phase: str
    static: str
    """State and reason."""
    live: str
    """Verdict and reason."""
    broken: bool
    """It was promised and does not work; otherwise it works and was denied."""
    result: LiveResult
    outcome: PhaseResult


def disagreements(report: LiveReport, static: Matrix) -> tuple[Disagreement, ...]:
    """Where `report` and `static` differ. `static` holds for the names of Diffusers."""
    device = report.device.device.split(":")[0]
    if not device or device != static.context.device:
        return ()
    return tuple(_differences(report, static))


def _differences(report: LiveReport, static: Matrix) -> Iterator[Disagreement]:
    for row in static.rows:
        result = report.of(row.name)
        if result is None:
            continue
        for call, answer in zip(static.calls, row.answers, strict=True):
            outcome = result.outcomes.get(call.phase)
            if outcome is None or not _differs(result, outcome, answer):
                continue
            yield Disagreement(
                name=row.name,
                phase=call.phase,
                static=_static(answer),
                live=f"{outcome.verdict.value}: {outcome.sentence}",
                broken=not outcome.verdict.works,
                result=result,
                outcome=outcome,
            )


def _differs(result: LiveResult, outcome: PhaseResult, answer: Answer) -> bool:
    if not outcome.verdict.conclusive or answer.state is Readiness.UNKNOWN:
        return False
    promised = answer.state in (Readiness.READY, Readiness.SLOW)
    if promised and outcome.verdict is Verdict.WRONG and known_faults(answer):
        return False
    if outcome.verdict.works == promised:
        return False
    if result.route != "direct":
        return True
    # The library alone was called: what only the framework demands or does was not tried.
    if not promised:
        return all(reason.by == "library" for reason in answer.reasons)
    if outcome.verdict is Verdict.ABSENT:
        # Static verdicts are given as if the framework were there.
        return "diffusers" not in outcome.sentence
    return outcome.failure is None or outcome.failure.type != "NotOffered"


def known_faults(answer: Answer) -> tuple[str, ...]:
    """The rules of the advisories that the static verdict names."""
    return tuple(one.rule for one in answer.reasons if one.silent and one.id == one.rule != "")


def with_advisories(report: LiveReport, static: Matrix) -> LiveReport:
    """`report`, with the known faults of each backend whose results are wrong named."""
    if report.device.device.split(":")[0] != static.context.device:
        return report
    known = {
        (row.name, call.phase): known_faults(answer)
        for row in static.rows
        for call, answer in zip(static.calls, row.answers, strict=True)
    }
    results = []
    for result in report.results:
        outcomes = {}
        for phase, outcome in result.outcomes.items():
            ids = known.get((result.name, phase), ())
            if outcome.verdict is Verdict.WRONG and ids:
                names = ", ".join(id.partition("/")[2] for id in ids)
                words = f"{outcome.sentence}; known faults of it here: {names}"
                outcome = replace(outcome, sentence=words)
            outcomes[phase] = outcome
        results.append(replace(result, outcomes=outcomes))
    return replace(report, results=tuple(results))


def _static(answer: Answer) -> str:
    if not answer.reasons:
        return answer.state.value
    return f"{answer.state.value}: {answer.reasons[0].text}"
