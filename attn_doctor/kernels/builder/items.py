"""What has to be built, in which order, how many at once. Nothing here runs or changes anything.

A spec is up to date if the manifest says that it was built and verified in these very surroundings
and its files still have their sizes. Whether their content is sound is for `cache verify`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from attn_doctor.facts import Facts
from attn_doctor.record.key_parts import key
from attn_doctor.record.manifest import Entry, Manifest
from attn_doctor.record.spec import MASKS, KernelSpec

#: MiB of memory that one compiling process takes, and of GPU memory for a CUDA context.
RAM_MIB, CONTEXT_MIB = 1500, 700
#: Share of the free GPU memory that is used; the driver and fragments need the rest.
SHARE = 0.85


class PlannedBuild(Struct, frozen=True, kw_only=True):
    """One spec on one device, and what is to be done about it."""

    spec: KernelSpec
    device: str
    """Such as "cuda:0" or "cpu"."""
    key: str
    """Its entry's key in the manifest."""
    state: str
    """`current` (nothing to do), `new`, `stale` (surroundings moved), `changed` (the mask's source
    moved), `damaged` (files are gone), `again` (failed or not reused last time), `forced`,
    `unverified` (built without this GPU: to be verified, and built only if it does not hold)."""
    why: str = ""
    seconds: float = 0.0
    """How long building will take, roughly."""
    refused: str = ""
    """Why torch will refuse to build it here, which is known without asking; empty if it may."""

    @property
    def device_slot(self) -> str:
        """Its device with the GPU's name, as in the manifest."""
        return self.key.partition("@")[2]

    @property
    def todo(self) -> bool:
        """It has to be built."""
        return self.state != "current"


def items(
    specs: Iterable[KernelSpec],
    device: str,
    place: str,
    manifest: Manifest,
    folder: Path,
    *,
    stale: Mapping[str, str],
    sys_path: Sequence[str] = (),
    force: bool = False,
    stub_gpu: bool = False,
) -> list[PlannedBuild]:
    """The state of each spec. `stale`: sentences for entries whose surroundings moved, by key.

    `stub_gpu`: the device is of another machine. Nothing can be verified here, and what was
    verified there stays.
    """
    found = []
    for spec in specs:
        name = key(spec, place)
        entry = manifest.entries.get(name)
        state, why = _state(spec, entry, folder, stale.get(name, ""), sys_path)
        if state == "unverified" and stub_gpu:
            state, why = "current", ""
        real = entry is not None and entry.state == "built"
        if force and state in ("current", "unverified") and not (stub_gpu and real):
            state, why = "forced", "--force was given"
        seconds = estimate(spec, device, entry)
        found.append(
            PlannedBuild(spec=spec, device=device, key=name, state=state, why=why, seconds=seconds)
        )
    return found


_LAST = {
    "failed": "failed last time",
    "cubins": "only its compiled kernels are here, no graph",
    "cleared": "its files were cleared",
}


def _state(
    spec: KernelSpec, entry: Entry | None, folder: Path, stale: str, sys_path: Sequence[str]
) -> tuple[str, str]:
    if entry is None:
        return "new", "not built yet"
    if stale:
        return "stale", stale
    if entry.state not in ("built", "unverified") or entry.build is None:
        if entry.message.startswith("not built"):
            return "again", entry.message
        last = _LAST.get(entry.state, "was not reused last time")
        return "again", f"{last}: {entry.message}" if entry.message else last
    known = (entry.mask_folder,) if entry.mask_folder else ()
    source = mask_source(spec, (*sys_path, *known))
    if source is not None and source != entry.mask_source:
        return "changed", f"the file of {spec.mask} has changed"
    gone = missing(folder, entry.build.files)
    if gone:
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        return "damaged", f"{gone[0]}{more} is gone or has another size"
    if entry.state == "unverified":
        return "unverified", "built without this GPU, and not verified on it yet"
    return "current", ""


def missing(folder: Path, files: Mapping[str, int]) -> list[str]:
    """Files below `folder` that are not there, or not of that size."""
    found = []
    for name, size in files.items():
        try:
            right = os.stat(folder / name).st_size == size
        except OSError:
            right = False
        if not right:
            found.append(name)
    return found


def mask_source(spec: KernelSpec, sys_path: Sequence[str]) -> str | None:
    """SHA-256 of the file of a user's mask; "" for our own masks, None if it is not found."""
    if spec.mask in MASKS or ":" not in spec.mask:
        return ""
    found = _mask_file(spec.mask, sys_path)
    return found[1] if found is not None else None


def mask_folder(mask: str, sys_path: Sequence[str]) -> str:
    """The folder of `sys_path` that a user's mask is imported from; "" if it is in none."""
    found = _mask_file(mask, sys_path) if ":" in mask else None
    return os.path.abspath(found[0]) if found is not None else ""


def _mask_file(mask: str, sys_path: Sequence[str]) -> tuple[str, str] | None:
    """The folder of a mask's module, and the digest of its file; None if it is in none."""
    parts = mask.partition(":")[0].split(".")
    for folder in sys_path:
        for path in (Path(folder, *parts, "__init__.py"), Path(folder, *parts).with_suffix(".py")):
            try:
                return folder, hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError:
                continue
    return None


def mask_folders(entries: Iterable[Entry]) -> tuple[str, ...]:
    """The folders that the masks of recorded entries were imported from, each once."""
    return tuple(dict.fromkeys(one.mask_folder for one in entries if one.mask_folder))


# How long, how many


def estimate(spec: KernelSpec, device: str, entry: Entry | None = None) -> float:
    """Seconds that building takes: those of last time, else by experience with such specs."""
    if entry is not None and entry.build is not None and entry.build.seconds > 0:
        return entry.build.seconds
    seconds = 12.0 if device == "cpu" else 3.0 if spec.phase == "training" else 1.5
    if spec.dtype == "float32" and device != "cpu":
        seconds *= 3
    if spec.head_dim > 128 or spec.head_dim & (spec.head_dim - 1):
        seconds *= 1.5
    # The second length compiles a dynamic kernel; further ones reuse it.
    seconds *= min(len(spec.lengths), 2) if spec.dynamic is not False else len(spec.lengths)
    if (spec.mode or "").startswith("max-autotune"):
        seconds *= 8
    return seconds


def gpu_mib(spec: KernelSpec) -> int:
    """MiB of GPU memory that building takes: tensors, gradients and a reference in float64."""
    longest = max(*spec.lengths, spec.kv_length or 0)
    row = spec.batch * spec.heads * longest
    tensors = row * spec.head_dim * 8 * (4 if spec.dtype == "float32" else 2)
    reference = row * spec.head_dim * 8 * 8
    mask = spec.batch * longest * longest * (4 if spec.mask == "float" else 1)
    masked = mask if spec.mask not in ("none", "causal", "sliding-window") else 0
    return CONTEXT_MIB + (tensors + reference + 2 * masked) // (1 << 20)


def longest_first(wanted: Iterable[PlannedBuild]) -> list[PlannedBuild]:
    """The order in which to build: what takes longest must not be left to the end."""
    return sorted(wanted, key=lambda item: (-item.seconds, item.key))


def workers(facts: Facts, device: str, asked: int | None = None) -> tuple[int, str]:
    """How many processes at once, and what limits them.

    Cores and memory are those of the container where it has fewer. GPU memory is shared out spec
    by spec while building, since specs differ.
    """
    limits = [(max(1, facts.system.cpus or os.cpu_count() or 1), "cores")]
    if facts.system.ram_available_mib:
        limits.append((max(1, facts.system.ram_available_mib // RAM_MIB), "memory"))
    if device != "cpu":
        free = free_gpu_mib(facts, device)
        if free is not None:
            limits.append((max(1, free // CONTEXT_MIB), "GPU memory"))
    number, limit = min(limits)
    if asked is not None:
        return asked, "--jobs"
    return number, limit


def free_gpu_mib(facts: Facts, device: str) -> int | None:
    """Free memory of the GPU that may be used, in MiB; of the fullest, if it is not known which."""
    shown = [gpu for gpu in facts.gpus or () if gpu.visible is not False]
    free = [gpu.memory_free_mib for gpu in shown if gpu.memory_free_mib is not None]
    return int(min(free) * SHARE) if free and device != "cpu" else None
