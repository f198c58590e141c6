"""The table of calls, and the programs that are made of them, without torch."""

from __future__ import annotations

import itertools

import pytest

from attn_doctor.backends.live.plan import NAMES
from attn_doctor.worker.audit import scripts
from attn_doctor.worker.audit.case import SIMPLEST, Case, described
from attn_doctor.worker.audit.lines import GRADIENTS, LAYOUTS, MASKS, VALUES, inputs
from attn_doctor.worker.audit.probes import PROBES, cases
from attn_doctor.worker.audit.program import Bound, program
from attn_doctor.worker.audit.ways import WAYS, definition

BOTH = ("inference", "training")


def calls(
    route: str = "direct", device: str = "cuda:0", phases: tuple[str, ...] = BOTH
) -> list[Case]:
    return [
        case
        for probe in PROBES
        for case in cases(probe, route=route, device=device, phases=phases, dtype="bfloat16")
    ]


def routes(name: str) -> tuple[str, ...]:
    if NAMES[name] == "kernels":
        return ("diffusers",)
    return ("direct", "compiled") if name == "flex" else ("direct",)


def test_every_call_is_possible() -> None:
    for case in calls():
        assert case.heads % case.kv_heads == 0, case
        assert case.values in VALUES
        assert case.layout in LAYOUTS
        assert case.gradient in GRADIENTS
        assert case.mask in MASKS
        assert case.how in WAYS
        assert not (case.causal and case.mask != "none"), "two masks that not all take"
        if WAYS[case.how].same_heads:
            assert (case.heads, case.columns) == (case.kv_heads, case.length)


def test_the_table_has_what_it_promises() -> None:
    found = calls()
    training = [case for case in found if case.training]
    low = [case for case in training if case.level == -200]
    assert {case.length % 128 for case in low} == set(range(128))
    assert {case.kv_heads for case in training} >= set(range(1, 9))
    assert min(case.level for case in found) == -300
    assert max(case.level for case in found) == 300
    assert {case.mask for case in training} == set(MASKS)
    assert {case.layout for case in training} == set(LAYOUTS)
    assert {case.gradient for case in training} == set(GRADIENTS)
    assert {case.how for case in found} == set(WAYS)
    for tile in (64, 128, 256, 512):
        assert {tile - 1, tile, tile + 1} <= {case.length for case in training}
    assert max(case.scores for case in found) > 1 << 31
    assert {case.dtype for case in found} == {"bfloat16", "float16", "float32"}


def test_what_a_device_and_a_phase_leave_out() -> None:
    assert not any(WAYS[case.how].device for case in calls(device="cpu"))
    assert max(case.scores for case in calls(device="cpu")) < 1 << 31
    assert not any(case.training for case in calls(phases=("inference",)))
    assert all(case.training for case in calls(phases=("training",)))
    assert not any(case.how == "compiled" for case in calls(route="compiled"))


def of(name: str, route: str) -> list[Case]:
    return [
        case
        for probe in PROBES
        for case in cases(
            probe, name=name, route=route, device="cuda", phases=("inference", "training"),
            dtype="bfloat16",
        )
    ]  # fmt: skip


def test_an_unfused_kernel_has_fewer_lengths() -> None:
    fused, unfused = of("_native_efficient", "direct"), of("_native_math", "direct")
    assert len(unfused) < 0.6 * len(fused)
    assert set(unfused) < set(fused)
    assert len({case.length % 128 for case in unfused if case.level == -200}) > 12
    assert {case.mask for case in unfused} == set(MASKS)
    assert of("flex", "direct") == unfused


def test_a_compiled_kernel_is_compiled_for_training_where_that_says_both() -> None:
    compiled, every = of("flex", "compiled"), set(of("native", "direct"))
    assert {case.mask for case in compiled if case.training} == set(MASKS)
    twins = [
        case for case in compiled if not case.training and case._replace(training=True) in every
    ]
    assert {case.mask for case in twins} == {"none"}
    assert len(twins) == len(VALUES)


def test_every_entry_says_why() -> None:
    names = [probe.name for probe in PROBES]
    assert len(set(names)) == len(names)
    for table in (VALUES, LAYOUTS, GRADIENTS, MASKS, WAYS):
        assert all(one.why for one in table.values())
    assert all(probe.why for probe in PROBES)
    assert all(script.why and script.tolerance for script in scripts.SCRIPTS.values())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thorough
def test_every_backend_has_programs(name: str) -> None:
    kinds = [
        SIMPLEST,
        Case(training=True, causal=True),
        *(Case(how=how) for how in WAYS),
        *(Case(mask=mask, training=True) for mask in MASKS),
        Case(length=46400),
    ]
    bounds = [
        Bound("out", "whole", 0.01),
        Bound("dq", "finite", 0.0),
        Bound("out", "row", 0.1, (0, 0, 3)),
    ]
    for route in routes(name):
        compile(definition(name, route), name, "exec")
        for case, bound in itertools.product(kinds, bounds):
            text = program((case,), name, route, "cuda", bound, 'A "title" with C:\\path' * 9)
            compile(text, name, "exec")
            assert "attn_doctor" not in text
            assert max(map(len, text.splitlines())) <= 100
        for script in scripts.SCRIPTS.values():
            if scripts.applies(script, name, route, "cuda:0", training=True):
                compile(scripts.program(script, name, route, "cuda", "title"), name, "exec")


def test_a_script_is_for_its_backends() -> None:
    dropout, varlen = scripts.SCRIPTS["dropout"], scripts.SCRIPTS["tokens behind the last sequence"]
    assert scripts.applies(dropout, "native", "direct", "cpu", training=True)
    assert not scripts.applies(dropout, "native", "direct", "cpu", training=False)
    assert not scripts.applies(dropout, "flex", "direct", "cpu", training=True)
    assert scripts.applies(varlen, "flash_varlen", "direct", "cuda:0", training=True)


def test_a_call_in_words() -> None:
    assert described(SIMPLEST) == "length 128, 1 head of 64, bfloat16, inference"
    case = Case(
        length=192, keys=7, heads=4, kv_heads=2, batch=2, training=True, mask="hole", level=-200,
        layout="tokens first", gradient="tiny", values="large", how="checkpoint", causal=True,
    )  # fmt: skip
    words = described(case)
    for part in (
        "length 192 with 7 keys", "batch 2", "4 heads on 2 of keys of 64", "training", "causal",
        "mask: hole", "large values", "scores near -200", "memory: tokens first", "gradient: tiny",
        "checkpoint",
    ):  # fmt: skip
        assert part in words
    assert Case(**case.plain()) == case
    assert SIMPLEST.plain() == {}


def test_the_lines_of_inputs_are_python() -> None:
    for case in calls():
        compile(inputs(case), "inputs", "exec")
