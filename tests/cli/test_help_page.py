"""Help pages: every command in every language, in columns that fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from attn_doctor.cli.application import app_for
from attn_doctor.cli.help_page import page, paragraphs, texts
from attn_doctor.language import LANGUAGES
from attn_doctor.render.terminal import Terminal, width_of
from attn_doctor.translation import say
from tests.command import run


def pages(command: Any, words: str = "attn-doctor") -> Iterator[tuple[Any, typer.Context]]:
    context = typer.Context(command, info_name=words, help_option_names=["-h", "--help"])
    yield command, context
    for name, one in getattr(command, "commands", {}).items():
        yield from pages(one, f"{words} {name}")


@pytest.fixture(scope="module")
def every() -> list[tuple[Any, typer.Context]]:
    return [*pages(typer.main.get_command(app_for([])))]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_lines_of_all_pages_fit(language: str, every: list[tuple[Any, typer.Context]]) -> None:
    assert len(every) > 35
    for command, context in every:
        shown = page(command, context, Terminal(width=80, language=language.replace("en", "")))
        for line in shown.splitlines():
            # A command in an example is never broken.
            assert width_of(line) <= 80 or "attn-doctor" in line, line


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_most_texts_have_a_translation(
    language: str, every: list[tuple[Any, typer.Context]]
) -> None:
    prose = {text for one in every for text in texts(*one) if text.count(" ") > 3}
    kept = [text for text in prose if say(text, language) == text]
    assert len(kept) < len(prose) / 20, kept


def test_names_stand_in_one_column_and_stay_as_they_are(
    every: list[tuple[Any, typer.Context]],
) -> None:
    command, context = every[0]
    lines = page(command, context, Terminal(language="zh-CN")).splitlines()
    begin = lines.index("命令") + 1
    assert [line[:17].strip() for line in lines[begin : begin + 2]] == ["check", "backends"]
    assert {line[16:17] for line in lines[begin : begin + 12]} == {" "}
    assert all(line[17:18].strip() for line in lines[begin : begin + 12])


def test_paragraphs_and_items_of_lists() -> None:
    text = "One\n line.\n\n- a\n  b\n- c\n"
    assert [*paragraphs(text)] == [(False, "One line."), (True, "a b"), (True, "c")]


def test_the_option_chooses_the_language_of_a_page() -> None:
    shown = run("cache", "env", "--help", "--lang", "pt-BR").stdout
    assert shown.startswith("Uso: attn-doctor cache env [OPTIONS]\n\nImprime onde")
    assert 'eval "$(attn-doctor cache env)"' in shown


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_values_that_are_typed_stay_as_they_are(
    language: str, every: list[tuple[Any, typer.Context]]
) -> None:
    terminal = Terminal(width=80, language=language)
    shown = {context.command_path: page(command, context, terminal) for command, context in every}
    mask = next(line for line in shown["attn-doctor backends"].splitlines() if "--mask" in line)
    assert mask.split()[2].startswith("none")
    phase = next(line for line in shown["attn-doctor install"].splitlines() if "--for" in line)
    assert "inference]" in phase
