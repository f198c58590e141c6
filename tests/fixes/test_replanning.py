"""What of a plan is applied after a step that changed torch: what was agreed to, or asked again."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding, Fix, Safety, Severity, Verdict
from attn_doctor.fixes import apply
from attn_doctor.fixes.distributions import Change
from attn_doctor.fixes.plan import plan
from attn_doctor.fixes.resolve import prepared
from attn_doctor.fixes.steps import Plan, Step
from tests.fixes.test_plan import H100

SAGE = "git+https://github.com/thu-ml/SageAttention@v2.2.0"


def step(*run: str, **more: object) -> Step:
    return Step(
        number=2, rules=("a/a",), title="t", kind="install", safety=Safety.ASK,
        run=tuple(tuple(one.split()) for one in run), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def replanned(agreed: Step, *fresh: Step, agrees: bool | None = None) -> tuple[str, list[Step]]:
    """What happens to the step, and what was asked."""
    asked: list[Step] = []

    def answer(new: Step) -> bool:
        asked.append(new)
        assert agrees is not None, "the user was asked"
        return agrees

    kept, dropped = apply._replanned([agreed], Plan(steps=fresh), answer)
    assert len(kept) + len(dropped) == 1
    return ("kept" if kept else dropped[0].state), [*kept, *asked]


def test_the_prerequisites_of_a_build_stay() -> None:
    """The build alone would fail, because wheel, packaging and ninja are missing."""
    fix = Fix(title="t", safety=Safety.ASK, run=(("pip", "install", SAGE),))
    finding = Finding(
        rule="a/sage", verdict=Verdict.PROBLEM, severity=Severity.ERROR, cause="c", title="t",
        fixes=(fix,),
    )  # fmt: skip
    facts: Facts = replace(H100, python=replace(H100.python, site_packages=()))

    def planned() -> Plan:
        found = plan(Diagnosis(facts=facts, findings=(finding,), rules=1), ["a/sage"])
        return prepared(found, facts, os.environ, local=True, resolve=False)

    (agreed,) = planned().steps
    prerequisites, build = agreed.run
    assert prerequisites == ("pip", "install", "setuptools", "wheel", "packaging", "ninja")
    assert SAGE in build
    state, (kept,) = replanned(agreed, *planned().steps)
    assert (state, kept.run) == ("kept", (prerequisites, build))


def test_the_same_commands_are_applied_without_a_question() -> None:
    change = Change("a", "1", "2")
    agreed = step("pip install a", changes=(change,))
    assert replanned(agreed, replace(agreed, changes=()))[0] == "kept"
    assert replanned(replace(agreed, changes=None), agreed)[0] == "kept"


@pytest.mark.parametrize("yes", [True, False])
@pytest.mark.parametrize(
    "new",
    [
        step("pip install a==2"),
        step("pip install a", changes=(Change("a", "1", "2"), Change("numpy", "1", "2"))),
        step("pip install a", variables={"MAX_JOBS": "4"}),
    ],
)
def test_another_step_is_asked_about(new: Step, yes: bool) -> None:
    agreed = step("pip install a", changes=(Change("a", "1", "2"),))
    state, steps = replanned(agreed, replace(new, number=1), agrees=yes)
    assert state == ("kept" if yes else "not reached")
    assert [(one.number, one.run, one.variables) for one in steps] == [
        (2, new.run, new.variables)
    ] * (2 if yes else 1)


def test_a_step_that_is_not_needed_or_blocked_is_not_applied() -> None:
    agreed = step("pip install a")
    assert replanned(agreed)[0] == "not needed"
    assert replanned(agreed, replace(agreed, blocked_by="no GPU"))[0] == "not reached"
