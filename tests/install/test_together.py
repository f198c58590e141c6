"""One command for all requirements that are not met."""

from __future__ import annotations

from attn_doctor.diagnosis import diagnosis_of
from attn_doctor.facts import Facts, UnmetRequirement
from attn_doctor.fixes.plan import plan
from attn_doctor.install.together import joined

NONE = dict.fromkeys(("rival", "renewed", "beside", "lowered", "unchanged", "along"), "")


def unmet(package: str, needs: str, **more: str) -> UnmetRequirement:
    values = {"together": needs, **NONE, **more}
    return UnmetRequirement(package=package, needs=needs, installed="", **values)


def commands(*found: UnmetRequirement) -> list[tuple[str, ...]]:
    diagnosis = joined(diagnosis_of(Facts(unmet_requirements=found)))
    return [one.fixes[0].run[0] for one in diagnosis.problems if "requirement" in one.rule]


PAIR = unmet(
    "kernels",
    "huggingface-hub<1.0,>=0.26.0",
    together="",
    rival="huggingface-hub>=1.31.0 for datasets 5.2.0",
    renewed="kernels<0.15,>0.9.0",
    beside="datasets==5.2.0",
    along="huggingface-hub<2.0,>=1.31.0",
)


def test_all_packages_are_in_one_command() -> None:
    first, second = commands(unmet("peft", "accelerate>=0.34"), PAIR)
    assert first == second
    assert {*first[2:]} == {
        "accelerate>=0.34",
        "kernels<0.15,>0.9.0",
        "datasets==5.2.0",
        "huggingface-hub<2.0,>=1.31.0",
    }


def test_a_command_that_excludes_another_one_stays_apart() -> None:
    found = commands(unmet("peft", "accelerate>=0.34"), unmet("x", "accelerate<0.30"))
    assert sorted(one[2] for one in found) == ["accelerate<0.30", "accelerate>=0.34"]


def test_what_a_release_brings_excludes_too() -> None:
    """Transformers 4 requires huggingface-hub<1.0, whatever was asked for before."""
    newer = unmet("transformers", "diffusers>=0.37", along="huggingface-hub<2.0,>=1.3.0")
    older = unmet("diffusers", "transformers<5,>=4.46")
    first, second = commands(newer, older)
    assert first == second
    assert {*first[2:]} == {"diffusers>=0.37", "transformers<5,>=4.46"}


def test_fix_plans_one_step() -> None:
    facts = Facts(unmet_requirements=(unmet("peft", "accelerate>=0.34"), PAIR))
    (step,) = plan(joined(diagnosis_of(facts))).steps
    assert "kernels<0.15,>0.9.0" in step.run[0]
    assert len(step.rules) == 2
