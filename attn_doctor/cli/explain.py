"""`attn-doctor explain`: find the cause of a failure in its log."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from attn_doctor.cli.common_options import Output, Python, Snapshot, Verbose
from attn_doctor.cli.output_file import write
from attn_doctor.cli.result_options import LogFormat, LogOptions, PageFormat, PageOptions
from attn_doctor.cli.rules_option import Folders, rule_folders
from attn_doctor.cli.screen import terminal

if TYPE_CHECKING:
    from pathlib import Path

    from attn_doctor.explain.explanation import Explanation
    from attn_doctor.facts import Facts


_RULE_ID = re.compile(r"[a-z][\w-]*/[\w.-]+|ATTN-\d{4}-\d{4}")
#: The exit code of each outcome.
_CODES = {"nothing": 0, "cause": 1, "component": 5}


def explain(
    *,
    logs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE…|TEXT|RULE|-]",
            help="Logs to read, an error message, or the id of a rule; - or nothing for standard"
            " input.",
            show_default=False,
        ),
    ] = None,
    no_probe: Annotated[
        bool, typer.Option("--no-probe", help="Read the log only; do not examine this machine.")
    ] = False,
    against: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A log of a run that worked: its lines explain no failure."
        ),
    ] = "",
    facts: Snapshot = "",
    python: Python = "",
    rules: Folders = None,
    result: LogOptions,
    output: Output = "",
    verbose: Verbose = 0,
) -> None:
    """Find the cause of a failure in its log, and check it on this machine.

    Reads pip output, tracebacks and training logs of any size and encoding, also compressed ones
    (.gz, .xz, .bz2, .zst), or an error message in quotes. The id of a rule, such as
    sage/needs-triton, shows its page.

    Exit codes: 0 no attention-kernel cause in the log, 1 a cause was found, 2 wrong usage or an
    unreadable file, 3 attn-doctor failed, 5 no rule knows the cause, but a component is named.
    """
    if no_probe and (facts or python):
        raise typer.BadParameter("--no-probe reads the log only: omit --facts and --python")
    if facts and python:
        raise typer.BadParameter("--facts uses a snapshot: --python has no meaning with it")
    every = logs or ["-"]
    if len(every) == 1 and _is_rule(every[0], rules):
        from attn_doctor.cli.rules.command import show

        if result.chosen is LogFormat.html:
            raise typer.BadParameter("the page of a rule has no --format html: use markdown")
        page = PageOptions(format=PageFormat(result.chosen.value))
        show(name=every[0], rules=rules, result=page)
        return
    texts = [one for one in every if _is_text(one)]
    paths = [one for one in every if one not in texts]
    if facts == "-" and "-" in paths:
        raise typer.BadParameter("standard input cannot be both the log and the snapshot")
    if not logs and sys.stdin.isatty():
        raise typer.BadParameter(
            "name a log file, or pipe a log in: `command 2>&1 | attn-doctor explain`"
        )
    from attn_doctor.explain.engine import explain as explain_logs
    from attn_doctor.rulebook import library

    found = explain_logs(
        paths,
        library.load(rule_folders(rules)),
        None if no_probe else lambda: _machine(facts, python),
        texts=texts,
        against=against,
    )
    if not (facts or python) and (there := _interpreter_here(found)):
        found = replace(found, again=("attn-doctor", "explain", *every, "--python", there))
    if any(fix.run for one in found.matches for fix in one.fixes):
        from attn_doctor.install.offered import offered_for_log

        found = offered_for_log(found)
    code = _CODES[found.outcome.value]
    text = _rendered(found, result.chosen, code, verbose > 0)
    if output:
        write(output, text)
    else:
        sys.stdout.write(text)
    raise typer.Exit(code)


def _is_rule(argument: str, folders: list[Path] | None) -> bool:
    """The argument has the form of a rule's id and is not the name of a file."""
    if not _RULE_ID.fullmatch(argument) or os.path.exists(argument):
        return False
    from attn_doctor.rulebook import library

    area, slash, _ = argument.rpartition("/")
    area = area if slash else "advisories"
    return any(rule.id.startswith(f"{area}/") for rule in library.load(rule_folders(folders)))


def _is_text(argument: str) -> bool:
    """The argument is an error message and not the name of a file.

    A name of a file that is missing has no blank between words of a sentence.
    """
    if "\n" in argument:
        return True
    return len(argument.split()) > 1 and not os.path.exists(argument)


def _interpreter_here(found: Explanation) -> str:
    """The interpreter of the log, if it is another one than the examined and this machine has it.

    It is not examined unasked: that would start a program that a log names.
    """
    there = (one.value for one in found.differences if one.fact == "python.path")
    return next(filter(os.path.exists, there), "")


def _machine(snapshot: str, python: str) -> Facts:
    from attn_doctor.cli.this_machine import this_machine
    from attn_doctor.examination import facts_of

    return facts_of(this_machine, snapshot, python)


def _rendered(found: Explanation, format: LogFormat, code: int, verbose: bool) -> str:
    if format is LogFormat.json:
        from attn_doctor.render.explanation.json import json

        return json(found, code)
    if format is not LogFormat.text:
        from attn_doctor.anonymize import disclosed
        from attn_doctor.cli.this_machine import anonymous_here

        found = disclosed(found, anonymous_here())
    if format is LogFormat.markdown:
        from attn_doctor.render.explanation.markdown import markdown

        return markdown(found)
    if format is LogFormat.html:
        from attn_doctor.render.explanation.html import html

        return html(found)
    from attn_doctor.render.explanation.text import text

    return text(found, terminal(), verbose=verbose)
