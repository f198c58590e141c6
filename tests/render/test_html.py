"""Pages: valid, complete in one file, readable for all, and without what identifies someone."""

from __future__ import annotations

import html as stdlib
import itertools
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import html5lib
import pytest
from msgspec.structs import replace

import attn_doctor
from attn_doctor.backends.readiness import Readiness
from attn_doctor.findings import Diagnosis
from attn_doctor.install.backend_standing import Standing, standing
from attn_doctor.render.edge import safe
from attn_doctor.render.findings.html import html as check_page
from attn_doctor.render.html.elements import link, prose, tag
from attn_doctor.render.html.page import COLOURS, fragment
from tests.command import run
from tests.render.sample import DIAGNOSIS, FACTS, HEALTHY, OLD_DRIVER

MACHINES = Path(__file__).parents[1] / "machines"
H200 = str(MACHINES / "h200-torch-2.11-cu130" / "facts.json")
TOKEN = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ12345678"
LOG = f"""INFO login with {TOKEN} <script>alert(1)</script> & co in /home/alice/secret-film/train.py
Traceback (most recent call last):
  File "/home/alice/secret-film/train.py", line 12, in <module>
    import flash_attn_2_cuda
ImportError: /home/alice/venv/lib/python3.11/site-packages/flash_attn_2_cuda.so: undefined symbol: \
_ZN3c104cuda9SetDeviceEi
"""


#: A warning after which the run goes on.
NOTICE = "WARNING: xformers could not be imported: not available\nstep 1\nstep 2\n"


def parsed(page: str) -> Any:
    """The tree of a page. html5lib raises for every error that the standard names."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    log = tmp_path_factory.mktemp("log") / "train.log"
    log.write_text("step\n" * 200 + LOG)
    shown = {
        "check": run("check", "--facts", H200, "--format", "html").stdout,
        "backends": run("backends", "--facts", H200, "--format", "html").stdout,
        "explain": run("explain", str(log), "--no-probe", "--format", "html").stdout,
        "guess": run("explain", "RuntimeError: flash_attn failed oddly", "--format", "html").stdout,
        "nothing": run("explain", "all is well", "--no-probe", "--format", "html").stdout,
        "note": run("explain", NOTICE, "--no-probe", "--format", "html").stdout,
        "cache": run("cache", "status", "--format", "html").stdout,
        "sample": check_page(DIAGNOSIS),
        "healthy": check_page(HEALTHY),
    }
    assert all(shown.values())
    return shown


def test_pages_are_valid_whole_and_accessible(pages: dict[str, str]) -> None:
    for name, page in pages.items():
        tree = parsed(page)
        assert tree.get("lang") == "en"
        assert tree.find("head/title").text.startswith("attn-doctor ")
        assert [one.tag for one in tree.find("body")] == ["header", "main", "footer"], name
        levels = [int(one.tag[1]) for one in tree.iter() if re.fullmatch("h[1-6]", str(one.tag))]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(low + 1 >= high for low, high in itertools.pairwise(levels)), name
        for table in tree.iter("table"):
            assert table.find("caption").text
            assert all(one.get("scope") in ("col", "row") for one in table.iter("th"))
        loaded = {"script", "img", "link", "iframe", "object", "embed", "base", "form"}
        assert not loaded & {one.tag for one in tree.iter()}, name
        assert not re.search(r"url\(|@import|src=|\son\w+=", page)
        assert safe(page) == page, f"{name} would be changed on its way out"


def test_a_note_stands_on_the_page(pages: dict[str, str]) -> None:
    assert "<h2>Note</h2>" in pages["note"]
    assert "The line is about xformers." in pages["note"]


def test_nothing_of_a_log_is_markup_or_a_secret(pages: dict[str, str]) -> None:
    page = pages["explain"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co" in page
    assert not re.search(r"<script|alice|secret-film|" + TOKEN, page)
    tree = parsed(page)
    marked = [one for one in tree.iter("li") if one.get("class") == "cause"]
    assert [one.find("span").text for one in marked] == ["205", "205"]
    assert "flash-attn's extension does not load with the installed torch" in "".join(
        marked[0].itertext()
    )
    assert "undefined symbol" in "".join(marked[1].find("mark").itertext())
    assert "… 164 lines above" in page


def test_text_of_the_machine_is_not_markup() -> None:
    evil = replace(
        OLD_DRIVER, title="<b>`x<y`</b>", why='"><img src=x>', evidence=("javascript:x",)
    )
    page = check_page(Diagnosis(facts=FACTS, findings=(evil,), rules=1))
    parsed(page)
    assert not re.search("<b>|<img|href=.javascript", page)
    assert "<code>x&lt;y</code>" in page
    assert prose("a <b> `c <d>`") == "a &lt;b&gt; <code>c &lt;d&gt;</code>"
    assert link("javascript:alert(1)") == "javascript:alert(1)"
    assert tag("p", "x", title='"') == '<p title="&quot;">x</p>'


def test_known_faults_of_releases_are_one_list() -> None:
    tree = parsed(run("check", "--facts", H200, "--format", "html").stdout)
    sections = {part.find("h2").text: part for part in tree.iter("section")}
    faults = sections["Known faults of this software"]
    assert len(list(faults.iter("li"))) >= 5
    assert list(faults.iter("article")) == []
    assert len(list(sections["Problems"].iter("article"))) == 1


def test_a_notebook_gets_a_part_of_a_page() -> None:
    result = attn_doctor.backends(facts=H200)
    part = result._repr_html_()
    assert part == fragment(result.html())
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parseFragment(part)
    assert not {"html", "main", "header", "footer"} & {str(one.tag) for one in tree.iter()}
    for rule in re.findall(r"(?:^|\})([^{}@]+)\{", part.partition("</style>")[0][7:])[:2]:
        assert rule in ("body.attn-doctor", ".attn-doctor.attn-doctor")
    # The notebook's own rules make each second row white, and its text dark.
    assert "tr:nth-child(n){background:none;color:var(--text)}" in part
    # Its theme chooses the colours; a page of its own follows the screen.
    for theme in ("data-jp-theme-light=false", "vscode-dark", "vscode-light"):
        assert theme in part
        assert theme not in result.html()
    for other in (attn_doctor.check(facts=H200), attn_doctor.explain(LOG, machine=False)):
        assert '<div class="attn-doctor">' in other._repr_html_()


def test_the_matrix_says_how_far_each_backend_is() -> None:
    states: dict[str, set[Standing]] = {}
    for pretend in ([], ["gpu=rtx2080ti"]):
        found = attn_doctor.backends(facts=H200, pretend=pretend)
        for row in found.matrix.rows:
            for answer in row.answers:
                state = standing(answer, found.facts)
                states.setdefault(f"{row.name} {pretend}", set()).add(state)
                assert (state is Standing.READY) == (answer.state is Readiness.READY)
    assert states["flash []"] == {Standing.COMMAND, Standing.UNSUPPORTED}
    assert states["flash ['gpu=rtx2080ti']"] == {Standing.NEVER}
    assert states["native []"] == {Standing.READY}
    page = run("backends", "--facts", H200, "--format", "html").stdout
    table = next(parsed(page).iter("table"))
    cells = {
        "".join(next(row.iter("code")).itertext()): [one.text for one in row.iter("td")]
        for row in table.find("tbody")
    }
    assert cells["flash"] == ["+ one command away", "✗ not here"] * 2
    assert cells["sage_blackwell_hub"] == ["✗ never on this GPU"] * 4


def test_a_command_that_cannot_work_here_is_not_one_away() -> None:
    # SageAttention is built from source, and this machine has no whole CUDA toolkit.
    machine = str(MACHINES / "debian-torch-2.11-cu130-no-gpu" / "facts.json")
    found = attn_doctor.backends(facts=machine, pretend=["gpu=h200"])
    states = {
        name: standing(found.answer(name), found.facts) for name in ("sage", "sage_hub", "flash")
    }
    assert states == {
        "sage": Standing.NOT_READY,
        "sage_hub": Standing.COMMAND,
        "flash": Standing.COMMAND,
    }


def test_the_picture_is_svg_with_a_description() -> None:
    picture = run("backends", "--facts", H200, "--format", "svg").stdout
    root = ElementTree.fromstring(picture)
    names = {"s": "http://www.w3.org/2000/svg"}
    described = root.findtext("s:desc", "", names)
    assert "flash: inference no mask one command away, inference bool mask not here" in described
    width = float(root.get("width", ""))
    assert all(float(one.get("x", "0")) < width for one in root.iterfind("s:text", names))
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|<image|<script", picture)
    assert safe(picture) == picture


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, by WCAG 2.2."""
    first, second = sorted(map(luminance, (one, other)))
    return (second + 0.05) / (first + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(weight * one for weight, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("state", COLOURS)
def test_states_can_be_read_in_light_and_dark(state: str) -> None:
    text, ground, dark_text, dark_ground = COLOURS[state]
    assert contrast(text, ground) >= 4.5
    assert contrast(dark_text, dark_ground) >= 4.5


@pytest.mark.parametrize(
    "words",
    [
        ("backends", "--format", "svg", "--why", "flash"),
        ("backends", "--format", "html", "--live"),
        ("check", "--format", "html", "--live"),
        ("explain", "flex/unfused", "--format", "html"),
    ],
)
def test_what_has_no_page_says_so(words: tuple[str, ...]) -> None:
    ended = run(*words)
    assert ended.returncode == 2
    assert "--format" in ended.text
    assert stdlib.unescape(ended.stdout) == ""


def test_rules_link_to_their_pages_where_those_are_served() -> None:
    site = "https://docs.example.org/attn-doctor"
    for words in (
        ("check", "--facts", H200),
        ("backends", "--facts", H200),
        ("explain", LOG, "--no-probe"),
    ):
        plain = run(*words, "--format", "html").stdout
        assert "docs.example.org" not in plain
        page = run(*words, "--format", "html", ATTN_DOCTOR_SITE=site).stdout
        parsed(page)
        assert re.search(r'<a href="https://docs.example.org/attn-doctor/rules/[^"]+"', page)
