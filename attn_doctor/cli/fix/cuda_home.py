"""`attn-doctor fix --cuda-home`: choose the CUDA toolkit for builds, and print lines for the shell.

Standard output holds nothing but the lines for the shell, so that `eval` can read them; everything
for a person goes to standard error.
"""

from __future__ import annotations

import os
import sys

from attn_doctor.cli.fix.apply import agreed
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.fixes.cuda_home.candidate import Report
from attn_doctor.fixes.cuda_home.start_files import FileChanges
from attn_doctor.fixes.cuda_home.toolkit_from_wheels import Installation
from attn_doctor.host import Host
from attn_doctor.render.edge import replace_line
from attn_doctor.render.terminal import Terminal
from attn_doctor.shell.quote import Shell


def cuda_home(
    *,
    python: str,
    shell: str,
    write: bool,
    write_to: str,
    install: bool,
    yes: bool,
    dry_run: bool,
    json: bool,
    timeout: float,
) -> int:
    """Do what the command line asks for; returns the exit code.

    0: a toolkit was chosen, and torch uses it. 1: none fits, torch uses another one, or nothing was
    written. Raises `AttnDoctorError` for what the user has to correct first.
    """
    from attn_doctor.cli.this_machine import this_machine
    from attn_doctor.examination import examine
    from attn_doctor.fixes.cuda_home import start_files
    from attn_doctor.shell import detect

    asking = detect.named(shell) if shell else None
    if write_to not in start_files.KINDS:
        raise AttnDoctorError(
            f"--write-to {write_to}: unknown; choose from {', '.join(start_files.KINDS)}"
        )
    asking = asking or detect.detect(dict(os.environ))
    host = this_machine()
    report = _report(host, examine(host, python, timeout), asking)
    if install and report.chosen is not None:
        _say("A toolkit that fits is installed already; nothing is installed.\n")
    elif install:
        if not _install(host, report.facts, yes=yes, dry_run=dry_run):
            return 0 if dry_run else 1
        host = this_machine()
        report = _report(host, examine(host, python, timeout), asking)
    if not json:
        _explain(report)
    if report.chosen is None or report.refuted:
        if json:
            _write_json(report)
        return 1
    return _result(host, report, write_to if write else "", json=json, yes=yes, dry_run=dry_run)


def _result(
    host: Host, report: Report, write_to: str, *, json: bool, yes: bool, dry_run: bool
) -> int:
    """Write the choice where `write_to` says, if anywhere, and print it. Returns the exit code."""
    plan = _file_changes(host, report, write_to) if write_to else None
    written, undo = False, ""
    if plan is not None and dry_run:
        _say(f"Nothing is written (--dry-run). These are the changes:\n{_changes(plan)}")
    elif plan is not None:
        written, undo = _write_files(plan, report.facts, yes=yes)
    if json:
        _write_json(report, plan, written=written, undo=undo)
    else:
        _print_lines(report, plan)
    return 0 if written or dry_run or plan is None else 1


def _report(host: Host, facts: Facts, shell: Shell) -> Report:
    """Every toolkit evaluated, the lines for the shell, and what torch resolves with them."""
    from attn_doctor.fixes.cuda_home import confirm, exports
    from attn_doctor.fixes.cuda_home.advice import advice
    from attn_doctor.fixes.cuda_home.evaluate import choose
    from attn_doctor.rulebook import library
    from attn_doctor.shell.exports import eval_lines

    environ = dict(os.environ)
    waiting = _Waiting()
    choice = choose(host, facts, environ, waiting.say)
    if choice.chosen is None:
        waiting.done()
        tables = library.tables()
        return Report(
            facts=facts, choice=choice, shell=shell, advice=advice(facts, tables, environ)
        )
    needed = exports.needed(host, choice.chosen, environ)
    waiting.say("asking torch what it resolves to")
    changed = exports.apply(needed, environ)
    if dead := facts.system.unreachable_folders:
        # Python would wait for it, as this command would for Python.
        says = f"could not be asked: {dead[0]} does not answer"
        answers: tuple[confirm.Answer, ...] = (confirm.Answer(name="torch", says=says),)
    else:
        answers = confirm.ask(facts.python.path or "", changed, choice.chosen.root)
    waiting.done()
    return Report(
        facts=facts,
        choice=choice,
        shell=shell,
        exports=needed,
        lines=tuple(eval_lines(needed, shell)),
        answers=answers,
    )


# Installing


def _install(host: Host, facts: Facts, *, yes: bool, dry_run: bool) -> bool:
    """Show what would be installed, ask, and install it. False if nothing was installed."""
    from attn_doctor.fixes.cuda_home import toolkit_from_wheels
    from attn_doctor.fixes.journal import begin

    environ = dict(os.environ)
    wanted = toolkit_from_wheels.plan(host, facts, environ)
    _say(_installation(wanted))
    if dry_run:
        _say("Nothing was installed (--dry-run).\n")
        return False
    if not _agreed("Install it?", yes=yes):
        return False
    waiting = _Waiting()
    title = f"fix --cuda-home --install ({wanted.requirement})"
    try:
        with begin(environ, title=title, python=facts.python.path or "") as journal:
            toolkit_from_wheels.install(host, wanted, environ, journal, waiting.say)
    finally:
        waiting.done()
    _say(f"Installed {wanted.root}. Undo: attn-doctor fix undo {journal.id}\n")
    return True


def _installation(wanted: Installation) -> str:
    source = f"\n  linked    libraries and headers from {wanted.linked}" if wanted.linked else ""
    return (
        f"To be installed:\n  folder    {wanted.root} (new)\n"
        f"  wheels    {wanted.requirement}{source}\n"
        f"  download  about {wanted.download_mib} MiB, less what is in the installer's cache\n"
        f"  disk      about {wanted.disk_mib} MiB\n  command   {' '.join(wanted.argv)}\n"
    )


# Writing files


def _file_changes(host: Host, report: Report, kind: str) -> FileChanges:
    """The files to write, for a PATH that does not hold the toolkit's folder yet."""
    from attn_doctor.fixes.cuda_home import exports, start_files

    if report.chosen is None:
        raise AssertionError
    environ = dict(os.environ)
    folder = host.join(report.chosen.root, "bin")
    parts = [part for part in environ.get("PATH", "").split(os.pathsep) if part != folder]
    environ["PATH"] = os.pathsep.join(parts)
    needed = exports.needed(host, report.chosen, environ)
    return start_files.file_changes(report.facts, needed, report.shell, environ, kind)


def _write_files(plan: FileChanges, facts: Facts, *, yes: bool) -> tuple[bool, str]:
    """Show, ask and write. Returns whether all files are as wanted, and the run to undo."""
    from attn_doctor.fixes.cuda_home import start_files
    from attn_doctor.fixes.journal import begin

    if not any(change.needed for change in plan.changes):
        _say(f"Nothing to write:\n{_changes(plan)}")
        return True, ""
    _say(f"To be written:\n{_changes(plan)}")
    if plan.kind == "github":
        start_files.append(plan)
        return True, ""
    if not _agreed("Write it?", yes=yes):
        return False, ""
    environ = dict(os.environ)
    with begin(environ, title="fix --cuda-home --write", python=facts.python.path or "") as journal:
        start_files.write(plan, journal)
    _say(f"Written. Now {plan.then}. Undo: attn-doctor fix undo {journal.id}\n")
    return True, journal.id


def _agreed(question: str, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        _say("Nothing was changed: stdin is not a terminal. Add --yes to apply it.\n")
        return False
    if agreed(question):
        return True
    _say("Nothing was changed.\n")
    return False


# Printing


def _terminal() -> Terminal:
    return Terminal.of(sys.stderr, dict(os.environ))


def _say(text: str) -> None:
    sys.stderr.write(_terminal().glyphs(text))
    sys.stderr.flush()


def _changes(plan: FileChanges) -> str:
    from attn_doctor.render.fix.cuda_home import changes

    return changes(plan, _terminal())


def _explain(report: Report) -> None:
    from attn_doctor.render.fix.cuda_home import as_text

    _say(as_text(report, _terminal()))
    if report.refuted:
        _say(
            "\ntorch uses another toolkit in spite of CUDA_HOME: something sets it when Python"
            " starts (a .pth file, sitecustomize). No lines were printed for the shell.\n"
        )


def _print_lines(report: Report, plan: FileChanges | None) -> None:
    """The lines, for `eval`; on a terminal also how to use them."""
    from attn_doctor.shell.commands import attn_doctor
    from attn_doctor.shell.detect import how_to_eval

    if sys.stdout.isatty():
        if plan is not None:
            return
        command = attn_doctor("fix", "--cuda-home", facts=report.facts)
        how = how_to_eval(report.shell, command)
        _say(f"\nTo set them in this shell: {how}\nThe lines, for {report.shell}:\n")
    sys.stdout.write("".join(f"{line}\n" for line in report.lines))


def _write_json(
    report: Report, plan: FileChanges | None = None, *, written: bool = False, undo: str = ""
) -> None:
    from attn_doctor.render.fix.cuda_home import as_json

    sys.stdout.write(as_json(report, plan, written=written, undo=undo))


class _Waiting:
    """One line on a terminal that names what the command is waiting for."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def say(self, text: str) -> None:
        """Replace the line."""
        if self._terminal:
            terminal = _terminal()
            replace_line(terminal.glyphs(text)[: terminal.width - 2])

    def done(self) -> None:
        """Remove the line."""
        if self._terminal:
            replace_line()
