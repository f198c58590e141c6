"""Help pages of commands: in the language of the user, and without rich.

typer would draw them with rich and its Markdown, which takes longer to import than all else that a
help page needs, and which cuts lines of Chinese off at the end of a column.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from msgspec.structs import replace
from typer.core import TyperGroup

from attn_doctor.language import AS_IT_IS
from attn_doctor.render.terminal import Terminal, width_of

_USAGE = "Usage:"
_ARGUMENTS, _OPTIONS, _COMMANDS = "Arguments", "Options", "Commands"
#: Columns of names that stand beside their texts; longer names have a line of their own.
_WIDEST = 30
_CODE = re.compile("`([^`\n]+)`")
_BOLD = re.compile(r"\*\*(.+)\*\*")


class HelpPage:
    """What commands and groups of typer inherit to be described by `page`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page of this command."""
        formatter.write(page(self, ctx, Terminal.of(sys.stdout)))


class Group(HelpPage, TyperGroup):
    """A group of commands."""


def page(command: Any, context: Any, terminal: Terminal) -> str:
    """The help page of a command of typer."""
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    lines = [f"{terminal.style(terminal.say(_USAGE), 'bold')} {usage}"]
    lines += _prose(command.help, terminal)
    for title, rows in _tables(command, context):
        lines += ["", terminal.style(terminal.say(title), "bold"), *_table(list(rows), terminal)]
    lines += _prose(command.epilog, terminal)
    # Every part is translated already; a second time, names such as `none` would be, too.
    return terminal.glyphs("\n".join(lines).replace(AS_IT_IS, "")) + "\n"


def texts(command: Any, context: Any) -> Iterator[str]:
    """The texts of a help page that have translations."""
    yield _USAGE
    yield from (words for text in (command.help, command.epilog) for _, words in paragraphs(text))
    for title, rows in _tables(command, context):
        yield title
        yield from (text for row in rows for text in row[1:] if text)


def paragraphs(text: str | None) -> Iterator[tuple[bool, str]]:
    """Each paragraph of a help text, and each item of its lists, for which the first is true."""
    for part in re.split(r"\n\s*\n", (text or "").strip()):
        for item in re.split(r"\n(?=\s*- )", part):
            words = " ".join(item.split())
            if words:
                yield words.startswith("- "), words.removeprefix("- ")


def _prose(text: str | None, terminal: Terminal) -> Iterator[str]:
    """Paragraphs with an empty line before each; items of a list have none between them."""
    in_list = False
    for is_item, words in paragraphs(text):
        if not (in_list and is_item):
            yield ""
        in_list = is_item
        heading = _BOLD.fullmatch(words)
        lines = terminal.wrap(words, 2 if is_item else 0)
        if is_item:
            lines[0] = f"- {lines[0][2:]}"
        if heading:
            lines = [terminal.style(_BOLD.sub(r"\1", line), "bold") for line in lines]
        yield from _code(lines, terminal)


def _tables(command: Any, context: Any) -> Iterator[tuple[str, Iterable[tuple[str, str, str]]]]:
    """The titles of all tables of a page and their rows: names, text, and what is added to it."""
    arguments: list[Any] = []
    options: list[Any] = []
    for one in command.get_params(context):
        if not one.hidden:
            (arguments if one.param_type_name == "argument" else options).append(one)
    if arguments:
        yield _ARGUMENTS, (_row(one, context) for one in arguments)
    for title, members in groupby(sorted(options, key=_panel), _panel):
        yield title or _OPTIONS, [_row(one, context) for one in members]
    if commands := getattr(command, "commands", {}):
        yield _COMMANDS, ((name, _first(one), "") for name, one in commands.items())


def _panel(option: Any) -> str:
    return getattr(option, "rich_help_panel", None) or ""


def _row(parameter: Any, context: Any) -> tuple[str, str, str]:
    """Names, help text, and what typer adds to it, such as `[default: text]`."""
    names, text = parameter.get_help_record(context)
    own = parameter.help or ""
    return names, " ".join(own.split()), text.removeprefix(own).strip()


def _first(command: Any) -> str:
    return next((words for _, words in paragraphs(command.help)), "")


def _table(rows: list[tuple[str, str, str]], terminal: Terminal) -> Iterator[str]:
    indent = 4 + max((len(row[0]) for row in rows if len(row[0]) <= _WIDEST), default=_WIDEST)
    # The parts are translated one by one, and what is typed stays as it is.
    done = replace(terminal, language="")
    for names, *parts in rows:
        head = f"  {terminal.code(names, 'bold')}"
        said = " ".join(_said(part, terminal) for part in parts if part)
        first, *rest = _code(done.wrap(said, indent), terminal) or [""]
        if width_of(names) + 4 > indent:
            yield from (head, *([first] if said else []))
        else:
            yield f"{head}{' ' * (indent - 2 - width_of(names))}{first[indent:]}".rstrip()
        yield from rest


def _said(part: str, terminal: Terminal) -> str:
    """A part of a row in the language of the terminal; the value of a default is not translated."""
    default = re.fullmatch(r"\[default: (.+)\]", part)
    if default is None:
        return terminal.say(part)
    # A number is the same in every language.
    return terminal.say("[default: 0]").replace("0", default[1])


def _code(lines: Iterable[str], terminal: Terminal) -> list[str]:
    """Lines without backticks; what stood between them has a colour where there are colours."""
    return [_CODE.sub(lambda code: terminal.code(code[1], "blue"), line) for line in lines]
