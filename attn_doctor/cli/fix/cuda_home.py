"""`attn-doctor fix --cuda-home`: choose the CUDA toolkit for builds, and tell the shell.

Standard output holds nothing but the lines for the shell, so that `eval` can take them; everything
that is meant for a person goes to standard error.
"""

from __future__ import annotations

import os
import sys

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.fixes.cuda_home.report import Report
from attn_doctor.fixes.cuda_home.start_files import Keeping
from attn_doctor.fixes.cuda_home.toolkit_from_wheels import Installation
from attn_doctor.host import Host
from attn_doctor.render.terminal import Paper
from attn_doctor.shell.exports import Exports
from attn_doctor.shell.quote import Shell


def cuda_home(
    *,
    python: str = "",
    facts: str = "",
    shell: str = "",
    write: bool = False,
    write_to: str = "auto",
    install: bool = False,
    yes: bool = False,
    dry_run: bool = False,
    format: str = "text",
    timeout: float = 15.0,
) -> int:
    """Do what the command line asks for; returns the exit code.

    0: a toolkit was chosen, and torch takes it. 1: none fits, or torch takes another one. Raises
    `AttnDoctorError` for what the user has to set right first.
    """
    from attn_doctor.diagnosis import examine
    from attn_doctor.fixes.cuda_home import start_files
    from attn_doctor.host.local import LocalHost
    from attn_doctor.shell import detect

    if facts:
        raise AttnDoctorError(
            "fix --cuda-home tries compilers out on this machine: --facts has no meaning with it"
        )
    asking = detect.named(shell) if shell else None
    if write_to not in start_files.KINDS:
        raise AttnDoctorError(f"--write-to {write_to}: it takes {', '.join(start_files.KINDS)}")
    asking = asking or detect.detect(dict(os.environ))
    host = LocalHost()
    report = _judged(host, examine(host, python, timeout), asking)
    if install and report.chosen is not None:
        _say("A toolkit that fits is here already; nothing is installed.\n")
    elif install:
        if not _installed(host, report.facts, yes=yes, dry_run=dry_run):
            return 0 if dry_run else 1
        host = LocalHost()
        report = _judged(host, examine(host, python, timeout), asking)
    if format != "json":
        _tell(report)
    if report.chosen is None or report.refuted:
        if format == "json":
            sys.stdout.write(_json(report))
        return 1
    return _kept(host, report, write_to if write else "", format, yes=yes, dry_run=dry_run)


def _kept(host: Host, report: Report, kind: str, format: str, *, yes: bool, dry_run: bool) -> int:
    """Write the choice where `kind` says, if anywhere, and print it. Returns the exit code."""
    keeping = _keeping(host, report, kind) if kind else None
    written, undo = False, ""
    if keeping is not None and dry_run:
        _say(f"Nothing is written (--dry-run). It would be:\n{_changes(keeping)}")
    elif keeping is not None:
        written, undo = _write(keeping, report.facts, yes=yes)
    if format == "json":
        sys.stdout.write(_json(report, keeping, written=written, undo=undo))
    else:
        _print_lines(report, keeping)
    return 0 if written or dry_run or keeping is None else 1


def _judged(host: Host, facts: Facts, shell: Shell) -> Report:
    """Every toolkit weighed, the lines for the shell, and what torch makes of them."""
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


def _installed(host: Host, facts: Facts, *, yes: bool, dry_run: bool) -> bool:
    """Show what would be installed, ask, and do it. False if it was only shown or not wanted."""
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
    _say(f"{wanted.root} is there. Undo: attn-doctor fix --undo {journal.id}\n")
    return True


def _installation(wanted: Installation) -> str:
    source = f"\n  linked    libraries and headers from {wanted.linked}" if wanted.linked else ""
    return (
        f"To be installed:\n  folder    {wanted.root} (new)\n"
        f"  wheels    {wanted.requirement}{source}\n"
        f"  download  about {wanted.download_mib} MiB, less what the installer has kept\n"
        f"  disk      about {wanted.disk_mib} MiB\n  command   {' '.join(wanted.argv)}\n"
    )


# Keeping


def _keeping(host: Host, report: Report, kind: str) -> Keeping:
    """The files to write, for a PATH that does not hold the toolkit's folder yet."""
    from attn_doctor.fixes.cuda_home import exports, start_files

    if report.chosen is None:
        raise AssertionError
    environ = dict(os.environ)
    folder = host.join(report.chosen.root, "bin")
    parts = [one for one in environ.get("PATH", "").split(os.pathsep) if one != folder]
    environ["PATH"] = os.pathsep.join(parts)
    needed: Exports = exports.needed(host, report.chosen, environ)
    return start_files.keeping(report.facts, needed, report.shell, environ, kind)


def _write(keeping: Keeping, facts: Facts, *, yes: bool) -> tuple[bool, str]:
    """Show, ask and write. Returns whether all stands as wanted, and the id for `--undo`."""
    from attn_doctor.fixes.cuda_home import write_files
    from attn_doctor.fixes.journal import begin

    if not any(one.needed for one in keeping.changes):
        _say(f"Nothing to write:\n{_changes(keeping)}")
        return True, ""
    _say(f"To be written:\n{_changes(keeping)}")
    if keeping.kind == "github":
        write_files.append(keeping)
        return True, ""
    if not _agreed("Write it?", yes=yes):
        return False, ""
    environ = dict(os.environ)
    with begin(environ, title="fix --cuda-home --write", python=facts.python.path or "") as journal:
        write_files.write(keeping, journal)
    _say(f"Written. Now {keeping.then}. Undo: attn-doctor fix --undo {journal.id}\n")
    return True, journal.id


def _agreed(question: str, *, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        _say("Nothing was changed: nobody can be asked here. Add --yes to do it.\n")
        return False
    _say(f"{question} [y/N] ")
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    _say("Nothing was changed.\n")
    return False


# Printing


def _paper() -> Paper:
    return Paper.of(sys.stderr, dict(os.environ))


def _say(text: str) -> None:
    sys.stderr.write(_paper().glyphs(text))
    sys.stderr.flush()


def _changes(keeping: Keeping) -> str:
    from attn_doctor.render.fix.cuda_home import changes

    return changes(keeping, _paper())


def _tell(report: Report) -> None:
    from attn_doctor.render.fix.cuda_home import as_text

    _say(as_text(report, _paper()))
    if report.refuted:
        _say(
            "\ntorch takes another toolkit in spite of CUDA_HOME: something sets it when Python"
            " starts (a .pth file, sitecustomize). Nothing was printed for the shell.\n"
        )


def _print_lines(report: Report, keeping: Keeping | None) -> None:
    """The lines, for `eval`; on a terminal also how to use them."""
    from attn_doctor.shell.detect import how_to_eval

    if sys.stdout.isatty():
        if keeping is not None:
            return
        how = how_to_eval(report.shell, "attn-doctor fix --cuda-home")
        _say(f"\nFor this shell: {how}\nThe lines, for {report.shell}:\n")
    sys.stdout.write("".join(f"{line}\n" for line in report.lines))


def _json(
    report: Report, keeping: Keeping | None = None, *, written: bool = False, undo: str = ""
) -> str:
    from attn_doctor.render.fix.cuda_home import as_json

    return as_json(report, keeping, written=written, undo=undo)


class _Waiting:
    """One line on a terminal that says what is being waited for."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def say(self, text: str) -> None:
        """Replace the line."""
        if self._terminal:
            paper = _paper()
            sys.stderr.write("\r\x1b[K" + paper.glyphs(text)[: paper.width - 2])
            sys.stderr.flush()

    def done(self) -> None:
        """Remove the line."""
        if self._terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
