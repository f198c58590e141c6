"""The check of retired words: what it refuses, and what it leaves alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def plain_words() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_words", ROOT / "tools" / "plain_words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refused(plain_words: ModuleType, path: Path, text: str) -> list[str]:
    path.write_text(text, "utf-8")
    pattern = plain_words.retired((ROOT / "docs" / "glossary.md").read_text("utf-8"))
    return [f"{number} {word}" for number, word in plain_words.hits(path, pattern)]


def test_retired_words_are_refused(plain_words: ModuleType, tmp_path: Path) -> None:
    text = (
        "What the log told us.\n"  # plain: quoted
        "That is no version.\n"  # plain: quoted
        "HELD AGAINST the facts\n"  # plain: quoted
        "_unproven = 1\n"  # plain: quoted
    )
    assert refused(plain_words, tmp_path / "a.py", text) == [
        "1 told",  # plain: quoted
        "2 is no version",  # plain: quoted
        "3 HELD AGAINST",  # plain: quoted
        "4 unproven",  # plain: quoted
    ]


@pytest.mark.parametrize(
    "text",
    [
        "There is no GPU, and there are no kernels.",
        "It is no longer stale.",
        "an untold_story",
        "a quoted told  # plain: quoted",
    ],
)
def test_other_words_pass(plain_words: ModuleType, tmp_path: Path, text: str) -> None:
    assert refused(plain_words, tmp_path / "a.md", text) == []


def test_quotations_in_rules_pass(plain_words: ModuleType, tmp_path: Path) -> None:
    text = 'pattern = "told you"\nexample = """\nsomebody\n"""\ntitle = "nobody"\n'  # plain: quoted
    assert refused(plain_words, tmp_path / "a.toml", text) == ["5 nobody"]  # plain: quoted
