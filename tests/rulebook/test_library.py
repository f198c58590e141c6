"""The prebuilt index holds the rules themselves, and a faulty rule file says what to correct."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from attn_doctor.errors import RuleError
from attn_doctor.findings import Verdict
from attn_doctor.rulebook.evaluate import evaluate_rule, evaluate_rules
from attn_doctor.rulebook.library import (
    folder,
    read_tables,
    required_sets,
)
from attn_doctor.rulebook.rule import Rule
from attn_doctor.rulebook.rule_files import example_facts, read_folder, read_rule, rule_paths
from tests.command import read_index, whole_rules

GOOD = """\
schema   = 1
severity = "error"
cause    = "torch-cpu-only"
evidence = ["https://example.org/1"]
checked  = 2026-11-21

[text]
title = "torch {torch.version} is a CPU build"
why   = "It has no code for GPUs."

[applies]
all = ['gpus.count > 0']

[when]
all = ['torch.build == "cpu"']

[[fix]]
title  = "Install the CUDA build"
safety = "ask"
run    = [["pip", "install", "torch"]]

[[symptom]]
pattern = "not compiled with CUDA"
logs    = ["Torch not compiled with CUDA enabled"]

[[example]]
name   = "the default wheel of Windows"
expect = "problem"
[example.facts]
torch.build = "cpu"
gpus = [{ sm = 89 }]
"""


def test_the_index_holds_the_same_rules_without_their_examples() -> None:
    index = read_index()
    rules = whole_rules()
    for packed, rule in zip(index.rules(), rules, strict=True):
        assert type(packed) is Rule
        names = set(Rule.__struct_fields__) - {"symptom_ways"}
        assert all(getattr(packed, name) == getattr(rule, name) for name in names)
    assert all(len(rule.symptom_ways) == len(rule.symptoms) for rule in index.rules())
    expected = [rule.id for rule in rules if rule.has_conditions]
    assert [rule.id for rule in index.bare] == expected
    assert dict(index.tables) == msgspec.to_builtins(read_tables(folder()))
    assert len(rules) > 100


def test_rules_from_the_index_find_the_same_as_those_from_the_files() -> None:
    index = read_index()
    packed = {rule.id: rule for rule in index.rules()}
    bare = {rule.id: rule for rule in index.bare}
    seen = set()
    for rule in whole_rules():
        for example in rule.examples:
            facts = example_facts(example.name, example.facts)
            findings = evaluate_rule(packed[rule.id], facts)
            assert findings == evaluate_rule(rule, facts)
            if rule.has_conditions:
                wordless = bare[rule.id]
                assert not wordless.fixes
                from_index = evaluate_rules(facts, [wordless], None, index.whole)
                assert from_index == evaluate_rules(facts, [rule])
            seen |= {finding.verdict for finding in findings}
    assert seen == set(Verdict)


def write(root: Path, text: str, name: str = "torch/some-rule.toml") -> Path:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_rule_is_named_after_its_path(tmp_path: Path) -> None:
    assert read_rule(write(tmp_path, GOOD), tmp_path).id == "torch/some-rule"


FAULTS = {
    # what is wrong: what is replaced, by what, the place that is named, and the remedy
    "misspelt key": ("title = ", "titel = ", "text:", "did you mean title?"),
    "misspelt key at the top": ("severity =", "severty =", "`severty`", "did you mean severity?"),
    "misspelt fact": (
        "'torch.build ==",
        "'torch.bild ==",
        "when.all line 1:",
        "did you mean torch.build?",
    ),
    "misspelt fact in an example": (
        "torch.build = ",
        "torch.bild = ",
        "example 'the default wheel of Windows':",
        "did you mean torch.build?",
    ),
    "misspelt fact in a text": (
        "{torch.version}",
        "{torch.verson}",
        "'torch {torch.verson}",
        "fact",
    ),
    "operator that does not fit": (
        "torch.build ==",
        "torch.build >=",
        "when.all line 1:",
        "use one of != == contains in matches not in",
    ),
    "no operator": ('build == "cpu"', "build is cpu", "when.all line 1:", "operators: == !="),
    "text without quotes": (
        'torch.build == "cpu"',
        "torch.build == cpu",
        "when.all line 1:",
        "needs quotes",
    ),
    "element without its list": (
        "gpus.count > 0",
        "gpu.sm > 0",
        "applies.all line 1:",
        'needs `for_each = "gpus"`',
    ),
    "bad TOML": ("[when]", "[when", "line 14, column 6:", "Expected ']'"),
    "bad regular expression": (
        '"not compiled with CUDA"',
        '"(not compiled"',
        "symptom pattern '(not compiled':",
        "missing ), unterminated subpattern at position 0",
    ),
    "set in a set": (
        '"not compiled with CUDA"',
        "'not compiled with [[a-z] CUDA'",
        "symptom pattern 'not compiled with [[a-z] CUDA':",
        "Possible nested set",
    ),
    "long regular expression": (
        '"not compiled with CUDA"',
        f"'not compiled with {'a' * 190}'",
        "has 208 characters, more than 200",
        "`pattern` can be a list of alternatives",
    ),
    "bad alternative": (
        '"not compiled with CUDA"',
        "['not compiled with CUDA', '(not compiled']",
        "symptom pattern '(not compiled':",
        "missing ), unterminated subpattern at position 0",
    ),
    "half a character": (
        '"not compiled with CUDA"',
        "'not compiled with \\ud800 CUDA'",
        "symptom pattern",
        "names half of a character",
    ),
    "unknown safety": ('"ask"', '"maybe"', "fix[0].safety:", "one of auto, ask, manual"),
    "unknown severity": ('"error"', '"fatal"', "severity:", "one of info, warning, error"),
    "unknown verdict": (
        '"problem"',
        '"fault"',
        "example[0].expect:",
        "one of problem, ok, unknown, not applicable",
    ),
    "unknown set": (
        "checked  =",
        'requires = ["@no-cuda-troch"]\nchecked  =',
        "requires:",
        "no-cuda-torch?",
    ),
    "insecure link": ("https://", "http://", "evidence[0]:", "^https://"),
}


@pytest.mark.parametrize(("old", "new", "place", "remedy"), FAULTS.values(), ids=FAULTS)
def test_a_faulty_rule_says_where_and_what_to_write(
    tmp_path: Path, old: str, new: str, place: str, remedy: str
) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(RuleError) as caught:
        read_rule(path, tmp_path, required_sets())
    sentence = str(caught.value)
    assert sentence.startswith(f"{path}: ")
    assert place in sentence
    assert remedy in sentence
    assert "\n" not in sentence


def test_a_rule_without_conditions_and_symptoms_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace("[when]\nall = ['torch.build == \"cpu\"']\n", "")
    head, _, tail = text.partition("[[symptom]]")
    path = write(tmp_path, head + tail[tail.index("[[example]]") :])
    with pytest.raises(RuleError, match=r"needs \[when\].*, \[\[symptom\]\].*, or both"):
        read_rule(path, tmp_path)


@pytest.mark.parametrize("name", ["torch/Some-Rule.toml", "torch/some_rule.toml", "a b/c.toml"])
def test_a_name_that_is_not_an_id_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RuleError, match="area/name in lower case with hyphens"):
        read_rule(write(tmp_path, GOOD, name), tmp_path)


def test_one_faulty_file_stops_the_folder_and_is_named(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    faulty = write(tmp_path, GOOD.replace('"ask"', '"maybe"'), "flash/other.toml")
    with pytest.raises(RuleError, match="one of auto, ask, manual") as caught:
        read_folder(tmp_path)
    assert str(faulty) in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "torch" / "x.toml"
    path.parent.mkdir()
    path.write_bytes(b'schema = 1\ntitle = "\xff"\n')
    with pytest.raises(RuleError, match=r"x\.toml: cannot be read: .*utf-8"):
        read_rule(path, tmp_path)


# Sets in `requires`, and reports


def test_a_set_of_required_rules_is_replaced_by_its_members(tmp_path: Path) -> None:
    text = GOOD.replace("checked  =", 'requires = ["a/b", "@no-cuda-torch", "a/b"]\nchecked  =')
    rule = read_rule(write(tmp_path, text), tmp_path, required_sets())
    assert rule.requires == ("a/b", "torch/not-installed", "torch/cpu-build")


def test_a_rulebook_may_have_sets_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "requires.toml").write_text('[set]\nours = ["x/y"]\n')
    text = GOOD.replace("checked  =", 'requires = ["@ours"]\nchecked  =')
    assert read_rule(write(tmp_path, text), tmp_path).requires == ("x/y",)


def test_every_set_is_used_and_names_rules() -> None:
    ids = {path.relative_to(folder()).with_suffix("").as_posix() for path in rule_paths(folder())}
    texts = [path.read_text(encoding="utf-8") for path in rule_paths(folder())]
    for name, members in read_tables(folder())["requires"]["set"].items():
        assert set(members) <= ids
        assert sum(f'"@{name}"' in text for text in texts) > 1


def test_reports_are_kept_apart_from_printed_lines(tmp_path: Path) -> None:
    text = GOOD.replace("logs    =", 'reports = ["title: not compiled with CUDA"]\nlogs    =')
    (symptom,) = read_rule(write(tmp_path, text), tmp_path).symptoms
    assert symptom.lines == (*symptom.logs, "title: not compiled with CUDA")
    alone = re.sub(r"(?m)^logs    = .*$", "", text)
    (symptom,) = read_rule(write(tmp_path, alone), tmp_path).symptoms
    assert symptom.logs == ()
    neither = re.sub(r"(?m)^(logs   |reports) = .*$", "", text)
    with pytest.raises(RuleError, match="needs `logs`, `reports`, or both"):
        read_rule(write(tmp_path, neither), tmp_path)
