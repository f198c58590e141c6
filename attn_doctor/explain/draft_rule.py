"""Take the symptom of a new rule from a log: the line that says what failed, and the facts stated.

A long log is read to its end, where the failure is; only its last stretch is kept.
"""

from __future__ import annotations

from collections import deque

from attn_doctor.errors import AttnDoctorError
from attn_doctor.explain.extract import statements
from attn_doctor.explain.log_files import chunks, log_name
from attn_doctor.explain.normalize import NormalizedLog
from attn_doctor.explain.tracebacks import LineKind, TraceLog

#: Chunks of 64 KiB that are kept of a long log.
_CHUNKS = 8


def failure(path: str) -> tuple[str, list[tuple[str, str]]]:
    """The line of a log that says what failed, and the facts of the log with their values.

    Raises `AttnDoctorError` if the log cannot be read or shows no failure.
    """
    kept = deque(chunks(path), maxlen=_CHUNKS)
    log = NormalizedLog(kept[0].first, b"".join(chunk.data for chunk in kept)) if kept else None
    line = _root(log) if log else ""
    if log is None or not line:
        raise AttnDoctorError(
            f"{log_name(path)} shows no failure; omit --from-log and write the symptom yourself"
        )
    facts = {statement.fact: str(statement.value) for statement in statements(log.text)}
    return line, list(facts.items())


def _root(log: NormalizedLog) -> str:
    """The root of the last failure: the first exception of its chain, else the last error."""
    marked = [
        (position, line.text.strip())
        for position, line in zip(TraceLog(log.lines).positions, log.lines, strict=True)
        if position.kind in (LineKind.ERROR, LineKind.EXCEPTION)
    ]
    raised = [(position, text) for position, text in marked if position.kind is LineKind.EXCEPTION]
    if raised:
        last = raised[-1][0].failure
        return next(text for position, text in raised if position.failure == last)
    return marked[-1][1] if marked else ""
