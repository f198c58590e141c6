"""Imports that fail because of another package: one without metadata, a broken torchvision."""

from __future__ import annotations

import errno
import os

from attn_doctor.derived import companions, extensions
from attn_doctor.derived.releases import Tables, parts
from attn_doctor.facts import Facts, Package
from attn_doctor.requirement import satisfies

#: They read torch's version from its metadata when they are imported. Seen with Diffusers 0.42.1,
#: Transformers 5.23 and Accelerate 1.15: "Invalid version: None" and "No package metadata was
#: found for torch".
_READ_METADATA = ("diffusers", "transformers", "accelerate")
#: What imports torch at its beginning.
_IMPORT_TORCH = (
    *_READ_METADATA, "bitsandbytes", "flash_attn", "flash_attn_3", "flash_attn_4", "sageattention",
    "torchaudio", "torchvision", "xformers",
)  # fmt: skip
#: What Diffusers' dispatcher compares, which is in 0.35 and later.
_DISPATCHED = ("sageattention", "flash-attn", "xformers")
#: Other packages whose versions are compared at import, so that one without a version stops it.
#: Each was tried without one, with Diffusers 0.42.1, Transformers 5.24.0 and Accelerate 1.15.0,
#: but flash-attn and xformers, which Diffusers compares as it does sageattention.
_COMPARED = {
    "diffusers": ("transformers", "peft", *_DISPATCHED),
    "transformers": (
        "tqdm", "regex", "packaging", "numpy", "tokenizers", "huggingface-hub", "safetensors",
        "accelerate", "pyyaml", "kernels",
    ),
    "accelerate": ("numpy",),  # since 1.1, as `is_numpy_available` does
}  # fmt: skip
#: Packages whose versions are read at import, so that metadata that raise an error stop it.
_READ = {
    "diffusers": (
        *_COMPARED["diffusers"], "requests", "filelock", "numpy", "safetensors", "huggingface-hub",
        "kernels", "accelerate", "torchao", "bitsandbytes", "torchvision",
    ),
    "transformers": (*_COMPARED["transformers"], "filelock", "torchao"),
    "accelerate": _COMPARED["accelerate"],
}  # fmt: skip
#: Transformers before 5 reads these too, as its lists in 4.41 to 4.57 say. Seen with 4.55.0.
_READ_BY_4 = ("bitsandbytes", "peft", "torchaudio", "torchvision")
#: How metadata are described that raise an error where they are read; others have no version.
_RAISE = ("METADATA cannot be read", "METADATA is not text")
#: Releases of torch that stop with metadata of Triton without a version. Seen with 2.13.0, 2.14.0
#: and 2.14.1, and not with 2.12.0 and 2.15.0.
_READ_TRITON = ((2, 13), (2, 14))
#: Packages that a framework imports only where they are used.
_OWN = ("einops", "kernels", "sageattention", "sageattn3", "torchao", "triton", "xformers")
#: Packages that everything imports with torch.
_WITH_TORCH = ("torch", "numpy", "filelock", "typing-extensions")


def incomplete(distribution: str | None, facts: Facts) -> str:
    """Return why it is unknown whether a distribution can be imported; empty if nothing is seen.

    An import may reach a damaged or unreadable file, or a variable may change all.
    """
    if facts.python.foreign_home:
        return f"{facts.python.foreign_variable} is {facts.python.foreign_home}"
    for path in facts.unreadable_files or ():
        return f"this user may not read {path}"
    if distribution == "torchvision" and extensions.of_other_torch(facts):
        return (
            f"it requires torch{facts.torchvision.requires_torch}, and {facts.torch.version} is "
            "installed"
        )
    # kernels imports huggingface_hub.
    framework = distribution in (*_READ_METADATA, "kernels")
    for one in facts.incomplete_packages or ():
        concerned = one.package in (distribution, *_WITH_TORCH)
        concerned |= (distribution, one.package) == ("sageattention", "triton")
        # What is left are requirements of the frameworks, such as huggingface_hub.
        if concerned or (framework and one.package not in _OWN):
            return f"{one.file} is {one.reason}"
    return ""


def because_of_others(field: str, facts: Facts, tables: Tables) -> str:
    """Return why importing a package fails through another one; empty if no reason was found."""
    package: Package = getattr(facts, field)
    if facts.torch.installed is False and field in _IMPORT_TORCH:
        return "torch is not installed"
    if fault := _without_version_of_torch(field, facts):
        return fault
    if fault := _metadata_of_others(field, facts):
        return fault
    if field == "diffusers" and facts.torch.installed:
        broken = companions.torch_breaks(field, facts, tables)
        return broken or _flash_attn(facts) or _xformers(facts)
    if field == "transformers" and facts.torch.installed:
        broken = companions.torch_breaks(field, facts, tables)
        if broken:
            return broken
    if field == "transformers" and (fault := _kernels(facts)):
        return fault
    if package.imports_torchvision and (fault := _torchvision(facts)):
        return f"it imports torchvision, which fails: {fault}"
    return ""


def _without_version_of_torch(field: str, facts: Facts) -> str:
    """Return why an import fails that reads torch's version from damaged metadata."""
    fault = _torch_metadata(facts)
    reads = field in _READ_METADATA and _stops(field, fault, facts)
    if fault and (reads or (field == "torchao" and _compares_torch(facts))):
        return f"it reads torch's version from the metadata: {fault}"
    return _through_onnx(facts) if field in ("torchvision", "diffusers") else ""


def _torch_metadata(facts: Facts) -> str:
    """Return what is wrong with torch's metadata, where torch itself is there."""
    if not facts.torch.installed:
        return ""
    damaged = (one.reason for one in facts.damaged_metadata or () if one.package == "torch")
    lacks = "no metadata" in (facts.torch.installation_error or "").split(", ")
    return next(damaged, None) or ("torch has none" if lacks else "")


def _stops(field: str, fault: str, facts: Facts) -> bool:
    """Whether a fault of torch's metadata stops an import.

    Diffusers before 0.35 compares no version of torch there: 0.31.0, 0.33.0 and 0.34.0 were
    imported without one. Metadata that raise an error stop them too.
    """
    old = field == "diffusers" and parts(facts.diffusers.version or "1") < (0, 35)
    return not old or _raises(fault)


def _raises(reason: str) -> bool:
    """Whether metadata raise an error where they are read.

    Python takes a folder, and a file that this user may not read, for metadata without a version.
    """
    passed_over = (os.strerror(errno.EISDIR), os.strerror(errno.EACCES))
    return reason.startswith(_RAISE) and not reason.endswith(passed_over)


def of_torch(facts: Facts) -> str:
    """Return why torch 2.13 and 2.14 for CUDA fail: they read Triton's version when imported.

    2.12 does not read it then, and 2.15 catches the error.
    """
    if facts.torch.build != "cuda" or parts(facts.torch.version or "")[:2] not in _READ_TRITON:
        return ""
    damaged = (one.reason for one in facts.damaged_metadata or () if one.package == "triton")
    reason = next(damaged, "")
    return f"it reads triton's version from the metadata: {reason}" if reason else ""


def _compares_torch(facts: Facts) -> bool:
    """Whether torchao compares the version in torch's metadata when it is imported.

    So do 0.7.0 (run), 0.11.0, 0.13.0 and 0.14.1 (by their module `torchao.utils`), not 0.15.0.
    """
    return (0, 7) <= parts(facts.torchao.version or "") < (0, 15)


def _through_onnx(facts: Facts) -> str:
    """Return why an import fails with torch 2.1 and 2.2, whose torch.onnx imports Transformers.

    They catch only ImportError. torchvision imports torch.onnx, and so does torch._dynamo, which
    Diffusers imports. Seen with torch 2.2.1; 2.3 imports Transformers where it is used.
    """
    old = (2, 1) <= parts(facts.torch.version or "")[:2] < (2, 3)
    fault = _torch_metadata(facts) if old and facts.transformers.installed else ""
    reads = (
        "it imports torch.onnx and so Transformers, which reads torch's version from the metadata"
    )
    return f"{reads}: {fault}" if fault else ""


def _metadata_of_others(field: str, facts: Facts) -> str:
    """Return which version cannot be read from the metadata of a package, and why; or empty."""
    if field == "accelerate" and parts(facts.accelerate.version or "") < (1, 1):
        return ""
    everything = field == "transformers" and _reads_all(facts.transformers.version or "")
    for one in facts.damaged_metadata or ():
        reason = one.reason or ""
        if everything and _raises(reason):
            return f"it reads {one.package}'s name from the metadata: {reason}"
        read = _READ if _raises(reason) else _COMPARED
        early = one.package in _DISPATCHED and parts(facts.diffusers.version or "") < (0, 35)
        names = read.get(field, ())
        if (
            read is _READ
            and field == "transformers"
            and parts(facts.transformers.version or "") < (5,)
        ):
            names += _READ_BY_4
        if one.package in names and not early:
            return f"it reads {one.package}'s version from the metadata: {reason}"
    return ""


def _reads_all(transformers: str) -> bool:
    """Whether Transformers asks for the name of every distribution when it is imported.

    Seen with 5.0.0 and 5.22.0. 5.23 asks where it needs a name, and 4.57 asks for none.
    """
    return (5,) <= parts(transformers) < (5, 23)


def _kernels(facts: Facts) -> str:
    """Return why Transformers fails with kernels, which it imports since 5.13 if it accepts it.

    Before, without an upper bound, it catches the error. It then asks for kernels without naming a
    version, which kernels refuses since 0.15: 5.0.0 to 5.12.0 were tried.
    """
    wanted, version = facts.transformers.kernels_range or "", facts.kernels.version
    error = facts.kernels.import_error
    taken = error and "<" in wanted and version is not None and satisfies(version, wanted)
    if taken:
        return f"it imports kernels, which fails: {error}"
    refused = error == "" and satisfies(version or "", ">=0.15")
    if refused and (5,) <= parts(facts.transformers.version or "") < (5, 13):
        return f"it names no version of a kernel, which kernels {version} wants"
    return ""


def _torchvision(facts: Facts) -> str:
    """Return why importing torchvision fails; empty if no reason was found.

    Up to 0.16 it continues without its operators.
    """
    torchvision = facts.torchvision
    if not torchvision.installed:
        return ""
    if torchvision.import_error or parts(torchvision.version or "1") < (0, 17):
        return torchvision.import_error or ""
    return extensions.package_load_error("torchvision", facts) or ""


def _xformers(facts: Facts) -> str:
    """Return why Diffusers fails with xformers, which it imports where 0.0.29 is installed.

    `xformers.ops` of 0.0.30 on fails with a torch before 2.5, and that of 0.0.34 on with one
    before 2.7, by another error. Diffusers catches the later one from 0.37 on. Before 0.35,
    `attention_processor` imports it.
    """
    xformers, torch = facts.xformers, parts(facts.torch.version or "")[:2]
    diffusers = parts(facts.diffusers.version or "")[:2]
    version = parts(xformers.version or "")
    if not xformers.installed or not diffusers:
        return ""
    if torch and torch < (2, 4) and (xformers.version or "").startswith("0.0.29.post3"):
        # Not in 0.0.29; seen with torch 2.2.1, and torch 2.3.1 has no such name either.
        return "it imports xformers.ops, which uses torch.utils.flop_counter as torch 2.4 has it"
    if version < (0, 0, 30):
        return ""
    if torch and torch < (2, 5):
        lacks = "uses torch.backends.cuda.is_flash_attention_available, which torch has since 2.5"
        return f"it imports xformers.ops, which {lacks}"
    checks = facts.torch.build == "cuda" and facts.system.os == "linux"
    alone = facts.flash_attn.installed is False
    late = version >= (0, 0, 34) and diffusers < (0, 37)
    if late and checks and alone and (2, 5) <= torch < (2, 7):
        return "it imports xformers.ops, which fails with a torch before 2.7 without flash-attn"
    return ""


def _flash_attn(facts: Facts) -> str:
    """Return why Diffusers fails with flash-attn, which it imports where it is installed.

    0.35 and 0.36 import flash-attn from 2.6.3 on without catching an error (0.35.2 was run, 0.36.0
    with a stub of 2.6.3; 0.37.0 catches it, by its source). 0.36 needs functions of 2.7.0.
    """
    flash, diffusers = facts.flash_attn, facts.diffusers
    release, version = parts(diffusers.version or "")[:2], parts(flash.version or "")
    if not flash.installed or release not in ((0, 35), (0, 36)) or version < (2, 6, 3):
        return ""
    if release == (0, 36) and version < (2, 7):
        return f"it imports functions of flash-attn 2.7.0, and {flash.version} is installed"
    error = extensions.package_load_error("flash_attn", facts)
    return f"it imports flash_attn, which fails: {error}" if error else ""
