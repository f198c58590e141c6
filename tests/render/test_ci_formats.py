"""What CI systems read, checked by the schemas and readers that they use."""

from __future__ import annotations

import json
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema
from junitparser import JUnitXml
from msgspec.structs import replace

from attn_doctor.findings import Diagnosis, Finding, Severity
from attn_doctor.render.findings.github import github
from attn_doctor.render.findings.gitlab import gitlab
from attn_doctor.render.findings.junit import junit
from attn_doctor.render.findings.locations import default_file, fingerprint
from attn_doctor.render.findings.sarif import sarif
from attn_doctor.rulebook import library
from tests.render.sample import CONSEQUENCE, DIAGNOSIS, FACTS, HEALTHY, OLD_DRIVER

SCHEMAS = Path(__file__).with_name("schemas")


@cache
def junit_schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(SCHEMAS / "junit-10.xsd")


def only(*findings: Finding) -> Diagnosis:
    return Diagnosis(facts=FACTS, findings=findings, rules=len(findings))


EVIL = replace(
    OLD_DRIVER,
    title="50%,a:b\n::error::x",
    why="line\x1b[31m\x00one\r\nline two % ]]> <b>",
    subject="GPU é\x07",
)


def valid_sarif(text: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(text)
    jsonschema.Draft4Validator(json.loads((SCHEMAS / "sarif-2.1.0.json").read_text())).validate(
        data
    )
    return data


def test_sarif_is_valid_and_points_at_a_file() -> None:
    data = valid_sarif(sarif(DIAGNOSIS, library.load(), 1, "my project.toml"))
    (run,) = data["runs"]
    first = run["results"][0]
    assert first["ruleId"] == "driver/too-old-for-torch"
    assert first["level"] == "error"
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "my%20project.toml"}
    described = run["tool"]["driver"]["rules"][first["ruleIndex"]]
    assert described["id"] == first["ruleId"]
    assert described["help"]["markdown"]
    assert run["invocations"][0]["exitCode"] == 1
    assert (
        "caches/network"
        in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]
    )


def test_sarif_of_a_healthy_machine_and_of_unknown_rules_is_valid() -> None:
    assert valid_sarif(sarif(HEALTHY, (), 0))["runs"][0]["results"] == []
    rules = valid_sarif(sarif(DIAGNOSIS, (), 1))["runs"][0]["tool"]["driver"]["rules"]
    assert "help" not in rules[0]


def test_junit_is_valid_and_counts() -> None:
    text = junit(DIAGNOSIS)
    junit_schema().validate(BytesIO(text.encode()))
    (suite,) = JUnitXml.fromstring(text.encode())
    cases = {f"{case.classname}/{case.name}": case for case in suite}
    assert (suite.tests, suite.failures) == (len(cases), 2)
    failed = cases["attn-doctor.driver/too-old-for-torch"].result[0]
    assert failed.message.startswith("PyTorch") or failed.message
    assert "pip install torch==2.11.0" in failed.text
    skipped = cases["attn-doctor.caches/network"].result[0]
    assert skipped.message == "the cache probe did not answer within 4 s"
    assert cases["attn-doctor.gpu/memory-low"].is_passed


@pytest.mark.parametrize(
    ("level", "failures"), [(Severity.INFO, 4), (Severity.WARNING, 3), (None, 0)]
)
def test_junit_fails_from_the_severity_that_check_fails_from(
    level: Severity | None, failures: int
) -> None:
    (suite,) = JUnitXml.fromstring(junit(DIAGNOSIS, level).encode())
    assert suite.failures == failures


def test_gitlab_has_what_it_requires() -> None:
    issues = json.loads(gitlab(DIAGNOSIS, "ci/attn.toml"))
    assert [issue["severity"] for issue in issues][:1] == ["critical"]
    for issue in issues:
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["location"] == {"path": "ci/attn.toml", "lines": {"begin": 1}}
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)


def test_github_writes_one_command_for_each_root_problem() -> None:
    lines = github(DIAGNOSIS, "attn-doctor.toml").splitlines()
    assert [line.split(" ")[0] for line in lines[:3]] == ["::error", "::warning", "::notice"]
    assert "file=attn-doctor.toml" in lines[0]
    assert "pip install torch==2.11.0" in lines[0]
    assert lines[3] == "attn-doctor: 1 error, 1 warning, 1 note"
    assert not any(CONSEQUENCE.rule in line.split("::")[1] for line in lines[:3])


def test_nothing_from_the_machine_can_break_out() -> None:
    written = github(only(EVIL)).splitlines()
    assert len(written) == 2
    assert written[0].startswith("::error title=50%25%2Ca%3Ab")
    assert "\x1b" not in written[0]
    valid_sarif(sarif(only(EVIL), (), 1, "a"))
    junit_schema().validate(BytesIO(junit(only(EVIL)).encode()))
    assert json.loads(gitlab(only(EVIL)))


def test_a_fingerprint_survives_new_details_and_tells_subjects_apart() -> None:
    newer = replace(OLD_DRIVER, title="another driver", why="other words")
    assert fingerprint(newer) == fingerprint(OLD_DRIVER)
    assert fingerprint(replace(OLD_DRIVER, subject="GPU 1")) != fingerprint(OLD_DRIVER)


def test_the_most_telling_file_stands_in(tmp_path: Path) -> None:
    assert default_file(tmp_path) == ""
    (tmp_path / "README.md").touch()
    assert default_file(tmp_path) == "README.md"
    (tmp_path / "pyproject.toml").touch()
    assert default_file(tmp_path) == "pyproject.toml"
