"""A diagnosis as JUnit XML: one test case for each rule, one for each required backend.

Errors are failures. Warnings and notes pass, with their text as output, because a CI step that
passes must not show red cases. What could not be evaluated, or does not apply, is skipped.
An installed release that is newer than the tables is a test case of its own.
Source: the de-facto schema of the Jenkins xUnit plugin (junit-10.xsd).
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from attn_doctor.clean import clean_lines
from attn_doctor.findings import Because, Diagnosis, Finding, Severity, Verdict
from attn_doctor.redact import redact
from attn_doctor.render.findings.plain import details, headline


def junit(diagnosis: Diagnosis, fail_on: Severity | None = Severity.ERROR) -> str:
    """The whole document. `fail_on`: the least severity that is a failure; None: none is."""
    by_rule: dict[str, list[Finding]] = {}
    for finding in diagnosis.findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    suite = Element("testsuite", name="attn-doctor")
    for rule, findings in sorted(by_rule.items()):
        _case(suite, rule, findings, diagnosis, fail_on)
    for release in diagnosis.facts.newer_releases or ():
        name = release.package or ""
        case = SubElement(suite, "testcase", classname="attn-doctor.releases", name=name, time="0")
        if release.basis == "source" and not release.changed:
            SubElement(case, "system-out").text = _xml(release.text or "")
        else:
            SubElement(case, "skipped", message=_xml(release.text or ""))
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", "0")
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suite.set("time", f"{diagnosis.seconds:.3f}")
    root = Element("testsuites", name="attn-doctor")
    root.append(suite)
    indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(
    suite: Element,
    rule: str,
    findings: list[Finding],
    diagnosis: Diagnosis,
    fail_on: Severity | None,
) -> None:
    area, _, name = rule.partition("/")
    case = SubElement(suite, "testcase", classname=f"attn-doctor.{area}", name=name, time="0")
    problems = [one for one in findings if one.verdict is Verdict.PROBLEM]
    failing = [one for one in problems if fail_on and one.severity.rank >= fail_on.rank]
    if failing:
        titles = "; ".join(dict.fromkeys(headline(one) for one in failing))
        kind = failing[0].severity.value
        failure = SubElement(case, "failure", message=_xml(titles), type=kind)
        failure.text = _xml("\n\n".join(_text(one, diagnosis) for one in failing))
    elif problems:
        shown = SubElement(case, "system-out")
        shown.text = _xml("\n\n".join(_text(one, diagnosis) for one in problems))
    elif all(one.verdict is not Verdict.OK for one in findings):
        SubElement(case, "skipped", message=_xml(_reason(findings)))


def _text(finding: Finding, diagnosis: Diagnosis) -> str:
    return f"{finding.severity.value}: {headline(finding)}\n{details(finding, diagnosis)}"


def _reason(findings: list[Finding]) -> str:
    unknown = [one for one in findings if one.verdict is Verdict.UNKNOWN]
    if not unknown:
        return "does not apply to this machine"
    lines: Iterable[Because] = (*unknown[0].context, *unknown[0].because)
    missing = [line for line in lines if line.truth is None]
    gap = next((line.gap for line in missing if line.gap), "")
    return gap or f"unknown: {', '.join(dict.fromkeys(line.fact for line in missing))}"


def _xml(text: str) -> str:
    """`text` without secrets and the characters that XML 1.0 cannot hold."""
    return "".join(
        char
        for char in redact(clean_lines(text))
        if char in "\t\n\r"
        or " " <= char <= "\ud7ff"
        or "\ue000" <= char <= "\ufffd"
        or char > "\uffff"
    )
