"""The text of a new rule file: as much as possible is filled in, and the rest is marked.

The file can be read at once, its examples agree with it, and the linter lists the marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from attn_doctor.files import TEXT, read_text
from attn_doctor.rulebook.fact_catalogue import catalogue
from attn_doctor.rulebook.patterns import dangers
from attn_doctor.rulebook.rule_shape import WrittenRule

#: The mark of everything that a person has to write.
FILL_IN = "FILL IN"
#: Areas with the everyday name of a package, and the name of its facts.
_PACKAGES = {"flash": "flash_attn", "sage": "sageattention", "flex": "torch"}
#: Characters of a line from which its pattern is made.
_LONGEST = 160

#: The file, with fields in braces for `str.format`.
_TEMPLATE = Path(__file__).with_name("new_rule.template.toml")


def scaffold(
    id: str,
    today: date,
    line: str = FILL_IN,
    cause: str = FILL_IN,
    facts: Iterable[tuple[str, str]] = (),
) -> str:
    """The text of a new rule file.

    `line` is a line that the failure printed, `facts` are facts of its log with their values.
    """
    area = id.partition("/")[0]
    package = _PACKAGES.get(area, area)
    if f"{package}.installed" not in catalogue():
        package = "torch"
    notes = "".join(f"# From the log: {fact} = {_quoted(value)}\n" for fact, value in facts)
    return read_text(_TEMPLATE, TEXT).format(
        fill=FILL_IN,
        cause=_quoted(cause),
        today=today.isoformat(),
        package=package,
        pattern=_literal(pattern_for(line)),
        log=_quoted(line),
        notes=notes,
    )


def unfilled(rule: WrittenRule) -> list[str]:
    """The keys of a rule that still contain the mark."""
    keys = {
        "cause": rule.cause,
        "evidence": rule.evidence,
        "text.title": rule.title,
        "text.why": rule.why,
        "applies": rule.applies,
        "when": rule.when,
        "fix": (rule.fixes, rule.fix_when, rule.fix_done),
        "symptom": rule.symptoms,
        "example": rule.examples,
    }
    return [key for key, value in keys.items() if FILL_IN in repr(value)]


# Text that differs between machines: addresses, paths, versions and numbers.
_VARYING = re.compile(
    r"(?P<hex>\b0x[0-9a-fA-F]+)"
    r"|(?P<path>(?:/[\w.+@-]+){2,}/?|\b[A-Za-z]:\\[^\s'\",:;)]+)"
    r"|(?P<number>(?<![\w.])\d+(?:\.\d+)*(?!\w))"
)
_GENERAL = {
    "hex": r"0x[0-9a-fA-F]{1,16}",
    "path": r"""[^\s'"]{1,300}""",
    "number": r"\d[\d.]{0,20}",
}


def pattern_for(line: str) -> str:
    """A pattern that matches the same line of another machine, and is cheap to search for."""
    line = line.strip().splitlines()[0][:_LONGEST]
    parts, end = [], 0
    for match in _VARYING.finditer(line):
        parts += [_plain(line[end : match.start()]), _GENERAL[str(match.lastgroup)]]
        end = match.end()
    pattern = "".join([*parts, _plain(line[end:])])
    return _plain(line) if dangers(pattern) else pattern


def _plain(text: str) -> str:
    """`text` as a pattern; `re.escape` would also escape spaces and make it hard to read."""
    return re.sub(r"([\\.^$*+?{}\[\]|()])", r"\\\1", text)


def _literal(text: str) -> str:
    """`text` as a TOML string, without escapes if it can be."""
    quotes = "'" if "'" not in text else "'''"
    if not text.isprintable() or quotes in text or text.endswith("'"):
        return _quoted(text)
    return f"{quotes}{text}{quotes}"


def _quoted(text: str) -> str:
    """`text` as a TOML string. JSON's escapes are TOML's too, which wants one more."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
