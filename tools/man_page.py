"""The manual page `attn-doctor(1)`, from the commands themselves; the build puts it into the wheel.

Run from the repository: `python -m tools.man_page | man -l -`.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

from attn_doctor._version import __version__
from attn_doctor.cli.application import EPILOG, app_for
from attn_doctor.cli.help_page import paragraphs
from attn_doctor.errors import RuleError
from attn_doctor.toml_files import read_toml

RULES = Path(__file__).parents[1] / "rules"


def page() -> str:
    """The page, in the macros of man(7). Raises `RuleError`.

    Its date is that of the rules, so that two builds of one source are equal.
    """
    root: Any = typer.main.get_command(app_for([]))
    lines = [
        f'.TH ATTN-DOCTOR 1 "{_date()}" "attn-doctor {__version__}" "User Commands"',
        ".SH NAME",
        "attn-doctor \\- tell which attention kernels work on this machine, and fix the others",
        ".SH SYNOPSIS",
        ".B attn-doctor",
        "[\\fICOMMAND\\fR] [\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]",
        ".SH DESCRIPTION",
        *_paragraphs(f"{root.help}\n\n{EPILOG}"),
        ".SH COMMANDS",
    ]
    for words, command in _commands("attn-doctor", root):
        lines += _described(words, command)
    return "\n".join(lines) + "\n"


def _date() -> dt.date:
    version = str(read_toml(RULES / "tables" / "release.toml", RuleError)["version"])
    year, month, day = map(int, version.split(".")[:3])
    return dt.date(year, month, day)


def _commands(words: str, group: Any) -> Iterator[tuple[str, Any]]:
    """Each command below `group` with the words that call it, a group before its parts."""
    for name, command in group.commands.items():
        if not command.hidden:
            yield f"{words} {name}", command
            if hasattr(command, "commands"):
                yield from _commands(f"{words} {name}", command)


def _described(words: str, command: Any) -> Iterator[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one not in arguments and not one.hidden]
    named = (_text(metavar(one)) for one in arguments)
    yield f".SS {' '.join((_text(words), *named))}"
    yield from _paragraphs(command.help)
    for one in arguments:
        yield from (".TP", f"\\fI{_text(metavar(one))}\\fR", _text(_line(one.help)) or "\\&")
    for title, members in groupby(sorted(options, key=_panel), _panel):
        if title:
            yield from (".PP", f"{_text(title)}:")
        for one in members:
            names = ", ".join(f"\\fB{_text(name)}\\fR" for name in (*one.opts, *one.secondary_opts))
            value = "" if one.is_flag or one.count else f" \\fI{_text(metavar(one))}\\fR"
            yield from (".TP", names + value, _text(_line(one.help) + default(one)) or "\\&")
    if command.epilog:
        yield from (".PP", *_paragraphs(command.epilog))


def metavar(parameter: Any) -> str:
    """The word that stands for the value of an argument or option."""
    return parameter.metavar or (parameter.name or "").upper()


def default(option: Any) -> str:
    """The default as a sentence after a space; empty where the help says it or none is set."""
    if option.is_flag or option.count or "efault" in (option.help or ""):
        return ""
    given = getattr(option.default, "value", option.default)
    return f" Default: `{given}`." if isinstance(given, (int, float, str)) and given else ""


def _panel(option: Any) -> str:
    return getattr(option, "rich_help_panel", None) or ""


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _paragraphs(text: str | None) -> Iterator[str]:
    """Paragraphs and lists of a help text. The first follows a heading, which begins one."""
    for number, (is_item, words) in enumerate(paragraphs(text)):
        if is_item:
            yield from (".IP \\(bu 2", _text(words))
        else:
            yield from ((".PP",) if number else ())
            yield _text(words)


def _text(text: str) -> str:
    """Text as roff has it: dashes that can be copied, bold where backticks stand."""
    marked = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    marked = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", marked).replace("`", "\\(ga")
    marked = "".join(one if one < "\x7f" else f"\\[u{ord(one):04X}]" for one in marked)
    return f"\\&{marked}" if marked.startswith(".") else marked


if __name__ == "__main__":
    sys.stdout.write(page())
