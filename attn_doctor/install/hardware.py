"""Whether a GPU can run what is asked for, whatever is installed: by the catalogue of backends."""

from __future__ import annotations

from msgspec.structs import replace

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.matrix import answer_of
from attn_doctor.backends.readiness import Readiness
from attn_doctor.facts import Facts, Package
from attn_doctor.install.demand import Demand

#: Packages with code for NVIDIA GPUs.
COMPILED = ("flash-attn", "flash-attn-3", "xformers", "sageattention")
_VENDORS = {"amd": "an AMD GPU", "intel": "an Intel GPU"}


#: GPU → what sources say of torch's wheels for its processor, which are made for Arm servers.
#: Neither way was tried by us.
_DISAGREE = {
    # https://github.com/bitsandbytes-foundation/bitsandbytes/pull/1941 (libraries of JetPack)
    87: "sources disagree on torch for Jetson Orin: some take this wheel, which is made for Arm"
    " servers, others that of https://pypi.jetson-ai-lab.io, which is made for JetPack",
    # https://github.com/ace-step/ACE-Step-1.5/pull/575 (cu130)
    # https://github.com/pollen-robotics/microduck_rl/pull/39 (cu129)
    121: "sources disagree on torch for GB10 (DGX Spark): most take PyTorch's index cu130, some"
    " cu129, others NVIDIA's container of PyTorch",
}


def disagreement(facts: Facts) -> str:
    """Return what sources recommend for the GPU, where they disagree; empty if they do not."""
    if facts.system.os != "linux" or facts.system.arch != "aarch64":
        return ""
    return next((_DISAGREE[gpu.sm] for gpu in facts.gpus or () if gpu.sm in _DISAGREE), "")


def gpu_fault(demand: Demand, ahead: Facts) -> str:
    """Return why no release helps on these GPUs; empty if one may.

    `ahead`: the facts with a torch that was built for CUDA. The call is the easiest one: float16,
    without a mask, of unknown size.
    """
    vendor = "" if demand.gpu else _VENDORS.get(ahead.driver.vendor or "")
    packages = [name for name in COMPILED if name in demand.packages]
    if vendor and packages:
        return (
            f"the known builds of {', '.join(packages)} are for NVIDIA GPUs, and this is {vendor}"
        )
    # The port of SageAttention for Windows, by others, takes more GPUs.
    port = demand.community and ahead.system.os == "windows"
    every = [name for meaning in demand.meanings for name in meaning.backends]
    named = [name for name in every if name != "sage" or not port]
    if not ahead.gpus:
        return ""
    best = ahead.driver.best_sm or 0
    if "flex" in named and 0 < best < 70:
        this = f"{best // 10}.{best % 10}"
        return f"Triton supports compute capability 7.0 and newer, and this is {this}"
    # What is installed does not count: the requirements of those that are absent are about GPUs.
    none = dict.fromkeys((name.replace("-", "_") for name in COMPILED), Package(installed=False))
    there = replace(ahead, **none)
    call = AttentionCall(
        phase="training" if demand.training else "inference",
        dtype="fp16",
        assumed=("head_dim", "seq_len", "kv_heads"),
    )
    reasons = (
        one.text
        for name in named
        for one in answer_of(there, (), call, name).reasons
        if one.state is Readiness.NOT_READY and not one.curable
        if any(line.fact == "driver.best_sm" for line in one.because)
    )
    return next(reasons, "")
