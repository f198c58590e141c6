"""The pages of the site: made from rules, commands and tables, and built without a warning."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from attn_doctor.backends import catalogue
from attn_doctor.cli.application import app_for
from attn_doctor.kernels.builder import presets
from attn_doctor.rulebook import library
from tests.command import whole_rules

ROOT = Path(__file__).parents[2]


def tool(name: str) -> Any:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "docs_site" / f"{name}.py")))


catalogue_pages, claim_pages, command_pages, links, rule_pages, table_pages = map(
    tool,
    ("catalogue_pages", "claim_pages", "command_pages", "links", "rule_pages", "table_pages"),
)
WRITTEN = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/tasks/*.md"), *ROOT.glob("README*.md")])


@cache
def pages_of_rules() -> dict[str, str]:
    pages: dict[str, str] = rule_pages.pages(whole_rules(), library.tables()["causes"]["cause"])
    return pages


def test_each_rule_has_a_page_with_its_messages_fixes_and_claims() -> None:
    rules = whole_rules()
    pages = pages_of_rules()
    for rule in rules:
        page = pages[f"rules/{rule.id}.md"]
        head = page.partition("\n## ")[0]
        for symptom in rule.symptoms:
            for message in symptom.logs:
                assert message.strip("\n").rstrip() in head, rule.id
        heading, wrong = (head.split("\n# ")[1].splitlines()[row] for row in (0, 2))
        assert heading not in wrong, "the line below the title says it again"
        assert page.count("\n### ") == len(rule.fixes), rule.id
        assert all(link in page for link in rule.evidence), rule.id
        assert page.count("| source code |") == sum(one.how == "source" for one in rule.claims)
        assert page.count("```") % 2 == 0, rule.id
        assert f"]({rule.id}.md)" in pages["rules/index.md"]
        linked = re.findall(r"\]\(\.\./(.*?\.md)\)", page)
        assert all(f"rules/{name}" in pages for name in linked), rule.id


def test_a_page_is_titled_by_the_message() -> None:
    titles = {rule.id: rule_pages.title(rule) for rule in whole_rules()}
    assert titles["flash/built-for-other-torch"] == (
        "ImportError: …/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol:"
        " _ZN3c104cuda9SetDeviceEi"
    )
    # A rule without a message has its own words, without values of a machine.
    assert "{" not in titles["advisories/ATTN-2026-0003"]
    assert max(map(len, titles.values())) <= 112


def test_a_shell_reads_a_requirement_of_a_command_as_one_word() -> None:
    pages = pages_of_rules()
    lines = [line for page in pages.values() for line in re.findall(r"`` (\S+ .*?) ``", page)]
    assert '"triton-windows<3.6"' in pages["rules/sage/needs-triton.md"]
    unquoted = [line for line in lines if re.search(r"^[^\"'$]*[\w\]][<>]", line)]
    assert unquoted == []


def test_a_page_has_the_translations_of_its_rule() -> None:
    rule = next(rule for rule in whole_rules() if rule.id == "flash/build-isolation")
    for name, words in (("zh-CN", "隔离环境"), ("pt-BR", "ambiente isolado"), ("hi", "एनवायरनमेंट")):
        _, _, section = rule_pages.rule_page(rule, "", ()).partition(f'<div lang="{name}">\n')
        section, _, _ = section.partition("</div>")
        assert words in section
        assert "<code>--no-build-isolation</code>" in section
        assert section.count("<li>") == len({(fix.title, fix.manual) for fix in rule.fixes})


def test_each_rule_has_a_row_for_each_claim() -> None:
    rules = list(whole_rules())
    pages = claim_pages.pages(rules)
    unsettled = 0
    for rule in rules:
        rows = pages[f"claims/{rule.id.partition('/')[0]}.md"].count(f"\n| `{rule.id}` |")
        unsettled += sum(claim.how == "open" for claim in rule.claims)
        assert rows == max(len(rule.claims), 1) + sum(claim.how == "open" for claim in rule.claims)
    listed, _, opened = claim_pages.areas(rules).partition("## Not settled")
    assert sum(int(row) for row in re.findall(r"(\d+) \|$", listed, re.MULTILINE)) == unsettled
    assert opened.count("\n| `") == unsettled
    assert all(f"({path})" in listed for path in pages)


def test_each_option_is_in_the_reference() -> None:
    pages = command_pages.pages()
    check = pages["commands/check.md"]
    assert "| `--dtype DTYPE` | Type of queries" in check
    assert "Default: `bf16`." in check
    assert "## cache export" in pages["commands/cache.md"]
    assert "(cache.md)" in pages["commands/index.md"]


def test_tables_have_a_row_for_each_release() -> None:
    pages = table_pages.pages(ROOT / "rules" / "tables", {"backends": "Backends"})
    rows = re.findall(r"^\| 2\.\d+ \|", pages["tables/torch.md"], re.MULTILINE)
    assert len(rows) == len(library.tables()["torch"]["release"])
    assert "| NVIDIA H200 |" in pages["tables/gpus.md"]
    assert "[Backends](backends.md)" in pages["tables/index.md"]


def test_tables_name_each_backend_requirement_and_preset() -> None:
    known = catalogue.load()
    pages = catalogue_pages.pages(known, library.tables()["presets"]["absent"])
    rows = pages["tables/backends.md"].splitlines()
    for one in known.backends:
        assert any(row.startswith(f"| `{one.name}` | ") for row in rows), one.name
    for needed in known.requirements:
        (row,) = (row for row in rows if row.startswith(f"| `{needed.id}` | "))
        assert re.search(r"\| (`[^`]+`(, )?)+ \|", row), f"{needed.id} is required by no backend"
    flux = "| `flux1` | FLUX.1 dev, schnell, Kontext, Fill | image and text | 24 | 128 | 1024x1024"
    assert f"{flux} | 4608 | same | none | 0.35 |" in pages["tables/presets.md"]
    for name in (*presets.families(), "sdxl"):
        assert f"\n| `{name}` | " in pages["tables/presets.md"]


def test_ids_of_rules_become_links() -> None:
    ids = {"flash/dtype", "advisories/ATTN-2026-0001"}

    def linked(text: str) -> str:
        return str(links.linked_rules(text, "tasks/ci.md", ids))

    assert linked("see `flash/dtype`") == "see [`flash/dtype`](../rules/flash/dtype.md)"
    assert linked("ATTN-2026-0001 (") == "[ATTN-2026-0001](../rules/advisories/ATTN-2026-0001.md) ("
    assert linked("`ATTN-2026-0001`") == "[`ATTN-2026-0001`](../rules/advisories/ATTN-2026-0001.md)"
    for same in (
        "ATTN-2026-0002",
        "`attn-doctor rules show ATTN-2026-0001`",
        "`` ATTN-2026-0001 `x` ``",
        "[the fault ATTN-2026-0001](https://a.b/ATTN-2026-0001)",
        "# ATTN-2026-0001",
        "```\nATTN-2026-0001\n```",
        "rules/ATTN-2026-0001.toml",
    ):
        assert linked(same) == same
    own = "rules/advisories/ATTN-2026-0001.md"
    assert links.linked_rules("ATTN-2026-0001", own, ids) == "ATTN-2026-0001"


def test_links_to_files_become_links_to_pages() -> None:
    pages = {"security.md", "rules/flash/dtype.md", "kernels.md"}

    def relinked(text: str) -> str:
        return str(links.relinked(text, "docs/tasks/image.md", "tasks/image.md", pages))

    assert relinked("[a](../kernels.md#b)") == "[a](../kernels.md#b)"
    assert relinked("[a](../../SECURITY.md)") == "[a](../security.md)"
    assert relinked("[`x`](../../rules/flash/dtype.toml)") == "[`x`](../rules/flash/dtype.md)"
    assert relinked("[a](../../action.yml)") == "a"
    assert relinked("```\n[a](../../action.yml)\n```") == "```\n[a](../../action.yml)\n```"


def commands(page: Path) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    rows = re.findall(r"^\|.*", page.read_text("utf-8"), re.MULTILINE)
    lines += [code for row in rows for code in re.findall(r"`(attn-doctor [^`]+)`", row)]
    return [line for line in lines if line.startswith("attn-doctor ")]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.thorough
def test_commands_of_the_pages_are_commands(page: Path) -> None:
    group: Any = typer.main.get_command(app_for([]))
    for line in commands(page):
        words = shlex.split(line, comments=True)[1:]
        command = group
        while words and words[0] in getattr(command, "commands", {}):
            command, words = command.commands[words[0]], words[1:]
        # Parses options and their values, and runs nothing.
        command.make_context(line, words)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 700


@pytest.mark.posix
def test_the_picture_is_what_a_check_prints() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "picture.py"))
    drawn, kept = tool["picture"](), tool["FILE"].read_text("utf-8")
    assert "sage/needs-triton" in kept
    assert tool["without_times"](drawn) == tool["without_times"](kept), "run tools/picture.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a network and without a warning."""
    pytest.importorskip("material", reason='needs `pip install ".[docs]"`')
    folder = tmp_path_factory.mktemp("site")
    proxy = "http://127.0.0.1:9"  # no server: a request would fail
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "HTTPS_PROXY": proxy, "HTTP_PROXY": proxy},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


@pytest.mark.recipes
def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    assert len(pages) > 300
    for page in pages:
        loaded = re.findall(r'(?:src|<link[^>]+href)="?(https?://[^" >]+)', page.read_text("utf-8"))
        assert loaded == [], page
    message = (site / "rules/flash/built-for-other-torch/index.html").read_text("utf-8")
    assert '"language-text highlight"' in message  # site.css wraps the lines of this class
    listed = re.findall(r"\]\((rules/[^)]+)/\)", (site / "llms.txt").read_text("utf-8"))
    assert len(listed) > 300
    assert all((site / place / "index.html").exists() for place in listed)


#: Posted failures of `tests/logs/`, each of another cause.
PASTED = (
    "gptq-33", "fa-2019", "hywrap-474", "tw-158", "funasr-2973",
    "mathllava-12", "wavespeed-38", "vllm-25811", "modelopt-93", "mineru-4350",
    "helion-470", "fa-1790", "k8s-device-plugin-1431", "pt-138301", "dockerllm-19",
    "marie-94", "fa-614", "storyiter-25", "qvl-567", "dion-23",
)  # fmt: skip


def _found(site: Path, pasted: list[str]) -> list[list[str]]:
    """The pages that the site's search finds for each pasted text, best first."""
    done = subprocess.run(
        ["node", Path(__file__).with_name("search.mjs"), site],
        input=json.dumps(pasted),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    found: list[list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.recipes
@pytest.mark.skipif(not shutil.which("node"), reason="the site's search is JavaScript")
def test_every_beginning_of_a_word_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text("utf-8"))
    words = re.findall(
        r"[a-z][a-z0-9]{2,}", " ".join(page["text"] for page in index["docs"]).lower()
    )
    beginnings = sorted({word[:3] for word in words} | {"sm"})
    assert len(beginnings) > 1000
    assert all(len(pages) <= 3 for pages in _found(site, beginnings))  # none of them raised


@pytest.mark.recipes
@pytest.mark.skipif(not shutil.which("node"), reason="the site's search is JavaScript")
def test_a_pasted_message_finds_its_page_first(site: Path) -> None:
    files = (ROOT / "tests" / "logs").glob("*.jsonl")
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    cases = {case["id"]: case for case in map(json.loads, lines)}
    pasted = [cases[name]["log"] for name in PASTED]
    first = [pages[0] if pages else "" for pages in _found(site, pasted)]
    causes = {f"rules/{rule.id}/": rule.cause for rule in whole_rules()}
    found = {name: causes.get(page) for name, page in zip(PASTED, first, strict=True)}
    assert found == {name: cases[name]["cause"] for name in PASTED}


@pytest.mark.parametrize(
    ("pattern", "javascript"),
    [
        ("(?i)no kernel", "[Nn][Oo]\\u0020[Kk][Ee][Rr][Nn][Ee][Ll]"),
        ("(?s)a.{0,9}?b", "a(?:[\\s\\S]){0,9}?b"),
        ("a.b$", "a[^\\n]b(?=\\n?$)"),
        ("(?m)^x(?!y)", "(?<![^\\n])x(?!y)"),
        ("x(?i:[a-c]+|y)", "x(?:(?:(?:[a-cA-C]){1,}|[Yy]))"),
    ],
)
def test_patterns_for_a_browser(pattern: str, javascript: str) -> None:
    assert tool("patterns").javascript(pattern) == javascript


def test_every_pattern_has_one_for_a_browser() -> None:
    rules = whole_rules()
    listed = tool("patterns").listed(rules, {rule.id: rule.id for rule in rules})
    assert [one[0] for one in listed] == [rule.id for rule in rules if rule.symptoms]


@pytest.mark.recipes
@pytest.mark.skipif(not shutil.which("npm"), reason="Pyodide comes from npm and runs in Node.js")
def test_the_first_page_answers_as_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("paste_assets").fetch(tmp_path / "fetched")
    served = tmp_path / "served"
    served.mkdir()
    for name, found in tool("paste_assets").files(tmp_path / "fetched").items():
        (served / name).write_bytes(found.read_bytes())
    files = sorted((ROOT / "tests" / "logs").glob("*.jsonl"))
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    logs = [json.loads(line)["log"] for line in lines]
    ran = subprocess.run(
        ["node", Path(__file__).with_name("paste.mjs"), served],
        input=json.dumps(logs),
        capture_output=True,
        text=True,
        timeout=500,
        check=True,
    )
    monkeypatch.chdir(tmp_path)
    app = app_for([])
    for log, answer in zip(logs, json.loads(ran.stdout), strict=True):
        Path("pasted-log").write_text(log, "utf-8", newline="")
        printed = CliRunner().invoke(app, ["explain", "--no-probe", "--json", "pasted-log"]).stdout
        assert {**answer, "seconds": 0} == {**json.loads(printed), "seconds": 0}


def test_without_what_it_needs_the_first_page_has_no_field(tmp_path: Path) -> None:
    assert tool("paste_assets").files(tmp_path) == {}
