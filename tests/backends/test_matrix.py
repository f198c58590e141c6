"""What the matrix says of whole machines, and that every requirement of every backend matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from attn_doctor.backends.attention_call import AttentionCall, Context
from attn_doctor.backends.catalogue import find_name, load
from attn_doctor.backends.catalogue_entries import Backend, Example, Requirement
from attn_doctor.backends.catalogue_files import read
from attn_doctor.backends.matrix import matrix, requirements
from attn_doctor.backends.readiness import Answer, Matrix, Outcome, Readiness
from attn_doctor.backends.requirement_outcomes import Evaluator, by_rule
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts, to_builtins
from attn_doctor.findings import Finding, Severity, Verdict
from attn_doctor.render.backends.labels import short_form
from attn_doctor.render.backends.text import text
from attn_doctor.render.terminal import Terminal
from attn_doctor.rulebook.library import folder
from tests.backends import scenario

SCENARIOS = scenario.scenarios()
H200 = "h200-torch-2.11-cu130"
EVERYTHING = (
    "flash-attn=2.8.3", "flash-attn-3=3.0.0", "sageattention=2.2.0", "xformers=0.0.35",
    "kernels=0.16.2", "diffusers=0.42.1", "finetrainers=0.2.0", "simpletuner=4.10.1",
)  # fmt: skip
OLD = (*EVERYTHING, "diffusers=0.36.0")
HUB = (
    "kernels-community/flash-attn2", "kernels-community/flash-attn3",
    "kernels-community/flash-attn4", "SageAttention/sage-attention",
    "SageAttention/sage-blackwell", "kernels-community/vllm-flash-attn3",
)  # fmt: skip
TABLE = read(folder())


@pytest.mark.parametrize(
    "one", SCENARIOS, ids=[f"{number} {one.name}" for number, one in enumerate(SCENARIOS)]
)
def test_scenario(one: Any) -> None:
    assert scenario.states(one) == one.expect


def rows(framework: str, *pretended: str, **call: Any) -> Matrix:
    facts, findings = scenario.machine(H200, *pretended)
    return matrix(facts, findings, (AttentionCall(**call),), framework)


def first(found: Matrix, name: str) -> Any:
    return found.row(name).answers[0].reasons[0]


@pytest.mark.parametrize(
    ("gpu", "name", "rule"),
    [
        ("gtx1080ti", "sage_hub", "sage/gpu-too-old"),
        ("gtx1080ti", "xformers", "xformers/bfloat16-on-old-gpu"),
        ("rtx4090", "sage_hub", "kernels/package-missing"),
        ("rtx4090", "xformers", "diffusers/backend-package-missing"),
    ],
)
def test_a_gpu_stands_before_an_absent_package(gpu: str, name: str, rule: str) -> None:
    """Installing kernels cannot help a card that no kernel supports."""
    found = rows("diffusers", f"gpu={gpu}", "torch=2.9.1+cu128", "kernels=none", "xformers=none")
    assert first(found, name).rule == rule


# --- every requirement of every backend decides ----------------------------------------------


def merged(facts: Facts, given: Mapping[str, Any]) -> Facts:
    """`facts` with those of an example in their place."""
    plain = to_builtins(facts)
    for group, values in given.items():
        if isinstance(values, dict):
            plain[group] = {**plain[group], **values}
        else:
            plain[group] = values
    return msgspec.convert(plain, Facts)


def able_machine(backend: Backend) -> tuple[Facts, Context, AttentionCall]:
    """A machine, a framework and a call for which the backend is as ready as it can be."""
    facts, _ = scenario.machine(H200, *EVERYTHING)
    framework = next(one.framework for one in TABLE.names if one.backend == backend.name)
    device = {"AMD GPU": "rocm", "Apple GPU": "mps"}.get(backend.hardware, "cuda")
    context = Context(
        framework=framework,
        version=TABLE.framework(framework).newest,
        diffusers="" if framework == "finetrainers" else "0.42.1",
        device=device,
        nvidia=device == "cuda",
        unusable_gpu=False,
        checks=False,
        hub=HUB,
    )
    facts = merged(facts, {"transformers": {"version": "5.24.0", "accepts_kernels": True}})
    if "blackwell" in backend.name:
        facts = merged(facts, {"driver": {"best_sm": 120}})
    return facts, context, AttentionCall()


def evaluator(
    facts: Facts,
    context: Context,
    requirement: Requirement | None = None,
    example: Example | None = None,
) -> Evaluator:
    found: dict[str, Finding] = {}
    if requirement and requirement.problem and example and example.verdict:
        finding = Finding(
            rule=requirement.problem,
            verdict=Verdict(example.verdict),
            severity=Severity.WARNING,
            cause="",
            title="",
        )
        found = by_rule([finding])
    return Evaluator(facts, TABLE, context, found, direct=_direct(context))


def _direct(context: Context) -> bool:
    return TABLE.framework(context.framework).direct


@pytest.mark.parametrize("backend", TABLE.backends, ids=lambda one: str(one.name))
def test_every_unsatisfied_requirement_keeps_a_backend_from_ready(backend: Backend) -> None:
    by_id = {requirement.id: requirement for requirement in TABLE.requirements}
    direct = _direct(able_machine(backend)[1])
    for id in (*backend.requires, *backend.compiled):
        if direct and by_id[id].by == "framework":
            continue  # Diffusers' dispatcher makes these demands, which is not called
        answer = without(backend, by_id[id])
        assert id in {reason.id for reason in answer.reasons}
        assert answer.state is not Readiness.READY
        if by_id[id].otherwise == "not ready":
            assert answer.state is Readiness.NOT_READY, id


def without(backend: Backend, requirement: Requirement) -> Answer:
    """The answer for a backend on an able machine that lacks one requirement."""
    facts, context, call = able_machine(backend)
    example = next(one for one in requirement.examples if one.expect == "unsatisfied")
    facts = merged(facts, example.facts)
    context = msgspec.structs.replace(context, **example.context)
    call = msgspec.convert(
        {"compiled": requirement.id in backend.compiled, **example.call}, AttentionCall
    )
    return evaluator(facts, context, requirement, example).answer(backend, call)


@pytest.mark.parametrize("backend", TABLE.backends, ids=lambda one: str(one.name))
def test_an_able_machine_leaves_only_what_no_fact_can_settle(backend: Backend) -> None:
    """Else the test above could pass for another reason than the requirement's."""
    facts, context, call = able_machine(backend)
    answer = evaluator(facts, context).answer(backend, call)
    never = {one.id for one in TABLE.requirements if one.never}
    allowed = never | {"flex-unfused", "nvidia-gpu"} if backend.hardware else never
    allowed |= {"flex-unfused", "st-xformers-hopper", "npu-device", "xla-device"}
    assert {reason.id for reason in answer.reasons} <= allowed


# --- what it says -----------------------------------------------------------------------------


def test_value_seen_and_wanted() -> None:
    reason = first(rows("diffusers"), "flash")
    assert reason.text == "flash-attn is not installed"
    assert [(one.fact, one.seen, one.wanted) for one in reason.because] == [
        ("flash_attn.installed", "no", "yes")
    ]


def test_flex_without_compiling_is_slow_with_figures_and_a_line_that_runs() -> None:
    reason = first(rows("diffusers"), "flex")
    assert reason.state is Readiness.SLOW
    assert "26 times as slow and 115 times the memory" in reason.text
    compile(reason.code, "remedy", "exec")
    assert "fa.flex_attention = torch.compile(fa.flex_attention)" in reason.code


@pytest.mark.parametrize(
    ("framework", "name", "pretended", "call", "rule"),
    [
        ("diffusers", "flex", (), {"causal": True}, "flex/causal-flag"),
        ("diffusers", "flash_varlen", EVERYTHING, {"mask": "bool"}, "diffusers/varlen-mask"),
        ("diffusers", "xformers", EVERYTHING, {"mask": "bool"}, "xformers/mask-layout"),
        ("diffusers", "sage", EVERYTHING, {"phase": "training"}, "sage/no-gradients"),
        ("diffusers", "flash", OLD, {"mask": "bool"}, "diffusers/mask-dropped"),
        ("finetrainers", "flash", EVERYTHING, {"mask": "bool"}, "diffusers/mask-dropped"),
        ("simpletuner", "sageattention", EVERYTHING, {"mask": "bool"}, "diffusers/mask-dropped"),
    ],
)  # fmt: skip
def test_silent_wrongness_is_not_ready(
    framework: str, name: str, pretended: tuple[str, ...], call: dict[str, Any], rule: str
) -> None:
    answer = rows(framework, *pretended, **call).row(name).answers[0]
    assert answer.state is Readiness.NOT_READY
    silent = [reason for reason in answer.reasons if reason.silent]
    assert [reason.rule for reason in silent] == [rule]


def test_what_the_framework_declares_and_what_the_library_does_are_apart() -> None:
    """Sage's fp8 kernels run on 8.9; only Diffusers' checks refuse them there."""
    name = "_sage_qk_int8_pv_fp8_cuda"
    machine = ("gpu=rtx4090", *EVERYTHING)
    assert rows("diffusers", *machine).row(name).answers[0].state is Readiness.READY
    reason = first(rows("diffusers", *machine, "env.DIFFUSERS_ATTN_CHECKS=1"), name)
    assert reason.by == "framework"
    assert "8.9" in load().backend(name).truth
    assert "9.0" in load().backend(name).declares["diffusers"]


def test_a_name_of_another_version() -> None:
    row = rows("diffusers", "diffusers=0.36.0").row("flash_4_hub")
    assert not row.known
    assert row.answers[0].reasons[0].text == "Diffusers 0.36.0 has no flash_4_hub (since 0.38)"
    assert rows("diffusers", "diffusers=0.38.0").row("flash_4_hub").known
    assert rows("diffusers", "diffusers=0.39.0").row("aiter").known
    assert not rows("diffusers", "diffusers=0.40.0").row("aiter").known


def test_a_release_without_named_backends() -> None:
    found = rows("diffusers", *EVERYTHING, "diffusers=0.32.2")
    words = "Diffusers 0.32.2 has no named backends; they came with 0.35"
    assert [one.why for one in found.recommended] == [words]
    facts, _ = scenario.machine(H200)
    assert short_form(found, facts) == [words]
    assert text(found, facts, Terminal()).endswith(f"→ {words}\n")


def test_simpletuner_keeps_silent_about_names_that_diffusers_lacks() -> None:
    machine = ("simpletuner=4.10.1", "diffusers=0.37.0", "kernels=0.16.2")
    reason = first(rows("simpletuner", *machine), "flash-attn-4-hub")
    assert reason.silent
    assert "Diffusers 0.37.0 has no flash_4_hub" in reason.text


def test_an_unknown_gpu_makes_gpu_backends_unknown() -> None:
    facts, findings = scenario.machine(H200)
    unknown = msgspec.structs.replace(
        facts,
        gpus=None,
        driver=msgspec.structs.replace(facts.driver, best_sm=None),
        gaps={**facts.gaps, "gpus": "the driver did not answer"},
    )
    found = matrix(unknown, findings, (AttentionCall(),), "diffusers")
    answer = found.row("_native_cudnn").answers[0]
    assert answer.state is Readiness.UNKNOWN
    assert "the driver did not answer" in {one.gap for one in answer.reasons[0].because}


def finding(rule: str, verdict: Verdict, *backends: str, fact: str = "torch.version") -> Finding:
    from attn_doctor.findings import Because

    return Finding(
        rule=rule,
        verdict=verdict,
        severity=Severity.ERROR,
        cause="x",
        title="something is wrong",
        because=(Because(fact=fact, seen="x", wanted="y", truth=None, gap="no reason"),),
        backends=backends,
    )


def without_advisories() -> tuple[Facts, tuple[Finding, ...]]:
    facts, findings = scenario.machine(H200)
    return facts, tuple(one for one in findings if one.advisory is None)


@pytest.mark.parametrize("called", ["_native_cudnn", "native"])
def test_errors_of_rules_reach_the_backends_they_list(called: str) -> None:
    """By the backend's name, and by its family."""
    facts, findings = without_advisories()
    for verdict, state in (
        (Verdict.PROBLEM, Readiness.NOT_READY),
        (Verdict.UNKNOWN, Readiness.UNKNOWN),
        (Verdict.OK, Readiness.READY),
    ):
        more = (*findings, finding("new/rule", verdict, called))
        found = matrix(facts, more, (AttentionCall(),), "diffusers")
        answer = found.row("_native_cudnn").answers[0]
        assert answer.state is state
        assert [one.rule for one in answer.reasons] == ["new/rule"] * (verdict is not Verdict.OK)
        assert found.row("flex").answers[0].state is Readiness.SLOW


def test_errors_about_another_framework_do_not() -> None:
    facts, findings = without_advisories()
    more = (*findings, finding("finetrainers/x", Verdict.PROBLEM, "native"))
    assert (
        matrix(facts, more, (AttentionCall(),), "diffusers").row("native").answers[0].reasons == ()
    )
    found = matrix(facts, more, (AttentionCall(),), "finetrainers").row("native").answers[0]
    assert found.state is Readiness.NOT_READY


def test_one_of_two_gpus_with_a_problem_leaves_the_other() -> None:
    facts, findings = scenario.machine(H200)
    bad = finding("new/gpu", Verdict.PROBLEM, "native", fact="gpu.sm")
    good = msgspec.structs.replace(bad, verdict=Verdict.OK, because=())
    one = matrix(facts, (*findings, bad, good), (AttentionCall(),), "diffusers").row("native")
    assert one.answers[0].state is Readiness.READY
    both = matrix(facts, (*findings, bad, bad), (AttentionCall(),), "diffusers").row("native")
    assert both.answers[0].state is Readiness.NOT_READY


def test_why_lists_every_requirement() -> None:
    facts, findings = scenario.machine(H200)
    calls = (AttentionCall(phase="training"),)
    backend, (results,) = requirements(facts, findings, calls, "sage", "diffusers")
    packages = {
        f"{name}-{what}"
        for name in ("torch", "diffusers", "sageattention")
        for what in ("importable", "import-unsure")
    }
    more = {"name-known", "sageattention-loadable", *packages}
    assert {one.id for one in results} == {*backend.requires, *more}
    outcomes = {one.id: one.outcome for one in results}
    assert outcomes["sage-there"] is Outcome.UNSATISFIED
    assert outcomes["sage-gradients"] is Outcome.UNSATISFIED
    assert outcomes["half-precision"] is Outcome.SATISFIED
    assert outcomes["finetrainers-imports-sage"] is Outcome.NOT_APPLICABLE
    with pytest.raises(KeyError):
        requirements(facts, findings, (AttentionCall(),), "nonsense", "diffusers")


def test_a_backend_is_unknown_where_an_import_reaches_a_wrong_version() -> None:
    facts, findings = scenario.machine(H200)
    reason = "huggingface_hub 0.25.2 is installed"
    package = msgspec.structs.replace(facts.diffusers, import_error=None, import_doubt=reason)
    facts = msgspec.structs.replace(facts, diffusers=package)
    one = matrix(facts, findings, (AttentionCall(),), "diffusers").row("native")
    assert one.answers[0].state is Readiness.UNKNOWN
    assert reason in one.answers[0].reasons[0].text


def test_a_backend_whose_extension_does_not_load_is_not_ready() -> None:
    facts, findings = scenario.machine(H200)
    package = replace(facts.flash_attn, installed=True, version="2.8.3", load_error="")
    states = {}
    for error in ("", "flash_attn_2_cuda: undefined symbol c10::old(int)"):
        changed = replace(facts, flash_attn=replace(package, load_error=error))
        answer = matrix(changed, findings, (AttentionCall(),), "diffusers").row("flash").answers[0]
        states[error] = answer.state
        texts = [one.text for one in answer.reasons if one.id == "flash_attn-loadable"]
        assert texts == ([f"flash_attn cannot be loaded: {error}"] if error else [])
    assert [*states.values()] == [Readiness.READY, Readiness.NOT_READY]


def test_no_backend_is_ready_where_the_framework_cannot_be_imported() -> None:
    facts, findings = scenario.machine(H200)
    error = "diffusers/utils/versions.py imports packaging, which is not installed"
    there = replace(facts.diffusers, installed=True, version="0.42.1", import_error=error)
    changed = replace(facts, diffusers=there)
    rows = matrix(changed, findings, (AttentionCall(),), "diffusers").rows
    assert not [row.name for row in rows if row.answers[0].state is Readiness.READY]


def test_the_framework_that_is_installed_is_evaluated() -> None:
    facts, findings = scenario.machine(H200, "simpletuner=4.10.1", "diffusers=0.42.1")
    assert matrix(facts, findings, (AttentionCall(),)).framework == "simpletuner"
    facts, findings = scenario.machine(H200)
    found = matrix(facts, findings, (AttentionCall(),))
    assert (found.framework, found.version, found.installed) == ("diffusers", "0.42.1", False)
    with pytest.raises(
        AttnDoctorError,
        match="choose from diffusers, finetrainers, simpletuner, transformers, comfyui",
    ):
        matrix(facts, findings, (AttentionCall(),), "forge")


@pytest.mark.parametrize(
    ("name", "framework", "found"),
    [
        ("flash", "diffusers", "flash"),
        ("flash-varlen", "diffusers", "flash_varlen"),
        ("native_flash", "diffusers", "_native_flash"),
        ("flash-attn-2", "diffusers", "flash_varlen"),
        ("flash_varlen", "simpletuner", "flash-attn-2"),
        ("cudnn", "finetrainers", "_native_cudnn"),
    ],
)
def test_names_are_understood_across_frameworks(name: str, framework: str, found: str) -> None:
    assert find_name(name, framework, TABLE).name == found


@pytest.mark.parametrize(
    ("name", "framework", "said"),
    [
        ("flesh", "diffusers", "did you mean flash"),
        ("sla", "diffusers", "add --framework simpletuner"),
        ("flash_hub", "finetrainers", "Finetrainers has no name for that"),
        ("qqq", "finetrainers", "it has native"),
    ],
)
def test_unknown_names_lead_to_the_nearest(name: str, framework: str, said: str) -> None:
    with pytest.raises(AttnDoctorError) as error:
        find_name(name, framework, TABLE)
    assert said in str(error.value)


# --- the recommendation -------------------------------------------------------------------------


def test_the_fastest_measured_is_recommended_with_its_figures() -> None:
    best = rows("diffusers", *EVERYTHING).recommended[0]
    assert (best.name, best.measured) == ("native", True)
    assert "0.41 ms a call on one NVIDIA H200, _native_cudnn 0.52 ms" in best.why
    assert "17 times the error" in best.why


def test_a_call_that_was_not_measured_says_so() -> None:
    best = rows("diffusers", phase="training", mask="bool").recommended[0]
    assert best.why.endswith("not measured with gradients, masks)")


def test_another_gpu_is_not_measured() -> None:
    best = rows("diffusers", "gpu=rtx4090", *EVERYTHING).recommended[0]
    assert (best.name, best.measured) == ("native", False)
    assert best.why.startswith("not measured on sm_89")
    assert "sage" in best.why


def test_compiled_flex_has_its_own_figure() -> None:
    facts, findings = scenario.machine(H200)
    only = matrix(
        facts, findings, (AttentionCall(compiled=True),), "diffusers", ("flex", "_native_flash")
    )
    assert only.recommended[0].name == "flex"
    assert "0.60 ms" in only.recommended[0].why


def test_nothing_ready_is_said() -> None:
    facts, findings = scenario.machine("debian-no-torch")
    best = matrix(facts, findings, (AttentionCall(),), "diffusers").recommended[0]
    assert (best.name, best.state) == ("", Readiness.NOT_READY)
    slow = rows("diffusers", "gpu=t4").recommended[0]
    assert (slow.name, slow.state) == ("native", Readiness.SLOW)


def test_where_there_is_no_gpu_none_of_a_generation_is_asked_for() -> None:
    reasons = rows("diffusers", "gpu=none").row("flash").answers[0].reasons
    assert "nvidia-gpu" in {one.id for one in reasons}
    assert not [one for one in reasons if any("best_sm" in line.fact for line in one.because)]
    seen = rows("diffusers", "gpu=t4", *EVERYTHING).row("flash").answers[0].reasons
    assert [one.id for one in seen if any("best_sm" in line.fact for line in one.because)]


def test_names_that_a_release_lacks_are_listed_once() -> None:
    facts, findings = scenario.machine(H200, "gpu=none", "diffusers=0.36.0")
    page = " ".join(
        text(matrix(facts, findings, (AttentionCall(),), "diffusers"), facts, Terminal()).split()
    )
    assert "Diffusers 0.36.0 has no flash_4_hub (since 0.38); no sage_blackwell_hub" in page
    assert page.count("Diffusers 0.36.0 has no") == 1
