"""The part of `attn-doctor fix` that shows a plan, asks, and carries it out."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from attn_doctor.cli.fix.progress import Shown
from attn_doctor.errors import AttnDoctorError
from attn_doctor.findings import Diagnosis, Severity
from attn_doctor.fixes import installers, lock_files
from attn_doctor.fixes.apply import Applied, apply
from attn_doctor.fixes.journal import runs
from attn_doctor.fixes.steps import Plan
from attn_doctor.render.fix.json import fix_json
from attn_doctor.render.fix.text import applied_text, plan_text
from attn_doctor.render.grouping import plural
from attn_doctor.render.terminal import Paper


def shown_and_done(
    plan: Plan,
    diagnosis: Diagnosis,
    *,
    json: bool,
    apply: bool,
    yes: bool,
    look: Callable[[], Diagnosis],
    named: Sequence[str] = (),
) -> int:
    """Show the plan; carry it out if `apply` and the user agrees. Returns the exit code."""
    facts = diagnosis.facts
    paper = Paper.of(sys.stdout, dict(os.environ))
    if not plan.steps and not plan.without:
        if json:
            sys.stdout.write(fix_json(plan, facts, 0))
        else:
            _say("Nothing to mend: no rule that was asked for finds a problem with a remedy.")
        return 0
    if not json:
        installer = installers.name(facts) if not installers.obstacle(facts) else ""
        sys.stdout.write(plan_text(plan, facts, paper, installer, lock_files.warning(facts)))
    stop = _why_not(plan, facts.python.path or "", apply=apply)
    if not stop and not yes:
        if json or not sys.stdin.isatty():
            stop = "Nothing was done. To carry it out: run the same command with --yes."
        elif not agreed(f"Carry out {plural(len(plan.ready), 'step')}?"):
            stop = "Nothing was done."
    if stop:
        if json:
            sys.stdout.write(fix_json(plan, facts, 1))
        else:
            _say(stop)
        return 1
    applied = _applied(plan, diagnosis, look, paper)
    code = _code(plan, applied, named)
    sys.stdout.write(
        fix_json(plan, facts, code, applied) if json else applied_text(applied, facts, paper)
    )
    return code


def _code(plan: Plan, applied: Applied, named: Sequence[str]) -> int:
    """0 if every step did its work and what was to be mended is; else 1."""
    wanted = {*named, *(rule for step in plan.steps for rule in step.rules)}
    left = [
        one
        for one in applied.after.problems
        if one.rule in wanted or (not named and one.severity is Severity.ERROR)
    ]
    return 0 if applied.ok and not left else 1


def _why_not(plan: Plan, python: str, *, apply: bool) -> str:
    """Why the plan is not carried out, whatever the user says; empty if it can be."""
    interrupted = [
        one for one in runs(os.environ) if one.state in ("interrupted", "running") and one.changed
    ]
    mine = [one for one in interrupted if one.python in ("", python)]
    if not apply:
        return "Nothing was done: this is the plan only."
    if not plan.ready:
        return "Nothing was done: no step can be carried out by attn-doctor."
    if mine:
        state = "is at work" if mine[0].state == "running" else "was interrupted"
        return (
            f"Nothing was done: run {mine[0].id} of fix {state} here."
            f" `attn-doctor fix --undo {mine[0].id}` takes it back,"
            f" `attn-doctor fix --forget {mine[0].id}` leaves things as they are."
        )
    if plan.together:
        return "Nothing was done: name the RULE to begin with."
    return ""


def agreed(question: str) -> bool:
    """Ask on the terminal; anything but yes is no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _applied(
    plan: Plan,
    diagnosis: Diagnosis,
    look: Callable[[], Diagnosis],
    paper: Paper,
) -> Applied:
    try:
        with Shown(diagnosis.facts, paper) as shown:
            return apply(plan, diagnosis, os.environ, shown, look)
    except KeyboardInterrupt:
        _stopped()
        raise
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise AttnDoctorError(f"fix had to stop: {error.strerror}{where}") from None


def _stopped() -> None:
    last = next(iter(runs(os.environ)), None)
    if last is None:
        return
    done = [line for line in last.all("step") if line["state"] == "done"]
    kept = (
        f"What {plural(len(done), 'earlier step')} did stays; `attn-doctor fix --undo {last.id}`"
        " takes it back."
        if done
        else "Nothing of it is left."
    )
    sys.stderr.write(f"\nStopped: the step at work was taken back. {kept}\n")


def _say(text: str) -> None:
    paper = Paper.of(sys.stdout, dict(os.environ))
    sys.stdout.write("\n".join(paper.glyphs(line) for line in paper.wrap(text, 0)) + "\n")
