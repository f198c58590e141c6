"""PowerShell's grammar reads what attn-doctor prints for it, and the README's commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attn_doctor.facts import Facts, Python, System
from attn_doctor.findings import Fix, Safety
from attn_doctor.rulebook import library
from attn_doctor.shell.commands import shell_lines
from attn_doctor.shell.exports import (
    Exports,
    enter_lines,
    eval_lines,
    leave_lines,
    set_variable,
    start_lines,
)
from attn_doctor.shell.quote import join, quote_always
from tests.shell.powershell_grammar import UNKNOWN, words
from tests.shell.test_quote import TEXT

_README = Path(__file__).parent.parent.parent / "README.md"
HARD = (
    "C:\\Users\\O’Brien\\my env", "it's ‘so’", '"x"', "$HOME;rm", "`n", "a b", "{x}", "@(1)", "#no",
    "torch>=2.5,<3", "a|b&c", "~", "C:\\trailing\\", "ä ö", "%PATH%", "!", "-a.b", "-a:b", "",
)  # fmt: skip
WINDOWS = Facts(
    system=System(os="windows"),
    python=Python(path=r"C:\Über uns\O'Brien\python.exe", pip="24.0", selection_reason="--python"),
)


#: The grammar takes what follows for a comment, also between quotes. PowerShell does not.
_NO_COMMENT = re.compile(r"[^\S ]#")


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(TEXT.filter(lambda one: not _NO_COMMENT.search(one)), min_size=1, max_size=6))
@example(texts=[*HARD])
def test_the_grammar_reads_back_the_same_words(texts: list[str]) -> None:
    known = [text for text in texts if not re.fullmatch(rf"{UNKNOWN}|[-+:]", text)]
    assert words(join(["program", *known], "powershell")) == ["program", *known]
    assert words(join([r"C:\My Env\python.exe", *known], "powershell"))[1:] == known
    always = " ".join(quote_always(text, "powershell") for text in texts)
    assert words(f"program {always}")[1:] == texts


@pytest.mark.parametrize("value", [value for value in HARD if value])
def test_lines_that_set_variables(value: str) -> None:
    assert words(set_variable("CC", value, "powershell"))[-1] == value
    exports = Exports(variables={"CC": value, "CXX": ""}, path=value)
    for lines in (
        eval_lines(exports, "powershell"),
        start_lines(exports, "powershell"),
        enter_lines(exports, "powershell"),
        leave_lines(exports, "powershell", path=True),
    ):
        assert value in words("\n".join(lines)) or lines[0].startswith("if ($global:")


def test_a_variable_is_unset() -> None:
    assert words(set_variable("CC", "", "powershell")) == ["Remove-Item", "Env:CC"]


def test_commands_of_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fact of a command stands for a release here."""
    # On Windows the tests may have been started from cmd.
    monkeypatch.setattr("attn_doctor.shell.commands.shell_of", lambda _: "powershell")
    lines = []
    for rule in library.load():
        for fix in rule.fixes:
            run = tuple(
                tuple(re.sub(r"\{[\w.]+\}", "2.5", word) for word in argv) for argv in fix.run
            )
            filled = Fix(title=fix.title, safety=Safety.ASK, run=run, exports=fix.set)
            lines += shell_lines(filled, WINDOWS)
    assert len(lines) > 300
    assert [line for line in lines if not words(line)] == []


def test_commands_of_the_readme() -> None:
    text = _README.read_text(encoding="utf-8")
    found = {one for one in re.findall(r"`([^`\n]+)`", text) if one.startswith("attn-doctor ")}
    assert len(found) >= 10, found
    for line in found:
        assert words(line) == line.split()
