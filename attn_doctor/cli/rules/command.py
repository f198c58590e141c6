"""`attn-doctor rules`: look at the rulebook. `files.py` has what checks and writes rules."""

from __future__ import annotations

import os
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.format_option import Format
from attn_doctor.cli.rules import files
from attn_doctor.cli.rules_option import Folders, rule_folders

if TYPE_CHECKING:
    from attn_doctor.rulebook.rule import Rule
    from attn_doctor.rulebook.rule_lookup import Meant

app = typer.Typer(help="Look at the rulebook, check it, and add to it.", no_args_is_help=True)


class ShowFormat(str, Enum):
    """How a rule is written."""

    text = "text"
    markdown = "markdown"
    json = "json"


class Severity(str, Enum):
    """How bad the problem of a rule is."""

    error = "error"
    warning = "warning"
    info = "info"


@app.callback()
def _rules() -> None:
    """Look at the rulebook, check it, and add to it."""


@app.command("list")
def list_(
    area: Annotated[str, typer.Option(metavar="AREA", help="Only this area, as flex.")] = "",
    severity: Annotated[
        Severity | None, typer.Option(help="Only this severity.", show_default=False)
    ] = None,
    cause: Annotated[str, typer.Option(metavar="CAUSE", help="Only this cause.")] = "",
    backend: Annotated[
        str, typer.Option(metavar="BACKEND", help="Only what concerns this backend, as sage.")
    ] = "",
    rules: Folders = None,
    format: Annotated[Format, typer.Option(help="How to write it.")] = Format.text,
) -> None:
    """List the rules, one a line, area by area.

    Exit codes: 0 listed, 2 an area, cause or backend that no rule has.
    """
    from attn_doctor.rulebook import library
    from attn_doctor.rulebook.rule_lookup import selected

    chosen = selected(
        library.load(rule_folders(rules)),
        area=area,
        severity=severity.value if severity else "",
        cause=cause,
        backend=backend,
    )
    if format is Format.json:
        from attn_doctor.render.rules.json import list_json

        sys.stdout.write(list_json(chosen))
        return
    from attn_doctor.render.rules.list import rule_list
    from attn_doctor.render.terminal import Paper

    paper = Paper.of(sys.stdout, dict(os.environ))
    sys.stdout.write(rule_list(chosen, paper, whole=not sys.stdout.isatty()))


@app.command("show")
def show(
    name: Annotated[
        str,
        typer.Argument(metavar="ID", help="A rule, its last part, or the label of a cause."),
    ],
    rules: Folders = None,
    format: Annotated[ShowFormat, typer.Option(help="How to write it.")] = ShowFormat.text,
) -> None:
    """Show all that a rule says: what is wrong, how it shows, what mends it, and the evidence.

    Exit codes: 0 shown, 2 no such rule.
    """
    from attn_doctor.rulebook import library
    from attn_doctor.rulebook.rule_lookup import meant

    folders = rule_folders(rules)
    every = library.load(folders)
    causes = library.tables()["causes"]["cause"]
    found = meant(name, every, causes)
    explains = {rule.id: [one.id for one in every if rule.id in one.requires] for rule in every}
    if found.cause:
        sys.stdout.write(_cause(found, causes.get(found.cause, ""), explains, format))
        return
    rule = found.rules[0]
    file = _file(rule.id, folders)
    meaning = causes.get(rule.cause, "")
    sys.stdout.write(_rule(rule, meaning, explains[rule.id], file, format))


def _rule(rule: Rule, meaning: str, explains: list[str], file: str, format: ShowFormat) -> str:
    if format is ShowFormat.json:
        from attn_doctor.render.rules.json import rule_json

        return rule_json(rule, meaning=meaning, explains=explains, file=file)
    if format is ShowFormat.markdown:
        from attn_doctor.render.rules.markdown import rule_markdown

        return rule_markdown(rule, meaning=meaning, explains=explains)
    from attn_doctor.render.rules.text import rule_text
    from attn_doctor.render.terminal import Paper
    from attn_doctor.rulebook.fact_catalogue import catalogue

    paper = Paper.of(sys.stdout, dict(os.environ))
    facts = {fact.name: fact.doc for fact in catalogue().values()}
    return rule_text(rule, paper, meaning=meaning, explains=explains, facts=facts, file=file)


def _cause(found: Meant, meaning: str, explains: dict[str, list[str]], format: ShowFormat) -> str:
    if format is ShowFormat.json:
        from attn_doctor.render.rules.json import cause_json

        return cause_json(found.cause, meaning, found.rules, explains)
    if format is ShowFormat.markdown:
        from attn_doctor.render.rules.markdown import cause_markdown

        return cause_markdown(found.cause, meaning, found.rules)
    from attn_doctor.render.rules.text import cause_text
    from attn_doctor.render.terminal import Paper

    paper = Paper.of(sys.stdout, dict(os.environ))
    return cause_text(found.cause, meaning, found.rules, paper)


def _file(id: str, folders: tuple[Path, ...]) -> str:
    """Where a rule is written; empty if its file is not there to be read."""
    from attn_doctor.rulebook.library import folder

    places = (one / f"{id}.toml" for one in (folder(), *folders))
    return next((str(path) for path in places if path.is_file()), "")


# Here, so that the help names what readers need first.
app.command("new")(files.new)
app.command("test")(files.run)
app.command("lint")(files.lint)
