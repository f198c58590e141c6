"""Rank the backends: the fastest, and how many times longer the others took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from attn_doctor.backends.live.outcome import Figures, LiveResult, PhaseResult, Verdict


def ranked(results: Sequence[LiveResult], slow: float) -> tuple[LiveResult, ...]:
    """The same results with ratios; what takes over `slow` times the least is slow."""
    best = _best(results)
    through = {result.name for result in results if result.route == "diffusers"}
    return tuple(
        replace(
            result,
            beside=result.route == "direct" and result.name in through,
            outcomes={
                phase: _with_ratios(phase, outcome, best, slow)
                for phase, outcome in result.outcomes.items()
            },
        )
        for result in results
    )


def _best(results: Iterable[LiveResult]) -> dict[tuple[str, str], float]:
    """The least time by phase and shape, of backends whose numbers are right."""
    best: dict[tuple[str, str], float] = {}
    for result in results:
        for phase, outcome in result.outcomes.items():
            for figures in outcome.figures if outcome.verdict.works else ():
                if figures.milliseconds:
                    key = (phase, figures.shape.name)
                    best[key] = min(best.get(key, figures.milliseconds), figures.milliseconds)
    return best


def _with_ratios(
    phase: str, outcome: PhaseResult, best: dict[tuple[str, str], float], slow: float
) -> PhaseResult:
    def with_ratio(figures: Figures) -> Figures:
        least = best.get((phase, figures.shape.name))
        if least is None or figures.milliseconds is None:
            return figures
        return replace(figures, ratio=figures.milliseconds / least)

    outcome = replace(outcome, figures=tuple(map(with_ratio, outcome.figures)))
    # The small shape takes microseconds: its ratios are those of launching, not of computing.
    last = next((one for one in outcome.figures if one.shape.name == "realistic"), None)
    if last is None or last.ratio is None or last.ratio <= slow or not outcome.verdict.works:
        return outcome
    words = f"{last.ratio:.1f} times as long as the fastest"
    if outcome.verdict is Verdict.SLOW:
        words = f"{outcome.sentence}; {words}"
    return replace(outcome, verdict=Verdict.SLOW, sentence=words)


def fastest(results: Iterable[LiveResult]) -> LiveResult | None:
    """The result that users can reach with the least time on the realistic shape, if any."""
    timed = [
        (figures.milliseconds, result)
        for result in results
        if result.verdict.works and result.route != "compiled" and not result.beside
        for figures in result.outcome.figures
        if figures.shape.name == "realistic" and figures.milliseconds
    ]
    return min(timed, key=lambda pair: pair[0])[1] if timed else None
