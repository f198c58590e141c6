"""Backends that must be ready (`check --require`, a policy's `require`), as findings.

As findings they count for the exit code and are part of every output format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.catalogue import find_name, load
from attn_doctor.backends.matrix import matrix
from attn_doctor.backends.readiness import Answer, Matrix, Readiness, RequirementResult, Row
from attn_doctor.findings import REQUIRED, Diagnosis, Finding, Fix, Safety, Severity, Verdict

#: Unknown conditions that are named.
_UNKNOWN = 3
_STATES = (Readiness.SLOW, Readiness.UNKNOWN, Readiness.NOT_READY)


class Demand(Struct, frozen=True):
    """Backends that must be ready."""

    names: Sequence[str]
    calls: Sequence[AttentionCall]
    framework: str = ""
    """The framework whose names they are; empty for the installed trainer, else Diffusers."""


def with_required(diagnosis: Diagnosis, demands: Sequence[Demand]) -> Diagnosis:
    """The diagnosis with a finding for each backend that must be ready, problems first.

    Where two demands name the same backend, the first one counts. Raises `AttnDoctorError` for an
    unknown name.
    """
    found: dict[str, Finding] = {}
    for demand in demands:
        if demand.names:
            table = matrix(diagnosis.facts, diagnosis.findings, demand.calls, demand.framework)
            for finding in required(table, demand.names, diagnosis.findings):
                found.setdefault(finding.rule, finding)
    if not found:
        return diagnosis
    problems = [one for one in found.values() if one.verdict is Verdict.PROBLEM]
    others = [one for one in found.values() if one.verdict is not Verdict.PROBLEM]
    return replace(diagnosis, findings=(*problems, *diagnosis.findings, *others))


def required(
    table: Matrix, names: Sequence[str], findings: Sequence[Finding]
) -> tuple[Finding, ...]:
    """One finding for each name: a problem unless it is ready for every call of the matrix.

    The fixes of `findings`, those of the rules, are added. Raises `AttnDoctorError` for a name that
    the framework does not have.
    """
    rows = [table.row(find_name(name, table.framework, load()).name) for name in names]
    known = {one.rule: one for one in findings if one.verdict is Verdict.PROBLEM}
    return tuple(_finding(row, table, known) for row in dict.fromkeys(rows))


def _finding(row: Row, table: Matrix, known: Mapping[str, Finding]) -> Finding:
    rule, cause = f"{REQUIRED}{row.name}", "required-backend"
    answers = zip(table.calls, row.answers, strict=True)
    unready = [(call, one) for call, one in answers if one.state is not Readiness.READY]
    if not unready:
        return Finding(
            rule=rule,
            verdict=Verdict.OK,
            severity=Severity.ERROR,
            cause=cause,
            title=f"{row.name} is ready",
        )
    call, answer = max(unready, key=lambda pair: _STATES.index(pair[1].state))
    state = {
        Readiness.SLOW: "is slow",
        Readiness.UNKNOWN: "is not known to be ready",
    }.get(answer.state, "is not ready")
    mask = f"with a {call.mask} mask" if call.masked else "without a mask"
    return Finding(
        rule=rule,
        verdict=Verdict.PROBLEM,
        severity=Severity.ERROR,
        cause=cause,
        title=f"The required backend {row.name} {state} for {call.phase} {mask} in {call.dtype}",
        why=_why(answer),
        because=answer.reasons[0].because,
        fixes=_fixes(answer, known, _recommended(table, call)),
        backends=(row.backend,),
        evidence=tuple(dict.fromkeys(one.source for one in answer.reasons if one.source)),
    )


def _why(answer: Answer) -> str:
    """The reasons that decide; of unknown ones, which share few causes, the first."""
    texts = [one.text for one in answer.reasons if one.state is answer.state]
    if answer.state is Readiness.UNKNOWN and len(texts) > _UNKNOWN + 1:
        texts[_UNKNOWN:] = [f"and {len(texts) - _UNKNOWN} other conditions are unknown"]
    return "; ".join(texts) + "."


def _recommended(table: Matrix, call: AttentionCall) -> str:
    """The backend that the matrix recommends for a call; empty if none is ready."""
    return table.recommended[table.calls.index(call)].name


def remedy(reason: RequirementResult) -> Fix | None:
    """The catalogue's own remedy for a requirement, such as a command that installs a package."""
    if not reason.remedy:
        return None
    title = reason.remedy[0].upper() + reason.remedy[1:]
    return Fix(
        title=title,
        safety=Safety.ASK if reason.run or reason.unset else Safety.MANUAL,
        run=reason.run,
        exports=dict.fromkeys(reason.unset, ""),
        code=reason.code,
    )


def remedies(answers: Iterable[Answer]) -> tuple[Fix, ...]:
    """The remedies of what keeps a backend from being ready, once each.

    None where a reason is incurable, such as a GPU that is too old: the others would not help. None
    where nothing is known to be wrong.
    """
    found: dict[str, Fix] = {}
    for answer in answers:
        hopeless = _incurable(answer) or answer.state is Readiness.UNKNOWN
        for reason in () if hopeless else answer.reasons:
            # A remedy for slowness does not make it ready.
            fix = remedy(reason) if reason.state is answer.state else None
            if fix is not None:
                found.setdefault(fix.title, fix)
    return tuple(found.values())


def _incurable(answer: Answer) -> list[RequirementResult]:
    return [one for one in answer.reasons if one.state is Readiness.NOT_READY and not one.curable]


def _fixes(answer: Answer, known: Mapping[str, Finding], other: str) -> tuple[Fix, ...]:
    """The fixes of all reasons: as one, in the order that works, where each reason has a command.

    `other`: the backend that is recommended instead, for a reason that nothing cures.
    """
    if incurable := _incurable(answer):
        return (_instead(incurable[0], other),)
    if answer.state is Readiness.UNKNOWN:
        return ()
    chosen: list[tuple[Fix, ...]] = []
    for reason in answer.reasons:
        own = remedy(reason)
        rule = known.get(reason.rule or _about_import(reason))
        chosen.append((*((own,) if own else ()), *(rule.fixes if rule else ())))
    return _in_order(chosen)


def _about_import(reason: RequirementResult) -> str:
    """The rule about a package that cannot be imported; empty for another reason."""
    package, _, what = reason.id.rpartition("-")
    return f"{package}/cannot-be-imported" if what == "importable" else ""


def _instead(reason: RequirementResult, other: str) -> Fix:
    """What to do where nothing makes a backend ready."""
    use = f"use {other}" if other else "no backend is ready for this call yet"
    return Fix(title=f"Nothing makes it ready here: {reason.text}; {use}", safety=Safety.MANUAL)


def _in_order(chosen: Sequence[tuple[Fix, ...]]) -> tuple[Fix, ...]:
    """Alternatives for one reason; for several, the first of each as one fix, torch first."""
    several = list({fixes[0].title: fixes for fixes in chosen if fixes}.values())
    if len(several) < 2:
        return several[0] if several else ()
    steps = sorted((fixes[0] for fixes in several), key=lambda fix: not _changes_torch(fix))
    if not all(step.run or step.exports for step in steps):
        return tuple(steps)
    first, *later = (step.title for step in steps)
    return (
        Fix(
            title=", then ".join([first, *(title[0].lower() + title[1:] for title in later)]),
            safety=Safety.ASK,
            run=tuple(argv for step in steps for argv in step.run),
            exports={name: value for step in steps for name, value in step.exports.items()},
            manual=" ".join(step.manual for step in steps if step.manual),
            needs="; ".join(step.needs for step in steps if step.needs),
        ),
    )


def _changes_torch(fix: Fix) -> bool:
    return any("torch" in {re.split(r"[=<>~!\[]", word)[0] for word in argv} for argv in fix.run)
