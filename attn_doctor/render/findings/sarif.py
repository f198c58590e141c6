"""A diagnosis as SARIF 2.1.0, for code scanning and its viewers.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attn_doctor._version import __version__
from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding, Severity
from attn_doctor.render.findings.locations import fingerprint, location
from attn_doctor.render.findings.markdown import prose
from attn_doctor.render.findings.plain import details, headline
from attn_doctor.render.findings.summary import caveats
from attn_doctor.render.grouping import unchecked
from attn_doctor.render.json_text import json_text
from attn_doctor.rulebook.pages import page
from attn_doctor.rulebook.rule import Rule
from attn_doctor.rulebook.texts import in_general
from attn_doctor.shell.commands import in_text

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def sarif(diagnosis: Diagnosis, rules: Iterable[Rule], code: int, file: str = "") -> str:
    """One run, one result for each problem; those that do not count are suppressed.

    `rules`: those whose help texts are wanted.
    `file`: what results without a place of their own point at, relative to the repository.
    """
    known = {rule.id: rule for rule in rules}
    found = (*diagnosis.problems, *diagnosis.suppressed)
    named = [*dict.fromkeys(one.rule for one in found)]
    driver = {
        "name": "attn-doctor",
        "semanticVersion": __version__,
        "rules": [_rule(name, known.get(name), found, diagnosis.facts) for name in named],
    }
    run = {
        "tool": {"driver": driver},
        "results": [_result(one, named, diagnosis, file) for one in found],
        "invocations": [
            {
                "executionSuccessful": True,
                "exitCode": code,
                "toolExecutionNotifications": _notifications(diagnosis),
            }
        ],
        "columnKind": "unicodeCodePoints",
    }
    return json_text({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(name: str, rule: Rule | None, found: Iterable[Finding], facts: Facts) -> dict[str, Any]:
    """What all results of a rule share, without values of this machine: each result has those."""
    finding = next(one for one in found if one.rule == name)
    title = in_general(rule.title) if rule else finding.title
    why = in_text(in_general(rule.why), facts) if rule else finding.why or finding.title
    described: dict[str, Any] = {
        "id": name,
        "shortDescription": {"text": title},
        "fullDescription": {"text": why},
        "defaultConfiguration": {"level": _LEVELS[finding.severity]},
        "properties": {"tags": [finding.cause, *finding.backends]},
    }
    if rule:
        links = "".join(f"\n- <{link}>" for link in rule.evidence)
        described["help"] = {"text": why, "markdown": f"{prose(why)}\n\nEvidence:\n{links}\n"}
    helps = (page(name), *finding.evidence)
    if found_at := next(filter(None, helps), ""):
        described["helpUri"] = found_at
    return described


def _result(finding: Finding, named: list[str], diagnosis: Diagnosis, file: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": named.index(finding.rule),
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{headline(finding)}\n{details(finding, diagnosis, fixes=1)}"},
        "partialFingerprints": {"attnDoctor/v1": fingerprint(finding)},
        "locations": [_location(finding, file)],
    }
    if finding.suppressed:
        result["suppressions"] = [{"kind": "external", "justification": finding.suppressed}]
    if finding.caused_by:
        result["properties"] = {"causedBy": finding.caused_by}
    return result


def _location(finding: Finding, file: str) -> dict[str, Any]:
    name = finding.subject or "machine"
    found: dict[str, Any] = {"logicalLocations": [{"name": name, "kind": "resource"}]}
    at = location(finding, file)
    if at.file:
        found["physicalLocation"] = {
            "artifactLocation": {"uri": _uri(at.file)},
            "region": {"startLine": at.line},
        }
    return found


def _uri(path: str) -> str:
    from urllib.parse import quote

    return quote(path.replace("\\", "/"))


def _notifications(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """What could not be evaluated, so that a short list of results is not taken for health."""
    texts = [
        f"not checked: {', '.join(rules)}: {reason}"
        for reason, rules in unchecked(diagnosis).items()
    ]
    return [
        {"level": "note", "message": {"text": text}} for text in (*texts, *caveats(diagnosis.facts))
    ]
