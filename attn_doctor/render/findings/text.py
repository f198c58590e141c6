"""A diagnosis for a terminal: each problem, the values seen and wanted, and the command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attn_doctor.backends.readiness import Readiness
from attn_doctor.findings import Because, Diagnosis, Severity, Verdict
from attn_doctor.render.definition_list import fix_lines, labelled, titled
from attn_doctor.render.findings.summary import blocks, caveats, opening
from attn_doctor.render.grouping import (
    ASKED,
    Problem,
    as_shown,
    counts,
    has_part,
    joined,
    plural,
    problems,
    rules_for,
    tally,
    unchecked,
)
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.rulebook.pages import page
from attn_doctor.shell.commands import attn_doctor

if TYPE_CHECKING:
    from attn_doctor.backends.readiness import Matrix
    from attn_doctor.configs.prediction import Prediction
    from attn_doctor.facts import Facts

_MARKS = {
    Severity.ERROR: ("✗", "red"),
    Severity.WARNING: ("!", "yellow"),
    Severity.INFO: ("i", "cyan"),
}
_STATES = {"ready": "green", "slow": "yellow", "not ready": "red", "unknown": "cyan"}
_LABEL = 10


def text(
    diagnosis: Diagnosis,
    terminal: Terminal,
    *,
    verbose: bool = False,
    quiet: bool = False,
    backends: Matrix | None = None,
    configs: Sequence[Prediction] = (),
    asked: bool = False,
    unread: Sequence[str] = (),
    policy: str = "",
) -> str:
    """The whole report. `verbose` adds evidence; `quiet` leaves out machine and backends.

    `asked`: the configurations are what the user asks about. What they do comes first then, also
    with `quiet`, and problems that have no part in them become one line.
    `unread`: why a configuration in this folder was not read. `policy`: the file of the policy in
    force, which is named also with `quiet`.
    """
    lines: list[str] = []
    if asked:
        lines += _answers(configs, terminal)
        met = [*_met(diagnosis, terminal)]
        lines += [*met, ""] if met else []
    else:
        lines += [] if quiet else opening(diagnosis.facts, terminal)
        lines += [*_verdict(diagnosis, terminal), *_met(diagnosis, terminal), ""]
    if asked or quiet:
        lines += _simulated(diagnosis.facts, terminal)
    else:
        lines += _top(diagnosis, terminal, backends, configs, unread)
    folded: list[str] = []
    every = problems(diagnosis)
    others = [
        one
        for one in every
        if asked and not has_part(one.finding, configs) and not one.finding.rule.startswith(ASKED)
    ]
    for problem in every:
        if problem in others:
            continue
        if quiet and problem.severity is Severity.INFO:
            continue
        if problem.finding.advisory is not None and not verbose:
            folded.append(problem.finding.rule.partition("/")[2])
            continue
        lines += _problem(problem, diagnosis, terminal, verbose)
        lines.append("")
    lines += _advisories(folded, diagnosis.facts, terminal)
    lines += _suppressed(diagnosis, terminal, verbose)
    if asked:
        lines += _others(others, diagnosis, terminal)
    else:
        lines += _unchecked(diagnosis, terminal, verbose)
    lines += _limits(diagnosis, policy, terminal)
    if asked:
        lines += _conclusion([one for one in every if one not in others], configs, terminal)
    else:
        lines += _next_steps(diagnosis, terminal)
    return terminal.page(lines)


def _met(diagnosis: Diagnosis, terminal: Terminal) -> Iterator[str]:
    """The backends that must be ready and are."""
    for one in diagnosis.findings:
        if one.verdict is Verdict.OK and one.rule.startswith("required/"):
            mark = terminal.style("✓", "bold", "green")
            yield f"{mark} {terminal.say(one.title)}, {terminal.say('as required')}"


def _simulated(facts: Facts, terminal: Terminal) -> Iterator[str]:
    """What was not seen here but assumed, where the machine is not described."""
    if facts.simulated:
        yield from terminal.beside(
            terminal.pad("simulated", _LABEL), clean(", ".join(facts.simulated)), _LABEL
        )
        yield ""


def _limits(diagnosis: Diagnosis, policy: str, terminal: Terminal) -> Iterator[str]:
    """What limits the verdict below."""
    for sentence in caveats(diagnosis.facts):
        yield from terminal.marked("i", sentence, "bold", "cyan")
    if policy:
        yield from terminal.wrap(f"policy in force: {clean(policy)}", 0)


def _answers(configs: Sequence[Prediction], terminal: Terminal) -> Iterator[str]:
    """What each configuration does, before anything else."""
    from attn_doctor.render.findings.configs import short_forms

    for head, *rest in short_forms(configs):
        yield from terminal.wrap(terminal.style(head, "bold"), 0)
        for line in rest:
            yield from terminal.wrap(line, 2)
        yield ""


def _others(others: Sequence[Problem], diagnosis: Diagnosis, terminal: Terminal) -> Iterator[str]:
    """One line for what has no part in the configurations."""
    errors = sum(one.severity is Severity.ERROR for one in others)
    parts = []
    if others:
        count = plural(len(others), "other finding")
        parts.append(count + (f" with {plural(errors, 'error')}" if errors else ""))
    unknown = sum(map(len, unchecked(diagnosis).values()))
    if unknown:
        parts.append(f"{plural(unknown, 'rule')} could not be checked")
    if parts:
        command = attn_doctor("check", "--config", "none", facts=diagnosis.facts)
        where = f"`{command}`"
        if diagnosis.facts.simulated:  # the command would examine this machine
            where = "run the same command with `--config none`"
        yield from terminal.wrap(f"{', '.join(parts)}: {where}", 0)
        yield ""


def _conclusion(
    shown: Sequence[Problem], configs: Sequence[Prediction], terminal: Terminal
) -> Iterator[str]:
    """The verdict on the configurations alone."""
    counts = [sum(one.severity is kind for one in shown) for kind in reversed(Severity)]
    errors, warnings, _ = counts
    words = [
        plural(number, name)
        for number, name in zip(counts, ("error", "warning", "note"), strict=True)
        if number
    ]
    phases = [phase for one in configs for phase in one.phases]
    open_ = sum(phase.state in (None, Readiness.UNKNOWN) for phase in phases)
    colour = "red" if errors else "yellow" if warnings else "cyan" if open_ else "green"
    mark = "✗" if errors else "!" if warnings else "?" if open_ else "✓"
    noun = "configuration" if len(configs) == 1 else "configurations"
    verdict = f"{', '.join(words) or 'nothing found'} in the {noun}"
    if any(one.finding.rule.startswith(ASKED) for one in shown):
        verdict = ", ".join(words)
    if open_:
        verdict += f"; whether {'it runs' if len(phases) == 1 else 'all of it runs'} is not known"
    yield terminal.style(f"{mark} {verdict}", "bold", colour)
    if any(one.finding.fixes for one in shown if one.severity is not Severity.INFO):
        yield terminal.say("  Next: make the first change above, then check again.")


def _top(
    diagnosis: Diagnosis,
    terminal: Terminal,
    backends: Matrix | None,
    configs: Sequence[Prediction],
    unread: Sequence[str],
) -> Iterator[str]:
    facts = diagnosis.facts
    shown = blocks(facts)
    if backends is not None:
        from attn_doctor.render.backends.labels import short_form

        shown.append(("backends", short_form(backends, facts)))
    if configs:
        from attn_doctor.render.findings import configs as preflight

        shown += [("config", lines) for lines in preflight.short_forms(configs)]
    if unread:
        shown.append(("config", [clean(one) for one in unread]))
    for name, lines in shown:
        label = terminal.style(terminal.pad(name, _LABEL), "bold")
        for line in lines:
            first, *rest = terminal.beside(label, line, _LABEL)
            yield from (_coloured(first, line, terminal) if name == "backends" else first, *rest)
            label = " " * _LABEL
    yield ""


def _coloured(shown: str, line: str, terminal: Terminal) -> str:
    """A line of backends whose state, which stands before the names, has its colour."""
    state = line.partition(":")[0]
    colour = _STATES.get(state)
    state = terminal.say(state)
    return shown.replace(state, terminal.style(state, colour), 1) if colour else shown


def _problem(
    problem: Problem, diagnosis: Diagnosis, terminal: Terminal, verbose: bool
) -> Iterator[str]:
    finding = problem.finding
    yield from _title(problem, terminal)
    note = problem.severity is Severity.INFO
    if not note or verbose:
        if finding.location:
            at = f"{finding.location.file}:{finding.location.line}"
            yield from labelled("at", at, terminal)
        yield from terminal.wrap(clean(finding.why), 2)
        yield from _because("seen", finding.because, terminal)
        yield from fix_lines(finding.fixes, diagnosis.facts, terminal)
    if problem.consequences:
        yield from labelled("also", f"explains {', '.join(problem.consequences)}", terminal)
    if verbose:
        yield from _because("where", finding.context, terminal)
        yield from labelled("cause", finding.cause, terminal)
        if address := page(finding.rule):
            yield from labelled("page", address, terminal)
        for link in finding.evidence:
            yield from labelled("source", link, terminal)


def _advisories(ids: Sequence[str], facts: Facts, terminal: Terminal) -> Iterator[str]:
    """Known faults of this software, in one entry: most concern few calls."""
    if not ids:
        return
    glyph, colour = _MARKS[Severity.INFO]
    verb = "gives" if len(ids) == 1 else "give"
    words = (
        f"{plural(len(ids), 'known fault')} of this software {verb} wrong attention for some calls,"
        f" without an error: {', '.join(ids)}"
    )
    yield from terminal.marked(glyph, words, "bold", colour)
    command = attn_doctor("backends", facts=facts)
    yield from terminal.wrap(
        f"`{command}` says which backends have them; `attn-doctor rules show {ids[0]}` describes"
        " one.",
        2,
    )
    yield ""


def _title(problem: Problem, terminal: Terminal) -> Iterator[str]:
    """The title with its mark, and the rule's id behind it, on a line of its own if need be."""
    glyph, colour = _MARKS[problem.severity]
    # A finding about a file shows its location below.
    subjects = problem.subjects if problem.finding.location is None else ""
    subject = f" ({subjects})" if subjects else ""
    rule = f"[{problem.finding.rule}]"
    address = page(problem.finding.rule)
    first, *rest = titled(problem.finding.title + subject, rule, terminal, 2, address)
    yield terminal.style(glyph, "bold", colour) + " " + first
    yield from rest


def _because(label: str, lines: Iterable[Because], terminal: Terminal) -> Iterator[str]:
    for line in lines:
        if line.truth is False and line.wanted:
            continue  # one of several alternatives, and not the faulty one
        yield from labelled(label, line.in_words(), terminal)
        label = ""


def _suppressed(diagnosis: Diagnosis, terminal: Terminal, verbose: bool) -> Iterator[str]:
    """Problems that do not count; with `verbose` each with its reason."""
    every = diagnosis.suppressed
    rules = {one.rule for one in every}
    # They are counted as the others are: without those that another one explains.
    known = joined(one for one in every if one.caused_by not in rules)
    suppressed = {one.rule: one.suppressed for one, _ in known}
    if not suppressed:
        return
    shown = (
        ""
        if verbose
        else f": {', '.join(suppressed)}"
        if len(suppressed) < 4
        else "; -v names them"
    )
    count = f"{plural(len(known), 'known problem')} not counted"
    yield from terminal.wrap(terminal.style(count, "bold") + shown, 0)
    if verbose:
        for rule, reason in suppressed.items():
            yield from terminal.wrap(clean(f"{rule}: {reason}"), 2)
    yield ""


def _unchecked(diagnosis: Diagnosis, terminal: Terminal, verbose: bool) -> Iterator[str]:
    """Rules that could not be evaluated, by reason: one gap is one line."""
    reasons = unchecked(diagnosis)
    if not reasons:
        return
    total = sum(len(rules) for rules in reasons.values())
    yield terminal.style(f"? {plural(total, 'rule')} could not be checked", "bold")
    for reason, rules in reasons.items():
        named = ", ".join(rules) if verbose or len(rules) < 4 else f"{len(rules)} rules"
        yield from terminal.wrap(terminal.joined(clean(reason), clean(named)), 2)
    yield ""


def _verdict(diagnosis: Diagnosis, terminal: Terminal) -> Iterator[str]:
    """The verdict, and what it rests on."""
    errors, warnings, _ = counts(diagnosis)
    examined = f"{rules_for(diagnosis.rules, 'machines')}, {diagnosis.seconds:.2f} s"
    blind = _many_unknown(diagnosis)
    colour = "red" if errors else "yellow" if warnings else "cyan" if blind else "green"
    mark = "✗" if errors else "!" if warnings else "?" if blind else "✓"
    found = tally(diagnosis) + (", but many rules could not be checked" if blind else "")
    verdict = f"{mark} {terminal.say(found)}"
    fits = len(verdict) + len(examined) + 4 <= terminal.width
    shown = terminal.style(verdict, "bold", colour)
    yield shown + terminal.style(f"  ({examined})", "dim") if fits else shown
    if not fits:
        yield terminal.style(f"  ({examined})", "dim")


def _next_steps(diagnosis: Diagnosis, terminal: Terminal) -> Iterator[str]:
    """What to do next: the last line, where the prompt is."""
    errors, warnings, _ = counts(diagnosis)
    if errors or warnings:
        from attn_doctor.fixes.next_command import next_commands, without_index

        commands = next_commands(as_shown(diagnosis))
        if first := without_index(diagnosis, commands):
            yield from terminal.wrap(first, 0)
        label = "Next, on such a machine:" if diagnosis.facts.simulated else "Next:"
        # Commands to copy: never wrapped.
        for command in commands:
            yield f"{terminal.pad(label, 5)} {terminal.style(clean(command), 'green')}"
            label = ""
        if not commands:
            yield terminal.say("Next: see the first problem above.")
        return
    yield from terminal.wrap(_next(diagnosis), 0)


def _many_unknown(diagnosis: Diagnosis) -> bool:
    """More than a tenth of the rules could not be checked, so that nothing found says little."""
    return 10 * sum(map(len, unchecked(diagnosis).values())) > diagnosis.rules


def _next(diagnosis: Diagnosis) -> str:
    if diagnosis.facts.torch.installed is False:
        return "Next: install torch, or name the environment to examine with --python."
    if _many_unknown(diagnosis):
        return "Next: see above why many rules could not be checked; they do not count as healthy."
    report = attn_doctor("report", facts=diagnosis.facts)
    return f"Next: nothing to repair. `{report}` writes these facts to a file."
