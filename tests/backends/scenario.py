"""Whole machines with what is expected of every name: `scenarios.toml`.

`python tools/backends_table.py scenarios` works the lists out anew; what it changes is for a
person to review.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from attn_doctor import snapshot
from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.matrix import matrix
from attn_doctor.backends.readiness import Matrix
from attn_doctor.examination import derive
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding
from attn_doctor.pretend import pretend
from attn_doctor.rulebook import library
from attn_doctor.rulebook.evaluate import evaluate_rules
from attn_doctor.rulebook.rule import Rule
from attn_doctor.toml_files import read_toml

HERE = Path(__file__).parent
FILE = HERE / "scenarios.toml"
MACHINES = HERE.parent / "machines"
#: Names that stand in none of these lists are not ready.
STATES = ("ready", "slow", "unknown")


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, an attention call, and the names by state."""

    name: str
    machine: str
    pretend: tuple[str, ...] = ()
    framework: str = ""
    call: dict[str, Any] = {}
    expect: dict[str, tuple[str, ...]] = {}


def scenarios() -> list[Scenario]:
    return [msgspec.convert(one, Scenario) for one in read_toml(FILE)["scenario"]]


@cache
def rules() -> tuple[Rule, ...]:
    return library.load()


@cache
def tables() -> Any:
    return library.tables()


@cache
def machine(name: str, *made_up: str) -> tuple[Facts, tuple[Finding, ...]]:
    """A recorded machine with something pretended, and what the rules say of it."""
    facts = snapshot.load(str(MACHINES / name / "facts.json"))
    facts = derive(pretend(facts, made_up, tables()))
    return facts, evaluate_rules(facts, rules())


def table(one: Scenario) -> Matrix:
    facts, findings = machine(one.machine, *one.pretend)
    call = msgspec.convert(one.call, AttentionCall)
    return matrix(facts, findings, (call,), one.framework)


def states(one: Scenario) -> dict[str, tuple[str, ...]]:
    """Names by state; those of other hardware and other versions are left out."""
    found: dict[str, list[str]] = {state: [] for state in STATES}
    for row in table(one).rows:
        state = row.answers[0].state.value
        if row.known and not row.hardware and state in found:
            found[state].append(row.name)
    return {state: tuple(names) for state, names in found.items()}


def rewrite() -> None:
    """The file with every expectation worked out anew."""
    head = FILE.read_text("utf-8").partition("[[scenario]]")[0]
    FILE.write_text(head + "\n".join(map(_text, scenarios())), encoding="utf-8")


def _text(one: Scenario) -> str:
    lines = ["[[scenario]]", f'name    = "{one.name}"', f'machine = "{one.machine}"']
    if one.pretend:
        lines.append(f"pretend = [{', '.join(_quoted(part) for part in one.pretend)}]")
    if one.framework:
        lines.append(f'framework = "{one.framework}"')
    if one.call:
        words = (f"{key} = {_quoted(value)}" for key, value in one.call.items())
        lines.append(f"call    = {{ {', '.join(words)} }}")
    lines.append("[scenario.expect]")
    for state, names in states(one).items():
        one_line = f"{state} = [{', '.join(map(_quoted, names))}]"
        if len(one_line) < 100:
            lines.append(one_line)
            continue
        lines.append(f"{state} = [")
        row = "    "
        for name in names:
            word = f'"{name}", '
            if len(row) + len(word) > 99:
                lines.append(row.rstrip())
                row = "    "
            row += word
        lines += [row.rstrip()] if row.strip() else []
        lines.append("]")
    return "\n".join(lines) + "\n"


def _quoted(value: object) -> str:
    return str(value).lower() if isinstance(value, (bool, int)) else f'"{value}"'
