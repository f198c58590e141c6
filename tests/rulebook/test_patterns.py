"""Compares what is known of a pattern without running it with the results of running it."""

from __future__ import annotations

import re

import pytest

from attn_doctor.rulebook.patterns import dangers, keyword, plain_length, required_texts, ways
from tests.command import whole_rules
from tests.effort import at_most


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("Unsupported head_dim: \\d+", ("unsupported head_dim: ",)),
        ("libcuda\\.so cannot found!", ("libcuda.so cannot found!",)),
        ("[Dd]river/library version mismatch", ("driver/library version mismatch",)),
        ("(?:flash|sage) attention failed", (" attention failed",)),
        ("flash attention|sageattention2", ("flash attention", "sageattention2")),
        ("(?s)sageattention.{0,3000}?No module", ("sageattention",)),
        ("(?i)Training Never", ("training never",)),
        ("(?:optional text)?needed text", ("needed text",)),
        ("(?:repeated text)+x", ("repeated text",)),
        ("no lookahead(?! but this)", ("no lookahead",)),
        ("\\d+", ()),
        ("one text|\\d+", ()),
    ],
)
def test_needed(pattern: str, texts: tuple[str, ...]) -> None:
    assert required_texts(pattern) == texts


def test_every_line_that_a_rule_matches_holds_what_is_needed() -> None:
    for rule in whole_rules():
        for symptom in rule.symptoms:
            for line in symptom.logs:
                match = re.search(symptom.pattern, line)
                if match is not None:
                    assert any(text in match[0].lower() for text in required_texts(symptom.pattern))


@pytest.mark.parametrize(
    ("pattern", "alternatives"),
    [
        ("one|two", ["one", "two"]),
        ("(?i)one|two", ["(?i:one)", "(?i:two)"]),
        ("(?:one|(?s:two|three))", ["(?:one)", "(?:(?s:two))", "(?:(?s:three))"]),
        ("(?is)(?:one|two)", ["(?is:(?:one))", "(?is:(?:two))"]),
        ("(?:one|two) three", ["(?:one|two) three"]),
        ("[|]|[]|]|[^]|]|\\||\\(|[\\]|]", ["[|]", "[]|]", "[^]|]", "\\|", "\\(", "[\\]|]"]),
        ("(?P<a>one|two)", ["(?P<a>one|two)"]),
    ],
)
def test_alternatives(pattern: str, alternatives: list[str]) -> None:
    assert [way.pattern for way in ways(pattern)] == alternatives


@pytest.mark.parametrize(
    ("pattern", "within"),
    [
        ("one[^\\n]{0,9}two", True),
        ("one.{0,9}two", True),
        ("(?s)one.{0,9}two", False),
        ("(?s:one)[ \\t]two", True),
        ("one\\stwo", False),
        ("one[^a]two", False),
        ("one(?!\\n)", False),
        ("one$", False),
        ("(?m)^one$", True),
        ("one\\Z", False),
    ],
)
def test_a_pattern_may_leave_its_line(pattern: str, within: bool) -> None:
    assert [way.reach == 0 for way in ways(pattern)] == [within]


def test_alternatives_match_what_the_pattern_matches() -> None:
    rules = whole_rules()
    lines = "\n".join(line for rule in rules for one in rule.symptoms for line in one.logs[:1])
    lowered = lines.lower()
    for rule in rules:
        for symptom in rule.symptoms:
            found = ways(symptom.pattern)
            for line in symptom.logs:
                whole = re.search(symptom.pattern, line)
                assert whole is not None
                joined = re.search("|".join(way.pattern for way in found), line)
                assert joined is not None
                assert joined.span() == whole.span()
                text = whole[0].lower()
                assert any(
                    all(any(one in text for one in texts) for texts in way.needs) for way in found
                )
            for way in found:
                assert way.needs
                if any(all(text not in lowered for text in texts) for texts in way.needs):
                    assert re.search(way.pattern, lines) is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("no module named flash_attn", "flash_attn"),
        ("could not load library libnvrtc", "libnvrtc"),
        ("the version of the module", "version"),
        ("a b 12", ""),
    ],
)
def test_keyword(text: str, word: str) -> None:
    assert keyword(text) == word


def test_plain_length() -> None:
    assert plain_length("Unsupported head_dim: \\d+") == 22
    assert plain_length("abc|abcdef") == 6
    assert plain_length("(?:ab){2,}c?") == 4


SAFE = [
    "cannot import name '[^']+' from '[^']+'",
    "undefined symbol: \\S+",
    "foo[^\\n]{0,300}bar[^\\n]{0,300}bazz",
    "(?s)sageattention.{0,6000}?No module named 'torch'",
    "(?m)^(?![^\\n]*/private/var/)[^\\n]*but nvcc was not found",
    "module 'triton(?:\\.\\w+)*' has no attribute",
    "(?s)No operator found(?!.{0,5000}?bf16 is only supported)",
    "it (?:was|is|were) not supported",
    "version \\d+(?:\\.\\d+)? of torch",
    "text(?:ab?){40}c",
    "text(?:foo\\s?){40}",
    "text(?:x?y){40}",
    "text(?:\\d{1,3}\\.){3}\\d{1,3}",
]


@pytest.mark.parametrize("pattern", SAFE)
def test_safe(pattern: str) -> None:
    assert dangers(pattern) == []


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("text(a+)+b", "multiply"),
        ("text(a?){50}a{50}", "doubles the ways"),
        ("text(a{1,3}){20}b", "doubles the ways"),
        ("text(?:(?:a?){4}){5}", "doubles the ways"),
        ("text(?:aa?){40}c", "doubles the ways"),
        ("text(?:a?b?){50}", "doubles the ways"),
        ("text" + "a?" * 50 + "a" * 50, "multiply"),
        ("text" + "(?:ab)?" * 50 + "(?:ab){50}", "multiply"),
        ("text" + "(?:ab|cd)?" * 30, "multiply"),
        ("text(?:a*)*b", "multiply"),
        ("text(?:\\d+\\s*)+foobar", "multiply"),
        ("text(?:a|ab)*c", "begin with the same character"),
        ("text(?:a|b?)*c", "begin with the same character"),
        ("first.*second.*third", "multiply"),
        ("text\\s*\\s+end", "multiply"),
        ("\\w*Attn\\w*Processor\\w*", "begins with a repetition"),
        ("some \\w*Attn\\w*Processor", "multiply"),
        (".*foobar", "begins with a repetition"),
        ("(?s)a{3}.{0,3000}b.{0,3000}text", "multiply"),
        ("(\\w)\\1foobar", "refers back"),
        ("(a)?(?(1)text|other)", "refers back"),
        ("(?<=x)text(?=(?:a+)+b)", "multiply"),
        ("\\d+|\\s+", "no plain text"),
        ("abc", "no plain text"),
    ],
)
def test_dangerous(pattern: str, said: str) -> None:
    assert any(said in danger for danger in dangers(pattern)), dangers(pattern)


def test_what_is_called_safe_is_fast_on_hostile_text() -> None:
    texts = [
        "undefined symbol: " * 5000,
        "foo bar " * 10_000,
        "a" * 100_000,
        "sageattention " * 5000,
    ]
    texts += ["module 'triton" + ".a" * 40_000, "version 1" * 9000, "cannot import name '" * 5000]
    with at_most(10):
        for pattern in SAFE:
            for text in texts:
                re.search(pattern, text)
