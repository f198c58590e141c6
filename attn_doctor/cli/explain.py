"""`attn-doctor explain`: find the cause of a failure in its log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.rules_option import Folders, rule_folders

if TYPE_CHECKING:
    from attn_doctor.explain.explanation import Explanation
    from attn_doctor.facts import Facts


class Format(str, Enum):
    """How the explanation is written."""

    text = "text"
    json = "json"
    markdown = "markdown"


def explain(
    logs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE…|-]",
            help="Logs to read; - or nothing for standard input.",
            show_default=False,
        ),
    ] = None,
    no_probe: Annotated[
        bool, typer.Option("--no-probe", help="Look at the log alone, not at this machine.")
    ] = False,
    facts: Annotated[
        str,
        typer.Option(
            "--facts", metavar="FILE", help="Hold the causes against a snapshot, not this machine."
        ),
    ] = "",
    python: Annotated[
        str,
        typer.Option(metavar="PATH", help="Interpreter or environment to examine, as in check."),
    ] = "",
    rules: Folders = None,
    format: Annotated[Format, typer.Option(help="How to write the result.")] = Format.text,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show evidence, and what the log tells.")
    ] = False,
) -> None:
    """Find the cause of a failure in its log, and say whether this machine confirms it.

    Reads pip output, tracebacks and training logs of any size and encoding.

    Exit codes: 0 no attention-kernel cause in the log, 1 a cause was found, 2 wrong usage or an
    unreadable file, 3 attn-doctor failed.
    """
    if no_probe and (facts or python):
        raise typer.BadParameter("--no-probe looks at the log alone: drop --facts and --python")
    if facts and python:
        raise typer.BadParameter("--facts judges a snapshot: --python has no meaning with it")
    paths = logs or ["-"]
    if facts == "-" and "-" in paths:
        raise typer.BadParameter("standard input cannot be both the log and the snapshot")
    if not logs and sys.stdin.isatty():
        raise typer.BadParameter(
            "name a log file, or pipe a log in: `command 2>&1 | attn-doctor explain`"
        )
    found = _explained(
        paths, None if no_probe else lambda: _machine(facts, python), rule_folders(rules)
    )
    code = 1 if found.matches else 0
    sys.stdout.write(_rendered(found, format, code, verbose))
    raise typer.Exit(code)


def _explained(
    paths: list[str], machine: Callable[[], Facts] | None, folders: tuple[Path, ...]
) -> Explanation:
    from msgspec.structs import replace

    from attn_doctor.explain.engine import explanation, read
    from attn_doctor.rulebook import library

    start = time.perf_counter()
    rules = library.load(folders)
    reading = read(paths, rules)
    # A log that shows nothing is not worth an examination.
    facts = machine() if machine is not None and reading.seen else None
    found = explanation(reading, rules, library.tables, facts)
    return replace(found, seconds=time.perf_counter() - start)


def _machine(snapshot: str, python: str) -> Facts:
    if snapshot:
        from attn_doctor.snapshot import load

        return load(snapshot)
    from attn_doctor.diagnosis import examine
    from attn_doctor.host.local import LocalHost

    return examine(LocalHost(), python)


def _rendered(found: Explanation, format: Format, code: int, verbose: bool) -> str:
    if format is Format.json:
        from attn_doctor.render.explanation.json import json

        return json(found, code)
    if format is Format.markdown:
        from attn_doctor.render.explanation.markdown import markdown

        return markdown(found)
    from attn_doctor.render.explanation.text import text
    from attn_doctor.render.terminal import Paper

    return text(found, Paper.of(sys.stdout, dict(os.environ)), verbose=verbose)
