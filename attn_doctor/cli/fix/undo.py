"""`attn-doctor fix --undo`, `--history` and `--forget`."""

from __future__ import annotations

import os
import sys

import typer

from attn_doctor.cli.fix.apply import agreed
from attn_doctor.errors import AttnDoctorError
from attn_doctor.fixes import env_snapshot
from attn_doctor.fixes.env_snapshot import Part
from attn_doctor.fixes.journal import Run, reopen, runs
from attn_doctor.fixes.undo import Undone, chosen, undoing
from attn_doctor.fixes.undo import undo as take_back
from attn_doctor.render.fix.json import history_json, undo_json
from attn_doctor.render.fix.text import history_text, undo_text
from attn_doctor.render.terminal import Paper


def undo(named: list[str], *, dry_run: bool, yes: bool, json: bool) -> int:
    """Take a run back. Returns the exit code: 1 if something could not be."""
    if len(named) > 1:
        raise typer.BadParameter("--undo takes one run back; `fix --history` lists them")
    paper = Paper.of(sys.stdout, dict(os.environ))
    run = chosen(os.environ, named[0] if named else "")
    wanted = undoing(run)
    if not json:
        sys.stdout.write(undo_text(wanted, paper))
        sys.stdout.flush()
    ask = sys.stdin.isatty() and not yes and not json
    if dry_run or (ask and not agreed("Take it back?")):
        sys.stdout.write(undo_json(wanted, 1) if json else "Nothing was done.\n")
        return 1
    undone = take_back(run, wanted)
    differs = _freeze_differs(run)
    code = 1 if undone.faults or undone.changes or differs else 0
    sys.stdout.write(
        undo_json(wanted, code, undone) if json else _told(run, undone, differs, paper)
    )
    return code


def _told(run: Run, undone: Undone, differs: str, paper: Paper) -> str:
    lines = [f"! {one}" for one in undone.faults]
    if differs:
        lines.append(f"! {differs}")
    if not lines:
        frozen = " What is installed is line for line what it was." if run.first("before") else ""
        lines = [f"✓ Run {run.id} is taken back.{frozen}"]
    return paper.glyphs("\n".join(lines)) + "\n"


def _freeze_differs(run: Run) -> str:
    """How what the installer says is installed differs from before; empty if it does not."""
    before = run.first("before").get("freeze")
    if before is None or not run.python:
        return ""
    from attn_doctor.diagnosis import examine
    from attn_doctor.fixes import installers
    from attn_doctor.host.local import LocalHost

    try:
        facts = examine(LocalHost(), run.python)
        now = installers.freeze(facts, os.environ, run.folder)
    except AttnDoctorError as error:
        return f"it could not be compared with before: {error}"
    lost, added = sorted({*before} - {*now}), sorted({*now} - {*before})
    if not lost and not added:
        return ""
    return "it differs from before: " + ", ".join(
        [*(f"- {line}" for line in lost), *(f"+ {line}" for line in added)]
    )


def history(*, json: bool) -> int:
    """List the runs."""
    found = runs(os.environ)
    paper = Paper.of(sys.stdout, dict(os.environ))
    sys.stdout.write(history_json(found) if json else history_text(found, paper))
    return 0


def forget(id: str) -> int:
    """Keep what a run did, and remove the copies that only --undo needs."""
    run = chosen(os.environ, id)
    with reopen(run) as journal:
        copies = [Part(one[0], one[1]) for line in run.all("packages") for one in line["parts"]]
        for root in sorted({os.path.dirname(one.copy) for one in copies}):
            sys.stdout.write(f"removing {root}\n")
        env_snapshot.forget(copies)
        journal.note("end", result="kept")
    sys.stdout.write(f"Run {run.id} stays as it is; its packages cannot be undone any more.\n")
    return 0
