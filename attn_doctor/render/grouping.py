"""Shared by all renderers of findings: which findings belong together, and how many.

Findings of one rule on several GPUs are one problem with several subjects; a problem explained
by another is a consequence, shown under it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.findings import Diagnosis, Finding, Fix, Severity, Verdict, precedence
from attn_doctor.rulebook import library

if TYPE_CHECKING:
    from attn_doctor.configs.prediction import Prediction


#: Problems of backends and versions that the user requires.
ASKED = ("required/", "policy/")


class Problem(Struct, frozen=True, kw_only=True):
    """One root problem, as it is shown."""

    finding: Finding
    severity: Severity
    subjects: str = ""
    consequences: tuple[str, ...] = ()
    """Rules whose problems it explains."""


def problems(diagnosis: Diagnosis) -> list[Problem]:
    """Root problems, worst first. Findings that say the same of several subjects are joined.

    A problem is as severe as the worst that it explains, so that what is shown and the exit code
    agree.
    """
    consequences: dict[str, list[str]] = {}
    worst: dict[str, Severity] = {}
    roots: list[Finding] = []
    for finding in diagnosis.problems:
        if finding.caused_by:
            names = consequences.setdefault(finding.caused_by, [])
            if finding.rule not in names:
                names.append(finding.rule)
            known = worst.get(finding.caused_by, finding.severity)
            worst[finding.caused_by] = max(known, finding.severity, key=lambda one: one.rank)
        else:
            roots.append(finding)
    shown = []
    for rule, same in _same(roots):
        shown.append(
            Problem(
                finding=replace(same[0], fixes=_fixes(same)),
                severity=max(
                    same[0].severity,
                    worst.get(rule, same[0].severity),
                    key=lambda one: one.rank,
                ),
                subjects=_subjects(same),
                consequences=tuple(consequences.pop(rule, ())),
            )
        )
    return sorted(shown, key=lambda one: (precedence(one.finding.rule), -one.severity.rank))


def as_shown(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with its root problems alone, joined and in the order in which they appear."""
    return replace(diagnosis, findings=tuple(one.finding for one in problems(diagnosis)))


def joined(findings: Iterable[Finding]) -> list[tuple[Finding, str]]:
    """Findings without those that say the same of other subjects, each with all subjects."""
    return [(same[0], _subjects(same)) for _, same in _same(findings)]


def _same(findings: Iterable[Finding]) -> list[tuple[str, list[Finding]]]:
    """The rule and its findings that say the same."""
    found: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        found.setdefault((finding.rule, finding.title), []).append(finding)
    return [(rule, same) for (rule, _), same in found.items()]


def has_part(finding: Finding, configs: Sequence[Prediction]) -> bool:
    """The finding concerns what these configurations run.

    It is about one of their files, or about a backend that a phase asks for, or about no backend in
    particular: an error, such as one of the driver, or one that makes results wrong.
    """
    if finding.advisory is not None:
        return False  # each phase says which of them it has
    if finding.location is not None:
        return finding.location.file in {one.reading.file for one in configs}
    if not finding.backends:
        return finding.severity is Severity.ERROR or _makes_wrong(finding, configs)
    wanted = {phase.backend for one in configs for phase in one.phases if phase.backend}
    return bool(wanted & {*finding.backends}) or any(
        name.strip("_").split("_")[0] in finding.backends for name in wanted if name != "native"
    )


def _makes_wrong(finding: Finding, configs: Sequence[Prediction]) -> bool:
    """It can make their results wrong without an error, or in training their gradients."""
    if library.harms().get(finding.cause) != 0:
        return False
    training = any(phase.phase == "training" for one in configs for phase in one.phases)
    return training or "gradients" not in finding.cause


def _fixes(same: list[Finding]) -> tuple[Fix, ...]:
    """The fixes of the first finding, with the commands that the other subjects need too."""
    first = same[0].fixes
    if len(same) == 1 or any(len(one.fixes) != len(first) for one in same):
        return first
    joined = []
    for number, fix in enumerate(first):
        every = [argv for one in same for argv in one.fixes[number].run]
        joined.append(replace(fix, run=_as_one([*dict.fromkeys(every)])))
    return tuple(joined)


def _as_one(run: list[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Several `pip install X` as one command; other commands one after another."""
    plain = all(argv[:2] == ("pip", "install") and len(argv) == 3 for argv in run)
    if plain and len(run) > 1:
        return (("pip", "install", *(argv[2] for argv in run)),)
    return tuple(run)


def _subjects(same: Iterable[Finding]) -> str:
    """`GPU 0`, `GPU 0, GPU 1`, or `GPU 0 and 7 more`."""
    subjects = [*dict.fromkeys(one.subject for one in same if one.subject)]
    if len(subjects) < 3:
        return ", ".join(subjects)
    return f"{subjects[0]} and {len(subjects) - 1} more"


def counts(diagnosis: Diagnosis) -> tuple[int, int, int]:
    """How many root problems there are: errors, warnings, notes."""
    severities = [problem.severity for problem in problems(diagnosis)]
    errors, warnings, notes = map(severities.count, reversed(Severity))
    return errors, warnings, notes


def tally(diagnosis: Diagnosis) -> str:
    """`1 error, 2 warnings`, or `no problems`."""
    names = zip(counts(diagnosis), ("error", "warning", "note"), strict=True)
    return ", ".join(plural(number, name) for number, name in names if number) or "no problems"


def plural(number: int, name: str) -> str:
    """`1 rule`, `2 rules`."""
    return f"{number} {name}{'s' * (number != 1)}"


def rules_for(number: int, what: Literal["machines", "logs"]) -> str:
    """`211 rules for machines`: not all rules can be evaluated on both."""
    return f"{plural(number, 'rule')} for {what}"


def rows_of_all_heads(share: float) -> str:
    """Which rows were compared, where it is at least this share of them."""
    return f"{'all' if share >= 1 else f'{share:.0%} or more'} of the rows of all heads"


def unchecked(diagnosis: Diagnosis) -> dict[str, list[str]]:
    """Rules that could not be evaluated, by reason, without those that a known problem explains."""
    reasons: dict[str, list[str]] = {}
    for finding in diagnosis.findings:
        if finding.verdict is not Verdict.UNKNOWN or finding.caused_by:
            continue
        lines = [line for line in (*finding.context, *finding.because) if line.truth is None]
        gap = next((line.gap for line in lines if line.gap), "")
        reason = gap or f"unknown: {', '.join(dict.fromkeys(line.fact for line in lines))}"
        rules = reasons.setdefault(reason, [])
        if finding.rule not in rules:
            rules.append(finding.rule)
    return reasons


def exit_code(
    diagnosis: Diagnosis,
    fail_on: Severity | None,
    *,
    strict: bool,
    configs: Sequence[Prediction] | None = None,
) -> int:
    """0 healthy, 1 a problem at or above `fail_on`, 4 (only if `strict`) something is unknown.

    A release that is newer than the tables counts as unknown unless its own source was evaluated.
    `configs`: the user asks about these, so that problems without a part in them do not count.
    """
    if fail_on is not None:
        for finding in diagnosis.problems:
            if finding.severity.rank >= fail_on.rank and (
                configs is None or finding.rule.startswith(ASKED) or has_part(finding, configs)
            ):
                return 1
    newer = any(
        one.basis != "source" or one.changed for one in diagnosis.facts.newer_releases or ()
    )
    return 4 if strict and (newer or unchecked(diagnosis)) else 0
