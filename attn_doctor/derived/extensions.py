"""Derives whether compiled modules load, and whether they have code for the GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from attn_doctor.binaries.architectures import compiles, number, runs
from attn_doctor.binaries.window import TOO_SHORT
from attn_doctor.derived.releases import Unknown, parts
from attn_doctor.derived.torch_wheels import apart
from attn_doctor.facts import Extension, Facts, Package
from attn_doctor.requirement import satisfies

_ORDER = ("no", "ptx", "yes")
#: The index has releases 1 of SageAttention only.
_SAGE_SOURCES = "git+https://github.com/thu-ml/SageAttention"
#: The wheels of 2.8 for torch 2.6 that are named cxx11abiFALSE have the new C++ ABI all the same.
_FLASH_OLD_ABI = "flash-attn==2.7.4.post1"


def derived(facts: Facts, gaps: dict[str, str]) -> tuple[Extension, ...] | None:
    """Return the compiled modules with their derived facts."""
    if facts.extensions is None:
        return None
    found = []
    for index, one in enumerate(facts.extensions):
        code = gpu_code((one,), facts)
        place = f"extensions[{index}].gpu_code"
        if isinstance(code, Unknown):
            gaps.setdefault(place, code.reason)
            code = None
        else:
            gaps.pop(place, None)
        error = load_error(one)
        found.append(
            msgspec.structs.replace(
                one,
                loads=None if error is None else not error,
                load_error=error,
                gpu_code=code,
                requirement=requirement(one, facts),
            )
        )
    return tuple(_beside_broken(_of_other_torch(one, facts), found) for one in found)


def _of_other_torch(one: Extension, facts: Facts) -> Extension:
    """Return a module of torchvision with unknown loading if its release is for another torch.

    No symbol tells: `image.so` of 0.24.1 has all that it needs in torch 2.8.0 and ends the process.
    """
    if one.package != "torchvision" or not one.loads or not of_other_torch(facts):
        return one
    return msgspec.structs.replace(one, loads=None, load_error=None)


def of_other_torch(facts: Facts) -> bool:
    """Whether torchvision's release is for another torch."""
    wanted, torch = facts.torchvision.requires_torch, facts.torch.version
    if not wanted or not torch:
        return False
    try:
        return not satisfies(torch, wanted)
    except ValueError:  # one of them cannot be read
        return False


# torchaudio opens libtorchaudio.so, and then _torchaudio.so, which needs it.
def _beside_broken(one: Extension, all_: Sequence[Extension]) -> Extension:
    """Return the module with unknown loading where a library of its package does not load."""
    broken = any(
        (other.name or "").startswith("lib") and other.loads is False
        for other in all_
        if other.package == one.package and other is not one
    )
    if not one.loads or not broken:
        return one
    return msgspec.structs.replace(one, loads=None, load_error=None)


def requirement(one: Extension, facts: Facts) -> str | None:
    """Return what pip installs to replace its package by a new copy; empty if it has none."""
    package = getattr(facts, one.package or "", None)
    if not isinstance(package, Package):
        return "" if one.package else None
    if not package.installed or not package.distribution or not package.version:
        return None
    if package.source == "vcs" and package.source_url:
        return f"git+{package.source_url.removeprefix('git+')}"
    if one.package == "sageattention" and package.version[0] != "1" and _compiled_here(facts):
        return _SAGE_SOURCES
    if one.package == "flash_attn" and package.version.startswith("2.8") and _old_abi(facts):
        return _FLASH_OLD_ABI
    return f"{package.distribution}=={package.version.partition('+')[0]}"


def _compiled_here(facts: Facts) -> bool:
    return facts.system.os == "linux" and facts.torch.build == "cuda"


def _old_abi(facts: Facts) -> bool:
    of_2_6 = parts(facts.torch.version or "")[:2] == (2, 6)
    return of_2_6 and facts.torch.cxx11_abi is False and _compiled_here(facts)


def load_error(one: Extension) -> str | None:
    """Return why it cannot be loaded; empty if no reason was found, None if that is unknown."""
    if one.fault:
        return one.fault
    if one.missing_libraries:
        return f"{', '.join(one.missing_libraries)} cannot be found"
    if one.missing_symbol_versions:
        return f"{', '.join(one.missing_symbol_versions)} is missing"
    if one.outdated_libraries:
        return f"{', '.join(one.outdated_libraries)} is too old"
    if one.undefined_symbol_count:
        return f"undefined symbol {next(iter(one.first_undefined_symbols or ()), '')}".strip()
    known = (one.missing_libraries, one.outdated_libraries, one.undefined_symbol_count)
    return None if None in known else ""


def gpu_code(modules: Sequence[Extension], facts: Facts) -> str | Unknown | None:
    """Return the worst answer of all visible GPUs, each with the best of `modules`."""
    if any(one.archs is None or one.ptx is None for one in modules):
        return Unknown("the GPU code of its files could not be read")
    holding = [one for one in modules if one.archs or one.ptx]
    if not holding:
        return ""
    if facts.gpus is None:
        return Unknown(facts.gap("gpus") or "the GPUs are unknown")
    worst = ""
    for gpu in facts.gpus:
        if gpu.visible is False:
            continue
        if gpu.sm is None:
            return Unknown("the compute capability of a GPU is unknown")
        answers = [_one(gpu.sm, one, facts) for one in holding]
        best = max(answers, key=lambda one: _ORDER.index(one) if one else 0.5)
        if best is None:
            return Unknown("the CUDA version of its PTX or of the driver is unknown")
        worst = min((worst or best, best), key=_ORDER.index)
    return worst


def _one(sm: int, one: Extension, facts: Facts) -> str | None:
    """Return a module's code for one GPU; None if it depends on an unknown CUDA version."""
    if any(runs(sm, code, apart(facts.torch.cuda or "")) for code in one.archs or ()):
        return "yes"
    if not any(compiles(sm, code) for code in one.ptx or ()):
        return "no"
    needs, has = one.ptx_cuda, facts.driver.cuda_max
    if needs is None or has is None:
        return None
    # Minor version compatibility does not apply to PTX, which the driver's compiler must know.
    return "ptx" if parts(has) >= parts(needs) else "no"


def package_loads(field: str, facts: Facts) -> bool | None:
    """Return true if one of the package's main modules loads, false if none does.

    A module that ends early stops the whole process, if the loader reads past its end.
    """
    if _cut(field, facts):
        return False
    answers = [one.loads for one in _main(field, facts.extensions or ())]
    if not answers or True in answers:
        return True if answers else None
    return None if None in answers else False


def package_load_error(field: str, facts: Facts) -> str | None:
    """Return why none of the package's main modules can be loaded; empty if one can."""
    loads = package_loads(field, facts)
    if loads is not False:
        return "" if loads or facts.extensions is not None else None
    first = next(iter(_cut(field, facts) or _main(field, facts.extensions or ())))
    return f"{first.name}: {first.load_error}"


def package_gpu_code(field: str, facts: Facts) -> str | Unknown | None:
    """Return the code for the GPUs, for each GPU that of the best module."""
    package: Package = getattr(facts, field)
    if facts.extensions is None or not package.installed:
        return None
    modules = [one for one in facts.extensions if one.package == field]
    if field == "xformers" and takes_hopper_kernel(package.version):
        modules = [*map(_up_to_hopper, modules)]
    return gpu_code(modules, facts)


# https://github.com/facebookresearch/xformers/issues/1323
def takes_hopper_kernel(xformers: str | None) -> bool:
    """Whether this xformers chooses its kernel for Hopper on Blackwell too, where it fails."""
    return (0, 0, 30) <= parts(xformers or "")[:3] < (0, 0, 33)


def _up_to_hopper(one: Extension) -> Extension:
    if one.archs is None or one.ptx is None:
        return one
    archs = tuple(code for code in one.archs if number(code) <= 90)
    return msgspec.structs.replace(one, archs=archs or ("90a",), ptx=())


def _main(field: str, extensions: Iterable[Extension]) -> list[Extension]:
    """Return its modules of the first kind: `_C` of torchvision and not `image`."""
    modules = [one for one in extensions if one.package == field]
    first = modules[0].name if modules else None
    return [one for one in modules if _kind(one.name) == _kind(first)]


def _cut(field: str, facts: Facts) -> list[Extension]:
    """Return the modules of the package that end before their last segment."""
    return [
        one
        for one in facts.extensions or ()
        if one.package == field and TOO_SHORT.match(one.fault or "")
    ]


def _kind(name: str | None) -> str:
    """Return the kind of a module: `_qattn_sm80` and `_qattn_sm90` are of one kind."""
    return (name or "").partition("_sm")[0].partition("_cuda")[0]
