"""`attn-doctor fix undo`, `redo`, `history` and `forget`: earlier runs of fix."""

from __future__ import annotations

import os
import sys

from attn_doctor.cli.fix.apply import agreed
from attn_doctor.cli.screen import say
from attn_doctor.cli.streams import shown
from attn_doctor.fixes import env_snapshot
from attn_doctor.fixes.journal import reopen, runs
from attn_doctor.fixes.undo import chosen, undo_plan
from attn_doctor.fixes.undo import undo as apply_undo
from attn_doctor.host.local import LocalHost
from attn_doctor.probes.interpreter.choice import pick
from attn_doctor.render.fix.json import history_json, undo_json
from attn_doctor.render.fix.text import history_text, undo_text, undone_text
from attn_doctor.render.terminal import Terminal


def undo(id: str, *, redo: bool, dry_run: bool, yes: bool, json: bool, python: str = "") -> int:
    """Undo a run, or do it again. `python`: of those that changed this environment.

    Returns the exit code: 1 if something was not restored, or nothing was changed. Without `yes`,
    the user is asked on the terminal. Without a terminal, only the plan is shown.
    """
    terminal = Terminal.of(sys.stdout, dict(os.environ))
    where = pick(LocalHost(), python).path if python else ""
    run = chosen(os.environ, id, redo=redo, python=where)
    plan = undo_plan(run, redo=redo)
    if not json:
        sys.stdout.write(undo_text(plan, terminal))
        shown()
    why = "" if yes and not dry_run else "Nothing was changed."
    if not (yes or dry_run or json) and sys.stdin.isatty():
        why = "" if agreed("Do it again?" if redo else "Undo it?") else why
    elif not yes and not dry_run:
        why += " To apply it, run the same command with --yes."
    if why:
        sys.stdout.write(undo_json(plan, 1) if json else terminal.page([why]))
        return 1
    undone = apply_undo(run, plan)
    code = 1 if undone.faults else 0
    sys.stdout.write(undo_json(plan, code, undone) if json else undone_text(plan, undone, terminal))
    return code


def history(*, json: bool) -> int:
    """List the runs."""
    found = runs(os.environ)
    terminal = Terminal.of(sys.stdout, dict(os.environ))
    sys.stdout.write(history_json(found) if json else history_text(found, terminal))
    return 0


def forget(id: str) -> int:
    """Keep what a run changed, or what its undo restored, and delete the copies of it."""
    run = chosen(os.environ, id, forget=True)
    with reopen(run) as journal:
        for root in env_snapshot.roots(run):
            say(f"removing {root}")
        left = env_snapshot.forget_all(run)
        journal.note("end", result="kept")
    for root in left:
        say(f"{root} could not be removed completely")
    say(f"Run {run.id} cannot be undone or done again any more.")
    return 0
