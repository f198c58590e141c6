"""Rules by the words that a person remembers."""

from __future__ import annotations

import pytest

from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule_lookup import search_rules


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (("FlexAttention", "head", "powers", "of", "two"), "flex/head-dim-power-of-two"),
        (("nvcc", "not", "found"), "toolkit/nvcc-missing"),
        (("imagen", "negra", "sage"), "sage/black-output"),
        (("黑图", "sage"), "sage/black-output"),
        (("遅い", "flex"), "flex/unfused"),
        (("undefined symbol: _ZN3c10", "flash_attn"), "flash/built-for-other-torch"),
    ],
)
def test_the_rule_is_found(words: tuple[str, ...], first: str) -> None:
    found = search_rules(words, library.load(), library.tables()["words"]["word"])
    assert first in [rule.id for rule in found[:3]]


def test_words_that_no_rule_has() -> None:
    assert search_rules(["zzzqqq"], library.load(), {}) == []
    assert search_rules(["!"], library.load(), {}) == []


def test_a_whole_word_counts_more_than_the_beginning_of_one() -> None:
    found = search_rules(["black", "image"], library.load(), {})
    assert found[0].id == "sage/black-output"
