"""Reading a policy, and what it does to a diagnosis."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Gpu
from attn_doctor.files import TEXT
from attn_doctor.findings import Because, Diagnosis, Finding, Fix, Safety, Severity, Verdict
from attn_doctor.policy import baseline
from attn_doctor.policy.evaluate import apply_policy
from attn_doctor.policy.nearest import find
from attn_doctor.policy.policy import Ignore, Policy, PolicyError, read
from attn_doctor.render.findings.json import json as written
from attn_doctor.render.grouping import problems
from attn_doctor.worker import reach
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


def test_a_folder_that_never_answers_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    policies = [own(folder, "") for folder in (inner.parent, tmp_path)]
    assert find(inner) == policies[0]
    monkeypatch.setattr(reach, "dead", lambda folder: folder == inner.parent)
    assert find(inner) == policies[1]


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


def test_the_sentence_about_an_unknown_key(tmp_path: Path) -> None:
    path = own(tmp_path, "path = 'x'")
    with pytest.raises(PolicyError) as caught:
        read(path)
    assert str(caught.value) == (
        f"{path}: unknown key 'path'; write one of fail-on, require, training, framework, minimum,"
        " allowed-gpus, rules, ignore"
    )


def test_a_table_of_another_kind_is_no_policy(tmp_path: Path) -> None:
    for text in ("tool = 'attn-doctor'", "[tool]\nattn-doctor = 3"):
        own(tmp_path, text, "pyproject.toml")
        assert find(tmp_path) is None


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    assert read(own(tmp_path, "#" * TEXT)).require == ()


def test_files_without_a_policy(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="No such file"):
        read(tmp_path / "none.toml")
    with pytest.raises(PolicyError, match=r"has no \[tool.attn-doctor\] table"):
        read(own(tmp_path, "[tool]\n", "pyproject.toml"))
    with pytest.raises(PolicyError, match="at most 2 MiB are read"):
        read(own(tmp_path, "#" * (TEXT + 1)))


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


@pytest.mark.parametrize(
    ("pattern", "accepts"),
    [
        ("gpu/memory-low", True),
        ("gpu/*", True),
        ("gpu/", False),
        ("gpu/memory", False),
        ("gpu", False),
        ("gp/*", False),
        ("other/*", False),
    ],
)
def test_a_pattern_matches_a_rule_or_its_whole_area(pattern: str, accepts: bool) -> None:
    policy = Policy(ignore=(Ignore(pattern, "x", TODAY),))
    assert ("gpu/memory-low" not in accepted(policy)) is accepts


def _problem(rule: str, subject: str = "", caused_by: str = "") -> Finding:
    return Finding(
        rule=rule,
        verdict=Verdict.PROBLEM,
        severity=Severity.ERROR,
        cause="c",
        title=rule,
        subject=subject,
        caused_by=caused_by,
    )


def test_a_consequence_counts_while_one_of_its_causes_counts() -> None:
    """The root cause has two subjects; the policy accepts one of them, or both."""
    findings = (
        _problem("a/root", "GPU 0"),
        _problem("a/root", "GPU 1"),
        _problem("b/consequence", caused_by="a/root"),
    )
    diagnosis = replace(DIAGNOSIS, findings=findings)
    one, both = (Ignore("a/root", "x", TODAY, subject) for subject in ("GPU 0", ""))
    assert accepted(Policy(ignore=(one,)), diagnosis) == ["a/root", "b/consequence"]
    assert accepted(Policy(ignore=(both,)), diagnosis) == []


def test_an_accepted_consequence_keeps_its_own_reason() -> None:
    findings = (_problem("a/root"), _problem("b/consequence", caused_by="a/root"))
    ignores = (Ignore("b/*", "its own", TODAY), Ignore("a/*", "of its cause", TODAY))
    found = apply_policy(replace(DIAGNOSIS, findings=findings), Policy(ignore=ignores), TODAY)
    assert [one.suppressed for one in found.findings] == [
        "of its cause (until 2026-11-21)",
        "its own (until 2026-11-21)",
    ]


def test_a_cause_that_is_no_problem_any_more_accepts_nothing() -> None:
    """An accepted problem may have another finding of its rule that is ok."""
    fine = replace(_problem("a/root", "GPU 1"), verdict=Verdict.OK)
    findings = (_problem("a/root", "GPU 0"), fine, _problem("b/b", caused_by="a/root"))
    policy = Policy(ignore=(Ignore("a/root", "x", TODAY),))
    assert accepted(policy, replace(DIAGNOSIS, findings=findings)) == []


def _only(policy: Policy, **facts: object) -> Finding:
    """The one finding of the policy itself."""
    diagnosis = replace(DIAGNOSIS, findings=(), facts=replace(DIAGNOSIS.facts, **facts))
    (finding,) = apply_policy(diagnosis, policy, TODAY).findings
    assert finding.verdict is Verdict.PROBLEM
    assert finding.severity is Severity.ERROR
    assert finding.cause == "policy"
    assert [fix.safety for fix in finding.fixes] == [Safety.MANUAL]
    return finding


def test_what_an_expired_exception_says() -> None:
    ignore = Ignore("a/b", "the reason", date(2026, 11, 20))
    assert _only(Policy(ignore=(ignore,), path="p.toml")) == Finding(
        rule="policy/ignore-expired",
        verdict=Verdict.PROBLEM,
        severity=Severity.ERROR,
        cause="policy",
        title="The exception for a/b ended on 2026-11-20",
        why="It was accepted because: the reason",
        because=(
            Because(fact="today", seen="2026-11-21", wanted="at most 2026-11-20", truth=True),
        ),
        fixes=(
            Fix(
                title="Fix what a/b reports, or renew `until` in p.toml",
                safety=Safety.MANUAL,
            ),
        ),
    )


def test_what_an_old_version_says() -> None:
    old = _only(Policy(minimum={"torch": "2.12"}, path="p.toml"))
    assert old.rule == "policy/minimum"
    assert old.why == "`minimum.torch` in p.toml demands 2.12 or newer."
    assert old.because == (
        Because(fact="torch.version", seen="2.11.0+cu130", wanted="≥ 2.12", truth=True),
    )
    assert [fix.title for fix in old.fixes] == ["Install torch 2.12 or newer"]


@pytest.mark.parametrize(
    ("gaps", "why"),
    [
        ({}, "flash_attn is not installed, or does not state its version."),
        ({"flash_attn.version": "its file cannot be read"}, "its file cannot be read"),
    ],
)
def test_what_an_unknown_version_says(gaps: dict[str, str], why: str) -> None:
    unknown = _only(Policy(minimum={"flash_attn": "2.8"}), gaps=gaps)
    assert unknown.rule == "policy/minimum-unknown"
    assert unknown.why == why
    assert unknown.because == (
        Because(fact="flash_attn.version", seen="unknown", wanted="≥ 2.8", truth=None),
    )


def test_what_a_gpu_that_is_not_allowed_says() -> None:
    policy = Policy(allowed_gpus=("A100", "sm_89"), path="p.toml")
    gpu = _only(policy, gpus=(Gpu(index=3, name="NVIDIA H100", sm=90),))
    assert (gpu.rule, gpu.subject) == ("policy/gpu-not-allowed", "GPU 3")
    assert gpu.why == "`allowed-gpus` in p.toml names A100, sm_89."
    wanted = "one of A100, sm_89"
    assert gpu.because == (Because(fact="gpu.name", seen="NVIDIA H100", wanted=wanted, truth=True),)
    nameless = _only(policy, gpus=(Gpu(index=0),))
    assert nameless.because[0].seen == "unknown"
    for gaps, why in (({}, "no NVIDIA GPU was found."), ({"gpus": "NVML failed"}, "NVML failed.")):
        none = _only(policy, gpus=(), gaps=gaps)
        assert (none.rule, none.subject, none.why) == ("policy/gpu-not-allowed", "", why)
        assert none.because == (Because(fact="gpus", seen="none", wanted=wanted, truth=True),)
        assert none.fixes[0].title == "Run this on another machine, or change `allowed-gpus`"


def test_an_architecture_is_compared_whole() -> None:
    policy = Policy(allowed_gpus=("sm_9",))
    assert _only(policy, gpus=(Gpu(index=0, name="sm_9", sm=90),)).subject == "GPU 0"
    assert _only(Policy(allowed_gpus=("x",)), gpus=(Gpu(index=0, sm=90),)).subject == "GPU 0"


def test_minimum_versions() -> None:
    def found(**minimum: str) -> list[str]:
        return accepted(Policy(minimum=minimum), replace(DIAGNOSIS, findings=()))

    assert found(torch="2.11", driver="550") == found(driver="550.54.14") == []
    assert found(torch="2.12") == ["policy/minimum"]
    assert found(**{"flash-attn": "2.8"}) == ["policy/minimum-unknown"]
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
    path.write_text(written(DIAGNOSIS, 1), encoding="utf-8")
    known = baseline.read(path)
    assert baseline.suppress_known(DIAGNOSIS, known, "b").problems == ()
    without = frozenset(one for one in known if one[0] != CONSEQUENCE.rule)
    new = baseline.suppress_known(DIAGNOSIS, without, "b")
    assert [one.rule for one in new.problems] == [CONSEQUENCE.rule]
    # An old problem explains it, and it is shown all the same.
    assert [one.finding.rule for one in problems(new)] == [CONSEQUENCE.rule]
    assert all(one.verdict is Verdict.PROBLEM for one in new.suppressed)


def test_a_baseline_changes_only_problems_and_the_cause_of_new_ones() -> None:
    root, consequence = _problem("a/root"), _problem("b/b", caused_by="a/root")
    other = _problem("c/c", caused_by="d/not-in-the-baseline")
    fine = replace(_problem("a/ok"), verdict=Verdict.OK)
    accepted_before = replace(_problem("a/a"), suppressed="by the policy")
    diagnosis = replace(DIAGNOSIS, findings=(root, consequence, other, fine, accepted_before))
    known = frozenset({("a/root", ""), ("a/ok", ""), ("a/a", "")})
    assert baseline.suppress_known(diagnosis, known, "b").findings == (
        replace(root, suppressed="known: in the baseline b"),
        replace(consequence, caused_by=""),
        other,
        fine,
        accepted_before,
    )
    # A known consequence keeps its cause: both are hidden.
    both = baseline.suppress_known(diagnosis, known | {("b/b", "")}, "b").findings[1]
    assert both.caused_by == "a/root"


def test_a_baseline_of_the_largest_size_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "b.json"
    path.write_text(written(DIAGNOSIS, 1), encoding="utf-8")
    monkeypatch.setattr(baseline, "DATA", path.stat().st_size)
    assert baseline.read(path)
    monkeypatch.setattr(baseline, "DATA", path.stat().st_size - 1)
    with pytest.raises(AttnDoctorError, match="and at most"):
        baseline.read(path)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"schema": 1, "problems": [{}]}', "\xff"])
def test_a_file_that_is_not_a_baseline(tmp_path: Path, text: str) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(AttnDoctorError, match=r"b\.json: is not a baseline: .*--format json:"):
        baseline.read(path)
    with pytest.raises(AttnDoctorError, match="cannot be read: No such file"):
        baseline.read(tmp_path / "none.json")
    assert json.loads(written(DIAGNOSIS, 1))["problems"]
