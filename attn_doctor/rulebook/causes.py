"""Tells which problem explains another, and in which order findings are shown."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.findings import Finding, Severity, Verdict, precedence
from attn_doctor.rulebook.rule import Rule

#: Verdicts that another problem can explain.
OPEN = (Verdict.PROBLEM, Verdict.UNKNOWN)


def _import_error(finding: Finding) -> str:
    """Why an import fails, if the finding is about that; it names the package that fails."""
    lines = (one for one in finding.because if one.truth and one.fact.endswith(".import_error"))
    return next((one.seen for one in lines), "")


#: An import error for which the release of torch is too old, as `tables/companions.toml` has them.
_BY_TORCH = r"^it (?!requires)[^/]*\btorch\b"


#: Another torch than the environment's is imported.
_STRAY = "python/torch-in-pythonpath"
#: A package has several copies. Those of PYTHONPATH are imported before the environment's.
_COPIES = "python/duplicates"


def _about_torch(rule: Rule) -> bool:
    """Whether a rule asks about torch or about what is compiled for it."""
    heads = {line.fact.partition(".")[0] for line in (*rule.applies.lines, *rule.when.lines)}
    return rule.id != _STRAY and (rule.for_each == "extensions" or "torch" in heads)


def _concerns(packages: frozenset[str], about: frozenset[str], error: str) -> bool:
    """Whether a problem of `packages` can explain a finding about packages or an import error."""
    named = bool(about & packages) or any(map(error.count, packages))
    return named or not packages or not (about or error)


class _Problems(Struct):
    """What is wrong, as far as it can explain something else."""

    of_rules: dict[str, set[frozenset[str]]]
    """Rule → the packages of each of its problems."""
    requires: dict[str, tuple[str, ...]]
    of_stray_torch: set[str]
    """Rules whose findings are about a torch that PYTHONPATH leads to."""

    def root(self, id: str, seen: frozenset[str], about: frozenset[str], error: str) -> str:
        """Return the rule whose problem explains that of `id`; itself if none does."""
        for needed in self.requires.get(id, ()):
            if error and needed.endswith("/torch-too-old") and not re.search(_BY_TORCH, error):
                continue
            if needed not in seen and any(
                _concerns(other, about, error) for other in self.of_rules.get(needed, ())
            ):
                return self.root(needed, seen | {needed}, frozenset() if error else about, "")
        return _STRAY if id in self.of_stray_torch else id

    def cause(self, rule: Rule, finding: Finding, about: frozenset[str]) -> str:
        """Return the rule whose problem explains a finding; that of the finding if none does."""
        error = _import_error(finding)
        of_one = about if error or rule.for_each == "extensions" else frozenset()
        found = self.root(rule.id, frozenset({rule.id}), of_one, error)
        copies = self.of_rules.get(_COPIES, ())
        hidden = finding.severity is not Severity.INFO and any(about & one for one in copies)
        return _COPIES if found == rule.id and hidden else found


def with_causes(findings: list[tuple[Rule, Finding, frozenset[str]]]) -> list[Finding]:
    """Each finding with the problem that explains it, where one of its rule's `requires` is one.

    A problem of one package does not explain that of another package's extension, nor an import
    that fails for something else: curing the one leaves the other. Where PYTHONPATH leads to
    another torch, that explains what is wrong with that torch and with the packages beside it;
    where it leads to another copy of a package, what is wrong with that copy.
    """
    wrong: dict[str, set[frozenset[str]]] = {}
    for _, finding, about in findings:
        if finding.verdict is Verdict.PROBLEM:
            wrong.setdefault(finding.rule, set()).add(about)
    strays = {
        rule.id
        for rule, finding, _ in findings
        if _STRAY in wrong and finding.severity is not Severity.INFO and _about_torch(rule)
    }
    problems = _Problems(wrong, {rule.id: rule.requires for rule, _, _ in findings}, strays)
    explained = []
    for rule, finding, about in findings:
        cause = problems.cause(rule, finding, about) if finding.verdict in OPEN else rule.id
        explained.append(finding if cause == rule.id else replace(finding, caused_by=cause))
    return explained


#: How a requirement of torch begins, and `torch=`, which stands for the name alone.
_TORCH = ("torch=", "torch<", "torch>", "torch~", "torch!")
#: The rank of a cause that makes a program fail, among `harms`.
_FAILS = 1
_ORDER = {Verdict.PROBLEM: 0, Verdict.UNKNOWN: 1, Verdict.OK: 2, Verdict.NOT_APPLICABLE: 3}


def _installs_torch(finding: Finding) -> bool:
    """Whether the first command that cures the finding installs torch."""
    run = next((fix.run for fix in finding.fixes if fix.run), ())
    words = (word for argv in run if "install" in argv for word in argv)
    return any(f"{word}=".startswith(_TORCH) for word in words)


def ordered(findings: list[Finding], harms: Mapping[str, int]) -> tuple[Finding, ...]:
    """Problems, unknowns, the rest; a root cause before its consequences; the worst first.

    Wrong results precede failures; what is slow and what only builds need follow; notes are last.
    Of equal ones the first is that whose cure installs torch: packages are chosen for it.
    """

    def badness(finding: Finding) -> tuple[bool, int, int, bool]:
        note = finding.severity is Severity.INFO
        harm = harms.get(finding.cause, _FAILS)
        return note, harm, -finding.severity.rank, not note and not _installs_torch(finding)

    worst = {
        finding.rule: badness(finding)
        for finding in findings
        if finding.verdict is Verdict.PROBLEM and not finding.caused_by
    }

    def position(finding: Finding) -> tuple[object, ...]:
        root = finding.caused_by or finding.rule
        own = badness(finding)
        return (
            _ORDER[finding.verdict],
            precedence(root),
            worst.get(root, own),
            root,
            bool(finding.caused_by),
            own,
            finding.rule,
        )

    return tuple(sorted(findings, key=position))
