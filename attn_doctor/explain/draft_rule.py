"""What a new rule can take from the log of a failure: the line that says it, and the facts told.

A long log is read to its end, where the failure stands; only its last stretch is kept.
"""

from __future__ import annotations

from collections import deque

from attn_doctor.errors import AttnDoctorError
from attn_doctor.explain.extract import statements
from attn_doctor.explain.log_files import blocks, name_of
from attn_doctor.explain.normalize import Page
from attn_doctor.explain.tracebacks import Course, Kind

#: Blocks of 64 KiB that are kept of a long log.
_BLOCKS = 8


def failure(log: str) -> tuple[str, list[tuple[str, str]]]:
    """The line of a log that says what failed, and the facts that it tells with their values.

    Raises `AttnDoctorError` if the log cannot be read or shows no failure.
    """
    kept = deque(blocks(log), maxlen=_BLOCKS)
    page = Page(kept[0].first, b"".join(block.data for block in kept)) if kept else None
    line = _line(page) if page else ""
    if page is None or not line:
        raise AttnDoctorError(
            f"{name_of(log)} shows no failure; leave out --from-log and write the symptom yourself"
        )
    told = {one.fact: str(one.value) for one in statements(page.text)}
    return line, list(told.items())


def _line(page: Page) -> str:
    """The root of the last failure: the first exception of its chain, else the last error."""
    places = Course(page.lines).places
    marked = [
        (place, line.text.strip())
        for place, line in zip(places, page.lines, strict=True)
        if place.kind in (Kind.ERROR, Kind.EXCEPTION)
    ]
    raised = [(place, text) for place, text in marked if place.kind is Kind.EXCEPTION]
    if raised:
        last = raised[-1][0].failure
        return next(text for place, text in raised if place.failure == last)
    return marked[-1][1] if marked else ""
