"""Backends that must be ready, on a machine of which little is known."""

from __future__ import annotations

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.matrix import matrix
from attn_doctor.backends.readiness import Readiness
from attn_doctor.backends.required import Demand, remedies, with_required
from attn_doctor.diagnosis import diagnosis_of
from attn_doctor.facts import Facts, Gpu, Python, System
from attn_doctor.findings import Verdict
from tests.install.machines import machine


def test_what_is_unknown_is_neither_a_fault_nor_cured() -> None:
    """As where the probes of torch and packages did not end within their time."""
    facts = Facts(
        system=System(os="linux", arch="x86_64"),
        python=Python(version="3.12.3", path="/venv/bin/python"),
        gpus=(Gpu(index=0, name="NVIDIA H200", sm=90),),
    )
    call = AttentionCall()
    diagnosis = diagnosis_of(facts)
    found = with_required(diagnosis, [Demand(names=("flash",), calls=(call,))])
    (finding,) = (one for one in found.findings if one.rule == "required/flash")
    assert finding.verdict is Verdict.PROBLEM
    assert "is not known to be ready" in finding.title
    assert "unknown whether torch is installed" in finding.why
    assert "is not installed" not in finding.why
    assert finding.fixes == ()
    answers = matrix(facts, diagnosis.findings, (call,)).row("flash").answers
    assert answers[0].state is Readiness.UNKNOWN
    assert remedies(answers) == ()


def test_what_is_slow_is_not_what_keeps_a_backend_from_being_ready() -> None:
    """A GTX 1080 Ti, for which torch has no code: fp16 would not help."""
    facts = machine("gpu=gtx1080ti", "torch=2.9.1+cu128")
    answers = matrix(facts, diagnosis_of(facts).findings, (AttentionCall(),)).row("native").answers
    states = {one.state for one in answers[0].reasons}
    assert states == {Readiness.NOT_READY, Readiness.SLOW}
    assert remedies(answers) == ()
