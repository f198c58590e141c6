"""Selects one of the ready backends, with the reason. Figures come from the catalogue only.

Backends that compute exactly come first; those that round to 8 bits are named beside them. Where
no figures exist for this generation of GPU, the catalogue's preference decides, and the text says
so.
"""

from __future__ import annotations

from collections.abc import Sequence

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.catalogue_entries import Catalogue, Order, Timing
from attn_doctor.backends.readiness import Readiness, Recommendation, Row
from attn_doctor.facts import Facts

_MEASURE = "`attn-doctor backends --live` measures it here"


def recommend(
    catalogue: Catalogue,
    rows: Sequence[tuple[Row, Readiness]],
    call: AttentionCall,
    facts: Facts,
    *,
    some: bool = False,
    nameless: str = "",
) -> Recommendation:
    """The name to use for a call, from rows with their states.

    `some`: not all names are there; `nameless`: why this release of the framework has none.
    """
    for state in (Readiness.READY, Readiness.SLOW):
        usable = [row for row, its in rows if its is state]
        if usable:
            return _best(catalogue, usable, state, call, facts)
    unknown = [row.name for row, state in rows if state is Readiness.UNKNOWN]
    which = "none of the named backends" if some else "no backend"
    why = nameless or f"{which} is known to work for this"
    if unknown:
        why += f"; not enough is known about {', '.join(unknown)}"
    return Recommendation(name="", state=Readiness.NOT_READY, why=why)


def _best(
    catalogue: Catalogue,
    usable: Sequence[Row],
    state: Readiness,
    call: AttentionCall,
    facts: Facts,
) -> Recommendation:
    sm = facts.driver.best_sm
    order = next((order for order in catalogue.orders if sm in order.sm), None)
    compiled = call.compiled or any(row.compiled for row in usable)
    times = {
        timing.backend: timing
        for timing in (order.timing if order else ())
        if timing.compiled == (compiled and timing.backend == "flex")
    }
    approximate = {entry.name for entry in catalogue.backends if entry.approximate}
    rank = {name: number for number, name in enumerate(catalogue.preference.backends)}

    def place(row: Row) -> tuple[bool, float, int]:
        return (
            row.backend in approximate,
            times[row.backend].ms if row.backend in times else float("inf"),
            rank.get(row.backend, len(rank)),
        )

    best, *others = sorted(usable, key=place)
    measured = state is Readiness.READY and best.backend in times
    if state is Readiness.SLOW:
        why = short = "nothing faster is ready"
    elif measured and order is not None:
        short = _measured(best, others, order, times)
        why = f"{short} ({order.what}{_not_measured(call)})"
    else:
        short = f"not measured on sm_{sm} ({_MEASURE})" if sm else "preferred without measurements"
        first = best.backend == catalogue.preference.backends[0]
        why = f"{short}: {catalogue.preference.why}" if first else short
    exact = best.backend not in approximate
    rounding = [row for row in others if row.backend in approximate] if exact else []
    if rounding and state is Readiness.READY:
        why += f". {_rounding(rounding, best, times)}"
    return Recommendation(name=best.name, state=state, why=why, short=short, measured=measured)


def _measured(best: Row, others: Sequence[Row], order: Order, times: dict[str, Timing]) -> str:
    """The figures that put it first, with those of the next best."""
    text = f"{times[best.backend].ms:.2f} ms a call on one {order.gpu}"
    for row in others:
        if row.backend in times and row.backend != best.backend:
            return f"{text}, {row.name} {times[row.backend].ms:.2f} ms"
    return text


def _not_measured(call: AttentionCall) -> str:
    """The properties of the call that the measurement did not have."""
    differences = {
        "gradients": call.phase == "training",
        "masks": call.masked,
        "causality": call.causal,
        "grouped heads": call.gqa,
        call.dtype: call.dtype != "bf16",
        f"heads of {call.head_dim}": call.head_dim != 128,
    }
    lacking = [name for name, differs in differences.items() if differs]
    return f"; not measured with {', '.join(lacking)}" if lacking else ""


def _rounding(rounding: Sequence[Row], best: Row, times: dict[str, Timing]) -> str:
    """What the ready backends that round to 8 bits would cost and gain."""
    first = next((row for row in rounding if row.backend in times), rounding[0])
    if first.backend not in times or best.backend not in times:
        return f"{first.name} is ready too, but rounds to 8 bits"
    exact, rounded = times[best.backend], times[first.backend]
    text = f"{first.name} is ready too and takes {rounded.ms:.2f} ms"
    if exact.error and rounded.error:
        text += f", with {rounded.error / exact.error:.0f} times the error"
    return text
