"""The prediction for a configuration, in a few lines and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attn_doctor.backends.readiness import Readiness
from attn_doctor.configs.prediction import Phase, Prediction
from attn_doctor.render.terminal import clean


def short_forms(several: Sequence[Prediction]) -> list[list[str]]:
    """`config.json: Flux.1, SimpleTuner 4.1`, then each phase with what it costs.

    The commands of one file for the same program share its heading: a phase for each branch.
    """
    grouped: dict[str, list[Prediction]] = {}
    for one in several:
        grouped.setdefault(_head(one), []).append(one)
    return [[clean(head), *map(clean, _body(alike))] for head, alike in grouped.items()]


def _head(one: Prediction) -> str:
    where = f" ({one.reading.why})" if one.reading.why else ""
    return f"{one.reading.file}{where}: {_subject(one)}"


def _body(alike: Sequence[Prediction]) -> Iterator[str]:
    for one in alike:
        yield from _phases(one)
        if one.ignored:
            yield f"without effect: {'; '.join(one.ignored)}"
    yield from dict.fromkeys(note for one in alike for note in one.notes)


def _subject(one: Prediction) -> str:
    version = f" {one.version}" if one.version else ""
    return ", ".join(filter(None, (one.subject, f"{one.title}{version}")))


def _phases(one: Prediction) -> Iterator[str]:
    """One line for each phase; phases that are alike share one."""
    grouped: dict[str, list[str]] = {}
    for phase in one.phases:
        grouped.setdefault(_line(phase), []).append(phase.phase)
    for words, names in grouped.items():
        yield f"{' and '.join(dict.fromkeys(names))}: {words}"
    faults: dict[str, list[str]] = {}
    for phase in one.phases:
        for fault in phase.exceptions:
            faults.setdefault(fault, []).append(phase.phase)
    for fault, names in faults.items():
        where = f"{' and '.join(dict.fromkeys(names))}, " if len(one.phases) > 1 else ""
        yield f"{where}{fault}"


def _line(phase: Phase) -> str:
    parts = ["undecided" if phase.undecided else phase.shown]
    if phase.fused is False:
        parts.append("not fused")
    elif phase.fused and phase.backend == "flex":
        parts.append("fused")
    if phase.dtype and phase.backend:
        parts.append(phase.dtype)
    if phase.tokens:
        cost = f", about {phase.mib} MiB a layer" if phase.mib is not None else ""
        parts.append(f"{phase.tokens} tokens{cost}")
    words = ", ".join(parts)
    if phase.when:
        words += f" if {phase.when}"
    if phase.state in (Readiness.NOT_READY, Readiness.SLOW) and phase.reason:
        words += f"; {phase.state.value} here: {phase.reason}"
        if phase.fallback:
            words += f", so {phase.fallback}"
    elif phase.state is Readiness.UNKNOWN and phase.asked:
        # The sentence of a requirement says what is wrong if it is not met, which is not known.
        reason = f": {phase.reason}" if phase.reason.startswith("whether ") else ""
        words += f"; not known to run here{reason}"
    if phase.why:
        words += f"; {phase.why}"
    return words + (f"; {phase.last}" if phase.last else "")


def plain(one: Prediction) -> dict[str, Any]:
    """The prediction as plain values."""
    return {
        "file": one.reading.file,
        "found": one.reading.why,
        "kind": one.reading.kind,
        "framework": one.title,
        "version": one.version,
        "installed": one.installed,
        "model": one.subject,
        "phases": [
            {
                "phase": phase.phase,
                "asked": phase.asked,
                "backend": phase.backend or None,
                "why": phase.why,
                "line": phase.line or None,
                "when": phase.when,
                "undecided": phase.undecided,
                "fallback": phase.fallback,
                "last_known": phase.last,
                "fused": phase.fused,
                "state": phase.state.value if phase.state else None,
                "reason": phase.reason,
                "except_for": list(phase.exceptions),
                "dtype": phase.dtype,
                "mask": phase.mask,
                "tokens": phase.tokens or None,
                "mib_per_layer": phase.mib,
            }
            for phase in one.phases
        ],
        "ignored": list(one.ignored),
        "notes": list(one.notes),
    }
