"""Output where a terminal or a pipe takes less than Unicode."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from attn_doctor.cli.streams import make_lossless
from tests.command import process, run

SNAPSHOT = str(Path(__file__).parents[1] / "machines" / "h200-torch-2.11-cu130" / "facts.json")


@pytest.mark.parametrize(
    "words",
    [("check", "--help"), ("rules", "show", "flex/unfused"), ("check", "--format", "markdown")],
    ids=" ".join,
)
def test_nothing_fails_for_want_of_a_character(words: tuple[str, ...]) -> None:
    done = process(*words, PYTHONIOENCODING="ascii")
    assert "UnicodeEncodeError" not in done.stderr
    assert done.returncode in (0, 1)
    assert done.stdout


def test_json_stays_json() -> None:
    done = process("rules", "list", "--format", "json", PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)


@pytest.mark.posix
def test_what_stands_for_a_character() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    make_lossless(stream)
    stream.write("2.4 ≥ 2.5 → …\udcff☠")
    stream.flush()
    assert raw.getvalue() == rb"2.4 >= 2.5 -> ...\xff?"


@pytest.mark.parametrize("page", ["cp437", "cp850", "cp932", "cp936", "cp1251", "cp1252"])
def test_every_code_page_takes_a_whole_page(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of consoles of old Windows, western and not; what they have is shown as it is."""
    monkeypatch.setenv("PYTHONIOENCODING", page)  # else Windows writes UTF-8 to all but consoles
    text = run("check", "-v", "--policy", "none", "--facts", SNAPSHOT).stdout
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=page, newline="")
    make_lossless(stream)
    stream.write(text)
    stream.flush()
    shown = raw.getvalue().decode(page)
    assert "?" not in shown.replace("? ", "").replace("/??", "")
    assert len(shown.splitlines()) == len(text.splitlines())
    assert [line for line in text.splitlines() if line.isascii()] == [
        line for line in shown.splitlines() if line in set(text.splitlines()) and line.isascii()
    ]


def test_files_and_pipes_of_windows_are_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    stream = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    make_lossless(stream)
    assert stream.encoding == "utf-8"
    monkeypatch.setenv("PYTHONIOENCODING", "cp1252")
    chosen = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    make_lossless(chosen)
    assert chosen.encoding == "cp1252"


def test_help_pages_keep_brackets_and_fill_their_lines() -> None:
    page = run("check", "--help", COLUMNS="200").stdout
    assert "[tool.attn-doctor]" in page
    narrow = run("check", "--help", COLUMNS="80").stdout
    assert "\nExit codes: 0 healthy, 1 problems found, 2 wrong usage or unread" in narrow
    assert "\nattn-doctor failed, 4 (with --strict) a rule could not be evaluated, or a" in narrow
