"""Text of other origin that would rewrite a terminal, hide, or command a CI service."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_doctor.clean import clean, clean_lines, is_clean, without_commands
from attn_doctor.errors import AttnDoctorError
from attn_doctor.render.edge import Edge, safe
from tests.attacks.hostile import OWN_WORDS, Hostile, commands, spread, texts
from tests.command import Ended, run

#: What an attacker writes: sequences for a terminal, invisible letters, a line of its own, commands
#: of CI services, markup, ends of quotes.
EVIL = (
    "\x1b[2J\x1b]0;title\x07owned\x9b31m",
    "\u202eowned\u2066\u200b\u00ad\ufeff\u2028x",
    "owned\nQ\n::error::owned",
    "owned\r\nQ\r\n::add-mask::a",
    "##[error]owned ##vso[task.setvariable variable=x]y ##teamcity[x]",
    "owned\x00\x07\x08\x7f\x85b\x0c\x0bc",
    "owned</system-out>]]>&lt;\ufffe\uffff<b>x</b>",
    "|`<b>owned</b>` [x](javascript:x) ```\n```\n# Q",
    "owned\n##[command]rm\n::stop-commands::x\nQ",
    "owned%0A::error::x%0D\u061c\U000e0041",
)
#: Numbers of letters that no terminal may see, beside a line break and a tab.
HIDDEN = ("Cc", "Cf", "Zl", "Zp")


def faults(command: str, ended: Ended, written: str) -> Iterator[str]:
    """What is wrong with the output of a command that read the attacker's texts."""
    for name, text in (("stdout", ended.stdout), ("stderr", ended.stderr), ("file", written)):
        yield from (f"{name}: {one}" for one in _of_page(text, commands="github" in command))
    form = command.rpartition(" ")[2]
    page = written or ended.stdout
    if form in ("json", "agent", "sarif", "gitlab") and page:
        yield from (one for text in _strings(json.loads(page)) for one in _of_text(text))
    if form == "junit":
        root = ElementTree.fromstring(page)
        for node in root.iter():
            yield from (one for text in node.attrib.values() for one in _of_text(text, "\n\t"))
            yield from _of_page(node.text or "")
    if form == "markdown":
        outside = re.sub(r"(?ms)^(`{3,}).*?^\1$|`[^`\n]*`", "", page)
        yield from re.findall(r"(?<!\\)</?b>|(?<!\\)\]\(javascript", outside)
    if form in ("html", "svg"):
        parser = _Page()
        parser.feed(page)
        yield from parser.found


class _Page(HTMLParser):
    """Elements and addresses of an attacker in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = [tag]
        for name, value in attrs:
            if name.startswith("on") or (value or "").lower().startswith("javascript"):
                self.found.append(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        if self._inside == ["b"] and "owned" in data[:5]:
            self.found.append(f"an element of theirs: {data[:40]!a}")


def _of_page(text: str, *, commands: bool = False) -> Iterator[str]:
    yield from _of_text(text)
    lines = text.splitlines()
    for before, line in pairwise(["", *lines]):
        # A terminal's width may part the words of one line there.
        wrapped = f"{before} {line.strip()}".endswith(" ``` # Q")
        if line.strip() in ("Q", "# Q") and not wrapped:
            yield f"a line of theirs: {line!a}"
    yield from re.findall(r"##\w*\[", text)
    if commands:
        known = r"::(error|warning|notice) |attn-doctor: |Examining "
        yield from (line for line in lines if not re.match(known, line))
    else:
        yield from (line for line in lines if line.lstrip().startswith("::"))


def _of_text(text: str, allowed: str = "\n\t") -> Iterator[str]:
    yield from (
        f"{letter!a} in {text[max(0, at - 40) : at + 20]!a}"
        for at, letter in enumerate(text)
        if unicodedata.category(letter) in HIDDEN and letter not in allowed
    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (one for pair in value.items() for each in pair for one in _strings(each))
    elif isinstance(value, list):
        yield from (one for each in value for one in _strings(each))


def result(hostile: Hostile, command: str) -> list[str]:
    """Run a command where the attacker was; return what is wrong."""
    written = hostile.folder / "written.txt"
    written.unlink(missing_ok=True)
    clear = {name: value for name, value in hostile.environ.items() if "\0" not in value}
    environ = {**os.environ, "HOME": str(hostile.folder / "home"), **clear}
    ended = run(*hostile.commands[command], cwd=hostile.folder, environ=environ)
    assert ended.returncode in (0, 1, 2), ended.stderr
    content = written.read_text() if written.exists() else ""
    shown = "owned" in ended.stdout + ended.stderr + content or "is not a log" in ended.stderr
    assert shown or command.startswith(OWN_WORDS), f"{command} shows none of their texts"
    return [*faults(command, ended, content)]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    return spread(tmp_path_factory.mktemp("hostile"), texts(*EVIL))


#: One command of each kind, for the default run.
QUICK = ("check text", "check json", "check github", "check junit", "check markdown",
         "explain text", "explain markdown", "explain policy", "bad policy", "bad snapshot",
         "cache why text", "cache import text", "fix plan text", "backends markdown",
         "requirements", "rules show markdown")  # fmt: skip
ALL = tuple(name for name, _ in commands())


@pytest.mark.posix
@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=() if one in QUICK else pytest.mark.attack) for one in ALL],
)
def test_no_output_obeys_the_attacker(hostile: Hostile, command: str) -> None:
    assert result(hostile, command) == []


@pytest.mark.attack
@pytest.mark.parametrize("first", range(len(EVIL)))
def test_every_output_with_every_text(tmp_path: Path, first: int) -> None:
    hostile = spread(tmp_path, texts(EVIL[first]))
    assert {one: found for one in hostile.commands if (found := result(hostile, one))} == {}


@given(st.text())
def test_cleaned_text_is_one_visible_line(text: str) -> None:
    shown = clean(text)
    assert is_clean(shown)
    assert [*_of_text(shown, "")] == []
    assert [*_of_text(clean_lines(text))] == []
    assert clean_lines(text).count("\n") == text.replace("\r\n", "\n").count("\n")


@pytest.mark.parametrize(
    "text", ["é 日本語 👩", "/home/ada/ä ö", "C:\\Users\\新しい　フォルダ", "a\u00a0b"]
)
def test_letters_of_all_languages_stay(text: str) -> None:
    assert clean(text) == text


def test_every_invisible_letter_is_shown() -> None:
    letters = [chr(number) for number in range(0x110000) if not 0xD800 <= number < 0xE000]
    hidden = [one for one in letters if unicodedata.category(one) in HIDDEN]
    assert [hex(ord(one)) for one in hidden if one in clean(f"a{one}b")] == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", ": :error::x"),
        ("  ::add-mask::x", "  : :add-mask::x"),
        ("a\n::x", "a\n: :x"),
        ("a ::error::x", "a ::error::x"),
        ("std::vector", "std::vector"),
        ("##[error]", "# #[error]"),
        ("a ##vso[x]", "a # #vso[x]"),
        ("## [a](b)", "## [a](b)"),
    ],
)
def test_commands_of_ci_services(text: str, shown: str) -> None:
    assert without_commands(text) == shown


def test_each_argument_of_an_error_is_one_line() -> None:
    error = AttnDoctorError("a\nb\x1b[2J", "  c\r\n::error::d")
    assert str(error) == "a b\n  c  ::error::d"


def test_the_edge_keeps_our_colours_only() -> None:
    text = "\x1b[1;31mred\x1b[0m \x1b[8mhidden\x1b[2J\x1b[5m"
    assert safe(text, styled=True) == "\x1b[1;31mred\x1b[0m hidden"
    assert safe(text) == "red hidden"


def test_everything_printed_passes_the_edge(tmp_path: Path) -> None:
    """Also what argparse, logging and a failure of our own print."""
    import io
    import sys

    stream = Edge(io.StringIO(), styled=False)
    before, sys.stdout = sys.stdout, stream
    try:
        print("\x1b[2J::error::x", "password=hunter2-7")
        sys.stdout.writelines(["\u202e"])
    finally:
        sys.stdout = before
    assert stream.getvalue() == ": :error::x password=***\n\ufffd"
