"""What of an artifact can serve this machine: all of it, Triton's kernels alone, or nothing.

The keys of graphs hold the GPU's name, the index it is addressed by, torch's sources and every
setting of Inductor, `CXX` among them. The key of a Triton kernel holds its source, the compute
capability and Triton's own files: compiled kernels serve where all graphs miss, and they are most
of what compiling costs. Measured with torch 2.11 and Triton 3.6. Whether kernels that fit are
really found is not known here; the proof in a fresh process tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.facts import Facts, Gpu
from attn_doctor.kernels.bundle.artifact import Artifact
from attn_doctor.record.drift import REBUILD, ChangedComponent, changed_components
from attn_doctor.record.environment import environment_from_facts, slot_name
from attn_doctor.record.manifest import BuildEnvironment

#: What the keys of Triton's kernels hold besides their source.
_NEEDED = ("torch", "torch_cuda", "torch_key", "triton", "triton_key", "python", "sm", "cpu")
#: What only Triton's keys hold; graphs are found whatever becomes of it. Names of variables as in
#: CACHE_INVALIDATING_ENV_VARS of Triton 3.6; of the rest the proof tells.
_TRITONS = re.compile(
    r"ptxas|DISABLE_(?:PTXAS_OPT|LLVM_OPT|MMA_V\d)|USE_IR_LOC"
    r"|TRITON_(?:DEFAULT_FP_FUSION|F32_DEFAULT|DISABLE_LINE_INFO|OVERRIDE_ARCH)"
)


class Layer(str, Enum):
    """How much of what was built for one device is of use."""

    EXACT = "exact"
    """Graphs and kernels."""
    KERNELS = "kernels"
    """Triton's compiled kernels alone."""
    ABSENT = "absent"
    """That GPU cannot be seen here, so nothing can be run; else it would fit."""
    ELSEWHERE = "elsewhere"
    """For another GPU; what is for the one here lies in the same artifact."""
    NOTHING = "nothing"


class Fit(Struct, frozen=True, kw_only=True):
    """What can be taken of the kernels for one place of an artifact."""

    place: str
    layer: Layer
    here: str
    """The place that the kernels are for on this machine; that of the artifact if none is."""
    moved: tuple[ChangedComponent, ...] = ()
    """What keeps graphs, or everything, from being reused."""
    why: str = ""
    """Why it is not all of it, in one clause."""


def fits(artifact: Artifact, facts: Facts, environ: Mapping[str, str]) -> dict[str, Fit]:
    """Place of the artifact → what of it can serve here."""
    found = {
        place: _fit(place, was, facts, environ) for place, was in artifact.environments.items()
    }
    served = {one.here for one in found.values() if one.layer is Layer.EXACT}
    for place, one in found.items():
        if one.layer is Layer.KERNELS and one.here in served:
            why = f"it is for {_name(place)}, and kernels for the GPU here are in the same file"
            found[place] = replace(one, layer=Layer.ELSEWHERE, why=why)
    return found


def _fit(place: str, was: BuildEnvironment, facts: Facts, environ: Mapping[str, str]) -> Fit:
    device = place.partition(" ")[0]
    now = environment_from_facts(facts, device, environ, was)
    gone = "" if device == "cpu" else _gone(facts, device)
    changes = tuple(one for one in changed_components(was, now) if one.effect == REBUILD)
    refusing = tuple(one for one in changes if one.component in _NEEDED)
    if refusing:
        return Fit(place=place, layer=Layer.NOTHING, here=place, moved=refusing, why=told(refusing))
    if gone:
        return Fit(place=place, layer=Layer.ABSENT, here=place, moved=changes, why=gone)
    here = slot_name(device, now.device) if now.device else place
    if not changes:
        return Fit(place=place, layer=Layer.EXACT, here=here)
    tritons = tuple(
        one for one in changed_components(was, now) if _TRITONS.fullmatch(one.component)
    )
    if device == "cpu" or tritons:
        both = (*changes, *(one for one in tritons if one not in changes))
        return Fit(place=place, layer=Layer.NOTHING, here=here, moved=both, why=told(both))
    return Fit(place=place, layer=Layer.KERNELS, here=here, moved=changes, why=told(changes))


def _gone(facts: Facts, device: str) -> str:
    """Why the GPU of that index cannot be used here; empty if it can, or that is not known."""
    if facts.torch.build and facts.torch.build not in ("cuda", "rocm"):
        return f"torch {facts.torch.version} is a build without CUDA"
    if facts.driver.state not in (None, "ok"):
        return "this machine shows no GPU that CUDA could use"
    if facts.gpus is None:
        return ""
    shown = [gpu for gpu in facts.gpus if gpu.visible is not False]
    number = int(device.partition(":")[2] or 0)
    if number < len(shown):
        return ""
    if not shown:
        return "this machine shows no GPU"
    return f"this machine shows {_counted(shown)}, and {device} is not among them"


def _counted(shown: list[Gpu]) -> str:
    return "1 GPU" if len(shown) == 1 else f"{len(shown)} GPUs"


def told(found: Iterable[ChangedComponent]) -> str:
    """What differs, with both values: `CXX: /opt/gcc/bin/g++ there, g++ here`."""
    return "; ".join(pair(one) for one in found)


def pair(one: ChangedComponent) -> str:
    """One component with the value there and the value here."""
    name = _NAMES.get(one.component, one.component)
    if one.component in _DIGESTS:
        return f"{name}: not the same there and here"
    default = "not set" if one.component.isupper() else "none"
    return f"{name}: {one.was or default} there, {one.now or default} here"


_NAMES = {
    "device": "GPU",
    "sm": "compute capability",
    "torch_cuda": "torch's CUDA",
    "torch_key": "torch's own files",
    "triton_key": "Triton's own files",
    "triton": "Triton",
    "python": "Python",
    "cpu": "processor",
    "inductor": "Inductor's settings",
    "functorch": "AOTAutograd's settings",
}
#: Of these only digests are known, which tell a reader nothing.
_DIGESTS = ("torch_key", "triton_key", "inductor", "functorch")


def _name(place: str) -> str:
    return place.partition(" ")[2] or place
