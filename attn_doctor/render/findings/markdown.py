"""A diagnosis as Markdown, to paste into an issue. Text from the machine cannot become markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attn_doctor._version import __version__
from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Fix
from attn_doctor.redact import redact
from attn_doctor.render.findings.summary import blocks, caveats, header
from attn_doctor.render.grouping import Problem, problems, rules_for, tally, unchecked
from attn_doctor.render.terminal import clean
from attn_doctor.rulebook.pages import page
from attn_doctor.shell.commands import shell_lines

if TYPE_CHECKING:
    from attn_doctor.backends.readiness import Matrix
    from attn_doctor.configs.prediction import Prediction

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")
_CODE = re.compile(r"\\`(.*?)\\`")
#: Code of options and calls, escaped: no sign in it could begin markup.
_PLAIN = re.compile(r"(?:[\w.,:=/+() -]|\\_)+")


def markdown(
    diagnosis: Diagnosis, backends: Matrix | None = None, configs: Sequence[Prediction] = ()
) -> str:
    """The whole report."""
    return (
        "\n".join(
            [
                *_top(diagnosis, backends, configs),
                *_problems(diagnosis),
                *_suppressed(diagnosis),
                *_unchecked(diagnosis),
            ]
        )
        + "\n"
    )


def _top(
    diagnosis: Diagnosis, backends: Matrix | None, configs: Sequence[Prediction]
) -> Iterator[str]:
    yield f"### attn-doctor {__version__}: {tally(diagnosis)}"
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| examined | {escape(header(diagnosis.facts))} |"
    shown = blocks(diagnosis.facts)
    if backends is not None:
        from attn_doctor.render.backends.labels import short_form

        shown.append(("backends", short_form(backends, diagnosis.facts)))
    if configs:
        from attn_doctor.render.findings import configs as preflight

        shown += [("config", lines) for lines in preflight.short_forms(configs)]
    for name, lines in shown:
        # Only the line of backends holds a command; the others are values of the machine.
        write = prose if name == "backends" else escape
        yield f"| {name} | {'<br>'.join(map(write, lines))} |"
    yield ""
    for sentence in caveats(diagnosis.facts):
        yield f"> {escape(sentence)}"
        yield ""


def _problems(diagnosis: Diagnosis) -> Iterator[str]:
    found = problems(diagnosis)
    if not found:
        yield f"No problems found by {rules_for(diagnosis.rules, 'machines')}."
        yield ""
    for problem in found:
        yield from _problem(problem, diagnosis)


def _problem(problem: Problem, diagnosis: Diagnosis) -> Iterator[str]:
    finding = problem.finding
    subject = f" ({problem.subjects})" if problem.subjects else ""
    yield f"#### {problem.severity.value}: {prose(finding.title + subject)}"
    yield ""
    yield prose(finding.why)
    yield ""
    if finding.because:
        yield "| fact | seen | wanted |"
        yield "|---|---|---|"
        for line in finding.because:
            yield f"| `{line.fact}` | {escape(line.seen)} | {escape(line.wanted)} |"
        yield ""
    yield from fix_lines(finding.fixes, diagnosis.facts)
    if problem.consequences:
        yield f"Explains: {', '.join(f'`{rule}`' for rule in problem.consequences)}"
        yield ""
    address = page(finding.rule)
    rule = f"[`{finding.rule}`]({address})" if address else f"`{finding.rule}`"
    yield " · ".join([f"Rule {rule}", *(f"<{link}>" for link in finding.evidence)])
    yield ""


def fix_lines(fixes: Iterable[Fix], facts: Facts) -> Iterator[str]:
    """Each fix as a paragraph, with its commands and code."""
    for fix in fixes:
        manual = prose(fix.manual)
        yield f"**Fix:** {prose(fix.title)}" + (f" — {manual}" if manual else "")
        commands = shell_lines(fix, facts)
        if commands:
            yield from ("", *fenced("sh", commands))
        if fix.code:
            yield from ("", *fenced(code_language(fix.code), fix.code.splitlines()))
        yield ""


def _suppressed(diagnosis: Diagnosis) -> Iterator[str]:
    if not diagnosis.suppressed:
        return
    yield "#### Known problems, not counted"
    yield ""
    for rule, reason in {one.rule: one.suppressed for one in diagnosis.suppressed}.items():
        yield f"- `{rule}`: {escape(reason)}"
    yield ""


def _unchecked(diagnosis: Diagnosis) -> Iterator[str]:
    reasons = unchecked(diagnosis)
    if not reasons:
        return
    yield "#### Not checked"
    yield ""
    for reason, rules in reasons.items():
        yield f"- {escape(reason)}: {', '.join(f'`{rule}`' for rule in rules)}"
    yield ""


def code_language(code: str) -> str:
    """The language of lines to copy: Python, or the options of a program."""
    return "" if code.startswith("--") or "(" not in code else "python"


def fenced(language: str, lines: Iterable[str]) -> list[str]:
    """Lines as a block of code, which none of them can end."""
    shown = [clean(line) for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + language, *shown, fence]


def escape(text: str) -> str:
    """`text` from the machine, so that none of it is markup. Escaped, no secret would be seen."""
    return _MARKUP.sub(r"\\\1", redact(clean(text)))


def prose(text: str) -> str:
    """The escaped text of a rule, in which plain code between backticks is shown as code."""
    return _CODE.sub(_code, escape(text))


def _code(found: re.Match[str]) -> str:
    return f"`{found[1].replace(chr(92), '')}`" if _PLAIN.fullmatch(found[1]) else found[0]
