"""Suggestions for misspelt names."""

from __future__ import annotations

from attn_doctor.suggest import did_you_mean, hint, nearest

KNOWN = ("flash", "flash_hub", "flex", "sage", "xformers")


def test_the_most_alike_name_comes_first() -> None:
    assert nearest("flesh", KNOWN) == ["flash"]
    assert nearest("flash_hup", KNOWN, 2) == ["flash_hub", "flash"]


def test_a_name_that_resembles_nothing_has_no_suggestion() -> None:
    assert nearest("cuda", KNOWN) == []
    assert did_you_mean("cuda", KNOWN) == ""
    assert did_you_mean("cuda", KNOWN, "write one of …") == "write one of …"
    assert hint("cuda", KNOWN) == ""


def test_a_hint_ends_a_sentence() -> None:
    assert hint("xformer", KNOWN) == "; did you mean xformers?"
    assert hint("flash_", KNOWN, count=2) == "; did you mean flash or flash_hub?"


def test_names_that_are_equally_alike_are_in_order() -> None:
    assert nearest("flux", ("flux3", "flux1", "flux2"), 3) == ["flux1", "flux2", "flux3"]
