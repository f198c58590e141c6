"""A sample of the logs that tools/composed_logs.py makes has right first answers."""

from __future__ import annotations

from functools import cache

import pytest

from attn_doctor.rulebook import library
from tools.composed_logs import KINDS, Case, Wrong, cases, check, main

#: Each of so many rules is taken.
_STEP = 24
#: Of so many composed logs of a kind, one may be wrong: what only a rule's symptom can correct.
_RIGHT = 12
#: Kinds that few rules have.
_RARE = frozenset({"installed later", "other build", "other name", "other system"})
#: Kinds whose wrong answers stay: a server may have answered before it failed.
_OPEN = frozenset({"requests, then import", "next run, well"})


@cache
def sample() -> tuple[Case, ...]:
    rules = library.load()
    return tuple(cases(rules, [rule for rule in rules if rule.symptoms][::_STEP]))


_TRIED = [name for name in KINDS if name not in _RARE | _OPEN]


@pytest.mark.parametrize(
    "kind",
    [pytest.param(one, marks=[pytest.mark.thorough] * (at % 3)) for at, one in enumerate(_TRIED)],
)
def test_the_first_answer(kind: str) -> None:
    rules = library.load()
    results = [check(KINDS[kind], case, rules) for case in sample()]
    wrong = [one for one in results if isinstance(one, Wrong)]
    said = "\n\n".join(f"{one.case.rule.id} => {one.answer}:{one.line}\n{one.log}" for one in wrong)
    assert len(wrong) <= len(sample()) // _RIGHT, said


def test_each_kind_has_logs() -> None:
    rules = library.load()
    names = ("flash/build-isolation", "sage/no-sm90-kernels", "triton/c-compiler-missing")
    found = [*sample(), *cases(rules, [rule for rule in rules if rule.id in names])]
    without = {name for name, kind in KINDS.items() if not any(map(kind.compose, found))}
    assert without <= _RARE


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flash/gpu-too-old", "--kind", "before an exit", "--show", "1"]) == 0
    head, line = capsys.readouterr().out.splitlines()[:2]
    assert head.split() == ["kind", "rules", "wrong", "logs", "wrong"]
    assert line.split()[:5] == ["before", "an", "exit", "1", "0"]
