"""Each finding has the address of its rule's page, if the site has an address."""

from __future__ import annotations

import json as json_module

import jsonschema
import pytest
from msgspec.structs import replace

from attn_doctor.facts.installed import NewerRelease
from attn_doctor.render.edge import safe
from attn_doctor.render.findings.agent import LIMIT, agent
from attn_doctor.render.findings.json import json
from attn_doctor.render.findings.json_schema import schema
from attn_doctor.render.findings.markdown import markdown
from attn_doctor.render.findings.sarif import sarif
from attn_doctor.render.findings.text import text
from attn_doctor.render.terminal import Terminal
from attn_doctor.rulebook import library
from tests.command import run
from tests.render.sample import DIAGNOSIS, OLD_DRIVER

SITE = "https://docs.example.org/attn"
PAGE = f"{SITE}/rules/driver/too-old-for-torch/"
LINK = f"\x1b]8;;{PAGE}\x1b\\[driver/too-old-for-torch]\x1b]8;;\x1b\\"
LINKING = Terminal(links=True)
LOG = "ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTN_DOCTOR_SITE", SITE)


@pytest.fixture
def no_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTN_DOCTOR_SITE", raising=False)


@pytest.mark.usefixtures("site")
def test_a_terminal_shows_the_rule_as_a_link() -> None:
    page = text(DIAGNOSIS, LINKING)
    assert LINK in page
    # The link has no width: lines break as without it.
    assert page.replace(LINK, "[driver/too-old-for-torch]") == text(DIAGNOSIS, Terminal())
    assert f"page   {PAGE}" in text(DIAGNOSIS, Terminal(), verbose=True)


@pytest.mark.usefixtures("site")
def test_the_edge_lets_links_to_the_site_pass_and_no_others() -> None:
    assert safe(LINK, styled=True) == LINK
    assert "\x1b" not in safe(LINK, styled=False)
    for other in ("https://evil.example/", f"{SITE}.evil.example/", f"{SITE}/\x07x"):
        assert other not in safe(f"\x1b]8;;{other}\x1b\\text\x1b]8;;\x1b\\", styled=True)


@pytest.mark.usefixtures("site")
def test_programs_get_the_address() -> None:
    data = json_module.loads(json(DIAGNOSIS, 1))
    jsonschema.Draft202012Validator(schema()).validate(data)
    assert {one["rule"]: one.get("page") for one in data["problems"]}[OLD_DRIVER.rule] == PAGE
    (run_,) = json_module.loads(sarif(DIAGNOSIS, library.load(), 1))["runs"]
    helps = {one["id"]: one.get("helpUri") for one in run_["tool"]["driver"]["rules"]}
    assert helps[OLD_DRIVER.rule] == PAGE
    assert f"[`{OLD_DRIVER.rule}`]({PAGE})" in markdown(DIAGNOSIS)


@pytest.mark.usefixtures("site")
def test_agents_get_the_address_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json_module.loads(agent(DIAGNOSIS, 1))["page"] == PAGE
    full = replace(
        OLD_DRIVER,
        title="t" * 300,
        why="w" * 500,
        fixes=(replace(OLD_DRIVER.fixes[0], run=(("echo", "a" * 470),), manual="m" * 400),),
    )
    monkeypatch.setenv("ATTN_DOCTOR_SITE", "https://" + "long." * 38)
    line = agent(replace(DIAGNOSIS, findings=(full,)), 1)
    newer = tuple(NewerRelease(package="p" * 60, version="1", basis="known") for _ in range(4))
    facts = replace(DIAGNOSIS.facts, newer_releases=newer)
    longest = agent(replace(DIAGNOSIS, findings=(full,), facts=facts), 1)
    assert len(line) < LIMIT > len(longest)
    assert '"page":"https://long.' in line
    assert '"page"' not in longest
    assert '"reason":"www' in longest


@pytest.mark.usefixtures("site")
def test_a_rule_of_a_team_has_no_page() -> None:
    own = replace(DIAGNOSIS, findings=(replace(OLD_DRIVER, rule="team/own"),))
    assert SITE not in text(own, LINKING, verbose=True) + json(own, 1) + sarif(own, (), 1)
    assert SITE not in agent(own, 1)


@pytest.mark.usefixtures("no_site")
def test_without_an_address_nothing_is_printed() -> None:
    assert "\x1b" not in text(DIAGNOSIS, LINKING)
    assert "page" not in json_module.loads(json(DIAGNOSIS, 1))["problems"][0]
    assert "\x1b" not in safe(LINK, styled=True)


def test_explain_names_the_page() -> None:
    ended = run("explain", "--no-probe", "--json", LOG, ATTN_DOCTOR_SITE=f"{SITE}/")
    match = json_module.loads(ended.stdout)["matches"][0]
    assert match["page"] == f"{SITE}/rules/{match['rule']}/"
    shown = run("explain", "--no-probe", LOG, ATTN_DOCTOR_SITE=SITE).stdout
    assert f"page   {match['page']}" in shown


def test_an_address_that_is_none_is_refused() -> None:
    ended = run("explain", "--no-probe", LOG, ATTN_DOCTOR_SITE="docs")
    assert ended.returncode == 2
    assert "ATTN_DOCTOR_SITE is 'docs', which is not an address" in ended.stderr
