"""Whether a symptom is in the text of one failure, such as an example or a look-alike of a rule."""

from __future__ import annotations

import re
from collections.abc import Iterable

from attn_doctor.rulebook.frames import Frame, frames_of, raising
from attn_doctor.rulebook.rule import Symptom

# What stands before the packages in the path of a frame. It may have the name of another package.
_BEFORE_PACKAGES = re.compile(r"^.*/(?=(?:site|dist)-packages/)")
# The folder of an environment may have the name of a package: ~/envs/vllm/lib/python3.12. Below
# /opt it is the name of the program, and an embedded Python says how it was installed.
_ENVIRONMENT = re.compile(
    r"(?<!/opt)([/\\])(?!python|[Ll]ib)[^\s/\\\"'()]{1,80}"
    r"((?:[/\\]\.?v?env)?[/\\](?:[Ll]ib(?:64)?[/\\](?:python3[.\d]*[/\\])?)?"
    r"(?:site|dist)-packages[/\\])"
)


def one_blank(text: str) -> str:
    """The text with one blank for each run of blanks and line ends, for `Symptom.near`.

    The folder of an environment is called `env` in it.
    """
    return " ".join(_ENVIRONMENT.sub(r"\1env\2", text).split())


def is_in(symptom: Symptom, text: str) -> bool:
    """Whether all patterns of the symptom match in `text`, which is one failure."""
    messages = re.finditer(symptom.pattern, text)
    if not any(may_be_message(symptom.without, text, *one.span()) for one in messages):
        return False
    around = one_blank(text)
    return (
        all(re.search(pattern, around) for pattern in symptom.near)
        and not any(re.search(pattern, around) for pattern in symptom.absent)
        and is_raised_by(symptom, raising(frames_of(text.splitlines())))
    )


def may_be_message(without: Iterable[str], text: str, start: int, end: int) -> bool:
    """No pattern of `without` matches on the lines of `text` from one offset to another."""
    line = text[text.rfind("\n", 0, start) + 1 : (text.find("\n", end) + 1 or len(text) + 1) - 1]
    return not any(re.search(pattern, line) for pattern in without)


def is_raised_by(symptom: Symptom, frame: Frame | None) -> bool:
    """The frame that raised the exception is one that the symptom asks for, or not shown."""
    if not symptom.frame or frame is None:
        return True
    path = _BEFORE_PACKAGES.sub("/", frame.path)
    return re.search(symptom.frame, f"{path} {frame.function} {frame.code}") is not None
