"""Every command of every rule, as each format prints it on several machines."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.facts import ELEMENTS, Facts, Package
from attn_doctor.findings import Diagnosis, Finding, Fix, Safety, Severity, Verdict
from attn_doctor.render.findings.agent import agent
from attn_doctor.render.findings.github import github
from attn_doctor.render.findings.json import json as as_json
from attn_doctor.render.findings.junit import junit
from attn_doctor.render.findings.markdown import markdown
from attn_doctor.render.findings.sarif import sarif
from attn_doctor.render.findings.text import text
from attn_doctor.render.grouping import problems
from attn_doctor.render.terminal import Terminal
from attn_doctor.rulebook import library
from attn_doctor.rulebook.evaluate import FactLookup, fill_fix, lookups
from attn_doctor.rulebook.fact_catalogue import catalogue
from attn_doctor.rulebook.rule import Rule
from attn_doctor.rulebook.texts import fill_known
from attn_doctor.shell.commands import in_text, shell_lines
from attn_doctor.snapshot import load

RECORDED = Path(__file__).parents[1] / "machines"


def recorded(name: str) -> Facts:
    return load(str(RECORDED / name / "facts.json"))


@cache
def machines() -> dict[str, Facts]:
    """Recorded machines, and the same with other installers, named as a user may name them."""
    gpu = recorded("h200-torch-2.11-cu130")
    cpu = recorded("debian-torch-2.13-cpu-xformers-sage1")
    empty = recorded("debian-no-torch")
    own = replace(gpu.python, path="/srv/my env/bin/python", prefix="/srv/my env", pip="24.0")
    conda = replace(own, environment="conda", path="/opt/conda/bin/python", prefix="/opt/conda")
    pixi = replace(conda, path="/p/.pixi/envs/default/bin/python", prefix="/p/.pixi/envs/default")
    from_conda = {"torch": replace(gpu.torch, source="conda"), "xformers": Package(source="conda")}
    system = replace(own, path="/usr/bin/python3", prefix="/usr", externally_managed=True)
    return {
        "nothing is known": Facts(),
        "h200": gpu,
        "cpu": cpu,
        "no torch": empty,
        "named": replace(gpu, python=replace(own, selection_reason="--python")),
        "uv": replace(cpu, python=replace(own, pip="", uv="/usr/bin/uv")),
        "neither": replace(cpu, python=replace(own, pip="", uv="")),
        "conda": replace(gpu, python=conda, **from_conda),
        "pixi": replace(gpu, python=replace(pixi, pip="", uv=""), **from_conda),
        "managed": replace(empty, python=system),
        "managed with torch": replace(gpu, python=system),
        "windows": replace(
            cpu,
            system=replace(cpu.system, os="windows"),
            python=replace(own, path=r"C:\My Env\python.exe", prefix=r"C:\My Env"),
        ),
    }


def problem(rule: Rule, facts: Facts) -> Finding:
    """A rule as if it were a problem there, with all its fixes."""
    subjects = lookups(rule, facts)
    lookup = subjects[0] if subjects else FactLookup(facts, ELEMENTS.get(rule.for_each, ""))
    return Finding(
        rule=rule.id,
        verdict=Verdict.PROBLEM,
        severity=Severity(rule.severity),
        cause=rule.cause,
        title=fill_known(rule.title, lookup),
        why=in_text(fill_known(rule.why, lookup), facts),
        fixes=tuple(fill_fix(rule, index, lookup) for index in range(len(rule.fixes))),
        evidence=rule.evidence,
    )


@cache
def everything_wrong(machine: str) -> Diagnosis:
    facts = machines()[machine]
    found = tuple(problem(rule, facts) for rule in library.load())
    return Diagnosis(facts=facts, findings=found, rules=len(found))


#: pip or python of whatever environment happens to be active.
BARE = re.compile(
    r"(?<![\w/.\\'-])(?<!-m )(?<!uv )pip3? (?:un)?install (?!needs|finds|what)"
    r"|(?<![\w/.\\'-])python3? (?:-m|-c|setup)\b"
)
PLACEHOLDER = re.compile(rf"[<{{](?:{'|'.join(map(re.escape, catalogue()))})[>}}]")
#: Code between backquotes with a part to fill in.
UNFINISHED = re.compile(r"`[^`]*(?:…|\bPACKAGE\b|\bVERSION\b)[^`]*`")
UNNAMED = re.compile(
    r"attn-doctor (?:check|backends|report|fix|build-kernels|cache (?:status|clear|verify))\b"
    r"(?! (?:undo|redo|forget|history))(?![^`\n)]* --python)"
)
#: A sentence whose end was left out with a value.
CUT = re.compile(r"\b(?:is|are|the|of|and)\.$")


def faults(words: str, facts: Facts) -> list[str]:
    """What a reader would stumble over in a text that is printed."""
    flat = " ".join(words.split())
    patterns = [PLACEHOLDER] + [BARE] * bool(facts.python.path)
    if facts.python.selection_reason == "--python":
        patterns.append(UNNAMED)
    return [
        flat[max(0, match.start() - 60) : match.end() + 60]
        for pattern in patterns
        for match in pattern.finditer(flat)
    ]


def misquoted(line: str) -> bool:
    """A POSIX shell would take a part of the line for a redirection, a pipe or another command."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    return any(set(word) <= set("<>|&;()") for word in words if word)


@pytest.mark.parametrize("machine", machines())
@pytest.mark.thorough
def test_every_fix_is_whole_and_quoted(machine: str) -> None:
    facts = machines()[machine]
    wrong = []
    for finding in everything_wrong(machine).findings:
        for fix in finding.fixes:
            lines = shell_lines(fix, facts)
            texts = (fix.title, fix.manual, fix.needs, *lines)
            found = [fault for one in texts for fault in faults(one, facts)]
            found += [one for one in texts if UNFINISHED.search(one) or CUT.search(one)]
            if facts.system.os != "windows":
                found += [line for line in lines if misquoted(line)]
            wrong += [f"{finding.rule}: {one}" for one in found]
    assert not wrong, "\n".join(wrong)


def test_no_fix_has_a_hole_where_nothing_is_known() -> None:
    holes = [
        f"{rule.id}: {words}"
        for rule in library.load()
        for fix in problem(rule, Facts()).fixes
        for words in (fix.title, fix.manual, fix.needs)
        if "…" in words
    ]
    assert not holes


FORMATS: dict[str, Callable[[Diagnosis], str]] = {
    "text": lambda found: text(found, Terminal(width=100), verbose=True),
    "json": lambda found: json.dumps(
        [
            fix["commands"]
            for one in json.loads(as_json(found, 1))["problems"]
            for fix in one["fixes"]
        ]
    ),
    "agent": lambda found: json.dumps(json.loads(agent(found, 1))["commands"]),
    "markdown": markdown,
    "github": github,
    "sarif": lambda found: sarif(found, library.load(), 1),
    "junit": junit,
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "machine",
    [
        "named",
        pytest.param("cpu", marks=pytest.mark.thorough),
        pytest.param("nothing is known", marks=pytest.mark.thorough),
    ],
)
def test_every_format_prints_them_so(machine: str, format: str) -> None:
    found = everything_wrong(machine)
    assert not faults(FORMATS[format](found), found.facts)


def test_one_command_serves_all_subjects_of_a_finding() -> None:
    one = Fix(title="Install it", safety=Safety.ASK, run=(("pip", "install", "a"),))
    other = replace(one, run=(("pip", "install", "b>=2"),))
    finding = replace(problem(library.load()[0], Facts()), subject="x", fixes=(one,))
    both = (finding, replace(finding, subject="y", fixes=(other,)))
    (shown,) = problems(Diagnosis(facts=Facts(), findings=both, rules=1))
    assert shown.finding.fixes[0].run == (("pip", "install", "a", "b>=2"),)


def test_the_sentence_on_advisories_names_the_interpreter() -> None:
    facts = machines()["named"]
    (rule,) = (one for one in library.load() if one.id == "advisories/ATTN-2026-0001")
    found = replace(problem(rule, facts), severity=Severity.INFO, advisory=rule.advisory)
    shown = text(Diagnosis(facts=facts, findings=(found,), rules=1), Terminal(width=200))
    assert "`attn-doctor backends --python '/srv/my env/bin/python'` says which" in shown
