"""Translates screens: a catalogue for each language, keyed by the English text.

A text whose values differ, such as `2 errors`, is a key with names in braces: `{count} errors`. So
is a text of a rule: `torch {torch.version} is a CPU build`. What a catalogue lacks stays English.
Screens say their texts in English. They are translated where all of them pass: a page of a terminal
(`Terminal.page`) and standard error (`render.edge`), line by line; what is wrapped is translated
before. So a new text needs no mark: `python tools/translations.py` lists it until it has a
translation. JSON and other formats for programs, commands, paths, facts and messages of other
programs stay as they are. In English no catalogue is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from attn_doctor.files import DATA, read_bytes
from attn_doctor.json_files import decode
from attn_doctor.language import AS_IT_IS, width_of

FOLDER = Path(__file__).with_name("translations")
#: A value of a text: `{count}`, or a fact such as `{torch.version}`.
SLOT = re.compile(r"\{([a-z_][\w.]*)\}")
#: Stands before a further condition, such as `torch.build is cuda`.
_FURTHER = r" and (?=[a-z_]\w*(?:\.\w+)+ )"
#: What any value may be: a part of a line, and one condition of several.
_ANY = "((?:(?! · ).)+?)"
_ONE = f"((?:(?! · |{_FURTHER}).)+?)"
#: A path does not begin with a word of a sentence.
_PATH = "((?![a-z]+ )(?:(?! · ).)+?)"
#: Names of values that have one form, such as a number or the name of a fact; a further one of the
#: same form has a digit behind its name.
_SHAPES = {
    "count": r"(\d[\d,]*)",
    "counted": r"(\d[\d,]* [^\W\d][^\W\d' -]*(?:[ '-][^\W\d]+)*)",
    "rules": r"(\d+)",
    "seconds": r"([\d.]+)",
    "size": r"([\d.]+ (?:bytes?|[kMGT]B|[kMGT]iB))",
    "span": r"([\d.]+ (?:s|min|h \d+ min))",
    "level": r"(\S+)",
    "word": r"(\S+)",
    "title": r"((?:(?!\. |`).){1,160}?)",
    "version": r"([\w.+-]+)",
    "path": _PATH,
    "folder": _PATH,
    "file": _PATH,
    "lines": r"(lines? \d+(?: to \d+)?)",
    "rule": r"([\w./;, -]+)",
    "fact": r"([a-z_]\w*(?:\.\w+)+)",
    # What a check in code compares: `q`, `q.shape[-1]`, `len(q)`, `64`, `'thd'`.
    "operand": r"(-?\d[\d.]*|'[^']*'|[A-Za-z_][\w.:]*(?:\[-?\w+\]|\(-?\w*\))?)",
    "literal": r"(-?\d[\d.]*f?|'[^']*')",
    # The same as the first, but no plain word of a sentence.
    "code": r"([A-Za-z]\w*[._\[(][\w.:\[\]()-]*)",
    "seen": _ONE,
    "value": _ONE,
    "wanted": _ONE,
}
#: Names of values that stay as they are.
_KEPT = (
    *(
        "code",
        "command",
        "file",
        "folder",
        "level",
        "literal",
        "operand",
        "owner",
        "path",
        "variable",
    ),
    "version",
)
#: Names of values of which some have a translation, such as `yes` and `none`, but no part of one
#: has: a list of names stays as it is.
_WHOLE = ("names", "seen", "value", "wanted")
#: Translations of values inside values.
_DEEPEST = 4
_DIGITS = "0123456789"
#: The edge of a value between a Chinese character and one of another script.
_BESIDE = re.compile(
    r"(?<=[\u4e00-\u9fff])\0(?=[\w/`-])(?![\u4e00-\u9fff])|(?<=[\w%`])(?<![\u4e00-\u9fff])\0(?=[\u4e00-\u9fff])"
)
#: The same between Chinese characters, where the text expects another script.
_SPACED = re.compile(
    r"(?<=[\u4e00-\u9fff]) \0(?=[\u4e00-\u9fff])|(?<=[\u4e00-\u9fff])\0 (?=[\u4e00-\u9fff])"
)
#: What stands between texts that are translated one by one, also where one has no translation.
_LOOSE = (" · ", "; ")
_SENTENCES = re.compile(r"(?<=[.:])\s+(?=[A-Z`])")
#: A name that stays, perhaps with a version.
_NAME = re.compile(r"\S+(?: \d\S*)?")
_CODE = re.compile("`[^`]*`")
#: A colour or a link of a terminal, and what is not translated.
_STYLE = re.compile(rf"(\x1b\[[\d;]*m|\x1b\]8;;[^\x1b]*\x1b\\|{AS_IT_IS}[^{AS_IT_IS}]*{AS_IT_IS})")
#: What stands before the text of a line.
_MARK = re.compile(r"(?:\s|[✗✓!?·•○+~≠i-] +|(?:FAIL|ok) +|attn-doctor: |\[ *\d+/\d+\] )*")


def say(text: str, language: str) -> str:
    """`text` in a language of `LANGUAGES`; unchanged where its catalogue has no translation.

    Of a line of a page: the text behind its mark, or each of its columns. What stands between two
    `AS_IT_IS` is a command or code.
    """
    known = catalogue(language)
    if AS_IT_IS not in text and "\x1b" not in text:
        return _columns(text, known)
    parts = enumerate(_STYLE.split(text))
    return "".join(part if number % 2 else _columns(part, known) for number, part in parts)


class Catalogue(Struct, frozen=True):
    """The translations of one language."""

    texts: dict[str, str]
    """English text → translation, with values named in braces."""
    templates: tuple[tuple[str, str], ...]
    """The longest literal part of each text with values, and the text; the longest first."""
    coded: dict[str, str]
    """Text without what its backticks hold → the text, of all texts with code and no value."""


@cache
def catalogue(language: str) -> Catalogue:
    """The catalogue of one language; that of English is empty."""
    texts: dict[str, str] = {}
    if language and language != "en":
        content = read_bytes(FOLDER / f"{language}.json", DATA)
        texts = decode(content, dict[str, str])
    found = [(max(_literals(text), key=len), text) for text in texts if SLOT.search(text)]
    found.sort(key=lambda one: -len("".join(_literals(one[1]))))
    coded = {_CODE.sub("`", one): one for one in texts if "`" in one and not SLOT.search(one)}
    return Catalogue(texts, tuple(found), coded)


def _literals(text: str) -> list[str]:
    return SLOT.split(text)[::2]


def _columns(text: str, known: Catalogue) -> str:
    """A text without the mark before it, or each of its columns."""
    mark = _MARK.match(text)
    begin = mark.end() if mark and text not in known.texts else 0
    body = text[begin:]
    if "  " in body.strip() and ("   " in body.strip() or _exact(body, known, _DEEPEST) is None):
        cells = re.split("( {2,})", body)
        said = [_columns(cell, known) for cell in cells]
        if said != cells:
            return text[:begin] + "".join(_aligned(said, cells))
    return text[:begin] + _said(body, known, _DEEPEST)


def _aligned(cells: Sequence[str], before: Sequence[str]) -> Iterator[str]:
    """Columns with as many spaces between them as end each where it ended before."""
    over = 0
    for number, cell in enumerate(cells):
        if number % 2:
            gap = max(len(cell) - over, 1)
            over += gap - len(cell)
            yield " " * gap
        else:
            over += width_of(cell) - width_of(before[number])
            yield cell


def _said(text: str, known: Catalogue, deep: int) -> str:
    found = _found(text, known, deep)
    # Where all words stay, so do the spaces between them, which may fill columns.
    return text if found is None or found.split() == text.split() else found


def _found(text: str, known: Catalogue, deep: int) -> str | None:
    """The translation of a text or of its parts; None if there is none."""
    words = " ".join(text.split())
    if not words or deep == 0:
        return None
    exact = _clauses(words, known, deep) or _exact(text, known, deep)
    if exact is not None:
        return _filling(exact.strip(), text)
    said = _sentences(words, known, deep) or _list(words, known, deep) or _named(words, known, deep)
    said = said or _aside(words, known, deep)
    if said is None and words.endswith("."):
        said = _found(words[:-1], known, deep - 1)
        said = None if said is None else said + known.texts.get(".", ".")
    return None if said is None else _filling(said, text)


def _exact(text: str, known: Catalogue, deep: int) -> str | None:
    """The translation of a text that a catalogue has, with its values; None if it has none."""
    words = " ".join(text.split())
    if not words:
        return None
    found = known.texts.get(words) or _from_template(words, known, deep) or _coded(words, known)
    return None if found is None else _filling(found, text)


def _coded(words: str, known: Catalogue) -> str | None:
    """The translation of a text that the catalogue has with another command for this machine."""
    text = known.coded.get(_CODE.sub("`", words)) if "`" in words else None
    if text is None:
        return None
    here = dict(zip(_CODE.findall(text), _CODE.findall(words), strict=True))
    return _CODE.sub(lambda code: here.get(code[0], code[0]), known.texts[text])


def _filling(said: str, text: str) -> str:
    """`said` with the spaces around `text`; those behind it fill a column."""
    before = len(text) - len(text.lstrip())
    after = len(text) - len(text.rstrip())
    if after > 1:
        after = max(after + width_of(text.strip()) - width_of(said), 1)
    return " " * before + said + " " * after


def _from_template(words: str, known: Catalogue, deep: int) -> str | None:
    """The translation of a text with values, whose values are translated too."""
    for literal, template in known.templates:
        match = _pattern(template).fullmatch(words) if literal in words else None
        if match:
            found = zip(SLOT.findall(template), match.groups(), strict=True)
            values = {name: _value(name, value, known, deep - 1) for name, value in found}
            return _filled(known.texts[template], values)
    return None


def _value(name: str, value: str, known: Catalogue, deep: int) -> str:
    """A value in a text, by its name there."""
    kind = name.rstrip(_DIGITS)
    if kind in _KEPT:
        return value
    if kind == "conditions" and " and " in value:
        clauses = value.split(" and ")
        return _loose(clauses, known.texts.get(" and if ", " and "), known, deep) or value
    if kind == "options":
        return _joined(value.split(" or "), known.texts.get(" or ", " or "))
    if kind in _WHOLE:
        return (_exact(value, known, deep) if deep else None) or value
    return _said(value, known, deep)


def _filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its values; between a Chinese character and a number or word is a space."""
    said = SLOT.sub(lambda slot: f"\0{values.get(slot[1], slot[0])}\0", text)
    return _BESIDE.sub(" ", _SPACED.sub("\0", said)).replace("\0", "")


def _clauses(words: str, known: Catalogue, deep: int) -> str | None:
    """Several clauses, of which each has a translation; so no value holds a clause.

    A semicolon in parentheses does not separate clauses.
    """
    parts = words.split("; ")
    if len(parts) == 1 or words in known.texts or any(_is_open(part) for part in parts):
        return None
    found = [_found(part, known, deep - 1) for part in parts]
    said = [part for part in found if part is not None]
    return _joined(said, known.texts.get("; ", "; ")) if len(said) == len(parts) else None


def _is_open(text: str) -> bool:
    """A parenthesis begins or ends outside of the text."""
    return text.count("(") != text.count(")")


def _sentences(words: str, known: Catalogue, deep: int) -> str | None:
    """Several sentences, of which each has a translation."""
    if " · " in words:
        return None
    said = _parts(_SENTENCES.split(words), " ", known, deep)
    return re.sub("([。：]) ", r"\1", said) if said else None


def _list(words: str, known: Catalogue, deep: int) -> str | None:
    """`1 error, 2 notes`, of which each part has a translation."""
    conditions = re.split(_FURTHER, words)
    if len(conditions) > 1:
        return _loose(conditions, known.texts.get(" and if ", " and "), known, deep)
    for between in _LOOSE:
        if between in words:
            return _loose(words.split(between), known.texts.get(between, between), known, deep)
    for between in (", ", " and ", " or "):
        said = _parts(words.split(between), known.texts.get(between, between), known, deep)
        if said is not None:
            return said
    return None


def _loose(parts: Sequence[str], between: str, known: Catalogue, deep: int) -> str | None:
    """The parts where at least one has a translation."""
    said = [_said(one, known, deep - 1) for one in parts]
    return None if said == parts else _joined(said, between)


def _parts(parts: Sequence[str], between: str, known: Catalogue, deep: int) -> str | None:
    """The parts where all of them have a translation, or are a word that stays."""
    found = [_found(one, known, deep - 1) for one in parts] if len(parts) > 1 else []
    missing = [part for part, one in zip(parts, found, strict=True) if one is None] if found else []
    if len(missing) == len(found) or not all(map(_NAME.fullmatch, missing)):
        return None
    return _joined([one or part for part, one in zip(parts, found, strict=True)], between)


def _joined(parts: Sequence[str], between: str) -> str:
    return _BESIDE.sub(" ", f"\0{between}\0".join(parts)).replace("\0", "")


def _aside(words: str, known: Catalogue, deep: int) -> str | None:
    """A title that has a translation, and its subject in parentheses."""
    title, opened, subject = words[:-1].rpartition(" (") if words.endswith(")") else ("", "", "")
    found = _exact(title, known, deep) if opened else None
    if found is None:
        return None
    subject = known.texts.get(subject, subject)
    return found + known.texts.get("(", " (") + subject + known.texts.get(")", ")")


def _named(words: str, known: Catalogue, deep: int) -> str | None:
    """`inductor: 2 files deleted`: a name that stays, and a text that has a translation."""
    name, colon, text = words.partition(": ")
    if not colon or " " in name:
        return None
    said = _found(text, known, deep - 1)
    return None if said is None else f"{_said(name, known, 1)}: {said}"


@cache
def _pattern(template: str) -> re.Pattern[str]:
    names = [name.rstrip(_DIGITS) for name in SLOT.findall(template)]
    shapes = [_SHAPES.get(name, _ANY) for name in names]
    first, *literals = map(re.escape, _literals(template))
    rest = zip(shapes, literals, strict=True)
    return re.compile(first + "".join(shape + part for shape, part in rest))
