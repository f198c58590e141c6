"""`attn-doctor fix undo`, `history` and `forget`: earlier runs of fix."""

from __future__ import annotations

import os
import sys

from attn_doctor.cli.fix.apply import agreed
from attn_doctor.cli.streams import shown
from attn_doctor.errors import AttnDoctorError
from attn_doctor.fixes import env_snapshot
from attn_doctor.fixes.env_snapshot import Part
from attn_doctor.fixes.journal import Run, reopen, runs
from attn_doctor.fixes.undo import Undone, chosen, undo_plan
from attn_doctor.fixes.undo import undo as apply_undo
from attn_doctor.render.fix.json import history_json, undo_json
from attn_doctor.render.fix.text import history_text, undo_text
from attn_doctor.render.terminal import Terminal


def undo(id: str, *, dry_run: bool, yes: bool, json: bool) -> int:
    """Undo a run. Returns the exit code: 1 if something was not restored, or nothing was changed.

    Without `yes`, the user is asked on the terminal. Without a terminal, only the plan is shown.
    """
    terminal = Terminal.of(sys.stdout, dict(os.environ))
    run = chosen(os.environ, id)
    plan = undo_plan(run)
    if not json:
        sys.stdout.write(undo_text(plan, terminal))
        shown()
    why = "" if yes and not dry_run else "Nothing was changed."
    if not (yes or dry_run or json) and sys.stdin.isatty():
        why = "" if agreed("Undo it?") else why
    elif not yes and not dry_run:
        why += " To undo the run, run the same command with --yes."
    if why:
        sys.stdout.write(undo_json(plan, 1) if json else why + "\n")
        return 1
    undone = apply_undo(run, plan)
    differs = _freeze_differs(run)
    code = 1 if undone.faults or undone.changes or differs else 0
    sys.stdout.write(
        undo_json(plan, code, undone) if json else _result(run, undone, differs, terminal)
    )
    return code


def _result(run: Run, undone: Undone, differs: str, terminal: Terminal) -> str:
    lines = [f"! {fault}" for fault in undone.faults]
    if differs:
        lines.append(f"! {differs}")
    if not lines:
        same = " The installed packages are exactly as before." if run.first("before") else ""
        lines = [f"✓ Run {run.id} is undone.{same}"]
    return terminal.glyphs("\n".join(lines)) + "\n"


def _freeze_differs(run: Run) -> str:
    """How the installer's list of packages differs from before; empty if it does not."""
    before = run.first("before").get("freeze")
    if before is None or not run.python:
        return ""
    from attn_doctor.cli.this_machine import this_machine
    from attn_doctor.diagnosis import examine
    from attn_doctor.fixes import installers

    try:
        facts = examine(this_machine(), run.python)
        now = installers.freeze(facts, os.environ, run.folder)
    except AttnDoctorError as error:
        return f"the packages could not be compared with those before the run: {error}"
    lost, added = sorted({*before} - {*now}), sorted({*now} - {*before})
    if not lost and not added:
        return ""
    return "the packages differ from those before the run: " + ", ".join(
        [*(f"- {line}" for line in lost), *(f"+ {line}" for line in added)]
    )


def history(*, json: bool) -> int:
    """List the runs."""
    found = runs(os.environ)
    terminal = Terminal.of(sys.stdout, dict(os.environ))
    sys.stdout.write(history_json(found) if json else history_text(found, terminal))
    return 0


def forget(id: str) -> int:
    """Keep what a run changed, and delete the copies that only undo needs."""
    run = chosen(os.environ, id)
    with reopen(run) as journal:
        copies = [Part(*part) for line in run.all("packages") for part in line["parts"]]
        for root in sorted({os.path.dirname(part.copy) for part in copies}):
            sys.stdout.write(f"removing {root}\n")
        env_snapshot.forget(copies)
        journal.note("end", result="kept")
    sys.stdout.write(f"Run {run.id} is kept; its package changes cannot be undone any more.\n")
    return 0
