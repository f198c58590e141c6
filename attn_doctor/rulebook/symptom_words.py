"""Symptoms that any program can print: without a word of their subject, or in logs of success."""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from attn_doctor.files import DATA, TEXT, read_bytes, read_text
from attn_doctor.rulebook.patterns import required_texts
from attn_doctor.rulebook.rule import Rule, Symptom

_HERE = Path(__file__)
#: Names, in lower case, of what rules are about; a symptom has one of them as a part of its text.
_WORDS = _HERE.with_name("subject_words.txt")
#: 5,000 lines that real programs printed while nothing went wrong: of torch.compile with all its
#: logs on, of pip, uv, gcc, pytest and `python -v`, with the names of folders replaced.
SUCCESSES = _HERE.with_name("successful_lines.txt.xz")


def word_faults(rule: Rule) -> Iterator[str]:
    """Why a symptom of the rule can be in a log of anything, one sentence each."""
    for symptom in rule.symptoms:
        if not symptom.printed_by and not _names_its_subject(symptom):
            yield (
                f"symptom {symptom.pattern!r} has no word of its subject, such as torch, triton or "
                f"mask; name the package that alone prints it in `printed_by`, or use `near`"
            )
        if line := successful_line(symptom):
            yield f"symptom {symptom.pattern!r} matches a line of a successful run: {line!r}"


def _names_its_subject(symptom: Symptom) -> bool:
    text = " ".join((*symptom.patterns, *symptom.lines)).lower().replace("\\", "")
    return any(word in text for word in _subject_words())


@cache
def _subject_words() -> tuple[str, ...]:
    return tuple(read_text(_WORDS, TEXT).splitlines())


@cache
def _lines() -> tuple[tuple[str, str], ...]:
    """Each line of a successful run, and the same in lower case."""
    lines = lzma.decompress(read_bytes(SUCCESSES, DATA)).decode().splitlines()
    return tuple((line, line.lower()) for line in dict.fromkeys(lines))


@cache
def _all_lines() -> str:
    return "\n".join(lowered for _, lowered in _lines())


def successful_line(symptom: Symptom) -> str:
    """A line of a successful run that the symptom matches; empty if there is none.

    A symptom with `near` needs several lines, and is not looked for.
    """
    if symptom.near:
        return ""
    texts = required_texts(symptom.pattern)
    if texts and not any(text in _all_lines() for text in texts):
        return ""
    regex = re.compile(symptom.pattern)
    for line, lowered in _lines():
        if texts and not any(text in lowered for text in texts):
            continue
        if regex.search(line):
            return line
    return ""
