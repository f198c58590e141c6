"""Whether a symptom is in the text of one failure, such as an example or a look-alike of a rule."""

from __future__ import annotations

import re

from attn_doctor.rulebook.frames import Frame, frames_of, raising
from attn_doctor.rulebook.rule import Symptom, one_blank


def is_in(symptom: Symptom, text: str) -> bool:
    """Whether all patterns of the symptom match in `text`, which is one failure."""
    if not re.search(symptom.pattern, text):
        return False
    around = one_blank(text)
    return (
        all(re.search(pattern, around) for pattern in symptom.near)
        and not any(re.search(pattern, around) for pattern in symptom.absent)
        and is_raised_by(symptom, raising(frames_of(text.splitlines())))
    )


def is_raised_by(symptom: Symptom, frame: Frame | None) -> bool:
    """The frame that raised the exception is one that the symptom asks for, or not shown."""
    if not symptom.frame or frame is None:
        return True
    return re.search(symptom.frame, f"{frame.path} {frame.function} {frame.code}") is not None
