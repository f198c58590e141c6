"""Results of backends that were not run, because it is known already what would come of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from attn_doctor.backends.live.outcome import Imported, LiveResult, Outcome, Verdict
from attn_doctor.backends.live.plan import NAMES, Attempt, Workload


def as_imported(attempt: Attempt, wish: Workload, broken: Imported) -> LiveResult:
    """The result of a backend whose package was already seen not to import."""
    outcome = Outcome(verdict=broken.verdict, sentence=broken.sentence, failure=broken.failure)
    return _same(attempt, wish, outcome)


def not_run(attempt: Attempt, wish: Workload, words: str) -> LiveResult:
    """The result of a backend that could not be tried, with the reason."""
    return _same(attempt, wish, Outcome(verdict=Verdict.NOT_RUN, sentence=words))


def _same(attempt: Attempt, wish: Workload, outcome: Outcome) -> LiveResult:
    return LiveResult(
        name=attempt.name,
        route=attempt.route,
        wished=wish.phases[0],
        outcomes=dict.fromkeys(wish.phases, outcome),
    )


def absent(names: Iterable[str], found: Mapping[str, bool], wish: Workload) -> Iterator[LiveResult]:
    """Names whose package is not there."""
    for name in names:
        module = NAMES[name]
        lacking = [module] if not found.get(module) else []
        if module == "kernels" and not found.get("diffusers"):
            lacking.append("diffusers")
        if lacking:
            words = f"{' and '.join(lacking)} not installed"
            outcome = Outcome(verdict=Verdict.ABSENT, sentence=words)
            attempt = Attempt(name=name, route="direct", score_bytes={})
            yield _same(attempt, wish, outcome)
