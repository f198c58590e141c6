"""The build environment, which decides reuse, as far as the facts know it without running code.

The digests of torch's sources and of its settings are known only to torch itself; they stay None
here, which is not compared. "Up to date" means: as far as is known without importing
torch. A build, which imports torch anyway, compares everything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attn_doctor.facts import Facts, Gpu, Program
from attn_doctor.record.manifest import BuildEnvironment
from attn_doctor.redact import presentable
from attn_doctor.worker.env_vars import kept


def slot_name(device: str, name: str) -> str:
    """The device slot in a manifest, such as `cuda:0 NVIDIA H200`."""
    return device if device == "cpu" else f"{device} {name}"


def slot_of(facts: Facts, device: str) -> str | None:
    """The device slot by the facts; None if they do not show which GPU torch calls `device`."""
    if device == "cpu":
        return "cpu"
    gpu = _gpu(facts, device)
    return None if gpu is None or not gpu.name else slot_name(device, gpu.name)


def environment_from_facts(
    facts: Facts, device: str, environ: Mapping[str, str], was: BuildEnvironment | None = None
) -> BuildEnvironment:
    """Today's build environment as far as the facts know it; None is unknown.

    `environ`: the variables of the building processes. `was`: the recorded environment; a recorded
    text that agrees with the facts and is more exact than they are is returned instead.
    """
    was = was or BuildEnvironment()
    torch, triton = facts.torch, facts.triton
    cuda = device != "cpu"
    gpu = _gpu(facts, device) if cuda else None
    return BuildEnvironment(
        torch=torch.version,
        torch_cuda="" if torch.build and torch.build != "cuda" else torch.cuda,
        triton="" if triton.installed is False else triton.version,
        ptxas=_as_recorded(triton.ptxas_version, was.ptxas) if cuda and _old(gpu) else None,
        python=facts.python.version,
        device=(gpu.name if gpu else None) if cuda else "cpu",
        sm=gpu.sm if gpu else None,
        driver=facts.driver.version if cuda else None,
        cc=_compiler(facts.cc, was.cc),
        cxx=_compiler(facts.cxx, was.cxx),
        environment=environment(environ, was.environment),
    )


def environment(environ: Mapping[str, str], recorded: Mapping[str, str]) -> dict[str, str]:
    """The variables that matter and are set, or that only Triton knows and are recorded."""
    return {name: presentable(value) for name, value in kept(environ, recorded).items()}


def _gpu(facts: Facts, device: str) -> Gpu | None:
    """The GPU that torch calls `device`; None where that is uncertain."""
    shown = [gpu for gpu in facts.gpus or () if gpu.visible is not False]
    index = int(device.partition(":")[2] or 0)
    if index >= len(shown) or any(gpu.mig == "enabled" for gpu in shown):
        return None
    # CUDA puts the fastest first and CUDA_VISIBLE_DEVICES any order at all: only among equals
    # does the number not matter.
    return shown[index] if len({(gpu.name, gpu.sm) for gpu in shown}) == 1 else None


def _old(gpu: Gpu | None) -> bool:
    """Whether Triton compiles for it with the first of its two ptxas."""
    return gpu is not None and gpu.sm is not None and gpu.sm < 100


def _compiler(program: Program, was: str | None) -> str | None:
    if program.path == "":
        return ""
    if not program.version:
        return None
    found = _as_recorded(program.version, was)
    return found if found == was else f"{program.family or ''} {program.version}".strip()


def _as_recorded(version: str | None, was: str | None) -> str | None:
    """The recorded text if it contains this version, else the version."""
    if version and was and re.search(rf"(?<![\d.]){re.escape(version)}(?!\d)", was):
        return was
    return version
