"""Backends that must be ready (`check --require`, a policy's `require`), as findings.

As findings they count for the exit code and stand in every output format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attn_doctor.backends.catalogue import load
from attn_doctor.backends.name_lookup import meant
from attn_doctor.backends.readiness import Answer, Matrix, Readiness, Reason, Row
from attn_doctor.backends.workload import Wish
from attn_doctor.findings import Finding, Fix, Safety, Severity, Verdict

#: What the rule of such a finding begins with; the name follows.
PREFIX = "required/"


def demanded(
    matrix: Matrix, names: Sequence[str], findings: Iterable[Finding]
) -> tuple[Finding, ...]:
    """One finding for each name: a problem unless it is ready for every wish of the matrix.

    `findings`, those of the rules, lend their fixes. Raises `AttnDoctorError` for a name that the
    framework does not have.
    """
    table = load()
    rows = [matrix.row(meant(name, matrix.framework, table).name) for name in names]
    known = {one.rule: one for one in findings if one.verdict is Verdict.PROBLEM}
    return tuple(_finding(row, matrix, known) for row in dict.fromkeys(rows))


def _finding(row: Row, matrix: Matrix, known: dict[str, Finding]) -> Finding:
    short = [
        (wish, answer)
        for wish, answer in zip(matrix.wishes, row.answers, strict=True)
        if answer.state is not Readiness.READY
    ]
    if not short:
        return Finding(
            rule=f"{PREFIX}{row.name}",
            verdict=Verdict.OK,
            severity=Severity.ERROR,
            cause="required-backend",
            title=f"{row.name} is ready",
        )
    wish, answer = max(short, key=lambda one: _weight(one[1]))
    first = answer.reasons[0]
    state = {
        Readiness.SLOW: "is slow",
        Readiness.UNKNOWN: "is not known to be ready",
    }.get(answer.state, "is not ready")
    return Finding(
        rule=f"{PREFIX}{row.name}",
        verdict=Verdict.PROBLEM,
        severity=Severity.ERROR,
        cause="required-backend",
        title=f"The required backend {row.name} {state} for {_purpose(wish)}",
        why=_sentence(answer),
        because=first.because,
        fixes=_fixes(answer, known),
        backends=(row.backend,),
        evidence=tuple(dict.fromkeys(one.source for one in answer.reasons if one.source)),
    )


def _weight(answer: Answer) -> int:
    return (Readiness.SLOW, Readiness.UNKNOWN, Readiness.NOT_READY).index(answer.state)


def _purpose(wish: Wish) -> str:
    mask = f"with a {wish.mask} mask" if wish.masked else "without a mask"
    return f"{wish.phase} {mask} in {wish.dtype}"


def _sentence(answer: Answer) -> str:
    """The reasons of the deciding state, worst first."""
    texts = [one.text for one in answer.reasons if one.state is answer.state]
    return "; ".join(texts) + "."


def _remedy(reason: Reason) -> Fix:
    title = reason.remedy[0].upper() + reason.remedy[1:]
    return Fix(title=title, safety=Safety.MANUAL, code=reason.code)


def _fixes(answer: Answer, known: dict[str, Finding]) -> tuple[Fix, ...]:
    """The catalogue's remedies, and the fixes of the rules behind the reasons."""
    found: dict[str, Fix] = {}
    for reason in answer.reasons:
        if reason.remedy:
            found.setdefault(reason.remedy, _remedy(reason))
        for fix in known[reason.rule].fixes if reason.rule in known else ():
            found.setdefault(fix.title, fix)
    return tuple(found.values())
