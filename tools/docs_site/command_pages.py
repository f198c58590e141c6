"""The command reference, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import typer

from attn_doctor.cli.application import app_for
from tools.man_page import default, metavar


def pages() -> dict[str, str]:
    """A page for each command and the list of all, by path."""
    commands = _root().commands
    listed = [f"| [{name}]({name}.md) | {_first(one)} |" for name, one in commands.items()]
    index = ["# Commands", "", "| command | what it does |", "| --- | --- |", *listed, ""]
    made = {f"commands/{name}.md": _page(name, one) for name, one in commands.items()}
    return {"commands/index.md": "\n".join(index), **made}


def _root() -> Any:
    return typer.main.get_command(app_for([]))


def _page(name: str, command: Any) -> str:
    lines = [f"# attn-doctor {name}", ""]
    parts = getattr(command, "commands", None)
    if parts is None or command.invoke_without_command:
        lines += _described(f"attn-doctor {name}", command)
    elif command.help:
        lines += [command.help, ""]
    for part, one in (parts or {}).items():
        lines += [f"## {name} {part}", "", *_described(f"attn-doctor {name} {part}", one)]
    return "\n".join(lines)


def _described(words: str, command: Any) -> Iterator[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one not in arguments and not one.hidden]
    usage = [words, *(metavar(one) for one in arguments), *(["[OPTIONS]"] if options else [])]
    yield from ("```text", " ".join(usage), "```", "")
    yield from (command.help or "", "")
    if arguments:
        yield from ("| argument | meaning |", "| --- | --- |")
        yield from (f"| `{metavar(one)}` | {_cell(one.help or '')} |" for one in arguments)
        yield ""

    def panel(option: Any) -> str:
        return getattr(option, "rich_help_panel", None) or ""

    for title, group in groupby(sorted(options, key=panel), panel):
        yield from (f"**{title or 'Options'}**", "", "| option | meaning |", "| --- | --- |")
        yield from (_option(one) for one in group)
        yield ""
    if command.epilog:
        yield from (command.epilog, "")


def _option(option: Any) -> str:
    names = ", ".join((*option.opts, *option.secondary_opts))
    value = "" if option.is_flag or option.count else f" {metavar(option)}"
    return f"| `{names}{value}` | {_cell(option.help or '')}{default(option)} |"


def _first(command: Any) -> str:
    return _cell((command.help or "").partition("\n\n")[0])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
