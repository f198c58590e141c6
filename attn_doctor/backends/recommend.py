"""Which of the ready backends to take, and why. Figures come from the catalogue, never from guess.

Backends that compute exactly come first; those that round to 8 bits are named beside them. Where
no figures exist for this generation of GPU, that is said and the catalogue's preference is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_doctor.backends.catalogue_entries import Catalogue, Order, Timing
from attn_doctor.backends.readiness import Readiness, Recommendation, Row
from attn_doctor.backends.workload import Wish
from attn_doctor.facts import Facts

_MEASURE = "`attn-doctor backends --live` measures it here"


def recommend(
    table: Catalogue, rows: Sequence[Row], number: int, wish: Wish, facts: Facts
) -> Recommendation:
    """The name to use for the wish with this number."""
    for state in (Readiness.READY, Readiness.SLOW):
        fitting = [one for one in rows if one.answers[number].state is state]
        if fitting:
            return _best(table, fitting, state, wish, facts)
    unknown = [one.name for one in rows if one.answers[number].state is Readiness.UNKNOWN]
    why = "no backend is known to work for this"
    if unknown:
        why += f"; of {', '.join(unknown)} it cannot be told"
    return Recommendation(name="", state=Readiness.NOT_READY, why=why)


def _best(
    table: Catalogue,
    fitting: Sequence[Row],
    state: Readiness,
    wish: Wish,
    facts: Facts,
) -> Recommendation:
    order = _order(table, facts)
    times = _times(order, wish)
    approximate = {one.name for one in table.backends if one.approximate}
    rank = {name: place for place, name in enumerate(table.preference.backends)}

    def place(row: Row) -> tuple[bool, float, int]:
        return (
            row.backend in approximate,
            times[row.backend].ms if row.backend in times else float("inf"),
            rank.get(row.backend, len(rank)),
        )

    best, *others = sorted(fitting, key=place)
    measured = state is Readiness.READY and best.backend in times
    if state is Readiness.SLOW:
        why = short = "nothing faster is ready"
    elif measured and order is not None:
        short = _measured(best, others, order, times)
        why = f"{short} ({order.what}{''.join(_distance(wish))})"
    else:
        short = _unmeasured(facts)
        why = f"{short}: {table.preference.why}"
    exact = best.backend not in approximate
    rounding = [one for one in others if one.backend in approximate] if exact else []
    if rounding and state is Readiness.READY:
        why += f". {_beside(rounding, best, times)}"
    return Recommendation(name=best.name, state=state, why=why, short=short, measured=measured)


def _order(table: Catalogue, facts: Facts) -> Order | None:
    """The measurement on this generation of GPU."""
    sm = facts.driver.best_sm
    return next((one for one in table.orders if sm in one.sm), None)


def _times(order: Order | None, wish: Wish) -> dict[str, Timing]:
    if order is None:
        return {}
    return {
        one.backend: one
        for one in order.timing
        if one.compiled == (wish.compiled and one.backend == "flex")
    }


def _unmeasured(facts: Facts) -> str:
    sm = facts.driver.best_sm
    if not sm:
        return "by preference"
    return f"not measured on sm_{sm} ({_MEASURE})"


def _measured(best: Row, others: Sequence[Row], order: Order, times: dict[str, Timing]) -> str:
    """The figures that put it first."""
    told = f"{times[best.backend].ms:.2f} ms a call on one {order.gpu}"
    next_best = next(
        (one for one in others if one.backend in times and one.backend != best.backend), None
    )
    if next_best is not None:
        told += f", {next_best.name} {times[next_best.backend].ms:.2f} ms"
    return told


def _distance(wish: Wish) -> Iterator[str]:
    """In what the measurement differs from the wish."""
    lacks = [
        name
        for name, differs in (
            ("gradients", wish.phase == "training"),
            ("masks", wish.masked),
            ("causality", wish.causal),
            ("grouped heads", wish.gqa),
            (f"{wish.dtype}", wish.dtype != "bf16"),
            (f"heads of {wish.head_dim}", wish.head_dim != 128),
        )
        if differs
    ]
    if lacks:
        yield f"; not measured with {', '.join(lacks)}"


def _beside(rounding: Sequence[Row], best: Row, times: dict[str, Timing]) -> str:
    """What the ready backends that round to 8 bits would cost and gain."""
    first = next((one for one in rounding if one.backend in times), rounding[0])
    if first.backend not in times or best.backend not in times:
        return f"{first.name} is ready too, but rounds to 8 bits on the way"
    mine, its = times[best.backend], times[first.backend]
    told = f"{first.name} is ready too and takes {its.ms:.2f} ms"
    if mine.error and its.error:
        told += f", {its.error / mine.error:.0f} times less exact"
    return told
