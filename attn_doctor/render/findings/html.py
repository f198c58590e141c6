"""A diagnosis as a page: the verdict, what comes next, the problems, and the machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attn_doctor.findings import Diagnosis, Severity
from attn_doctor.fixes.next_command import next_commands, without_index
from attn_doctor.render.findings.summary import blocks, caveats, header
from attn_doctor.render.grouping import (
    Problem,
    as_shown,
    counts,
    problems,
    rules_for,
    tally,
    unchecked,
)
from attn_doctor.render.html.elements import (
    Html,
    block,
    fixes,
    join,
    link,
    listed,
    pairs,
    prose,
    rule_name,
    rule_names,
    section,
    table,
    tag,
)
from attn_doctor.render.html.page import page
from attn_doctor.shell.commands import attn_doctor

if TYPE_CHECKING:
    from attn_doctor.backends.readiness import Matrix
    from attn_doctor.configs.prediction import Prediction

#: Severity → the colours and the word of its badge.
_BADGES = {
    Severity.ERROR: ("wrong", "✗ error"),
    Severity.WARNING: ("slow", "! warning"),
    Severity.INFO: ("never", "i note"),
}


def html(
    diagnosis: Diagnosis, backends: Matrix | None = None, configs: Sequence[Prediction] = ()
) -> str:
    """The whole page."""
    found = problems(diagnosis)
    return page(
        "check",
        _verdict(diagnosis),
        f"{header(diagnosis.facts)}, {rules_for(diagnosis.rules, 'machines')}",
        [
            section("Next", *_next(diagnosis)),
            section("Configurations", *_configs(configs)),
            section("Problems", *(_problem(one, diagnosis) for one in found if not _fault(one))),
            section("Machine", pairs(blocks(diagnosis.facts))),
            section("Backends", *_backends(backends, diagnosis)),
            section("Known faults of this software", *_faults(filter(_fault, found), diagnosis)),
            section("Known problems, not counted", _suppressed(diagnosis)),
            section("Not checked", _unchecked(diagnosis)),
            section("Limits", listed(prose(one) for one in caveats(diagnosis.facts))),
        ],
    )


def _verdict(diagnosis: Diagnosis) -> Html:
    errors, warnings, _ = counts(diagnosis)
    state = "wrong" if errors else "slow" if warnings else "ready"
    sign = "✗" if errors else "!" if warnings else "✓"
    return tag("strong", f"{sign} {tally(diagnosis)}", class_=f"state {state}")


def _next(diagnosis: Diagnosis) -> Iterator[Html]:
    errors, warnings, _ = counts(diagnosis)
    if not (errors or warnings):
        return
    commands = next_commands(as_shown(diagnosis))
    if first := without_index(diagnosis, commands):
        yield tag("p", prose(first))
    if commands:
        yield block(commands, "the next command")
    else:
        yield tag("p", "See the first problem.")


def _configs(configs: Sequence[Prediction]) -> Iterator[Html]:
    from attn_doctor.render.findings.configs import short_forms

    for head, *rest in short_forms(configs):
        yield tag("article", tag("h3", head), listed(map(prose, rest)))


def _problem(problem: Problem, diagnosis: Diagnosis) -> Html:
    finding = problem.finding
    kind, words = _BADGES[problem.severity]
    subject = f" ({problem.subjects})" if problem.subjects else ""
    rows = [
        [tag("code", line.fact), prose(line.seen or "empty"), prose(line.wanted)]
        for line in finding.because
    ]
    sources = [rule_name(finding.rule), *map(link, finding.evidence)]
    at = f"{finding.location.file}:{finding.location.line}" if finding.location else ""
    return tag(
        "article",
        tag(
            "h3",
            tag("span", words, class_=f"state badge {kind}"),
            Html(" "),
            prose(finding.title + subject),
        ),
        tag("p", tag("code", at)) if at else "",
        tag("p", prose(finding.why, diagnosis.facts)),
        table(f"What {finding.rule} has seen", ("fact", "seen", "wanted"), rows) if rows else "",
        *fixes(finding.fixes, diagnosis.facts),
        tag("p", prose("Explains:"), Html(" "), rule_names(problem.consequences))
        if problem.consequences
        else "",
        tag("p", prose("Rule"), Html(" "), Html(" · ".join(sources)), class_="muted"),
        class_=problem.severity.value,
    )


def _fault(problem: Problem) -> bool:
    """It is a fault of a release, which most calls do not meet."""
    return problem.finding.advisory is not None


def _faults(found: Iterable[Problem], diagnosis: Diagnosis) -> Iterator[Html]:
    """Faults in a few words: most concern few calls."""
    shown = [one.finding for one in found]
    if not shown:
        return
    yield tag("p", "They give wrong attention for some calls, without an error.")
    yield listed(join([prose(f"{one.title} "), rule_name(one.rule)]) for one in shown)
    more = attn_doctor("rules", "show", shown[0].rule, facts=diagnosis.facts)
    yield tag("p", prose(f"`{more}` describes one."))


def _backends(backends: Matrix | None, diagnosis: Diagnosis) -> Iterator[Html]:
    if backends is not None:
        from attn_doctor.render.backends.labels import short_form

        yield listed(prose(one) for one in short_form(backends, diagnosis.facts))


def _suppressed(diagnosis: Diagnosis) -> Html:
    found = {one.rule: one.suppressed for one in diagnosis.suppressed}
    return listed(join([rule_name(rule), prose(f": {reason}")]) for rule, reason in found.items())


def _unchecked(diagnosis: Diagnosis) -> Html:
    return listed(
        Html(prose(f"{reason}: ") + rule_names(rules))
        for reason, rules in unchecked(diagnosis).items()
    )
