"""The catalogue of backends: examples of requirements, the index, and names of frameworks."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from attn_doctor.backends.attention_call import KINDS, AttentionCall, Context
from attn_doctor.backends.catalogue import load
from attn_doctor.backends.catalogue_entries import Catalogue, Requirement
from attn_doctor.backends.catalogue_files import build_index, known_facts, read
from attn_doctor.backends.lint import lint, outcome
from attn_doctor.errors import RuleError
from attn_doctor.rulebook import library
from attn_doctor.rulebook.library import folder

ROOT = Path(__file__).parents[2]
TABLE = read(folder())
PROPERTIES = ("past_128", "masked", "head_dim_by_8", "unfused_mib", "math_mib")
RULES = [rule.id for rule in library.load()]
RECORDED: dict[str, dict[str, list[str]]] = json.loads(
    (Path(__file__).parent / "names.json").read_text("utf-8")
)


def test_the_linter_has_no_complaint() -> None:
    assert lint(folder(), RULES)[1] == []


@pytest.mark.parametrize("requirement", TABLE.requirements, ids=lambda one: str(one.id))
def test_examples(requirement: Requirement) -> None:
    for example in requirement.examples:
        assert outcome(requirement, example).value == example.expect, example.name


def test_the_index_is_the_catalogue_without_examples() -> None:
    index = msgspec.json.decode(build_index(folder()), type=Catalogue)
    bare = [msgspec.structs.replace(one, examples=()) for one in TABLE.requirements]
    assert list(index.requirements) == bare
    assert (index.names, index.backends) == (TABLE.names, TABLE.backends)
    assert (index.orders, index.preference) == (TABLE.orders, TABLE.preference)


@pytest.mark.parametrize(
    ("framework", "version"),
    [(framework, version) for framework, versions in RECORDED.items() for version in versions],
)
def test_names_are_those_of_the_frameworks_wheels(framework: str, version: str) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "backends_table.py"))
    assert tool["compare"]({framework: {version: RECORDED[framework][version]}}) == []


def test_the_comparison_notices_a_missing_and_a_superfluous_name() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "backends_table.py"))
    names = [*RECORDED["diffusers"]["0.42.1"], "flash_5"]
    names.remove("flex")
    assert tool["compare"]({"diffusers": {"0.42.1": names}}) == [
        "diffusers 0.42.1 has flash_5, we do not",
        "diffusers 0.42.1 has no flex, we do",
    ]


def test_what_was_compared_is_said() -> None:
    for framework in TABLE.frameworks:
        assert list(framework.compared) == list(RECORDED[framework.name])
        assert framework.newest == framework.compared[-1]


def test_finetrainers_and_diffusers_use_the_same_words() -> None:
    for name in TABLE.names:
        if name.framework in ("diffusers", "finetrainers"):
            assert name.name == name.backend


def test_every_value_of_a_call_and_its_context_has_a_kind() -> None:
    fields = {f"call.{name}" for name in (*AttentionCall.__struct_fields__, *PROPERTIES)}
    fields |= {f"context.{name}" for name in Context.__struct_fields__}
    assert fields == {name for names in KINDS.values() for name in names}
    assert {"call.mask", "context.hub", "torch.version"} <= set(known_facts())


def test_measured_orders_are_in_order() -> None:
    for order in load().orders:
        times = [one.ms for one in order.timing]
        assert times == sorted(times)


def catalogue(tmp_path: Path, **files: str) -> Path:
    """A `rules/` folder with a catalogue of one backend, or with `files` in place of it."""
    base = {
        "names": """
name = [{ framework = "diffusers", name = "a", backend = "a", since = "1" }]
preference = { why = "x", backends = ["a"] }
[[framework]]
name = "diffusers"
title = "Diffusers"
option = "x"
newest = "1"
compared = ["1"]
source = "https://x"
""",
        "backends": """
[[backend]]
name = "a"
title = "A"
requires = ["there"]
source = "https://x"
[[requirement]]
id = "there"
text = "not there"
needs = ['torch.installed == true']
source = "https://x"
[[requirement.example]]
name = "none"
expect = "unsatisfied"
facts = { torch.installed = false }
[[requirement.example]]
name = "some"
expect = "satisfied"
facts = { torch.installed = true }
""",
    }
    place = tmp_path / "tables" / "backends"
    place.mkdir(parents=True)
    for name, text in (base | files).items():
        (place / f"{name}.toml").write_text("schema = 1\nchecked = 2026-01-01\n" + text)
    return tmp_path


def test_a_sound_catalogue(tmp_path: Path) -> None:
    assert lint(catalogue(tmp_path), ["a/b"])[1] == []


MORE = """
[[requirement]]
id = "more"
text = "{words}"
{lines}
source = "https://x"
[[requirement.example]]
name = "one"
expect = "{expect}"
facts = {{ torch.installed = false }}
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lines": "needs = ['torch.instaled == true']"}, "did you mean torch.installed?"),
        ({"lines": ""}, "exactly one of conditions"),
        ({"lines": "needs = ['call.mask > 3']"}, "does not fit call.mask"),
        ({"lines": "needs = ['torch.installed == true']\nrule = 'no/rule'"}, "which is not a rule"),
        ({"lines": "needs = ['torch.installed == true']"}, "expect = 'satisfied'"),
        (
            {"lines": "needs = ['torch.installed == true']", "expect": "satisfied"},
            "expected satisfied, got",
        ),
        (
            {"lines": "needs = ['torch.installed == true', 'torch.debug == false']"},
            "needs line 2 is guarded by no example",
        ),
        ({"lines": "needs = ['torch.installed == true']", "words": "{torch.x}"}, "is not a fact"),
        ({"lines": "needs = ['torch.installed == true']"}, "no backend requires 'more'"),
        ({"lines": "never = true\nshape = 1"}, "unknown field"),
    ],
)
def test_a_faulty_demand_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    text = MORE.format(**{"words": "x", "expect": "unsatisfied", **change})
    complaints = lint(catalogue(tmp_path, more=text), ["a/b"])[1]
    assert any(said in text for _, text in complaints), complaints


BACKEND = '[[backend]]\nname = "{}"\ntitle = "A"\nrequires = {}\nsource = "https://x"'


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"backends": BACKEND.format("a", '["x"]')}, "no requirement 'x'"),
        ({"backends": BACKEND.format("a", '["@x"]')}, "no set 'x'"),
        ({"more": BACKEND.format("b", "[]")}, "has a name for b"),
        ({"more": BACKEND.format("a", "[]")}, "is defined twice"),
        (
            {"more": 'name = [{framework = "diffusers", name = "b", backend = "b", since = "1"}]'},
            "no backend 'b'",
        ),
        ({"more": "checked = nonsense"}, "more.toml"),
    ],
)
def test_a_catalogue_that_cannot_be_read_says_where(
    tmp_path: Path, files: dict[str, str], said: str
) -> None:
    with pytest.raises(RuleError, match=r"tables[/\\]backends") as error:
        read(catalogue(tmp_path, **files))
    assert said in str(error.value)
    assert lint(tmp_path, [])[0] is None
