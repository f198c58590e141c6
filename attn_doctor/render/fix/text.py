"""Writes a plan, its results, an undo and the history for a person at a terminal."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence

from attn_doctor.facts import Facts
from attn_doctor.findings import Fix, Severity
from attn_doctor.fixes.apply import Applied, StepResult
from attn_doctor.fixes.build_progress import span
from attn_doctor.fixes.distributions import Change
from attn_doctor.fixes.journal import Run
from attn_doctor.fixes.steps import Plan, Step
from attn_doctor.fixes.undo import Undo, Undone
from attn_doctor.fixes.wheel_check import Verdict
from attn_doctor.render.definition_list import titled
from attn_doctor.render.findings.summary import caveats
from attn_doctor.render.grouping import joined, tally
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.shell.commands import attn_doctor, in_text, shell_lines, shell_of
from attn_doctor.shell.detect import how_to_eval

_INDENT = 11
_COLOURS = {"+": "green", "-": "red", "~": "yellow", "=": "dim"}
_SHOWN = 12


def plan_text(
    plan: Plan, facts: Facts, terminal: Terminal, installer: str, locked: str = ""
) -> str:
    """Return the plan. `installer` is the name of what installs packages; empty if nothing can.

    `locked`: the warning about a project's lock file.
    """
    python = facts.python
    torch = f", torch {facts.torch.version}" if facts.torch.version else ""
    lines = [
        terminal.style(clean(f"Plan for {python.path}"), "bold")
        + clean(f"  (Python {python.version}{torch})")
    ]
    lines += (
        terminal.wrap(clean(f"Packages are installed with {installer}."), 2) if installer else []
    )
    if locked and any(step.packages for step in plan.steps):
        lines += terminal.wrap(clean(locked), 2)
    for sentence in caveats(facts):
        lines += _marked("i", sentence, terminal)
    lines.append("")
    for step in plan.steps:
        lines += step_lines(step, facts, terminal, plan)
        lines.append("")
    for clash in plan.clashes:
        wants = " · ".join(
            f"{rule} needs {want}" for rule, want in zip(clash.rules, clash.wants, strict=True)
        )
        lines += _marked("✗", f"Two rules need different {clash.about}: {wants}.", terminal)
        lines += terminal.wrap(
            "Neither is applied. Choose one: "
            + " or ".join(f"`{attn_doctor('fix', rule, facts=facts)}`" for rule in clash.rules),
            2,
        )
        lines.append("")
    for rule, title in plan.follows:
        lines += _marked("!", f"With another torch: {title} [{rule}]", terminal)
    if plan.follows:
        again = attn_doctor("fix", facts=facts)
        lines += terminal.wrap(f"Run `{again}` again after this plan.", 2)
        lines.append("")
    if plan.together:
        known = plan.together.startswith(("no set of releases", "the index has no such"))
        said = "The steps do not fit together" if known else "Whether the steps fit is unknown"
        lines += _marked("✗" if known else "?", f"{said}: {plan.together}.", terminal)
        lines.append("")
    if plan.without:
        lines += terminal.wrap(f"No fix is known for: {', '.join(plan.without)}", 0)
    if plan.notes:
        lines += terminal.wrap(
            f"Notes with a fix, planned only by name: {', '.join(plan.notes)}", 0
        )
    return terminal.page(lines)


def step_lines(
    step: Step, facts: Facts, terminal: Terminal, plan: Plan | None = None
) -> Iterator[str]:
    """One step, with its commands and what they change. `plan`: what else it resolves."""
    number = f"{step.number}. "
    first, *rest = titled(step.title, f"[{', '.join(step.rules)}]", terminal, len(number))
    yield terminal.style(number, "bold") + first
    yield from rest
    if step.manual:
        yield from _labelled("do", step.manual, terminal)
    label = "for you" if step.kind in ("variables", "manual") else "runs"
    for command in _commands(step, facts):
        yield f"   {terminal.pad(label, _INDENT - 3)}" + terminal.code(clean(command), "green")
        label = ""
    if step.kind == "variables":
        yield from _labelled(
            "", "set it in your own shell; later steps of this run already have it", terminal
        )
        if {"CUDA_HOME", "CUDA_PATH"} & step.exports.keys():
            line = how_to_eval(shell_of(facts), attn_doctor("fix", "--cuda-home", facts=facts))
            yield from _labelled("", f"or: {line}", terminal)
    yield from _changes(step.changes, step.packages, terminal)
    if step.unresolved and not step.blocked_by:
        yield from _labelled("changes", step.unresolved, terminal)
    also = [
        one.name for one in step.changes or () if one.sign in "~-" and one.name not in step.packages
    ]
    if also:
        yield from _labelled(
            "also", f"changes packages that no rule names: {', '.join(also)}", terminal
        )
    yield from _costs(step, terminal)
    yield from _after(step, facts, plan or Plan(), terminal)


def _after(step: Step, facts: Facts, plan: Plan, terminal: Terminal) -> Iterator[str]:
    """The effects of the step, and what blocks it."""
    for one in step.stale:
        size = f" ({_size(one.bytes)})" if one.bytes else ""
        yield from _labelled("stale", f"{one.kind} cache {one.path}{size}", terminal)
    if step.kind == "command" and not step.undoable and not step.blocked_by:
        yield from _labelled("undo", "this step cannot be undone", terminal)
    for other in step.better:
        yield from _labelled("better", f"by hand: {in_text(other, facts)}", terminal)
    for other in step.alternatives:
        yield from _labelled("or", other, terminal)
    rules = [rule for one in step.rules for rule in plan.explained.get(one, ())]
    if rules:
        yield from _labelled("then", f"checked again: {', '.join(rules)}", terminal)
    if step.blocked_by:
        yield from _labelled("blocked", in_text(step.blocked_by, facts), terminal, "yellow")
    elif step.kind == "manual":
        yield from _labelled("blocked", "only a person can apply this", terminal, "yellow")


def _commands(step: Step, facts: Facts) -> list[str]:
    variables = tuple(f"{name}={value}" for name, value in step.variables.items())
    *first, last = step.run or ((),)
    run = (
        (*first, (*variables, *last)) if last else ()
    )  # only the last command of a build is the build
    fix = Fix(title=step.title, safety=step.safety, run=run, exports=step.exports)
    return shell_lines(fix, facts)


def _changes(
    changes: Sequence[Change] | None, named: Collection[str], terminal: Terminal
) -> Iterator[str]:
    label = "changes"
    if changes is not None and not changes:
        yield from _labelled(label, "nothing: all packages are installed already", terminal)
        return
    for one in _ordered(changes or (), named)[:_SHOWN]:
        yield f"   {terminal.pad(label, _INDENT - 3)}" + _change(one, terminal)
        label = ""
    if changes and len(changes) > _SHOWN:
        yield from _labelled("", f"… and {len(changes) - _SHOWN} more (--format json)", terminal)


def _ordered(changes: Sequence[Change], named: Collection[str]) -> list[Change]:
    """Sort them: replaced and removed packages, added ones that a step names, the other ones."""
    return sorted(
        changes, key=lambda one: ("~-=+".index(one.sign), one.name not in named, one.name)
    )


def _change(one: Change, terminal: Terminal) -> str:
    versions = " → ".join(filter(None, (one.old, one.new)))
    again = " (again)" if one.sign == "=" else ""
    text = f"{one.sign} {one.name} {one.old if again else versions}{again}"
    return terminal.style(clean(text), _COLOURS[one.sign])


def _costs(step: Step, terminal: Terminal) -> Iterator[str]:
    found = step.estimate
    if found.minutes is not None:
        low, high = found.minutes
        yield from _labelled("takes", f"{span((low * 60, high * 60))} ({found.basis})", terminal)
    elif found.basis:
        yield from _labelled("takes", f"unknown: {found.basis}", terminal)
    needs = [step.needs] if step.needs else []
    if found.disk_mib:
        needs.append(f"{_size(found.disk_mib << 20)} of disk ({found.disk_basis})")
    if found.ram_mib:
        needs.append(f"{_size(found.ram_mib << 20)} of memory ({found.ram_basis})")
    if needs:
        yield from _labelled("needs", "; ".join(needs), terminal)


def _size(count: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}".replace(".0 ", " ")
    return f"{count} bytes"


def _labelled(label: str, words: str, terminal: Terminal, *styles: str) -> Iterator[str]:
    first, *rest = terminal.wrap(clean(words), _INDENT) or [" " * _INDENT]
    yield f"   {terminal.pad(label, _INDENT - 3)}" + terminal.style(first[_INDENT:], *styles)
    yield from (terminal.style(line, *styles) for line in rest)


def _marked(mark: str, words: str, terminal: Terminal) -> Iterator[str]:
    first, *rest = terminal.wrap(clean(words), 2)
    colour = {"✗": "red", "!": "yellow", "?": "yellow", "✓": "green", "i": "cyan"}[mark]
    yield terminal.style(mark, "bold", colour) + first[1:]
    yield from rest


def applied_text(applied: Applied, facts: Facts, terminal: Terminal) -> str:
    """Return the results of the plan, and the changes of the machine."""
    lines = [""]
    named = {name for result in applied.results for name in result.step.packages}
    changes = _ordered(applied.changes, named)[: 2 * _SHOWN]
    lines.extend("  " + _change(one, terminal) for one in changes)
    if len(applied.changes) > 2 * _SHOWN:
        lines.append(f"  … and {len(applied.changes) - 2 * _SHOWN} more")
    for finding, subjects in joined(applied.resolved):
        about = f" ({subjects})" if subjects else ""
        lines += _marked("✓", f"resolved: {finding.title}{about} [{finding.rule}]", terminal)
    for finding, subjects in joined(applied.introduced):
        about = f" ({subjects})" if subjects else ""
        mark = "i" if finding.severity is Severity.INFO else "!"
        lines += _marked(mark, f"introduced: {finding.title}{about} [{finding.rule}]", terminal)
    for result in applied.results:
        lines += result_lines(result, facts, terminal, whole=True)
    lines.append("")
    rest = applied.after.problems
    what = "No problems remain." if not rest else f"Remaining: {tally(applied.after)}."
    again = f" Next: `{attn_doctor('check', facts=facts)}`." if rest else ""
    undo = f" Undo: `attn-doctor fix undo {applied.id}`" if _undoable(applied) else ""
    lines += terminal.wrap(f"{what}{again}{undo}", 0)
    return terminal.page(lines)


def _undoable(applied: Applied) -> bool:
    """`fix undo` can restore something."""
    return bool(applied.changes) and any(
        one.state == "done" and one.step.undoable for one in applied.results
    )


def result_lines(
    result: StepResult, facts: Facts, terminal: Terminal, *, whole: bool
) -> Iterator[str]:
    """The result of one step; `whole`: only results that need a reaction."""
    title = f"{result.step.number}. {result.step.title}"
    if result.state == "failed" and not whole:
        yield from _marked("✗", title, terminal)
    elif result.state == "failed":
        yield from _marked("✗", f"{title}: {result.detail}", terminal)
        for cause in result.causes:
            yield from terminal.wrap(f"cause: {clean(cause)}", 4)
        if result.log:
            yield from terminal.wrap(f"log: {result.log} (`attn-doctor explain {result.log}`)", 4)
    elif result.state == "yours" and whole:
        yield from _marked("!", f"{title}: in your own shell, run", terminal)
        for command in _commands(result.step, facts):
            yield "    " + terminal.code(clean(command), "green")
    elif result.state in ("not needed", "not reached") and whole:
        detail = f" ({result.detail})" if result.detail else ""
        yield from _marked("!", f"{title}: {result.state}{detail}", terminal)
    elif result.state == "done" and not whole:
        yield from _marked("✓", f"{title}  ({result.seconds:.0f} s)", terminal)


def undo_text(undo: Undo, terminal: Terminal) -> str:
    """Return what undoing a run would do, or doing it again."""
    head = terminal.style(f"{'Redo' if undo.redo else 'Undo'} {undo.run}", "bold")
    lines = [f"{head}  ({clean(undo.title)}; {undo.state})"]
    lines.extend("  " + _change(one, terminal) for one in _ordered(undo.changes, ())[: 3 * _SHOWN])
    if len(undo.changes) > 3 * _SHOWN:
        lines.append(f"  … and {len(undo.changes) - 3 * _SHOWN} more")
    lines.extend(f"  {what:<9} {clean(path)}" for path, what in undo.files)
    lines.extend(f"  remove    {clean(path)}/ with what the run put there" for path in undo.folders)
    lines += _refused(undo.refused, terminal)
    if not undo.exchanges:
        lines.append("  nothing to do: all is as it would be afterwards")
    elif not (undo.changes or undo.files or undo.folders):
        lines.append(f"  restore   {len(undo.exchanges)} files and folders of the environment")
    return terminal.page(lines)


def undone_text(undo: Undo, undone: Undone, terminal: Terminal) -> str:
    """Return the result of an undo, and how it can be reversed."""
    done = "done again" if undo.redo else "undone"
    lines = _refused([one for one in undone.faults if one not in undo.refused], terminal)
    if undone.faults:
        lines += _marked(
            "!", f"Run {undo.run} is partly {done}; what is named above is kept.", terminal
        )
    else:
        lines += _marked(
            "✓", f"Run {undo.run} is {done}: all that it changed is restored.", terminal
        )
    other = "undo" if undo.redo else "redo"
    lines += terminal.wrap(
        f"`attn-doctor fix {other} {undo.run}` reverses this; `attn-doctor fix forget {undo.run}`"
        " deletes the copies that it needs.",
        2,
    )
    return terminal.page(lines)


def _refused(sentences: Sequence[str], terminal: Terminal) -> list[str]:
    lines = [line for one in sentences[: 2 * _SHOWN] for line in _marked("!", one, terminal)]
    if len(sentences) > 2 * _SHOWN:
        lines.append(f"  … and {len(sentences) - 2 * _SHOWN} more (--json lists all)")
    return lines


def history_text(runs: Iterable[Run], terminal: Terminal) -> str:
    """Return all runs, the newest first."""
    lines = []
    for run in runs:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.when))
        lines.append(
            f"{run.id}  {when}  {run.state:<12} {clean(run.title)}"
            + (f"  in {clean(run.python)}" if run.python else "")
        )
    return terminal.page(lines or ["fix has not changed anything yet"])


def wheels_text(verdicts: Sequence[tuple[Verdict, tuple[str, ...]]], terminal: Terminal) -> str:
    """Return for which packages a prebuilt wheel fits, with notes on compiling the others here."""
    marks = {"yes": ("✓", "green"), "no": ("✗", "red"), "unknown": ("?", "yellow")}
    lines = []
    for one, notes in verdicts:
        mark, colour = marks[one.wheel]
        lines.append(
            terminal.style(mark, "bold", colour)
            + " "
            + terminal.style(f"{one.name:<14}", "bold")
            + {"yes": "a prebuilt wheel", "no": "no prebuilt wheel", "unknown": "unknown"}[
                one.wheel
            ]
            + (f": {one.version}" if one.version and one.wheel == "yes" else "")
        )
        lines += terminal.wrap(clean(one.reason), 16)
        if one.requirement:
            index = f" --index-url {one.index}" if one.index else ""
            lines.append(" " * 16 + terminal.code(f"pip install {one.requirement}{index}", "green"))
        for note in notes:
            lines += terminal.wrap(clean(note), 16)
    return terminal.page(lines)
