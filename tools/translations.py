"""Says how much of the rules, help pages and screens each language has, and which texts are stale.

    python tools/translations.py
    python tools/translations.py --missing pt-BR

The second lists the texts of help pages and screens that the language lacks, with their places. It
reads the source: of a text that is put together from pieces it may name a piece.

A translation is stale if its English text is not one of a rule, table or help page, and some words
of it are not in the program: the English was changed, and the screen shows English until it is
translated again.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import typer

from attn_doctor.cli.application import app_for
from attn_doctor.cli.help_page import texts as texts_of_page
from attn_doctor.language import LANGUAGES
from attn_doctor.rulebook.fact_catalogue import catalogue as facts
from attn_doctor.rulebook.library import folder
from attn_doctor.rulebook.programs import programs
from attn_doctor.rulebook.rule import Rule
from attn_doctor.rulebook.rule_files import read_folder
from attn_doctor.rulebook.texts import in_general
from attn_doctor.toml_files import read_toml
from attn_doctor.translation import SLOT, catalogue, say

PACKAGE = Path(__file__).parents[1] / "attn_doctor"
#: Where screens and the reasons on them are written, and modules that write for programs.
SCREENS = (
    *("render", "cli", "configs", "fixes", "kernels", "backends", "install", "explain", "policy"),
)
_FORMATS = (
    "docker",
    "gpu_descriptors",
    "application",
    "request",
    "json",
    "html",
    "svg",
    "sarif",
    "junit",
    "gitlab",
    "github",
    "markdown",
    "agent",
    "issue",
)
#: What stands for a value whose form its name says.
_SAMPLES = {"counted": "7 files", "size": "7 MB", "span": "7 s"}


@cache
def rule_texts() -> frozenset[str]:
    """The texts of all rules and causes that a screen shows, each in one line."""
    causes = read_toml(folder() / "tables/causes.toml")["cause"].values()
    options = (one.says(family) for one in programs() for family in one.instead_of)
    texts = [*causes, *options]
    texts += (text for rule in read_folder(folder()) for text in _texts_of(rule))
    return frozenset(" ".join(text.split()) for text in texts if text)


@cache
def general_texts() -> frozenset[str]:
    """Those of texts with facts as `explain` shows them for no machine in particular."""
    texts = {" ".join(in_general(text).split()) for text in rule_texts()}
    return frozenset(filter(None, texts - rule_texts()))


def _texts_of(rule: Rule) -> Iterator[str]:
    yield from (rule.title, rule.why)
    for fix in rule.fixes:
        yield from (fix.title, fix.needs, fix.manual)
    if rule.advisory is not None:
        yield from (rule.advisory.effect, rule.advisory.where, *rule.advisory.seen)
        yield from (note for _, _, note in (one.partition(": ") for one in rule.advisory.reported))


@cache
def table_texts() -> frozenset[str]:
    """The texts of facts, and of backends, guesses and presets in tables, also with a capital."""
    tables = folder() / "tables"
    files = [*tables.glob("backends/*.toml"), tables / "components.toml", tables / "presets.toml"]
    texts = {text for file in files for text in _strings(read_toml(file))}
    texts |= {" ".join(fact.doc.replace("`", "").split()) for fact in facts().values()}
    return frozenset(texts | {text[:1].upper() + text[1:] for text in texts})


@cache
def program_words() -> frozenset[str]:
    """The words of all texts in the program, and of typer's errors, without a plural's s."""
    files = [*PACKAGE.rglob("*.py"), *Path(typer.__file__).parent.rglob("*.py")]
    return frozenset(word for file in files for text in _literals(file) for word in _words(text))


@cache
def help_texts() -> tuple[str, ...]:
    """The texts of the help pages of all commands."""
    return tuple(dict.fromkeys(_help_of(typer.main.get_command(app_for([])))))


def _help_of(command: Any) -> Iterator[str]:
    context = typer.Context(command, help_option_names=["-h", "--help"])
    yield from (text for text in texts_of_page(command, context) if _is_prose(text))
    for one in getattr(command, "commands", {}).values():
        yield from _help_of(one)


@cache
def screen_texts() -> tuple[tuple[str, str], ...]:
    """The texts of screens with their places; a value is a name in braces."""
    found: dict[str, str] = {}
    for file in sorted(file for name in SCREENS for file in (PACKAGE / name).rglob("*.py")):
        if not any(name in file.stem for name in _FORMATS):
            for node in _texts(ast.parse(file.read_text("utf-8"))):
                text = " ".join(_template(node).split())
                place = f"{file.relative_to(PACKAGE.parent)}:{node.lineno}"
                if _is_prose(text) and text[0] not in ",;:)" and text[-1] not in ",:(":
                    found.setdefault(text, place)
    return tuple((place, text) for text, place in found.items() if text not in help_texts())


def missing(language: str) -> list[tuple[str, str]]:
    """Texts of help pages and screens that a language lacks, with their places."""
    every = [*(("--help", text) for text in help_texts()), *screen_texts()]
    return [(place, text) for place, text in every if not _has(text, language)]


def _has(text: str, language: str) -> bool:
    sample = SLOT.sub(lambda slot: _SAMPLES.get(slot[1].rstrip("0123456789"), "7"), text)
    return text in catalogue(language).texts or say(sample, language) != sample


def _is_prose(text: str) -> bool:
    """It has two words beside values, commands and names of options."""
    words = re.sub(r"\{[^}]*\}|`[^`]*`|\[[^\]]*\]|attn-doctor [^(]*", " ", text)
    return " " in text and len(re.findall(r"(?<![\w{-])[A-Za-z]{2,}(?![\w}-])", words)) > 1


def _texts(tree: ast.AST) -> Iterator[ast.JoinedStr | ast.Constant]:
    """Literals without docstrings, keys, and the arguments of calls that search or raise."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.Expr | ast.JoinedStr):
            parts += ast.walk(node) if isinstance(node, ast.JoinedStr) else [node.value]
        elif isinstance(node, ast.Dict):
            parts += node.keys
        elif isinstance(node, ast.Raise):
            parts += ast.walk(node)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("compile", "sub"):
            parts += node.args
        left_out |= {id(part) for part in parts if part is not node}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in left_out and (is_text or isinstance(node, ast.JoinedStr)):
            yield node  # type: ignore[misc]


def _template(node: ast.JoinedStr | ast.Constant) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    used: dict[str, int] = {}
    text = ""
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value)
        else:
            name = _name(getattr(part, "value", None))
            used[name] = used.get(name, 0) + 1
            text += f"{{{name}{used[name] if used[name] > 1 else ''}}}"
    return text


def _name(value: ast.AST | None) -> str:
    """The name of a value in a template: that of its form, if one is known."""
    if isinstance(value, ast.Call):
        called = getattr(value.func, "id", getattr(value.func, "attr", ""))
        if called in ("clean", "str") and value.args:
            return _name(value.args[0])
        return {"plural": "counted"}.get(called, called.strip("_").lower() or "value")
    if isinstance(value, ast.Name | ast.Attribute):
        return str(getattr(value, "id", getattr(value, "attr", ""))).strip("_").lower() or "value"
    return "value"


def stale(language: str) -> list[str]:
    """English texts of a catalogue that neither a rule nor the program has."""
    ours = rule_texts() | general_texts() | table_texts() | set(help_texts())
    return [
        text
        for text in catalogue(language).texts
        if text not in ours and not program_words().issuperset(_words(SLOT.sub(" ", text)))
    ]


def share(language: str) -> tuple[int, int]:
    """How many texts of rules a language has, and how many there are."""
    known = rule_texts() & catalogue(language).texts.keys()
    general = [text for text in general_texts() if _has(text, language)]
    return len(known) + len(general), len(rule_texts() | general_texts())


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


def _report() -> None:
    for language in LANGUAGES[1:]:
        texts, (done, every) = len(catalogue(language).texts), share(language)
        helped = sum(_has(text, language) for text in help_texts())
        print(
            f"{language}: {texts} texts, {done} of {every} texts of rules,"
            f" {helped} of {len(help_texts())} of help pages"
        )
        for text in stale(language):
            print(f"  stale: {text}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--missing"]:
        for place, text in missing(sys.argv[2]):
            print(f"{place}: {text}")
    else:
        _report()
