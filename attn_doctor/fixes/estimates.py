"""How long a step takes and what it needs, with what each figure rests on.

Downloads depend on the line, builds on cores and memory; so each estimate is a span, and is shown
as one.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from attn_doctor.facts import Facts
from attn_doctor.fixes.steps import Estimate

__all__ = ["Machine", "build_estimate", "estimate"]

#: MB to download and MiB on disk, of current Linux wheels. torch comes with CUDA's libraries.
_SIZES = {
    "torch": (3000, 7000),
    "torchvision": (10, 30),
    "torchaudio": (5, 15),
    "triton": (200, 650),
    "triton-windows": (50, 250),
    "xformers": (110, 300),
    "flash-attn": (260, 900),
    "diffusers": (5, 40),
}
#: A line of 10 and one of 100 MB a second.
_SLOW, _FAST = 10 * 60, 100 * 60
#: Work of a build in minutes of one core. flash-attn: its README, 3 to 5 minutes on 64 cores.
#: SageAttention 2.2: measured, 122 s on 16 cores for one GPU architecture (nvcc 13.0).
_CORE_MINUTES = {
    "flash-attn": (4.0 * 64, "its README: 3 to 5 min with 64 cores"),
    "sageattention": (122 / 60 * 16, "measured: 2 min with 16 cores for one GPU architecture"),
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
    """What installing ready wheels of `packages` takes; nothing where their sizes are unknown.

    `cuda`: torch is known to bring CUDA's libraries along.
    """
    known = [_SIZES[name] for name in packages if name in _SIZES]
    if facts.torch.build == "cpu" and not cuda and not _cuda_wanted(facts):
        known = [(200, 700) if one == _SIZES["torch"] else one for one in known]
    if not known:
        return Estimate()
    download, disk = sum(one[0] for one in known), sum(one[1] for one in known)
    size = f"{download / 1000:.1f} GB" if download >= 1000 else f"{download} MB"
    return Estimate(
        minutes=(download / _FAST, max(download / _SLOW, 0.2)),
        disk_mib=disk,
        basis=f"a download of about {size} at 10 to 100 MB/s, unless it is cached",
    )


def _cuda_wanted(facts: Facts) -> bool:
    return bool(facts.gpus) or facts.driver.vendor == "nvidia"


def build_estimate(name: str, machine: Machine) -> Estimate:
    """What compiling `name` takes with the memory and cores there are."""
    work, source = _CORE_MINUTES[name]
    at_best = work / machine.cpus
    # Jobs that memory forbids leave cores idle, though each compiler has a few threads.
    at_worst = work / min(machine.cpus, machine.jobs)
    return Estimate(
        minutes=(at_best, max(at_worst, at_best * 1.5)),
        disk_mib={"flash-attn": 6 * 1024, "sageattention": 2 * 1024}[name],
        # SageAttention's need was not measured.
        ram_mib=machine.jobs * 9 * 1024 if name == "flash-attn" else 0,
        basis=f"{source}; here {machine.cpus} cores, {machine.jobs} jobs by memory",
    )
