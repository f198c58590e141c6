"""What the compiled modules amount to: whether they load, and whether they serve the GPUs here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from attn_doctor.binaries.architectures import compiles, runs
from attn_doctor.derived.releases import Unknown, parts
from attn_doctor.derived.torch_wheels import apart
from attn_doctor.facts import Extension, Facts, Package

_ORDER = ("no", "ptx", "yes")


def derived(facts: Facts, gaps: dict[str, str]) -> tuple[Extension, ...] | None:
    """The compiled modules with their derived facts."""
    if facts.extensions is None:
        return None
    found = []
    for number, one in enumerate(facts.extensions):
        code = gpu_code((one,), facts)
        place = f"extensions[{number}].gpu_code"
        if isinstance(code, Unknown):
            gaps.setdefault(place, code.reason)
            code = None
        else:
            gaps.pop(place, None)
        found.append(msgspec.structs.replace(one, loads=loads(one), gpu_code=code))
    return tuple(found)


def loads(one: Extension) -> bool | None:
    """False if something keeps it from loading; None if that could not be told."""
    if one.missing_libraries or one.outdated_libraries or one.undefined_symbol_count:
        return False
    known = (one.missing_libraries, one.outdated_libraries, one.undefined_symbol_count)
    return None if None in known else True


def gpu_code(modules: Sequence[Extension], facts: Facts) -> str | Unknown | None:
    """For each GPU that CUDA shows the best of `modules`, and of these answers the worst."""
    if any(one.archs is None or one.ptx is None for one in modules):
        return Unknown("the GPU code of its files could not be read")
    holding = [one for one in modules if one.archs or one.ptx]
    if not holding:
        return ""
    if facts.gpus is None:
        return Unknown(facts.gap("gpus") or "it is not known which GPUs there are")
    worst = ""
    for gpu in facts.gpus:
        if gpu.visible is False:
            continue
        if gpu.sm is None:
            return Unknown("the compute capability of a GPU is not known")
        answers = [_one(gpu.sm, one, facts) for one in holding]
        best = max(answers, key=lambda one: _ORDER.index(one) if one else 0.5)
        if best is None:
            return Unknown("it is not known which CUDA its PTX needs, or which the driver has")
        worst = min((worst or best, best), key=_ORDER.index)
    return worst


def _one(sm: int, one: Extension, facts: Facts) -> str | None:
    """What one module holds for one GPU; None if it hangs on an unknown version of CUDA."""
    if any(runs(sm, code, apart(facts.torch.cuda or "")) for code in one.archs or ()):
        return "yes"
    if not any(compiles(sm, code) for code in one.ptx or ()):
        return "no"
    needs, has = one.ptx_cuda, facts.driver.cuda_max
    if needs is None or has is None:
        return None
    # PTX is newer than the driver's compiler: minor version compatibility does not hold for it.
    return "ptx" if parts(has) >= parts(needs) else "no"


def package_loads(field: str, facts: Facts) -> bool | None:
    """True if one of the package's main modules loads, false if none does."""
    answers = [one.loads for one in _main(field, facts.extensions or ())]
    if not answers or True in answers:
        return True if answers else None
    return None if None in answers else False


def package_gpu_code(field: str, facts: Facts) -> str | Unknown | None:
    """For each GPU the best of its modules; a package without any holds no GPU code."""
    package: Package = getattr(facts, field)
    if facts.extensions is None or not package.installed:
        return None
    return gpu_code([one for one in facts.extensions if one.package == field], facts)


def _main(field: str, extensions: Iterable[Extension]) -> list[Extension]:
    """Its modules of the kind that comes first: `_C` of torchvision and not `image`."""
    mine = [one for one in extensions if one.package == field]
    first = mine[0].name if mine else None
    return [one for one in mine if _kind(one.name) == _kind(first)]


def _kind(name: str | None) -> str:
    """`_qattn_sm80` and `_qattn_sm90` are of one kind."""
    return (name or "").partition("_sm")[0].partition("_cuda")[0]
