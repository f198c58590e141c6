"""Which backend was the fastest, and how many times longer the others took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from attn_doctor.backends.live.outcome import Figures, LiveResult, Outcome, Verdict


def ranked(results: Sequence[LiveResult], slow: float) -> tuple[LiveResult, ...]:
    """The same results with ratios; what takes over `slow` times the least is slow."""
    best = _best(results)
    through = {one.name for one in results if one.route == "diffusers"}
    return tuple(
        replace(
            one,
            beside=one.route == "direct" and one.name in through,
            outcomes={
                phase: _held(phase, outcome, best, slow) for phase, outcome in one.outcomes.items()
            },
        )
        for one in results
    )


def _best(results: Iterable[LiveResult]) -> dict[tuple[str, str], float]:
    """The least time by phase and shape, of backends whose numbers are right."""
    best: dict[tuple[str, str], float] = {}
    for one in results:
        for phase, outcome in one.outcomes.items():
            if not outcome.verdict.works:
                continue
            for figures in outcome.figures:
                if figures.milliseconds:
                    key = (phase, figures.shape.name)
                    best[key] = min(best.get(key, figures.milliseconds), figures.milliseconds)
    return best


def _held(phase: str, outcome: Outcome, best: dict[tuple[str, str], float], slow: float) -> Outcome:
    figures = tuple(_with_ratio(phase, one, best) for one in outcome.figures)
    outcome = replace(outcome, figures=figures)
    # The small shape takes microseconds: its ratios tell of launching, not of computing.
    last = next((one for one in figures if one.shape.name == "realistic"), None)
    late = last is not None and last.ratio is not None and last.ratio > slow
    if last is None or not late or not outcome.verdict.works:
        return outcome
    words = f"{last.ratio:.1f} times as long as the fastest"
    if outcome.verdict is Verdict.SLOW:
        words = f"{outcome.sentence}; {words}"
    return replace(outcome, verdict=Verdict.SLOW, sentence=words)


def _with_ratio(phase: str, figures: Figures, best: dict[tuple[str, str], float]) -> Figures:
    least = best.get((phase, figures.shape.name))
    if least is None or figures.milliseconds is None:
        return figures
    return replace(figures, ratio=figures.milliseconds / least)


def fastest(results: Iterable[LiveResult]) -> LiveResult | None:
    """The result that users can reach with the least time on the realistic shape, if any."""
    timed = [
        (figures.milliseconds, one)
        for one in results
        if one.verdict.works and one.route != "compiled" and not one.beside
        for figures in one.outcome.figures
        if figures.shape.name == "realistic" and figures.milliseconds
    ]
    return min(timed, key=lambda pair: pair[0])[1] if timed else None
