"""What the rules found, as far as it concerns backends: one verdict for each rule."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from attn_doctor.findings import Finding, Verdict

_WORST_FIRST = (Verdict.PROBLEM, Verdict.UNKNOWN, Verdict.OK, Verdict.NOT_APPLICABLE)
_BEST_FIRST = tuple(reversed(_WORST_FIRST))


class Problem(Struct, frozen=True):
    """One rule's verdict on the whole machine."""

    verdict: Verdict
    finding: Finding


def problems_of(findings: Iterable[Finding]) -> dict[str, Problem]:
    """What each rule says of the machine.

    A rule that judges each GPU is a problem only if all have it, since the best one would be used;
    of other things, such as caches, one is enough.
    """
    grouped: dict[str, list[Finding]] = {}
    for finding in findings:
        grouped.setdefault(finding.rule, []).append(finding)
    told = {}
    for rule, group in grouped.items():
        order = _BEST_FIRST if any(map(_on_gpu, group)) else _WORST_FIRST
        chosen = min(group, key=lambda one: order.index(one.verdict))
        told[rule] = Problem(chosen.verdict, chosen)
    return told


def _on_gpu(finding: Finding) -> bool:
    """The finding is on one GPU of several; only one that is short of "ok" tells."""
    return any(line.fact.startswith("gpu.") for line in (*finding.because, *finding.context))
