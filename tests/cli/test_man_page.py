"""The manual page: made from the commands, and correct roff."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from attn_doctor.cli.application import app_for
from tools import man_page


@pytest.fixture(scope="module")
def page() -> str:
    return man_page.page()


def commands(words: str, group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in getattr(group, "commands", {}).items():
        yield f"{words} {name}", command
        yield from commands(f"{words} {name}", command)


def test_each_command_has_all_its_options(page: str) -> None:
    plain = re.sub(r"\\f[BIR]|\\&", "", page).replace("\\-", "-")
    sections = {part.partition("\n")[0]: part for part in plain.split("\n.SS ")[1:]}
    found = dict(commands("attn-doctor", typer.main.get_command(app_for([]))))
    assert len(found) == len(sections) > 30
    for words, command in found.items():
        section = next(
            text for title, text in sections.items() if re.match(rf"{words}( [^a-z]|$)", title)
        )
        for option in command.params:
            if option.param_type_name == "option" and not option.hidden:
                assert re.search(rf"^(\S+, )*{option.opts[0]}\b", section, re.MULTILINE), (
                    words,
                    option,
                )


@pytest.mark.skipif(not shutil.which("mandoc"), reason="needs mandoc")
def test_mandoc_finds_nothing_wrong(page: str) -> None:
    lint = ["mandoc", "-Tlint", "-Wwarning"]
    done = subprocess.run(lint, input=page, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(not shutil.which("mandoc"), reason="needs mandoc")
def test_a_reader_sees_what_the_help_says(page: str) -> None:
    show = ["mandoc", "-Tutf8", "-Owidth=120"]
    shown = subprocess.run(show, input=page, capture_output=True, text=True, timeout=60, check=True)
    text = re.sub(".\b", "", shown.stdout)
    assert '• bash, zsh, sh: eval "$(attn-doctor cache env)"' in text
    assert "--dtype DTYPE\n" in text
    assert "Default: bf16." in text
    assert not re.search(r"\\[f&(]", text)
