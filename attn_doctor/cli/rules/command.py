"""`attn-doctor rules`: show the rulebook. `authoring.py` has the commands for authors of rules."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Annotated

import typer

from attn_doctor.cli import completion
from attn_doctor.cli.help_page import Group
from attn_doctor.cli.result_options import PageFormat, PageOptions, ResultOptions
from attn_doctor.cli.rules import authoring, updating
from attn_doctor.cli.rules_option import Folders, rule_folders
from attn_doctor.cli.screen import terminal

app = typer.Typer(cls=Group, help="Show, check and extend the rulebook.", no_args_is_help=True)

#: Rules that a search shows.
_FOUND = 20


class Severity(str, Enum):
    """How bad the problem of a rule is."""

    error = "error"
    warning = "warning"
    info = "info"


@app.callback()
def _rules() -> None:
    """Show, check and extend the rulebook."""


@app.command("list")
def list_(
    *,
    area: Annotated[
        str, typer.Option("--area", metavar="AREA", help="Only this area, such as flex.")
    ] = "",
    severity: Annotated[
        Severity | None, typer.Option(help="Only this severity.", show_default=False)
    ] = None,
    cause: Annotated[str, typer.Option("--cause", metavar="CAUSE", help="Only this cause.")] = "",
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            metavar="BACKEND",
            help="Only rules that a check finds and that stop this backend, such as sage.",
        ),
    ] = "",
    rules: Folders = None,
    result: ResultOptions,
) -> None:
    """List the rules, one per line, grouped by area.

    Exit codes: 0 listed, 2 an area, cause or backend that no rule has.
    """
    from attn_doctor.rulebook import library
    from attn_doctor.rulebook.rule_lookup import select_rules

    chosen = select_rules(
        library.load(rule_folders(rules)),
        area=area,
        severity=severity.value if severity else "",
        cause=cause,
        backend=backend,
    )
    if result.as_json:
        from attn_doctor.render.rules.json import list_json

        sys.stdout.write(list_json(chosen))
        return
    from attn_doctor.render.rules.list import rule_list

    sys.stdout.write(rule_list(chosen, terminal(), whole=not sys.stdout.isatty()))


@app.command("show")
def show(
    *,
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Id of a rule, its last part, or the label of a cause.",
            autocompletion=completion.rules,
        ),
    ],
    rules: Folders = None,
    result: PageOptions,
) -> None:
    """Show one rule: what is wrong, how it appears in a log, how to fix it, and the evidence.

    Exit codes: 0 shown, 2 no such rule.
    """
    from attn_doctor.rulebook import library
    from attn_doctor.rulebook.rule_lookup import find_rules

    folders = rule_folders(rules)
    every = library.load(folders)
    causes = library.tables()["causes"]["cause"]
    found = find_rules(name, every, causes)
    explains: dict[str, list[str]] = {rule.id: [] for rule in every}
    for rule in every:
        for needed in rule.requires:
            explains.setdefault(needed, []).append(rule.id)
    if found.cause:
        meaning = causes.get(found.cause, "")
        if result.chosen is PageFormat.json:
            from attn_doctor.render.rules.json import cause_json

            text = cause_json(found.cause, meaning, found.rules, explains)
        elif result.chosen is PageFormat.markdown:
            from attn_doctor.render.rules.markdown import cause_markdown

            text = cause_markdown(found.cause, meaning, found.rules)
        else:
            from attn_doctor.render.rules.text import cause_text

            text = cause_text(found.cause, meaning, found.rules, terminal())
        sys.stdout.write(text)
        return
    (rule,) = found.rules
    meaning = causes.get(rule.cause, "")
    # Empty if the file is not installed, as in a wheel with an index.
    paths = (folder / f"{rule.id}.toml" for folder in (library.folder(), *folders))
    file = next((str(path) for path in paths if path.is_file()), "")
    if result.chosen is PageFormat.json:
        from attn_doctor.render.rules.json import rule_json

        text = rule_json(rule, meaning=meaning, explains=explains[rule.id], file=file)
    elif result.chosen is PageFormat.markdown:
        from attn_doctor.render.rules.markdown import rule_markdown

        text = rule_markdown(rule, meaning=meaning, explains=explains[rule.id])
    else:
        from attn_doctor.render.rules.text import rule_text
        from attn_doctor.rulebook.fact_catalogue import catalogue

        text = rule_text(
            rule,
            terminal(),
            meaning=meaning,
            explains=explains[rule.id],
            facts={fact.name: fact.doc for fact in catalogue().values()},
            file=file,
        )
    sys.stdout.write(text)


@app.command("search")
def search(
    *,
    words: Annotated[
        list[str],
        typer.Argument(metavar="WORDS…", help="Words of a problem or a message, in any order."),
    ],
    rules: Folders = None,
    result: ResultOptions,
) -> None:
    """Search rules by words in their titles, reasons, messages and fixes.

    Common words of Chinese, Japanese, Spanish, Portuguese and Hindi are understood.

    Exit codes: 0 found, 1 no rule has any of the words.
    """
    from attn_doctor.rulebook import library
    from attn_doctor.rulebook.rule_lookup import search_rules

    found = search_rules(
        words, library.load(rule_folders(rules)), library.tables()["words"]["word"]
    )[:_FOUND]
    if result.as_json:
        from attn_doctor.render.rules.json import list_json

        sys.stdout.write(list_json(found))
    else:
        from attn_doctor.render.rules.list import found_rules

        sys.stdout.write(found_rules(found, terminal(), whole=not sys.stdout.isatty()))
    raise typer.Exit(0 if found else 1)


# Added here, so that the help lists the commands for readers first.
app.command("status")(updating.status)
app.command("update")(updating.update)
app.command("rollback")(updating.rollback)
app.command("new")(authoring.new)
app.command("test")(authoring.run)
app.command("lint")(authoring.lint)
