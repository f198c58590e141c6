"""The score of a symptom match: each weight decides something, and so is stated here."""

from __future__ import annotations

import pytest

from attn_doctor.explain.symptom_match import SymptomMatch
from attn_doctor.explain.tracebacks import LineKind, Position


def score(
    kind: LineKind,
    *,
    link: int = 0,
    direct: bool = False,
    final: bool = True,
    distance: int = 0,
    general: bool = False,
    specificity: float = 0.0,
) -> float:
    match = SymptomMatch(
        rule="a/b",
        symptom=0,
        file="a.log",
        line=1,
        rank="",
        excerpt="",
        said="",
        position=Position(kind, 0, link, direct),
        final=final,
        distance=distance,
        general=general,
        specificity=specificity,
    )
    return round(match.score, 3)


@pytest.mark.parametrize("kind", [LineKind.EXCEPTION, LineKind.MESSAGE])
def test_the_root_of_the_last_failure_scores_most(kind: LineKind) -> None:
    assert score(kind) == 0.2
    assert score(kind, link=1) == 0.08
    assert score(kind, link=1, direct=True) == 0.02
    assert score(kind, final=False) == 0.1
    assert score(kind, link=1, final=False) == -0.02


@pytest.mark.parametrize(
    ("kind", "last", "near", "far"),
    [
        (LineKind.ERROR, 0.14, 0.1, 0.02),
        (LineKind.TEXT, 0.08, 0.03, -0.05),
        (LineKind.WARNING, 0.05, 0.0, -0.1),
        (LineKind.NOISE, -0.12, -0.12, -0.12),
    ],
)
def test_other_lines_score_by_their_distance_to_the_last_failure(
    kind: LineKind, last: float, near: float, far: float
) -> None:
    assert score(kind) == last
    assert [score(kind, distance=lines) for lines in (1, 12)] == [near, near]
    assert score(kind, distance=13) == far


def test_plain_text_adds_and_a_general_message_subtracts() -> None:
    assert score(LineKind.EXCEPTION, specificity=1.0) == 0.45
    assert score(LineKind.EXCEPTION, specificity=0.5) == 0.325
    assert score(LineKind.EXCEPTION, general=True) == 0.0
