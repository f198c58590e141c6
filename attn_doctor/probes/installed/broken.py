"""Tells which frameworks cannot be imported because a package that they import fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from attn_doctor.binaries.window import ends_process
from attn_doctor.facts import Facts, Package
from attn_doctor.host import Host
from attn_doctor.logger import Logger
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.installed.packages import PACKAGES, holds

if TYPE_CHECKING:
    # Imported on demand: most environments have nothing that fails.
    from attn_doctor.probes.installed.reach import Failing, Raised

#: What is asked about, and the module that is imported for attention. Diffusers before 0.35 has no
#: dispatcher.
_ENTRIES = {
    "diffusers": ("models.attention_dispatch", "models.attention_processor"),
    "transformers": ("modeling_utils",),
    "accelerate": ("",),
    "sageattention": ("",),
    "torchao": ("",),
}
#: They are asked one after another: frameworks import what is in the first groups.
_GROUPS = (("sageattention",), ("torchao",), ("diffusers", "transformers", "accelerate"))
#: Packages whose import fails if their library does not load, and what it raises. Others continue,
#: or import the library as a module.
_BY_LIBRARY: dict[str, Raised] = {"torchvision": "runtime", "torchaudio": "os"}

#: Packages that take names from torch which only the releases have for which they are made.
_TAKING = ("torchao", "xformers")

_log = Logger(__name__)


def with_broken_imports(host: Host, site: Site, facts: Facts) -> Facts:
    """Return the facts with the imports that reach a package whose own import fails."""
    for fields in _GROUPS:
        try:
            facts = _followed(host, site, facts, fields)
        except Exception:  # a bug, or sources of an unexpected kind: a check goes on
            _log.debug("imports of broken packages were not followed", exc_info=True)
            for field in fields:
                if _may_be_imported(getattr(facts, field)):
                    facts = _in_doubt(facts, field, "its imports could not be followed")
    try:
        return _with_operators(host, site, facts)
    except Exception:  # as above; the row of xformers stays as it is
        _log.debug("imports of xformers.ops were not followed", exc_info=True)
        return facts


def _with_operators(host: Host, site: Site, facts: Facts) -> Facts:
    """Return the facts with what stops `xformers.ops`, which imports flash-attn if it is there."""
    package = facts.xformers
    if not _may_be_imported(package) or package.load_error:
        return facts
    failing = [*_failing(host, site, facts, ("xformers",))]
    if not failing:
        return facts
    from attn_doctor.probes.installed.reach import Reach

    found = Reach(host, site, failing, _cuda(facts)).find("xformers.ops")
    if found is None or not found.certain:
        return facts
    return replace(facts, xformers=replace(package, load_error=str(found)))


def _in_doubt(facts: Facts, field: str, why: str) -> Facts:
    """Return the facts with an import of which is unknown whether it works."""
    package: Package = getattr(facts, field)
    if package.import_error is None:  # it was in doubt before
        return facts
    doubted: dict[str, Package] = {field: replace(package, import_error=None, import_doubt=why)}
    return replace(facts, **doubted, gaps={**facts.gaps, f"{field}.import_error": why})


def _followed(host: Host, site: Site, facts: Facts, fields: tuple[str, ...]) -> Facts:
    asked = [one for one in fields if _may_be_imported(getattr(facts, one))]
    outdating = [one for one in _TAKING if _for_other_torch(getattr(facts, one), facts)]
    # torchao imports nothing else that fails.
    failing = [*_failing(host, site, facts, fields)] if asked and fields != ("torchao",) else []
    if not failing and not outdating:
        return facts
    from attn_doctor.probes.installed.reach import Reach

    reach = Reach(host, site, failing, _cuda(facts), outdating)
    for field in asked:
        package: Package = getattr(facts, field)
        folder = package.path or ""
        there = (one for one in _ENTRIES[field] if not one or _is_file(host, folder, one))
        found = reach.find(".".join(filter(None, [field, next(there, "")])))
        if found is None:
            continue
        said = str(found)
        if not found.certain:
            facts = _in_doubt(facts, field, said)
            continue
        failed: dict[str, Package] = {field: replace(package, import_error=said, import_doubt="")}
        name = f"{field}.import_error"
        gaps = {key: why for key, why in facts.gaps.items() if key != name}
        facts = replace(facts, **failed, gaps=gaps)
    return facts


def _may_be_imported(package: Package) -> bool:
    return bool(package.installed and package.path and not package.import_error)


def _for_other_torch(package: Package, facts: Facts) -> bool:
    """Whether a package requires another torch than the installed one."""
    torch, wanted = facts.torch.version, package.requires_torch
    return bool(package.installed and torch and wanted) and not holds(torch or "", wanted or "")


def _cuda(facts: Facts) -> bool | None:
    """Whether torch can use a GPU; None if that is unknown."""
    if facts.torch.build == "cpu" or facts.gpus == ():
        return False
    seen = [one for one in facts.gpus or () if one.visible is not False]
    return True if seen and facts.torch.build == "cuda" and facts.driver.state == "ok" else None


def _is_file(host: Host, folder: str, module: str) -> bool:
    *packages, name = module.split(".")
    return host.is_file(host.join(folder, *packages, f"{name}.py"))


def _failing(host: Host, site: Site, facts: Facts, fields: tuple[str, ...]) -> Iterator[Failing]:
    from attn_doctor.probes.installed.reach import Failing

    if "sageattention" in fields and (said := _triton_error(facts)):
        yield Failing("triton", "missing", said)
    for field, known in PACKAGES.items():
        package: Package = getattr(facts, field)
        if not package.installed or (field in fields and not _tested(package)):
            continue
        if package.import_error:
            yield Failing(known.module, _raises(package.import_error), package.import_error)
        elif package.import_error is None and package.import_doubt:
            yield Failing(known.module, "crash", package.import_doubt, certain=False)
        elif field in _BY_LIBRARY and package.load_error and _stops(field, package):
            yield Failing(known.module, _BY_LIBRARY[field], package.load_error)
    if refused := _refused_flash(host, facts):
        yield Failing("xformers.ops.fmha.flash", "import", refused)
    for one in facts.extensions or ():
        if one.load_error and one.path and one.package not in _BY_LIBRARY:
            raises: Raised = "crash" if ends_process(one.load_error) else "import"
            yield Failing(_module(host, site, one.path), raises, one.load_error)


def _tested(package: Package) -> bool:
    """Whether a package tests its requirements before all else, and one of them fails."""
    return bool(package.import_error and package.import_error.startswith("it requires "))


def _triton_error(facts: Facts) -> str:
    """Return what metadata do not require: Triton for SageAttention, setuptools for Triton."""
    if facts.triton.installed is False:
        return "it is not installed"
    missing = facts.triton.setuptools_missing
    return "it imports setuptools, which is not installed" if missing else ""


def _refused_flash(host: Host, facts: Facts) -> str:
    """Return that xformers refuses the installed flash-attn when it imports it; empty if not."""
    wanted, version = facts.xformers.flash_attn_range, facts.flash_attn.version
    own = "_C_flashattention" in (facts.xformers.extensions or ())
    ignored = host.environ.get("XFORMERS_IGNORE_FLASH_VERSION_CHECK") == "1"
    # Before 0.0.30 it catches its own error and takes torch's flash kernels.
    caught = holds(facts.xformers.version or "", "<0.0.30")
    if own or ignored or caught or not wanted or not version or holds(version, wanted):
        return ""
    return f"it requires flash-attn{wanted}, and {version} is installed"


def _stops(field: str, package: Package) -> bool:
    # torchvision up to 0.16 continues without its operators.
    return field != "torchvision" or not holds(package.version or "", "<0.17")


def _raises(error: str) -> Raised:
    if error.endswith("no such name") and " uses " in error:
        return "attribute"
    if error.endswith("compares them"):
        return "runtime"
    return "missing" if error.endswith("not installed") else "import"


def _module(host: Host, site: Site, path: str) -> str:
    """Return the name by which a compiled module is imported."""
    folders = (one for one in site.folders if path.startswith(host.join(one, "")))
    inside = path.removeprefix(max(folders, key=len, default="")).strip("/\\")
    *packages, name = inside.replace("\\", "/").split("/")
    return ".".join([*packages, name.partition(".")[0]])
