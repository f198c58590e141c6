"""Reading a policy, and what it does to a diagnosis."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.findings import Diagnosis, Verdict
from attn_doctor.policy import baseline
from attn_doctor.policy.evaluate import apply_policy
from attn_doctor.policy.policy import Ignore, Policy, PolicyError, find, read
from attn_doctor.render.findings.json import json as written
from attn_doctor.render.grouping import problems
from tests.render.sample import CONSEQUENCE, DIAGNOSIS, OLD_DRIVER

TODAY = date(2026, 11, 21)
WHOLE = """
fail-on = "warning"
require = ["flash", "native"]
training = true
allowed-gpus = ["H100", "sm_90"]
rules = ["ci/rules"]
[minimum]
torch = "2.8"
[[ignore]]
rule = "caches/volatile"
reason = "the image is rebuilt each night"
until = 2027-01-31
"""


def own(tmp_path: Path, text: str, name: str = "attn-doctor.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def accepted(policy: Policy, diagnosis: Diagnosis = DIAGNOSIS) -> list[str]:
    return [one.rule for one in apply_policy(diagnosis, policy, TODAY).problems]


def test_a_whole_policy(tmp_path: Path) -> None:
    policy = read(own(tmp_path, WHOLE))
    assert policy.fail_on == "warning"
    assert policy.require == ("flash", "native")
    assert policy.ignore[0].until == date(2027, 1, 31)
    assert policy.folders == (tmp_path / "ci/rules",)


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    own(tmp_path, "", "pyproject.toml")
    assert find(inner) is None
    project = own(tmp_path, "[tool.attn-doctor]\n", "pyproject.toml")
    assert find(inner) == project
    nearer = own(inner.parent, "[tool.attn-doctor]\nrequire = ['flex']\n", "pyproject.toml")
    assert find(inner) == nearer
    assert read(nearer).require == ("flex",)
    assert find(inner) != own(inner.parent, "") == find(inner)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fail-on = 'erorr'", "fail-on: Invalid enum value 'erorr'"),
        ("fail_on = 'error'", "unknown key 'fail_on'; did you mean fail-on?"),
        ("zzz = 1", "unknown key 'zzz'; write one of fail-on, require"),
        (
            "[[ignore]]\nrule = 'a/b'\nuntil = 2027-01-01",
            "ignore[0]: Object missing required field `reason`",
        ),
        ("[[ignore]]\nrule = 'a/b'\nwhy = 'x'", "ignore 1: unknown key 'why'"),
        ("[minimum]\ntorch = 'new'", "minimum.torch: 'new' is not a version"),
        ("require = 3", "require: Expected `array`, got `int`"),
        ("\n= 1", "line 2"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    path = own(tmp_path, text)
    with pytest.raises(AttnDoctorError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert sentence in str(caught.value)


def test_files_without_a_policy(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="No such file"):
        read(tmp_path / "none.toml")
    with pytest.raises(PolicyError, match=r"has no \[tool.attn-doctor\] table"):
        read(own(tmp_path, "[tool]\n", "pyproject.toml"))
    with pytest.raises(PolicyError, match="too large"):
        read(own(tmp_path, "#" * (1 << 21)))


def test_an_accepted_problem_and_what_it_explains_do_not_count() -> None:
    ignore = Ignore("driver/too-old-for-torch", "waits for the new image", date(2026, 12, 1))
    before, after = accepted(Policy()), accepted(Policy(ignore=(ignore,)))
    assert {OLD_DRIVER.rule, CONSEQUENCE.rule} <= set(before)
    assert not {OLD_DRIVER.rule, CONSEQUENCE.rule} & set(after)
    suppressed = apply_policy(DIAGNOSIS, Policy(ignore=(ignore,)), TODAY).suppressed
    assert suppressed[0].suppressed == "waits for the new image (until 2026-12-01)"


def test_a_whole_area_or_one_subject_may_be_accepted() -> None:
    area = Ignore("gpu/*", "x", TODAY)
    assert "gpu/memory-low" not in accepted(Policy(ignore=(area,)))
    one = Ignore("gpu/memory-low", "x", TODAY, "GPU 1")
    assert accepted(Policy(ignore=(one,))).count("gpu/memory-low") == 1


def test_an_expired_exception_is_a_problem_and_no_longer_one() -> None:
    ignore = Ignore("gpu/memory-low", "x", date(2026, 11, 20))
    rules = accepted(Policy(ignore=(ignore,), path="p.toml"))
    assert rules[0] == "policy/ignore-expired"
    assert rules.count("gpu/memory-low") == 2


@pytest.mark.parametrize(("days", "valid"), [(-1, True), (0, True), (1, False)])
def test_an_exception_is_valid_on_its_last_day_and_not_after(days: int, valid: bool) -> None:
    ignore = Ignore("gpu/memory-low", "x", date(2026, 11, 20))
    policy = Policy(ignore=(ignore,), path="p.toml")
    rules = [
        finding.rule
        for finding in apply_policy(DIAGNOSIS, policy, ignore.until + timedelta(days=days)).problems
    ]
    assert ("gpu/memory-low" not in rules) is valid
    assert ("policy/ignore-expired" not in rules) is valid


def test_minimum_versions() -> None:
    def found(**minimum: str) -> list[str]:
        return accepted(Policy(minimum=minimum), replace(DIAGNOSIS, findings=()))

    assert found(torch="2.11", driver="550") == []
    assert found(torch="2.12") == ["policy/minimum"]
    assert found(flash_attn="2.8") == ["policy/minimum-unknown"]
    with pytest.raises(PolicyError, match=r"minimum\.torhc is not a fact with a version"):
        found(torhc="2")


def test_allowed_gpus() -> None:
    def found(*allowed: str) -> list[str]:
        diagnosis = replace(DIAGNOSIS, findings=())
        shown = apply_policy(diagnosis, Policy(allowed_gpus=allowed), TODAY).problems
        return [one.subject for one in shown]

    assert found("h100") == found("sm_90") == found() == []
    assert found("A100", "sm_89") == ["GPU 0", "GPU 1"]
    none = replace(DIAGNOSIS, findings=(), facts=replace(DIAGNOSIS.facts, gpus=()))
    assert (
        apply_policy(none, Policy(allowed_gpus=("H100",)), TODAY)
        .problems[0]
        .title.startswith("This")
    )


def test_a_baseline_leaves_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(written(DIAGNOSIS, 1))
    known = baseline.read(path)
    assert baseline.suppress_known(DIAGNOSIS, known, "b").problems == ()
    without = frozenset(one for one in known if one[0] != CONSEQUENCE.rule)
    new = baseline.suppress_known(DIAGNOSIS, without, "b")
    assert [one.rule for one in new.problems] == [CONSEQUENCE.rule]
    # An old problem explains it, and it is shown all the same.
    assert [one.finding.rule for one in problems(new)] == [CONSEQUENCE.rule]
    assert all(one.verdict is Verdict.PROBLEM for one in new.suppressed)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": 1, "problems": [{}]}', "\xff"])
def test_a_file_that_is_not_a_baseline(tmp_path: Path, text: str) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(AttnDoctorError, match=r"b\.json: is not a baseline: .*--format json:"):
        baseline.read(path)
    with pytest.raises(AttnDoctorError, match="cannot be read: No such file"):
        baseline.read(tmp_path / "none.json")
    assert json.loads(written(DIAGNOSIS, 1))["problems"]
