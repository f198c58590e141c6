"""Rules as pages and as a list, for terminals of every kind and for Markdown."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pytest

from attn_doctor.findings import Safety
from attn_doctor.render.rules.list import rule_list
from attn_doctor.render.rules.markdown import rule_markdown
from attn_doctor.render.rules.text import rule_text
from attn_doctor.render.terminal import Terminal
from attn_doctor.rulebook.conditions import parse
from attn_doctor.rulebook.fact_catalogue import Fact, catalogue
from attn_doctor.rulebook.rule import FixFile, Group, Rule, Symptom
from attn_doctor.rulebook.texts import commands, line, phrase
from tests.command import read_index, whole_rules

FACTS: dict[str, Fact] = catalogue()


def group(**lines: list[str]) -> Group:
    parsed: dict[str, Any] = {
        key: tuple(parse(one, FACTS) for one in each) for key, each in lines.items()
    }
    return Group(**parsed)


RULE = Rule(
    id="torch/sample",
    severity="warning",
    cause="torch-cpu-only",
    title="torch {torch.version} is *old*",
    why="It is `old` and <slow>.",
    checked=date(2026, 11, 21),
    evidence=("https://example.org/1",),
    backends=("flex", "sage"),
    platforms=("linux", "wsl"),
    row="a guide",
    requires=("driver/no-driver",),
    applies=group(all=["torch.installed == true"], any=["gpus.count > 0", 'system.os != ""']),
    when=group(none=['triton.version satisfies "==3.4.*"']),
    symptoms=(Symptom(pattern="plain text", logs=("first\nsecond",)),),
    fixes=(
        FixFile(
            title="Repair it",
            safety=Safety.ASK,
            run=(("pip", "install", "torch=={torch.version}"),),
        ),
    ),
    fix_when=((),),
    fix_done=(group(all=["torch.installed == true"]).all,),
)
PAGE = """\
torch/sample  warning

torch <torch.version> is *old*

  It is `old` and <slow>.

  cause          torch-cpu-only: No CUDA.
  affects        flex, sage
  on             Linux, WSL
  follows from   driver/no-driver
  explains       sage/x

Applies where
  - torch.installed is yes
  and at least one of these holds:
    - gpus.count is above 0
    - system.os is not empty

Is a problem if
  - triton.version does not fit ==3.4.*

Appears in a log as
  first
  second

Fix
  Repair it (asks first)
      pip install torch==<torch.version>
    done when: torch.installed is yes

Facts in use
  torch.version  Its version.

Evidence, read on 2026-11-21
  https://example.org/1

File: rules/torch/sample.toml
"""


def test_the_page_says_all_of_a_rule() -> None:
    shown = rule_text(
        RULE,
        Terminal(width=80),
        meaning="No CUDA.",
        explains=["sage/x"],
        facts={"torch.version": "Its version."},
        file="rules/torch/sample.toml",
    )
    assert shown == PAGE


def test_markdown_keeps_code_and_nothing_else_as_markup() -> None:
    shown = rule_markdown(RULE, meaning="No CUDA.")
    assert r"### `torch/sample`: torch \<torch.version\> is \*old\*" in shown
    assert r"It is `old` and \<slow\>." in shown
    assert "```sh\npip install torch==<torch.version>\n```" in shown
    assert "```text\nfirst\nsecond\n```" in shown


def broken_lines(rule: Rule) -> list[str]:
    """Lines of a rule's page that are too long, and hold nothing that must stay whole."""
    rule_text(rule, Terminal(unicode=False)).encode("ascii")
    # What is there to be copied or found again is never broken: links, commands, lines of logs.
    whole = [*rule.evidence, *(one for fix in rule.fixes for one in commands(fix))]
    whole += [line for fix in rule.fixes for line in fix.code.splitlines()]
    whole += rule.advisory.reproducer.splitlines() if rule.advisory else []
    whole += [part.rstrip() for one in rule.symptoms for part in one.lines[0].splitlines()]
    long = [one for one in rule_text(rule, Terminal(width=80)).splitlines() if len(one) > 80]
    code = re.compile(r"\W*`[^`]+`\W*")
    # One word, such as a pattern, cannot be broken.
    long = [line for line in long if " " in line.strip() and not code.fullmatch(line)]
    return [one for one in long if not any(one.endswith(part) for part in whole)]


def test_every_rule_has_a_page_that_fits() -> None:
    assert [f"{rule.id}: {one}" for rule in whole_rules() for one in broken_lines(rule)] == []
    for rule in whole_rules():
        assert rule_markdown(rule).startswith(f"### `{rule.id}`: ")


def test_the_page_is_the_same_from_the_index() -> None:
    """The wheel's index leaves the examples out; no page may need them."""
    packed = read_index().rules()
    assert [rule_text(rule, Terminal()) for rule in packed] == [
        rule_text(rule, Terminal()) for rule in whole_rules()
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("unicode", [True, False])
def test_the_list_fits_a_terminal(width: int, unicode: bool) -> None:
    shown = rule_list(
        whole_rules(), Terminal(width=width, unicode=unicode), whole=False
    ).splitlines()
    rows = [row for row in shown if row.startswith("  ")]
    ids = [next(word for word in row.split() if "/" in word) for row in rows]
    assert ids == [rule.id for rule in whole_rules()]
    # An id is never cut.
    longest = max(len(rule.id) for rule in whole_rules())
    assert [row for row in rows if len(row) > max(width, longest + len("  ! "))] == []
    assert any(row.endswith("…" if unicode else "...") for row in rows)


def test_severities_have_their_colours() -> None:
    shown = rule_list([RULE], Terminal(colour=True), whole=True)
    assert "\x1b[33mwarning\x1b[0m  torch is *old*" in shown
    assert "1 rule: 1 warning." in shown


@pytest.mark.parametrize(
    ("text", "so", "not_so"),
    [
        ('torch.build == "cpu"', "torch.build is cpu", "torch.build is not cpu"),
        ('torch.build != ""', "torch.build is not empty", "torch.build is empty"),
        ("torch.installed == true", "torch.installed is yes", "torch.installed is no"),
        ("torch.installed != true", "torch.installed is no", "torch.installed is yes"),
        ('torch.version < "2.5"', "torch.version is below 2.5", "torch.version is at least 2.5"),
        ("gpus.count > 1", "gpus.count is above 1", "gpus.count is at most 1"),
        (
            'system.os in ["linux", "macos"]',
            "system.os is one of linux, macos",
            "system.os is none of linux, macos",
        ),
        (
            "triton.version satisfies triton.expected",
            "triton.version fits triton.expected",
            "triton.version does not fit triton.expected",
        ),
        ("torch.cuda is known", "torch.cuda is known", "torch.cuda is unknown"),
    ],
)
def test_conditions_in_words(text: str, so: str, not_so: str) -> None:
    condition = parse(text, FACTS)
    assert (phrase(condition), phrase(condition, holds=False)) == (so, not_so)
    assert line(condition) == text


def test_every_condition_is_written_as_it_is_parsed() -> None:
    for rule in whole_rules():
        element = rule.for_each and {"gpus": "gpu"}.get(rule.for_each, "")
        for one in (*rule.when.all, *rule.when.any, *rule.when.none):
            if not rule.for_each or element:
                assert parse(line(one), FACTS, element) == one


def test_commands_quote_what_a_shell_would_read() -> None:
    fix = FixFile(
        title="x",
        safety=Safety.ASK,
        set={"CUDA_HOME": "{build.cuda_home}"},
        unset=("CC",),
        run=(("MAX_JOBS=4", "pip", "install", "a>={torch.version}", "b; rm"),),
    )
    assert commands(fix) == [
        "export CUDA_HOME=<build.cuda_home>",
        "unset CC",
        "MAX_JOBS=4 pip install 'a>=<torch.version>' 'b; rm'",
    ]
