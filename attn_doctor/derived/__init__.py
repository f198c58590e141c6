"""Derives facts from other facts and from the tables in `rules/tables/`.

Each derived fact has one function in this package, which does not read the machine. Unknown facts
give unknown results. If a table has no answer, the function returns `Unknown` with the reason, and
the reason becomes the fact's gap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from attn_doctor.derived import (
    backend_wheels,
    companions,
    dispatcher,
    extensions,
    newer,
    origin,
    pci_names,
    torch_wheels,
    triton_pairing,
)
from attn_doctor.derived.releases import (
    Tables,
    Unknown,
    major,
    parts,
    series,
    tag,
    torch_release,
)
from attn_doctor.facts import PACKAGES, BuiltKernels, Extension, Facts, Gpu, Package, PciDevice


def derive(facts: Facts, tables: Tables) -> Facts:
    """Return `facts` with all derived facts. `tables`: TOML data by file name."""
    gaps = dict(facts.gaps)
    for place, work in STEPS:
        group, _, name = place.rpartition(".")
        value = _known(work(facts, tables), place, gaps)
        if group:
            changed = msgspec.structs.replace(getattr(facts, group), **{name: value})
            facts = msgspec.structs.replace(facts, **{group: changed})
        else:
            facts = msgspec.structs.replace(facts, **{name: value})
    facts = msgspec.structs.replace(facts, extensions=_extensions(facts, tables, gaps))
    gpus = _gpus(facts, tables, gaps)
    torch = msgspec.structs.replace(facts.torch, gpu_code=_torch_gpu_code(gpus))
    if torch.installed and not torch.import_error:
        torch = msgspec.structs.replace(torch, **_torch_import(facts, gaps))
    facts = msgspec.structs.replace(
        facts,
        torch=torch,
        gpus=gpus,
        gaps=gaps,
        **{field: _package(facts, tables, field, gaps) for field in PACKAGES},
    )
    # Last: what could not be derived shows how a newer release is evaluated.
    found = newer.newer_releases(facts, tables)
    return msgspec.structs.replace(facts, newer_releases=found)


def _known(value: Any, place: str, gaps: dict[str, str]) -> Any:
    """Return `value`, or None after adding its reason to `gaps`."""
    if isinstance(value, Unknown):
        gaps.setdefault(place, value.reason)
        return None
    if value is not None:
        gaps.pop(place, None)  # a table may have what a probe could not read
    return value


def _python_minor(facts: Facts, _: Tables) -> str | None:
    return series(facts.python.version)


def _named_devices(facts: Facts, tables: Tables) -> tuple[PciDevice, ...] | None:
    return pci_names.named(facts.pci, tables["pci-nvidia"]) if facts.pci is not None else None


def _best_sm(facts: Facts, _: Tables) -> int | None:
    if facts.gpus is None:
        return None
    shown = [gpu.sm for gpu in facts.gpus if gpu.visible is not False]
    return None if None in shown else max((sm for sm in shown if sm is not None), default=0)


def _torch_minor(facts: Facts, _: Tables) -> str | None:
    return series(facts.torch.version)


def _torch_release(facts: Facts, _: Tables) -> str | None:
    version = facts.torch.version
    return version.partition("+")[0] if version is not None else None


def _torch_cuda_major(facts: Facts, _: Tables) -> int | None:
    return major(facts.torch.cuda)


def _torch_cuda_tag(facts: Facts, _: Tables) -> str | None:
    minor = series(facts.torch.cuda)
    return tag(minor) if minor is not None else None


def _max_python(facts: Facts, tables: Tables) -> str | Unknown | None:
    row = torch_release(facts, tables)
    return row if row is None or isinstance(row, Unknown) else str(row["compile"])


def _build_cuda_major(facts: Facts, _: Tables) -> int | None:
    return major(facts.build.version)


def _compatible_toolkit(facts: Facts, _: Tables) -> str | None:
    """Return a toolkit of torch's CUDA major version, which cpp_extension requires."""
    first, wanted = facts.torch.cuda_major, series(facts.torch.cuda)
    if first is None or facts.toolkits is None:
        return None
    doubtful = False
    fitting = []
    for toolkit in facts.toolkits:
        if toolkit.version is None or toolkit.missing_components is None or toolkit.root is None:
            doubtful = True
        elif major(toolkit.version) == first and not toolkit.missing_components:
            exact = series(toolkit.version) == wanted
            fitting.append((exact, toolkit.in_use is True, parts(toolkit.version), toolkit.root))
    return max(fitting)[-1] if fitting else None if doubtful else ""


def _jobs(facts: Facts, tables: Tables) -> int | None:
    """Return one job for each processor, if each has the memory that flash-attn needs."""
    system = facts.system
    if system.ram_available_mib is None or system.cpus is None:
        return None
    gib: int = tables["flash-attn"]["jobs"]["gib"]
    return max(1, min(system.cpus, system.ram_available_mib // (gib * 1024)))


def _gpus(facts: Facts, tables: Tables, gaps: dict[str, str]) -> tuple[Gpu, ...] | None:
    if facts.gpus is None:
        return None
    return tuple(_gpu(gpu, number, facts, tables, gaps) for number, gpu in enumerate(facts.gpus))


def _gpu(gpu: Gpu, number: int, facts: Facts, tables: Tables, gaps: dict[str, str]) -> Gpu:
    code = torch_wheels.carried(gpu, facts, tables)
    known = _known(code, f"gpus[{number}].in_torch_archs", gaps)
    _known(code, f"gpus[{number}].torch_code", gaps)
    carried = None if known is None else known != "no"
    return msgspec.structs.replace(
        gpu,
        torch_code=known,
        in_torch_archs=carried,
        min_nvcc=torch_wheels.min_nvcc(gpu, tables),
    )


def _torch_gpu_code(gpus: tuple[Gpu, ...] | None) -> str | None:
    if gpus is None:
        return None
    codes = {gpu.torch_code for gpu in gpus if gpu.visible is not False}
    if None in codes:
        return None
    return next((code for code in ("no", "ptx", "yes") if code in codes), "")


def _load_error(field: str, facts: Facts) -> str | None:
    """Return why a package cannot be loaded.

    What stops `xformers.ops` is read from sources, and stays while flash-attn fails.
    """
    error = extensions.package_load_error(field, facts)
    if field == "xformers" and error == "":
        said = facts.xformers.load_error or ""
        refused = said if "requires flash-attn" in said else ""
        broken = extensions.package_load_error("flash_attn", facts)
        return facts.xformers.load_error if broken else refused
    return error


def _package(facts: Facts, tables: Tables, field: str, gaps: dict[str, str]) -> Package:
    package: Package = getattr(facts, field)
    values: dict[str, object] = {
        "built_minor": series(package.built_torch),
        "built_cuda_major": major(package.built_cuda),
        "loads": (loads := extensions.package_loads(field, facts)),
        "load_error": _load_error(field, facts),
        "known_to_load": None if package.installed is None else loads is True,
        "gpu_code": _known(extensions.package_gpu_code(field, facts), f"{field}.gpu_code", gaps),
    }
    for name, functions in (("expected", backend_wheels.EXPECTED), ("wheel", backend_wheels.WHEEL)):
        if field in functions:
            values[name] = _known(functions[field](facts, tables), f"{field}.{name}", gaps)
    if package.installed and not package.import_error:
        from attn_doctor.derived import import_errors

        error = import_errors.because_of_others(field, facts, tables)
        values["import_error"] = error or package.import_error
        if not values["import_error"]:
            values |= _damaged_import(field, package.distribution, facts, gaps)
    if field == "torchaudio":
        values["again"] = origin.torchaudio_again(facts, tables)
    if field == "transformers":
        values["accepts_kernels"] = backend_wheels.accepts_kernels(facts)
    if field == "xformers":
        accepts = backend_wheels.accepts_flash_attn(facts, tables)
        values["index"] = backend_wheels.xformers_index(facts, tables)
        values["accepts_flash_attn"] = _known(accepts, "xformers.accepts_flash_attn", gaps)
    return msgspec.structs.replace(package, **values)


def _extensions(facts: Facts, tables: Tables, gaps: dict[str, str]) -> tuple[Extension, ...] | None:
    found = extensions.derived(facts, gaps)
    if found is None:
        return None
    return tuple(
        msgspec.structs.replace(
            one,
            again=origin.extension_again(one, facts, tables),
            rebuild=origin.extension_rebuild(one, facts),
        )
        for one in found
    )


def _again(field: str, version: str) -> Callable[[Facts, Tables], tuple[Any, ...] | None]:
    """Return what derives `again` of each package in a list of the facts."""

    def derived(facts: Facts, tables: Tables) -> tuple[Any, ...] | None:
        found = getattr(facts, field)
        return found and tuple(
            msgspec.structs.replace(
                one,
                again=origin.package_again(one.package, getattr(one, version), facts, tables),
            )
            for one in found
        )

    return derived


def _torch_import(facts: Facts, gaps: dict[str, str]) -> dict[str, Any]:
    """Return the facts of torch's import that other packages change."""
    from attn_doctor.derived import import_errors

    if facts.torch.import_error == "" and (error := import_errors.of_torch(facts)):
        return {"import_error": error}
    return _damaged_import("torch", "torch", facts, gaps)


def _damaged_import(
    field: str, distribution: str | None, facts: Facts, gaps: dict[str, str]
) -> dict[str, Any]:
    """Return the facts of an import that may reach a damaged file; nothing if it reaches none."""
    from attn_doctor.derived import import_errors

    doubt = import_errors.incomplete(distribution, facts)
    if not doubt:
        return {}
    gaps.setdefault(f"{field}.import_error", doubt)
    return {"import_error": None, "import_doubt": doubt}


def _manifests(facts: Facts, tables: Tables) -> tuple[BuiltKernels, ...] | None:
    if not facts.manifests:
        return facts.manifests
    from attn_doctor.derived import kernel_drift

    return kernel_drift.manifests(facts, tables)


#: Every derived fact with its function, in order: later ones use earlier ones. Facts of each GPU
#: and of each package are derived after them.
STEPS: tuple[tuple[str, Callable[[Facts, Tables], object]], ...] = (
    ("python.minor", _python_minor),
    ("pci", _named_devices),
    ("driver.cuda_max", torch_wheels.cuda_max),
    ("driver.best_sm", _best_sm),
    ("torch.minor", _torch_minor),
    ("torch.release", _torch_release),
    ("torch.cuda_major", _torch_cuda_major),
    ("torch.cuda_tag", _torch_cuda_tag),
    ("torch.archs", torch_wheels.archs),
    ("torch.archs_source", torch_wheels.archs_source),
    ("torch.min_driver", torch_wheels.min_driver),
    ("torch.index", torch_wheels.own_index),
    ("torch.again", origin.torch_again),
    ("torch.natten_wheel", companions.natten_wheel),
    ("damaged_metadata", _again("damaged_metadata", "version")),
    ("incomplete_packages", _again("incomplete_packages", "version")),
    ("duplicates", _again("duplicates", "keep")),
    ("torch.index_for_driver", torch_wheels.index_for_driver),
    ("torch.pin_for_driver", torch_wheels.pin_for_driver),
    ("torch.newest_index", torch_wheels.newest_index),
    ("torch.newest_release", torch_wheels.newest_release),
    ("torch.max_python", _max_python),
    ("dispatcher.release", dispatcher.release),
    ("dispatcher.reference", dispatcher.reference),
    ("dispatcher.changed", dispatcher.changed),
    ("dispatcher.shared_changed", dispatcher.shared_changed),
    ("triton.expected", triton_pairing.expected),
    ("triton.pin", triton_pairing.pin),
    ("triton.ptxas_version", triton_pairing.ptxas_version),
    ("triton.ptxas_blackwell_version", triton_pairing.blackwell_version),
    ("build.cuda_major", _build_cuda_major),
    ("build.compatible_toolkit", _compatible_toolkit),
    ("build.jobs", _jobs),
    ("manifests", _manifests),
)
