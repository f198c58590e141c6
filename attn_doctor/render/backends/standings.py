"""The standings of backends in words and signs, which the pages and the picture share."""

from __future__ import annotations

from collections.abc import Iterable

from attn_doctor.backends.readiness import Answer, Matrix, Row
from attn_doctor.facts import Facts
from attn_doctor.install.backend_standing import Standing, standing

#: Standing → sign, words for a cell, meaning. The sign says it without colour.
WORDS = {
    Standing.READY: ("✓", "ready", "serves the call"),
    Standing.COMMAND: ("+", "one command away", "one command installs or sets all that is missing"),
    Standing.SLOW: ("~", "slow", "works far below the speed that this machine can reach"),
    Standing.WRONG: ("≠", "wrong", "runs and gives a wrong result, without an error message"),
    Standing.NOT_READY: (
        "○",
        "not ready",
        "needs several changes, or one that no command makes, such as another backend",
    ),
    Standing.UNSUPPORTED: ("✗", "not here", "nothing on this machine makes it serve the call"),
    Standing.NEVER: ("✗", "never on this GPU", "the GPU excludes it, whatever is installed"),
    Standing.UNKNOWN: ("?", "unknown", "what decides it could not be read"),
}


def cell(answer: Answer, facts: Facts) -> tuple[Standing, str]:
    """The standing of an answer, and its sign and words."""
    found = standing(answer, facts)
    sign, words, _ = WORDS[found]
    # A known fault of other calls limits what is ready.
    return found, f"{sign} {words}{', but' if found is Standing.READY and answer.reasons else ''}"


def shown_rows(matrix: Matrix) -> list[Row]:
    """The names that this release and this hardware have."""
    return [row for row in matrix.rows if row.known and not row.hardware]


def used(rows: Iterable[Row], facts: Facts) -> list[Standing]:
    """The standings that rows have, in the order of the legend."""
    found = {standing(answer, facts) for row in rows for answer in row.answers}
    return [one for one in WORDS if one in found]
