"""Applies a policy to a diagnosis: suppresses accepted problems, adds unmet demands."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from msgspec.structs import replace
from packaging.version import Version

from attn_doctor.facts import Facts, Gpu
from attn_doctor.findings import Because, Diagnosis, Finding, Fix, Safety, Severity, Verdict
from attn_doctor.policy.policy import Ignore, Policy, PolicyError


def apply_policy(diagnosis: Diagnosis, policy: Policy, today: date) -> Diagnosis:
    """Return the diagnosis with accepted problems suppressed and the policy's findings first.

    Raises `PolicyError` for a `minimum` that names a fact without version.
    """
    valid = [ignore for ignore in policy.ignore if today <= ignore.until]
    findings = _with_consequences([_suppressed(finding, valid) for finding in diagnosis.findings])
    own = [
        *_expired(policy, today),
        *_too_old(policy, diagnosis.facts),
        *_not_allowed(policy, diagnosis.facts),
    ]
    return replace(diagnosis, findings=(*own, *findings))


def _suppressed(finding: Finding, ignored: list[Ignore]) -> Finding:
    if finding.verdict is not Verdict.PROBLEM:
        return finding
    for ignore in ignored:
        if _matches(ignore.rule, finding.rule) and ignore.subject in ("", finding.subject):
            return replace(finding, suppressed=f"{ignore.reason} (until {ignore.until})")
    return finding


def _with_consequences(findings: list[Finding]) -> list[Finding]:
    """Suppress also the consequences of suppressed root causes."""
    counting = {
        one.rule for one in findings if one.verdict is Verdict.PROBLEM and not one.suppressed
    }
    accepted = {one.rule: one.suppressed for one in findings if one.suppressed}
    return [
        replace(one, suppressed=accepted[one.caused_by])
        if one.caused_by in accepted and one.caused_by not in counting and not one.suppressed
        else one
        for one in findings
    ]


def _matches(pattern: str, rule: str) -> bool:
    return pattern == rule or (pattern.endswith("/*") and rule.startswith(pattern[:-1]))


def _expired(policy: Policy, today: date) -> Iterator[Finding]:
    for ignore in policy.ignore:
        if today > ignore.until:
            yield _finding(
                "ignore-expired",
                f"The exception for {ignore.rule} ended on {ignore.until}",
                f"It was accepted because: {ignore.reason}",
                Because(
                    fact="today", seen=str(today), wanted=f"at most {ignore.until}", truth=True
                ),
                f"Fix what {ignore.rule} reports, or renew `until` in {policy.path}",
            )


def _too_old(policy: Policy, facts: Facts) -> Iterator[Finding]:
    for name, least in policy.minimum.items():
        version = _version(policy, facts, name)
        fact = f"{name}.version"
        if version is None:
            yield _finding(
                "minimum-unknown",
                f"The version of {name} is unknown, and the policy demands {least}",
                facts.gaps.get(fact, f"{name} is not installed, or does not state its version."),
                Because(fact=fact, seen="unknown", wanted=f"≥ {least}", truth=None),
                f"Install {name} {least} or newer, or change `minimum` in {policy.path}",
            )
        elif Version(version) < Version(least):
            yield _finding(
                "minimum",
                f"{name} {version} is older than this project allows",
                f"`minimum.{name}` in {policy.path} demands {least} or newer.",
                Because(fact=fact, seen=version, wanted=f"≥ {least}", truth=True),
                f"Install {name} {least} or newer",
            )


def _version(policy: Policy, facts: Facts, name: str) -> str | None:
    group: object = getattr(facts, name.replace("-", "_"), None)
    if not hasattr(group, "version"):
        raise PolicyError(
            f"{policy.path}: minimum.{name} is not a fact with a version; write driver,"
            " python, torch, triton, flash_attn, xformers or another fact of docs/facts.md"
        )
    return str(group.version) if group.version else None


def _not_allowed(policy: Policy, facts: Facts) -> Iterator[Finding]:
    if not policy.allowed_gpus:
        return
    allowed = ", ".join(policy.allowed_gpus)
    for gpu in facts.gpus or ():
        if not any(_is(gpu, wanted) for wanted in policy.allowed_gpus):
            name = gpu.name or "unknown"
            yield _finding(
                "gpu-not-allowed",
                f"GPU {gpu.index} is {name}, which this project does not allow",
                f"`allowed-gpus` in {policy.path} names {allowed}.",
                Because(fact="gpu.name", seen=name, wanted=f"one of {allowed}", truth=True),
                "Run this on another machine, or change `allowed-gpus`",
                subject=f"GPU {gpu.index}",
            )
    if not facts.gpus:
        gap = facts.gaps.get("gpus", "no NVIDIA GPU was found")
        yield _finding(
            "gpu-not-allowed",
            f"This project demands a GPU, one of {allowed}",
            f"{gap}.",
            Because(fact="gpus", seen="none", wanted=f"one of {allowed}", truth=True),
            "Run this on another machine, or change `allowed-gpus`",
        )


def _is(gpu: Gpu, wanted: str) -> bool:
    if wanted.startswith("sm_"):
        return gpu.sm is not None and wanted == f"sm_{gpu.sm}"
    return wanted.casefold() in (gpu.name or "").casefold()


def _finding(
    name: str, title: str, why: str, because: Because, remedy: str, subject: str = ""
) -> Finding:
    return Finding(
        rule=f"policy/{name}",
        verdict=Verdict.PROBLEM,
        severity=Severity.ERROR,
        cause="policy",
        title=title,
        subject=subject,
        why=why,
        because=(because,),
        fixes=(Fix(title=remedy, safety=Safety.MANUAL),),
    )
