"""Symptoms of several patterns: all of them in one failure, in any order and at any distance."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from attn_doctor.explain.explanation import Explanation

Explain = Callable[..., Explanation]
WriteRule = Callable[..., None]

SITE = "/venv/lib/python3.12/site-packages"
FRAME = f'  File "{SITE}/flash_attn/cute/softmax.py", line 80, in online_softmax\n'
DEEP = "".join(
    f'  File "{SITE}/cutlass/base_dsl/dsl.py", line {number}, in wrapper\n    return f(*args)\n'
    for number in range(150)
)
ERROR = "DSLRuntimeError: operand does not\n  dominate this use\n"
HEAD = "Traceback (most recent call last):\n"


@pytest.fixture
def found(rule: WriteRule, explained: Explain) -> Callable[[str], int]:
    """Matches of a rule with the message and a frame; its lines are checked by lint alone."""
    near = """DSLRuntimeError'''
near = ['flash_attn.cute', 'does not dominate this']
printed_by = '''x"""
    rule("a/b", "packaging-bug", near)
    return lambda log: len(explained(log).matches)


def test_the_frame_may_stand_far_above_the_message(found: Callable[[str], int]) -> None:
    assert found(HEAD + FRAME + DEEP + ERROR) == 1


def test_the_frame_may_follow_the_message(found: Callable[[str], int]) -> None:
    assert found(ERROR + FRAME) == 1


def test_each_pattern_is_needed(found: Callable[[str], int]) -> None:
    assert found(HEAD + FRAME + DEEP + "DSLRuntimeError: something else\n") == 0
    assert found(HEAD + DEEP + ERROR) == 0


def test_another_failure_far_away_does_not_count(found: Callable[[str], int]) -> None:
    other = HEAD + FRAME + "RuntimeError: no\n"
    assert found(other + "step 1 loss 2.0\n" * 40 + HEAD + DEEP + ERROR) == 0


def test_words_of_another_failure_exclude_a_symptom(rule: WriteRule, explained: Explain) -> None:
    rule(
        "a/b",
        "packaging-bug",
        "DSLRuntimeError'''\nabsent = ['flash_attn.cute']\nprinted_by = '''x",
    )
    assert len(explained(HEAD + DEEP + ERROR).matches) == 1
    assert not explained(HEAD + FRAME + DEEP + ERROR).matches


def test_the_message_is_the_line_that_is_shown(rule: WriteRule, explained: Explain) -> None:
    rule(
        "a/b", "packaging-bug", "DSLRuntimeError'''\nnear = ['flash_attn.cute']\nprinted_by = '''x"
    )
    log = HEAD + FRAME + DEEP + ERROR
    [match] = explained(log).matches
    assert log.splitlines()[match.line - 1].startswith("DSLRuntimeError")


def test_words_on_the_line_of_the_message_exclude_a_symptom(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "packaging-bug", "no flash'''\nwithout = ['(?i)falling back']\nprinted_by = '''x")
    assert len(explained("Error: no flash\n").matches) == 1
    assert not explained("Error: no flash, falling back to sdpa\n").matches
    both = "no flash, falling back\nsomething else\nError: no flash\nFalling back later\n"
    assert [match.line for match in explained(both).matches] == [3]


def test_a_pattern_and_each_of_its_neighbours_can_be_a_list(
    rule: WriteRule, explained: Explain
) -> None:
    rule(
        "a/b",
        "packaging-bug",
        "no flash'''\nnear = [['first one', '(?i)second one'], 'kernel']\nprinted_by = '''x",
    )
    assert len(explained("a kernel of the SECOND ONE\nError: no flash\n").matches) == 1
    assert len(explained("a kernel of the first one\nError: no flash\n").matches) == 1
    assert not explained("a kernel of the FIRST ONE\nError: no flash\n").matches
    assert not explained("the first one\nError: no flash\n").matches
