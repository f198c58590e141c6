"""Packages that are not here, or other releases, soundly built for this torch and GPU."""

from __future__ import annotations

from msgspec.structs import replace
from packaging.version import Version

from attn_doctor.facts import Extension, Facts, Package
from attn_doctor.pretend.common import ABSENT, REASON, checked, without_gaps

#: Packages whose version may be pretended, by their group of facts.
PACKAGES = (
    "flash_attn", "flash_attn_3", "flash_attn_4", "sageattention", "sageattn3", "xformers",
    "diffusers", "transformers", "accelerate", "kernels", "torchvision", "torchaudio", "torchao",
    "bitsandbytes", "simpletuner", "finetrainers",
)  # fmt: skip

#: Extension modules of a sound build; SageAttention's depend on the GPU.
_MODULES = {
    "flash_attn": ("flash_attn_2_cuda",),
    "flash_attn_3": ("_C",),
    "xformers": ("_C",),
}


def package(facts: Facts, field: str, value: str, told: list[str]) -> Facts:
    """A release of a package, soundly installed, or its absence."""
    name = field.replace("_", "-")
    gaps = without_gaps(facts, field)
    kept = tuple(one for one in facts.extensions or () if one.package != field)
    if value in ABSENT:
        told.append(f"no {name}")
        gone = Package(installed=False)
        return replace(facts, **{field: gone}, extensions=kept, gaps=gaps)
    version = checked(name, value)
    modules = _modules(field, version)
    torch, cuda = facts.torch.version, facts.torch.cuda
    assumed = " (assumed: built for this torch and GPU)" if modules else ""
    told.append(f"{name} {version}{assumed}")
    package = Package(
        installed=True,
        version=version,
        distribution=name,
        path=f"{name} (simulated)",
        source="index",
        built_torch=torch if modules else None,
        built_cuda=cuda if modules else None,
        built_cxx11_abi=facts.torch.cxx11_abi if modules else None,
        extensions=modules,
        requires_torch="",
    )
    gaps[field] = REASON
    sound = tuple(_sound(field, module, facts) for module in modules)
    return replace(facts, **{field: package}, extensions=(*kept, *sound), gaps=gaps)


def _modules(field: str, version: str) -> tuple[str, ...]:
    if field == "sageattention":
        if Version(version).major < 2:
            return ()
        return ("_fused", "_qattn_sm80", "_qattn_sm89", "_qattn_sm90")
    return _MODULES.get(field, ())


def _sound(field: str, name: str, facts: Facts) -> Extension:
    """A module that loads, with code for the GPUs here."""
    found = {str(gpu.sm) for gpu in facts.gpus or () if gpu.sm}
    return Extension(
        package=field,
        name=name,
        path="(simulated)",
        archs=tuple(sorted(found)),
        ptx=(),
        ptx_cuda="",
        missing_libraries=(),
        missing_found_at=(),
        undefined_symbol_count=0,
        first_undefined_symbols=(),
        mismatch="",
        outdated_libraries=(),
        cuda_major=0,
        cxx11_abi=facts.torch.cxx11_abi,
    )
