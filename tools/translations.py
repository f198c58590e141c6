"""Says how much of the rules and screens each language has, and which translations are stale.

    python tools/translations.py

A translation is stale if its English text is not one of a rule or table, and some words of it are
not in the program: the English was changed, and the screen shows English until it is translated
again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from attn_doctor.language import LANGUAGES, SLOT, catalogue
from attn_doctor.rulebook.library import folder
from attn_doctor.rulebook.rule_files import read_folder
from attn_doctor.rulebook.texts import in_general
from attn_doctor.toml_files import read_toml

PACKAGE = Path(__file__).parents[1] / "attn_doctor"


@cache
def rule_texts() -> frozenset[str]:
    """The texts of all rules that a screen shows, each in one line."""
    texts = (
        text
        for rule in read_folder(folder())
        for text in (
            rule.title,
            rule.why,
            *(text for fix in rule.fixes for text in (fix.title, fix.needs, fix.manual)),
        )
    )
    return frozenset(" ".join(text.split()) for text in texts if text)


@cache
def table_texts() -> frozenset[str]:
    """The texts of backends and of guesses in the tables; what to do begins with a capital."""
    files = [*(folder() / "tables/backends").glob("*.toml"), folder() / "tables/components.toml"]
    texts = {text for file in files for text in _strings(read_toml(file))}
    return frozenset(texts | {text[:1].upper() + text[1:] for text in texts})


@cache
def program_words() -> frozenset[str]:
    """The words of all texts in the program, without a plural's s."""
    found = (
        word for file in PACKAGE.rglob("*.py") for text in _literals(file) for word in _words(text)
    )
    return frozenset(found)


def stale(language: str) -> list[str]:
    """English texts of a catalogue that neither a rule nor the program has."""
    ours = rule_texts() | {" ".join(in_general(text).split()) for text in rule_texts()}
    ours |= table_texts()
    return [
        text
        for text in catalogue(language).texts
        if text not in ours and not program_words().issuperset(_words(SLOT.sub(" ", text)))
    ]


def share(language: str) -> tuple[int, int]:
    """How many texts of rules a language has, and how many there are."""
    return len(rule_texts() & catalogue(language).texts.keys()), len(rule_texts())


def _strings(table: object) -> Iterator[str]:
    if isinstance(table, str):
        yield table
    elif isinstance(table, Mapping | list):
        for part in table.values() if isinstance(table, Mapping) else table:
            yield from _strings(part)


def _literals(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _words(text: str) -> Iterator[str]:
    yield from (word.removesuffix("s") for word in re.findall(r"[A-Za-z][\w'-]*", text))


if __name__ == "__main__":
    for language in LANGUAGES[1:]:
        texts, (done, every) = len(catalogue(language).texts), share(language)
        print(f"{language}: {texts} texts, {done} of {every} texts of rules")
        for text in stale(language):
            print(f"  stale: {text}")
