"""One line of a rule: what it means for each kind of fact, what it says of a fact that is unknown,
and what it tells the author who misspells it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_doctor.errors import RuleError
from attn_doctor.rulebook.conditions import (
    Condition,
    conjunction,
    disjunction,
    negation,
    parse,
    show,
)
from attn_doctor.rulebook.fact_catalogue import KINDS, catalogue
from attn_doctor.rulebook.rule_files import read_rule

Truth = bool | None


def truth(line: str, element: str = "", /, **facts: Any) -> Truth:
    """The line's truth where the facts, written with `__` for the dot, have these values."""
    known = {name.replace("__", "."): value for name, value in facts.items()}
    return parse(line, catalogue(), element).truth(known.get)


# Versions


@pytest.mark.parametrize(
    ("line", "seen", "expected"),
    [
        ('torch.version >= "2.5"', "2.10.0+cu128", True),
        ('torch.version >= "2.5"', "2.4.1", False),
        ('torch.version < "2.10"', "2.9.1", True),
        ('torch.version == "2.11.0"', "2.11.0+cu130", True),
        ('torch.version == "2.11.0+cpu"', "2.11.0+cu130", False),
        ('torch.version == "2.11.0+cpu"', "2.11.0+cpu", True),
        ('torch.version != "2.11.0"', "2.11.0+cu130", False),
        ('torch.version <= "2.11.0"', "2.11.0+cu130", True),
        ('torch.version > "2.11.0"', "2.11.0+cu130", False),
        # A vendor's build of a release carries a version that PEP 440 puts before it.
        ('torch.version >= "2.10"', "2.10.0a0+b558c986e8.nv25.11", True),
        ('torch.version >= "2.5"', "2.5.0.dev20240701+cu121", True),
        ('triton.version satisfies "==3.4.*"', "3.4.0.post21", True),
        ('triton.version satisfies "==3.4.*"', "3.5.0", False),
        ('triton.version satisfies "~=3.8.0"', "3.8.1", True),
        ('triton.version satisfies ">=3.3,<3.5"', "3.4.0a1", True),
        # A specifier that names a nightly means that nightly.
        ('torch.version satisfies "==2.13.0.dev20261101"', "2.13.0.dev20261101+cu130", True),
        ('torch.version satisfies "==2.13.0.dev20261101"', "2.13.0.dev20261102+cu130", False),
        ('flash_attn.version > "2.7.4"', "2.7.4.post1", True),
        ('torch.version in ["2.9.0", "2.9.1"]', "2.9.1+cu128", True),
        ('torch.version not in ["2.9.0", "2.9.1"]', "2.8.0", True),
        ('torch.version matches "rocm"', "2.9.1+rocm6.4", True),
        # Empty means that there is none.
        ('python.pip == ""', "", True),
        ('python.pip != ""', "25.3", True),
        ('python.pip == ""', "25.3", False),
    ],
)
def test_versions_compare_as_versions(line: str, seen: str, expected: bool) -> None:
    name = line.split()[0].replace(".", "__")
    assert truth(line, **{name: seen}) is expected


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ('torch.version >= "2.5"', "unknown"),
        ('torch.version >= "2.5"', ""),
        ('torch.version satisfies ">=2.5"', "2.4-custom build"),
        ('python.pip < "25"', ""),
    ],
)
def test_what_is_no_version_orders_with_nothing(line: str, seen: str) -> None:
    name = line.split()[0].replace(".", "__")
    assert truth(line, **{name: seen}) is None


def test_a_specifier_that_is_another_fact() -> None:
    line = "triton.version satisfies triton.expected"
    assert truth(line, triton__version="3.6.0", triton__expected="==3.6.*") is True
    assert truth(line, triton__version="3.5.1", triton__expected="==3.6.*") is False
    assert truth(line, triton__version="3.5.1", triton__expected=None) is None
    assert truth(line, triton__version="3.5.1", triton__expected="no specifier") is None


# The other kinds


@pytest.mark.parametrize(
    ("line", "element", "facts", "expected"),
    [
        ('system.os == "linux"', "", {"system__os": "linux"}, True),
        ('system.os != "linux"', "", {"system__os": "linux"}, False),
        ('system.os in ["linux", "macos"]', "", {"system__os": "windows"}, False),
        ('system.os not in ["linux"]', "", {"system__os": "windows"}, True),
        ('env.LD_LIBRARY_PATH contains "stubs"', "", {"env__LD_LIBRARY_PATH": "/a/stubs"}, True),
        ('gpu.name matches "RTX 50[0-9]0"', "gpu", {"gpu__name": "NVIDIA RTX 5090"}, True),
        ('gpu.name matches "^RTX"', "gpu", {"gpu__name": "NVIDIA RTX 5090"}, False),
        ("gpu.sm >= 80", "gpu", {"gpu__sm": 80}, True),
        ("gpu.sm < 80", "gpu", {"gpu__sm": 80}, False),
        ("gpu.sm in [80, 90]", "gpu", {"gpu__sm": 86}, False),
        ("gpus.count == 0", "", {"gpus__count": 0}, True),
        ("torch.installed == true", "", {"torch__installed": False}, False),
        ("torch.installed != true", "", {"torch__installed": False}, True),
        (
            'build.missing_components contains "headers"',
            "",
            {"build__missing_components": ("nvcc", "headers")},
            True,
        ),
        (
            'build.missing_components contains "head"',
            "",
            {"build__missing_components": ("nvcc", "headers")},
            False,
        ),
        ("torch.archs contains gpu.sm", "gpu", {"torch__archs": (80, 90), "gpu__sm": 90}, True),
        ("gpu.sm not in torch.archs", "gpu", {"torch__archs": (80, 90), "gpu__sm": 120}, True),
        ("build.missing_components == []", "", {"build__missing_components": ()}, True),
        (
            'build.missing_components == ["nvcc"]',
            "",
            {"build__missing_components": ("nvcc",)},
            True,
        ),
        ("build.missing_components != []", "", {"build__missing_components": ()}, False),
        (
            "build.cuda_major != torch.cuda_major",
            "",
            {"build__cuda_major": 12, "torch__cuda_major": 13},
            True,
        ),
        ('torch.cuda == "12.8"', "", {"torch__cuda": "12.8"}, True),
    ],
)
def test_each_kind_has_its_own_comparison(
    line: str, element: str, facts: dict[str, Any], expected: bool
) -> None:
    assert truth(line, element, **facts) is expected


def test_a_version_with_a_zero_is_not_a_number() -> None:
    assert truth('torch.cuda == "12.1"', torch__cuda="12.10") is False


# Unknown


@pytest.mark.parametrize(
    "line",
    [
        'torch.version >= "2.5"',
        'torch.version != "2.5"',
        "torch.installed == true",
        "torch.installed != true",
        'torch.build in ["cuda"]',
        'torch.build not in ["cuda"]',
        'build.missing_components contains "nvcc"',
        'torch.build matches "cuda"',
        "build.cuda_major == torch.cuda_major",
    ],
)
def test_an_unknown_fact_makes_its_line_unknown(line: str) -> None:
    assert truth(line) is None


def test_one_unknown_side_is_enough() -> None:
    line = "build.cuda_major == torch.cuda_major"
    assert truth(line, build__cuda_major=12) is None
    assert truth(line, torch__cuda_major=12) is None


def test_being_known_can_be_asked_for() -> None:
    assert truth("torch.archs is known") is False
    assert truth("torch.archs is unknown") is True
    assert truth("torch.archs is known", torch__archs=()) is True
    assert truth("torch.version is known", torch__version="") is True


TRUTHS = st.sampled_from([True, False, None])


@given(st.lists(TRUTHS))
def test_de_morgan(truths: Sequence[Truth]) -> None:
    assert negation(conjunction(truths)) == disjunction(map(negation, truths))
    assert negation(disjunction(truths)) == conjunction(map(negation, truths))


@given(st.lists(TRUTHS), st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(truths: list[Truth], random: Any) -> None:
    shuffled = [*truths, *truths]
    random.shuffle(shuffled)
    assert conjunction(shuffled) == conjunction(truths)
    assert disjunction(shuffled) == disjunction(truths)


@given(st.lists(TRUTHS), st.lists(TRUTHS), st.lists(TRUTHS))
def test_grouping_does_not_matter(one: list[Truth], two: list[Truth], three: list[Truth]) -> None:
    for join in (conjunction, disjunction):
        assert join([join(one), join([join(two), join(three)])]) == join([*one, *two, *three])


@given(st.lists(st.tuples(TRUTHS, st.booleans())))
def test_learning_more_never_changes_what_was_known(pairs: list[tuple[Truth, bool]]) -> None:
    before = [known for known, _ in pairs]
    after = [learned if known is None else known for known, learned in pairs]
    for join in (conjunction, disjunction):
        assert join(before) in (None, join(after))


def test_the_empty_groups() -> None:
    assert conjunction([]) is True
    assert disjunction([]) is False
    assert negation(None) is None


# Words for a reader


@pytest.mark.parametrize(
    ("line", "held", "wanted"),
    [
        ('torch.build == "cpu"', True, "not cpu"),
        ('torch.build != "cuda"', True, "cuda"),
        ('torch.version < "2.5"', True, "≥ 2.5"),
        ('triton.version satisfies "==3.4.*"', False, "==3.4.*"),
        ("gpu.in_torch_archs == false", True, "yes"),
        ("torch.installed != true", True, "yes"),
        ('cc.path == ""', True, "some"),
        ('env.CUDA_HOME != ""', True, "none"),
        ('build.missing_components contains "nvcc"', True, "without nvcc"),
        ("torch.archs is unknown", True, "known"),
        ("torch.archs is known", False, "known"),
        ("torch.archs is unknown", False, "unknown"),
        ("gpus.count <= 2", False, "≤ 2"),
        ("gpus.count > 2", True, "≤ 2"),
        ("gpus.count < 0", True, "≥ 0"),
        ('system.os in ["linux", "macos"]', False, "one of linux, macos"),
        ('system.os in ["linux", "macos"]', True, "none of linux, macos"),
        ('system.os not in ["linux"]', False, "none of linux"),
        ("gpus.count > 0", True, "0"),
    ],
)
def test_what_the_fact_should_have_been(line: str, held: bool, wanted: str) -> None:
    condition = parse(line, catalogue(), "gpu")
    assert condition.wanted(lambda _: None, fault=held) == wanted


def test_another_fact_is_compared_by_its_kind() -> None:
    line = "torch.cuda <= driver.cuda_max"
    assert truth(line, torch__cuda="12.9", driver__cuda_max="12.10") is True
    assert truth(line, torch__cuda="12.10", driver__cuda_max="12.9") is False


def test_a_list_on_the_right_may_be_another_fact() -> None:
    for op, expected in (("in", True), ("not in", False)):
        line = f"gpu.sm {op} torch.archs"
        assert truth(line, "gpu", gpu__sm=90, torch__archs=(80, 90)) is expected
        with pytest.raises(RuleError, match=f"`gpu.sm {op} gpus.count` compares a number with a"):
            parse(f"gpu.sm {op} gpus.count", catalogue(), "gpu")


def test_a_mistake_lists_the_operators() -> None:
    with pytest.raises(RuleError) as caught:
        parse("torch.version", catalogue())
    assert str(caught.value).endswith(
        "operators: == != <= >= < > not in in contains satisfies matches is known is unknown"
    )
    with pytest.raises(RuleError, match=r"use one of != ==$"):
        parse("torch.installed > true", catalogue())


def test_the_value_of_another_fact_is_shown() -> None:
    condition = parse("triton.version satisfies triton.expected", catalogue())
    assert condition.wanted({"triton.expected": "==3.6.*"}.get, fault=False) == "==3.6.*"
    assert condition.wanted(lambda _: None, fault=False) == "unknown"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "unknown"), (True, "yes"), (False, "no"), ((), "none"), ((80, 90), "80, 90"), (7, "7")],
)
def test_values_as_a_reader_sees_them(value: Any, shown: str) -> None:
    assert show(value) == shown


# Mistakes of authors


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('torch.verison >= "2.5"', "no fact 'torch.verison'; did you mean torch.version?"),
        ('env.CUDA_HOMME == ""', "did you mean env.CUDA_HOME?"),
        ("zebra.stripes == 7", "no fact 'zebra.stripes'"),
        ("gpu.sm >= 80", 'gpu.sm needs `for_each = "gpus"`'),
        ("torch.version", "is not `fact operator value`"),
        ('torch.version => "2.5"', "is not `fact operator value`"),
        ("torch.installed > true", "`>` does not fit torch.installed, a boolean"),
        ("system.os < 3", "`<` does not fit system.os, a text"),
        ('gpus.count contains "a"', "`contains` does not fit gpus.count, a number"),
        (
            'build.missing_components satisfies ">=2"',
            "`satisfies` does not fit build.missing_components, a list",
        ),
        ("system.os == linux", "neither a value (text needs quotes) nor a fact"),
        (f"system.os == {'[' * 5000}", "neither a value (text needs quotes) nor a fact"),
        ('torch.installed == "yes"', "torch.installed is a boolean"),
        ("torch.version >= 2.5", "torch.version is a version: 2.5 does not fit"),
        ('torch.version >= "two"', "Invalid version"),
        ('torch.version satisfies "2.5"', "Invalid specifier"),
        ('system.os in "linux"', "does not fit `in`"),
        ("system.os in []", "does not fit `in`"),
        ('system.os matches "["', "unterminated character set"),
        ("system.os == torch.installed", "compares a text with a boolean"),
        ("torch.version satisfies torch.cuda", "compares a version with a version"),
        ("gpus.count == true", "gpus.count is a number"),
    ],
)
def test_a_mistake_is_named(line: str, said: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse(line, catalogue())
    assert said in str(caught.value)


def test_a_fact_of_a_list_may_be_used_inside_it() -> None:
    condition = parse("gpu.sm >= 80", catalogue(), "gpu")
    assert condition == Condition("gpu.sm", ">=", "number", 80)


def test_the_file_and_the_line_are_named(tmp_path: Path) -> None:
    path = tmp_path / "area" / "name.toml"
    path.parent.mkdir()
    path.write_text(
        """
schema = 1
severity = "error"
cause = "torch-cpu-only"
evidence = ["https://example.org"]
checked = 2026-11-21
[text]
title = "T"
why = "W"
[when]
all = ['torch.installed == true', 'torch.biuld == "cpu"']
""",
        encoding="utf-8",
    )
    with pytest.raises(RuleError) as caught:
        read_rule(path, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{path}: when.all line 2: ")
    assert "did you mean torch.build?" in message


def test_every_fact_has_a_kind_and_a_sentence() -> None:
    for name, fact in catalogue().items():
        assert fact.kind in KINDS, name
        assert fact.doc, name
