"""Faults as results: in words, with a program, and with the advisories that they may be."""

from __future__ import annotations

from collections.abc import Iterable

from attn_doctor.backends.advisories import concerns
from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.audit.calls import Answer
from attn_doctor.backends.audit.outcome import Fault, Kind
from attn_doctor.backends.audit.shrink import Shrunk
from attn_doctor.backends.live.plan import Attempt
from attn_doctor.findings import Finding, Verdict
from attn_doctor.worker.audit import scripts
from attn_doctor.worker.audit.case import Case, described
from attn_doctor.worker.audit.program import Bound, program

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_MASKS = {"none": "none", "padding at the end": "varlen"}


def of_case(
    shrunk: Shrunk,
    first: Case,
    probe: str,
    attempt: Attempt,
    device: str,
    where: str,
    findings: Iterable[Finding],
) -> Fault:
    """The fault of a shrunk call. `where`: versions and device in words."""
    answer, case = shrunk.answer, shrunk.cases[-1]
    kind = answer.kind or Kind.WRONG
    words = described(case)
    if len(shrunk.cases) > 1:
        words = f"{words}; after {described(shrunk.cases[-2])}"
    title = f"{attempt.name}: {answer.sentence or kind.value}. {words}. {where}"
    text = program(
        shrunk.cases, attempt.name, attempt.route, device.partition(":")[0], _bound(answer), title,
    )  # fmt: skip
    return Fault(
        kind=kind,
        sentence=answer.sentence if shrunk.again else f"{answer.sentence}; not seen a second time",
        words=words,
        probe=probe,
        cases=tuple(one.plain() for one in shrunk.cases),
        first=described(first),
        program=text if shrunk.again else "",
        known=known(attempt.name, case, findings),
    )


def of_script(
    name: str,
    answer: Answer,
    attempt: Attempt,
    device: str,
    where: str,
    findings: Iterable[Finding],
) -> Fault:
    """The fault that a script has found."""
    title = f"{attempt.name}: {answer.sentence}. {where}"
    text = scripts.program(
        scripts.SCRIPTS[name], attempt.name, attempt.route, device.partition(":")[0], title
    )
    return Fault(
        kind=answer.kind or Kind.WRONG,
        sentence=answer.sentence,
        words=name,
        probe=name,
        first=name,
        program=text,
        known=_shown_by(name, attempt.name, findings),
    )


def _shown_by(probe: str, name: str, findings: Iterable[Finding]) -> tuple[str, ...]:
    """The advisories that apply here whose fault a probe shows."""
    return tuple(
        finding.rule.partition("/")[2]
        for finding in findings
        if finding.advisory is not None
        and finding.verdict is Verdict.PROBLEM
        and finding.advisory.probe == probe
        and (not finding.backends or name in finding.backends)
    )


def _bound(answer: Answer) -> Bound:
    return Bound(answer.result, answer.figure, answer.allowed, answer.place)


def known(name: str, case: Case, findings: Iterable[Finding]) -> tuple[str, ...]:
    """The advisories that apply here and that a call falls under; else those it may fall under."""
    call = AttentionCall(
        phase="training" if case.training else "inference",
        mask=_MASKS.get(case.mask, "float" if case.mask.startswith("float") else "bool"),
        causal=case.causal,
        gqa=case.heads != case.kv_heads,
        dtype=_DTYPES[case.dtype],
        head_dim=case.size,
        seq_len=case.length,
        kv_heads=case.kv_heads,
        compiled=case.how in ("compiled", "in a compiled model"),
    )
    found: dict[bool, list[str]] = {True: [], False: []}
    for finding in findings:
        if finding.advisory is None or finding.verdict is not Verdict.PROBLEM:
            continue
        falls = concerns(finding.advisory, call)
        if name in finding.backends and falls is not False:
            found[bool(falls)].append(finding.rule.partition("/")[2])
    return tuple(found[True] or found[False])
