"""The language of screens: a catalogue for each, keyed by the English text.

A text whose values differ, such as `2 errors`, is a key with names in braces: `{count} errors`. So
is a text of a rule: `torch {torch.version} is a CPU build`. What a catalogue lacks stays English.
Only pages for a terminal are translated: JSON and other formats for programs, commands, paths,
facts and error messages stay as they are. In English no catalogue is loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import DATA, read_bytes
from attn_doctor.json_files import decode

#: The languages with a catalogue, by the name of a locale in lower case.
_LOCALES = {"zh_cn": "zh-CN", "zh_sg": "zh-CN", "pt_br": "pt-BR", "hi_in": "hi"}
LANGUAGES = ("en", "zh-CN", "pt-BR", "hi")
VARIABLE = "ATTN_DOCTOR_LANG"
FOLDER = Path(__file__).with_name("translations")
#: A value of a text: `{count}`, or a fact such as `{torch.version}`.
SLOT = re.compile(r"\{([a-z_][\w.]*)\}")
#: Names of values that are one number, or the name of one fact.
_SHAPES = {
    "count": r"(\d+)",
    "rules": r"(\d+)",
    "seconds": r"([\d.]+)",
    "version": r"([\w.+-]+)",
    "rule": r"([\w./;, -]+)",
    "fact": r"([a-z_]\w*(?:\.\w+)+)",
}
#: Translations of values inside values.
_DEEPEST = 3


def chosen(environ: Mapping[str, str] = os.environ) -> str:
    """The language by `ATTN_DOCTOR_LANG`, else by the locale; empty for English.

    Raises `AttnDoctorError` for a variable that names none of `LANGUAGES`.
    """
    if asked := environ.get(VARIABLE, ""):
        found = {one.lower(): one for one in LANGUAGES}.get(asked.replace("_", "-").lower())
        if found is None:
            raise AttnDoctorError(
                f"{VARIABLE} or --lang is {asked!r}; choose from {', '.join(LANGUAGES)}"
            )
        return "" if found == "en" else found
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    locale = next((environ[name] for name in names if environ.get(name)), "")
    return _LOCALES.get(locale.partition(".")[0].partition("@")[0].lower(), "")


def take_option(words: Sequence[str]) -> list[str]:
    """The words of a command line without `--lang LANGUAGE`, which sets the variable.

    Words behind `--` belong to another program.
    """
    end = words.index("--") if "--" in words else len(words)
    kept: list[str] = []
    own = iter(words[:end])
    for word in own:
        name, equals, value = word.partition("=")
        if name == "--lang":
            os.environ[VARIABLE] = value if equals else next(own, "")
            if not os.environ[VARIABLE]:
                raise AttnDoctorError(f"--lang needs a language: {', '.join(LANGUAGES)}")
        else:
            kept.append(word)
    return [*kept, *words[end:]]


def say(text: str, language: str) -> str:
    """`text` in a language of `LANGUAGES`; unchanged where its catalogue has no translation."""
    return _said(text, catalogue(language), _DEEPEST)


class Catalogue(Struct, frozen=True):
    """The translations of one language."""

    texts: dict[str, str]
    """English text → translation, with values named in braces."""
    templates: tuple[tuple[str, str], ...]
    """The longest literal part of each text with values, and the text; the longest first."""


@cache
def catalogue(language: str) -> Catalogue:
    """The catalogue of one language; that of English is empty."""
    texts: dict[str, str] = {}
    if language and language != "en":
        content = read_bytes(FOLDER / f"{language}.json", DATA)
        texts = decode(content, dict[str, str])
    found = [(max(_literals(text), key=len), text) for text in texts if SLOT.search(text)]
    found.sort(key=lambda one: -len("".join(_literals(one[1]))))
    return Catalogue(texts, tuple(found))


def _literals(text: str) -> list[str]:
    return SLOT.split(text)[::2]


def _said(text: str, known: Catalogue, deep: int) -> str:
    words = " ".join(text.split())
    if not words or deep == 0:
        return text
    found = known.texts.get(words) or _from_template(words, known, deep) or _list(words, known)
    if found is None:
        return text
    before = text[: len(text) - len(text.lstrip())]
    return before + found + text[len(text.rstrip()) :]


def _from_template(words: str, known: Catalogue, deep: int) -> str | None:
    """The translation of a text with values, whose values are translated too."""
    for literal, template in known.templates:
        match = _pattern(template).fullmatch(words) if literal in words else None
        if match:
            found = zip(SLOT.findall(template), match.groups(), strict=True)
            values = {name: _said(value, known, deep - 1) for name, value in found}
            return _filled(known.texts[template], values)
    return None


def _filled(text: str, values: Mapping[str, str]) -> str:
    return SLOT.sub(lambda slot: values.get(slot[1], slot[0]), text)


def _list(words: str, known: Catalogue) -> str | None:
    """`1 error, 2 notes`, of which each part has a translation."""
    parts = words.split(", ")
    if len(parts) == 1:
        return None
    said = [known.texts.get(one) or _from_template(one, known, 1) for one in parts]
    return ", ".join(one for one in said if one) if all(said) else None


@cache
def _pattern(template: str) -> re.Pattern[str]:
    shapes = [_SHAPES.get(name, "(.+?)") for name in SLOT.findall(template)]
    first, *literals = map(re.escape, _literals(template))
    rest = zip(shapes, literals, strict=True)
    return re.compile(first + "".join(shape + part for shape, part in rest))
