"""How long a step takes and what it needs, with what each figure rests on.

Only what was measured, or what a project itself says, is told; everything else is unknown. How
long a download takes depends on the line and on what is cached, so it is never told.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from attn_doctor.facts import Facts
from attn_doctor.fixes.steps import Estimate
from attn_doctor.rulebook import library

#: MiB on disk: the sizes of the files that are installed, summed over each distribution, on Linux
#: with an x86 processor on 2026-11-21. torch 2.11.0+cu130 is 1129, the CUDA libraries that it
#: depends on 2731, triton 3.6.0 639 (2.4.1+cu121: 1587, 2704, 554); torch 2.13.0+cpu is 721.
_TORCH_CUDA = 1129 + 2731 + 639
_TORCH_CPU = 721
_TRITON = 639

#: Work of a build in minutes of one core, how many cores at most have something to do, and whence.
#: flash-attn: https://github.com/Dao-AILab/flash-attention/blob/v2.8.3.post1/README.md#L78
#: ("compiling takes 3-5 minutes on a 64-core machine"); 72 files are compiled.
#: SageAttention 2.2 (d1a57a5): measured with nvcc 13.0 for compute capability 9.0 on 16 cores,
#: EXT_PARALLEL=4 and MAX_JOBS=16: 122 s. It has ten CUDA files, so at most ten cores were busy.
_WORK = {
    "flash-attn": (4.0 * 64, 72, "its README: 3 to 5 min with 64 cores"),
    "sageattention": (122 / 60 * 10, 10, "measured: 2 min with 16 cores for one GPU architecture"),
}


class Machine(Struct, frozen=True):
    """What a build's time depends on."""

    cpus: int
    jobs: int

    @classmethod
    def of(cls, facts: Facts) -> Machine:
        """The machine as the facts have it; one core where they do not tell."""
        return cls(facts.system.cpus or 1, facts.build.jobs or 1)


def estimate(packages: Iterable[str], facts: Facts, *, cuda: bool = False) -> Estimate:
    """What installing ready wheels of `packages` takes: disk where it was measured.

    `cuda`: torch is known to bring CUDA's libraries along.
    """
    names = {*packages}
    if not names:
        return Estimate()
    basis = "it depends on the network and on what is cached"
    disk, source = 0, ""
    if (facts.system.os, facts.system.arch) == ("linux", "x86_64"):
        if "torch" in names and (cuda or facts.torch.build == "cuda" or _cuda_wanted(facts)):
            disk, source = _TORCH_CUDA, "measured: torch 2.11.0 with its CUDA libraries and Triton"
        elif "torch" in names and facts.torch.build == "cpu":
            disk, source = _TORCH_CPU, "measured: torch 2.13.0, the CPU build"
        elif "triton" in names:
            disk, source = _TRITON, "measured: Triton 3.6.0"
    return Estimate(disk_mib=disk, disk_basis=source, basis=basis)


def _cuda_wanted(facts: Facts) -> bool:
    return bool(facts.gpus) or facts.driver.vendor == "nvidia"


def build_estimate(name: str, machine: Machine) -> Estimate:
    """What compiling `name` takes with the memory and cores there are."""
    work, most, source = _WORK[name]
    at_best = work / min(machine.cpus, most)
    # Jobs that memory forbids leave cores idle, though each compiler may have a few threads.
    at_worst = work / min(machine.cpus, machine.jobs, most)
    # Only of flash-attn is it known what a job takes: its setup.py says so.
    memory = library.tables()["flash-attn"]["jobs"]["gib"] * 1024 if name == "flash-attn" else 0
    return Estimate(
        minutes=(at_best, max(at_worst, at_best * 1.5)),
        ram_mib=machine.jobs * memory,
        ram_basis="its setup.py: 8 to 9 GB a job" if memory else "",
        basis=f"{source}; here {machine.cpus} cores, {machine.jobs} jobs by memory",
    )
