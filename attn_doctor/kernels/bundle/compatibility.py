"""Says what of an artifact this machine can use: everything, only Triton's kernels, or nothing.

The keys of graphs hold the GPU's name, its index, torch's sources and every setting of Inductor,
`CXX` among them. The key of a Triton kernel holds its source, the compute capability and Triton's
own files. So compiled kernels can be used where all graphs miss, and they take most of the compile
time. Measured with torch 2.11 and Triton 3.6. Whether compatible kernels are really found is not
known here; the verification in a fresh process shows it.
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
#: Components of Triton's keys only; graphs hit whatever their values are. Names of variables as in
#: CACHE_INVALIDATING_ENV_VARS of Triton 3.6; the verification covers the rest.
_TRITONS = re.compile(
    r"ptxas|DISABLE_(?:PTXAS_OPT|LLVM_OPT|MMA_V\d)|USE_IR_LOC"
    r"|TRITON_(?:DEFAULT_FP_FUSION|F32_DEFAULT|DISABLE_LINE_INFO|OVERRIDE_ARCH)"
)


class Layer(str, Enum):
    """How much of the kernels for one device slot can be used."""

    EXACT = "exact"
    """Graphs and kernels."""
    KERNELS = "kernels"
    """Only Triton's compiled kernels."""
    ABSENT = "absent"
    """That GPU is not here, so nothing can be run; everything else fits."""
    ELSEWHERE = "elsewhere"
    """For another GPU; the artifact also has kernels for the GPU here."""
    NOTHING = "nothing"


class Compatibility(Struct, frozen=True, kw_only=True):
    """What can be used of the kernels for one device slot of an artifact."""

    device_slot: str
    layer: Layer
    device_slot_here: str
    """The device slot of the kernels on this machine; that of the artifact if there is none."""
    changed: tuple[ChangedComponent, ...] = ()
    """The components that prevent the reuse of graphs, or of everything."""
    why: str = ""
    """Why not everything can be used, in one clause."""


def compatibility(
    artifact: Artifact, facts: Facts, environ: Mapping[str, str]
) -> dict[str, Compatibility]:
    """Return the compatibility of each device slot of the artifact with this machine."""
    found = {
        place: _fit(place, was, facts, environ) for place, was in artifact.environments.items()
    }
    served = {one.device_slot_here for one in found.values() if one.layer is Layer.EXACT}
    for place, one in found.items():
        if one.layer is Layer.KERNELS and one.device_slot_here in served:
            why = f"it is for {_name(place)}, and kernels for the GPU here are in the same file"
            found[place] = replace(one, layer=Layer.ELSEWHERE, why=why)
    return found


def _fit(
    slot: str, was: BuildEnvironment, facts: Facts, environ: Mapping[str, str]
) -> Compatibility:
    device = slot.partition(" ")[0]
    now = environment_from_facts(facts, device, environ, was)
    here = slot_name(device, now.device) if now.device else slot

    def result(
        layer: Layer, changed: tuple[ChangedComponent, ...] = (), why: str = "", here: str = here
    ) -> Compatibility:
        return Compatibility(
            device_slot=slot,
            layer=layer,
            device_slot_here=here,
            changed=changed,
            why=why or differences(changed),
        )

    all_changes = changed_components(was, now)
    changes = tuple(one for one in all_changes if one.effect == REBUILD)
    if needed := tuple(one for one in changes if one.component in _NEEDED):
        return result(Layer.NOTHING, needed, here=slot)
    if absent := "" if device == "cpu" else _gone(facts, device):
        return result(Layer.ABSENT, changes, absent, here=slot)
    if not changes:
        return result(Layer.EXACT)
    tritons = tuple(one for one in all_changes if _TRITONS.fullmatch(one.component))
    if device == "cpu" or tritons:
        return result(Layer.NOTHING, (*changes, *(one for one in tritons if one not in changes)))
    return result(Layer.KERNELS, changes)


def _gone(facts: Facts, device: str) -> str:
    """Say why the GPU of that index cannot be used here; empty if it can, or if that is unknown."""
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


def differences(found: Iterable[ChangedComponent]) -> str:
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
#: Only digests are known of these, which mean nothing to a reader.
_DIGESTS = ("torch_key", "triton_key", "inductor", "functorch")


def _name(place: str) -> str:
    return place.partition(" ")[2] or place
