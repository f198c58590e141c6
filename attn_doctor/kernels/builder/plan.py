"""What a build is asked for, and what it would do: which kernels, in which order, how many at once.

Nothing here runs or changes anything. A kernel is up to date if the manifest says that it was built
and verified in this build environment, and its files still have their sizes. Whether their content
is valid is a question for `cache verify`. A plan that is made before torch is imported uses the
facts alone; a build makes it again with what torch reports of its environment.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.files import TEXT, read_bytes
from attn_doctor.kernels.builder.spec_refusals import refusal
from attn_doctor.kernels.builder.target import Target, environment_for
from attn_doctor.kernels.caches.deletion import ClearedFile, existing
from attn_doctor.record.environment import slot_name, slot_of
from attn_doctor.record.key_parts import key
from attn_doctor.record.lock import FOLDER
from attn_doctor.record.manifest import BuildEnvironment, Entry, Manifest
from attn_doctor.record.spec import MASKS, KernelSpec

if TYPE_CHECKING:
    from attn_doctor.kernels.caches.stale_builds import Stale

#: MiB of memory that one compiling process takes, and of GPU memory for a CUDA context.
RAM_MIB, CONTEXT_MIB = 1500, 700
#: The most processes that compile one block; it has some 50 kernels.
BLOCK_PROCESSES = 8
#: Share of the free GPU memory that is used; the driver and fragments need the rest.
SHARE = 0.85

#: `current`: nothing to do. `new`: not built yet. `stale`: the build environment changed.
#: `changed`: the mask's source changed. `damaged`: files are missing. `again`: failed or was not
#: reused last time. `forced`: --force. `unverified`: built without this GPU; to be verified, and to
#: be built only if that fails.
PlanState = Literal[
    "current", "new", "stale", "changed", "damaged", "again", "forced", "unverified"
]


class BuildRequest(Struct, frozen=True, kw_only=True):
    """What to build, and where."""

    specs: tuple[KernelSpec, ...]
    devices: tuple[str, ...]
    facts: Facts
    folder: Path
    """The cache folder."""
    environ: dict[str, str]
    """Environment of the building processes."""
    sys_path: tuple[str, ...] = ()
    """Folders in which the user's own masks are looked for."""
    only: frozenset[str] | None = None
    """Keys of the manifest entries to build; None: every spec for every device."""
    jobs: int | None = None
    limit: float = 600.0
    """Seconds that building one spec may take, and verifying it again."""
    force: bool = False
    target: Target | None = None
    """The GPU of another machine to build for, in place of one of this machine; `facts` and
    `environ` are then those of its stub GPU."""

    @property
    def python(self) -> str:
        """The examined interpreter."""
        return self.facts.python.path or ""

    @property
    def logs(self) -> Path:
        """Folder for the output of the building processes."""
        return self.folder / FOLDER / "logs"

    @property
    def jiterator(self) -> str:
        """The folder of torch's run-time compiled elementwise kernels; "" if it stays untouched.

        The kernels of this machine have nothing to do with the GPU of another one.
        """
        if self.target is not None:
            return ""
        caches = (cache.path for cache in self.facts.caches or () if cache.kind == "jiterator")
        return next(caches, "") or ""

    def environment_of(
        self, device: str, recorded: BuildEnvironment | None = None
    ) -> BuildEnvironment:
        """Today's build environment as far as the facts know, that of the target if there is one.

        Raises `TargetError` if the target would reuse nothing that is built here.
        """
        return environment_for(self.facts, device, self.environ, self.target, recorded)


#: Seconds of importing torch and its compiler.
IMPORT_SECONDS = 4.0
Phase = Literal["build", "verify"]
_PHASES: tuple[Phase, ...] = ("build", "verify")
#: Seconds that the first processes take longer: for the CPU torch compiles its C++ headers once,
#: and for a GPU the first use of each part of the compiler is slow. Seen with torch 2.13 on two
#: cores, as ratios of processor time, and with 2.11 on an H200 and an H100.
_FIRST: dict[str, dict[Phase, float]] = {
    "cpu": {"build": 12.0, "verify": 0.5},
    "cuda": {"build": 2.0, "verify": 1.5},
}
#: Seconds that a first build for the CPU takes longer if nothing was built before: the compiler and
#: the headers are read from the disk.
_FROM_DISK = 6.0


class PlannedBuild(Struct, frozen=True, kw_only=True):
    """One kernel: a spec on one device, and what has to be done about it."""

    spec: KernelSpec
    device: str
    """Such as "cuda:0" or "cpu"."""
    key: str
    """Its entry's key in the manifest."""
    state: PlanState
    why: str = ""
    seconds: float = 0.0
    """Estimate of how long building takes."""
    refused: str = ""
    """Why torch will refuse to build it here, where that is known before; else empty."""

    @property
    def device_slot(self) -> str:
        """Its device with the GPU's name, as in the manifest."""
        return self.key.partition("@")[2]

    @property
    def todo(self) -> bool:
        """Whether it has to be built or verified."""
        return self.state != "current"

    def process_seconds(self, phase: Phase) -> float:
        """Estimate of how long the process of a phase takes, once torch is imported."""
        share = 1.0 if phase == "build" else 0.4 if self.device == "cpu" else 0.3
        return self.seconds * share

    def first_seconds(self, phase: Phase) -> float:
        """Estimate of what the first processes of a phase take beyond that."""
        if self.device != "cpu":
            return _FIRST["cuda"][phase]
        new = phase == "build" and self.state == "new"
        return _FIRST["cpu"][phase] + (_FROM_DISK if new else 0.0)


class Plan(Struct, frozen=True, kw_only=True, dict=True):
    """What a build would do."""

    kernels: tuple[PlannedBuild, ...]
    cleared: tuple[ClearedFile, ...]
    """Files that would be removed first."""
    jobs: int
    limit: str
    """What limits the number of jobs."""
    changes: tuple[str, ...] = ()
    """What changed since the stale entries were built, as sentences."""
    unknown: tuple[str, ...] = ()
    """Devices whose GPU only torch can name: their entries are looked up while building."""
    targets: tuple[Target, ...] = ()
    """GPUs of other machines that it would build for."""

    @cached_property
    def todo(self) -> tuple[PlannedBuild, ...]:
        """What has to be built, in the order of building: what takes longest comes first."""
        todo = (kernel for kernel in self.kernels if kernel.todo)
        return tuple(sorted(todo, key=lambda kernel: (-kernel.seconds, kernel.key)))

    @cached_property
    def seconds(self) -> float:
        """Estimate of the whole build, torch's import and the verifications included."""
        todo = [kernel for kernel in self.todo if not kernel.refused]
        if not todo:
            return 0.0
        work = [sum(map(one.process_seconds, self.phases_of(one))) for one in todo]
        first = sum(max(one.first_seconds(phase) for one in todo) for phase in self.phases)
        return IMPORT_SECONDS + first + max(sum(work) / self.jobs, *work)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What is done with the kernels, in this order."""
        found = {phase for one in self.todo for phase in self.phases_of(one)}
        return tuple(phase for phase in _PHASES if phase in found)

    def phases_of(self, kernel: PlannedBuild) -> tuple[Phase, ...]:
        """What is done with a kernel: for a GPU that is elsewhere, nothing is verified."""
        if self.targets:
            return ("build",)
        return ("verify",) if kernel.state == "unverified" else _PHASES


def plan_build(
    request: BuildRequest,
    manifest: Manifest,
    environments: Mapping[str, BuildEnvironment] | None = None,
    names: Mapping[str, str] | None = None,
) -> Plan:
    """Plan what building `request` would do.

    `environments` by device are what torch itself reported, where it was asked; for other devices
    the facts are used. `names` of their GPUs replace those of both. Raises `AttnDoctorError` if a
    build for a target would remove kernels that were made on the real GPU.
    """
    from attn_doctor.kernels.caches.stale_builds import stale

    kernels: list[PlannedBuild] = []
    cleared: dict[str, ClearedFile] = {}
    changes: list[str] = []
    unknown: list[str] = []
    for device in request.devices:
        reported = (environments or {}).get(device)
        name = (names or {}).get(device) or (reported.device if reported is not None else "")
        slot = slot_name(device, name) if name else slot_of(request.facts, device)
        if slot is None:
            unknown.append(device)
            slot = slot_name(device, "")
        now = reported or request.environment_of(device, manifest.environments.get(slot))
        found = stale(manifest, slot, now, str(request.folder), jiterator=request.jiterator)
        if request.target is not None:
            keep_real_kernels(manifest, slot, found, request.folder)
        changes += [change.sentence for change in found.moved if change.sentence not in changes]
        cleared |= {file.path: file for file in found.files}
        for spec in request.specs:
            if request.only is None or key(spec, slot) in request.only:
                kernel = planned_kernel(request, spec, device, slot, manifest, found.specs)
                kernels.append(_with_refusal(kernel, request, now))
    for old in superseded(request.folder, manifest, kernels):
        cleared.setdefault(old.path, old)
    jobs, limit = workers(request.facts, request.devices[0], request.jobs)
    todo = sum(kernel.todo and not kernel.refused for kernel in kernels)
    if request.jobs is None and todo and todo < jobs:
        jobs, limit = todo, "specs"
    relevant = cleared or any(kernel.state == "stale" for kernel in kernels)
    return Plan(
        kernels=tuple(kernels),
        cleared=tuple(cleared.values()),
        jobs=jobs,
        limit=limit,
        changes=tuple(changes) if relevant else (),
        unknown=tuple(unknown),
        targets=(request.target,) if request.target is not None else (),
    )


def _with_refusal(
    kernel: PlannedBuild, request: BuildRequest, environment: BuildEnvironment
) -> PlannedBuild:
    """The kernel with torch's reason to refuse it, if there is one."""
    if not kernel.todo or kernel.state == "unverified":
        return kernel
    torch = request.facts.torch.version or ""
    return replace(kernel, refused=refusal(kernel.spec, torch, kernel.device, environment.sm))


def joined(plans: Sequence[Plan]) -> Plan:
    """Join the plans of several targets."""
    return Plan(
        kernels=tuple(kernel for plan in plans for kernel in plan.kernels),
        cleared=tuple({file.path: file for plan in plans for file in plan.cleared}.values()),
        jobs=max(plan.jobs for plan in plans),
        limit=plans[0].limit,
        changes=tuple(dict.fromkeys(text for plan in plans for text in plan.changes)),
        unknown=tuple(dict.fromkeys(device for plan in plans for device in plan.unknown)),
        targets=tuple(target for plan in plans for target in plan.targets),
    )


def keep_real_kernels(manifest: Manifest, slot: str, stale: Stale, folder: Path) -> None:
    """Raise `AttnDoctorError` if a build for a target would clear what its real GPU verified."""
    why = [why for name, why in stale.specs.items() if manifest.entries[name].state == "built"]
    why += [why for name, why in stale.warmups.items() if not manifest.warmups[name].unverified]
    if why:
        raise AttnDoctorError(
            f"{folder} holds kernels that were made on a real {slot}: {why[0]}. A build for a"
            " target does not clear them: name another --cache-dir"
        )


def superseded(
    folder: Path, manifest: Manifest, kernels: Iterable[PlannedBuild]
) -> Iterator[ClearedFile]:
    """Files of entries that will be built anew, unless an entry that stays has them too.

    Files of stale entries go for that reason, and those of unverified ones only if their
    verification fails.
    """
    anew = {
        kernel.key: kernel
        for kernel in kernels
        if kernel.todo and kernel.state not in ("stale", "unverified")
    }
    stays: set[str] = set()
    for name, entry in manifest.entries.items():
        if name not in anew and entry.build is not None:
            stays |= entry.build.files.keys()
    for warmup in manifest.warmups.values():
        stays |= warmup.files.keys()
    for name, kernel in anew.items():
        replaced = manifest.entries.get(name)
        if replaced is not None and replaced.build is not None:
            files = sorted(replaced.build.files.keys() - stays)
            yield from existing(folder, files, f"{kernel.spec.title}: {kernel.why}")


# One kernel

_LAST = {
    "failed": "failed last time",
    "cubins": "only its compiled kernels are here, without a graph",
    "cleared": "its files were cleared",
}


def planned_kernel(
    request: BuildRequest,
    spec: KernelSpec,
    device: str,
    slot: str,
    manifest: Manifest,
    stale: Mapping[str, str],
) -> PlannedBuild:
    """Plan one kernel. `stale`: key → sentence for entries whose build environment changed.

    With a target nothing can be verified here, and what was verified there stays.
    """
    name = key(spec, slot)
    entry = manifest.entries.get(name)
    state, why = _state(spec, entry, request.folder, stale.get(name, ""), request.sys_path)
    foreign = request.target is not None
    if state == "unverified" and foreign:
        state, why = "current", ""
    real = entry is not None and entry.state == "built"
    if request.force and state in ("current", "unverified") and not (foreign and real):
        state, why = "forced", "--force was given"
    seconds = estimate(spec, device, entry)
    return PlannedBuild(spec=spec, device=device, key=name, state=state, why=why, seconds=seconds)


def _state(
    spec: KernelSpec, entry: Entry | None, folder: Path, stale: str, sys_path: Sequence[str]
) -> tuple[PlanState, str]:
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
        return "damaged", f"{gone[0]}{more} is missing or has another size"
    if entry.state == "unverified":
        return "unverified", "built without this GPU, and not verified on it yet"
    return "current", ""


def missing(folder: Path, files: Mapping[str, int]) -> list[str]:
    """Files below `folder` that do not exist, or do not have the recorded size."""

    def intact(name: str, size: int) -> bool:
        try:
            return os.stat(folder / name).st_size == size
        except OSError:
            return False

    return [name for name, size in files.items() if not intact(name, size)]


def mask_source(spec: KernelSpec, sys_path: Sequence[str]) -> str | None:
    """SHA-256 of the file of a user's mask; "" for our own masks, None if it is not found."""
    if spec.mask in MASKS or ":" not in spec.mask:
        return ""
    found = _mask_file(spec.mask, sys_path)
    return found[1] if found is not None else None


def mask_folder(mask: str, sys_path: Sequence[str]) -> str:
    """The folder of `sys_path` that a user's mask is imported from; "" if none has it."""
    found = _mask_file(mask, sys_path) if ":" in mask else None
    return os.path.abspath(found[0]) if found is not None else ""


def _mask_file(mask: str, sys_path: Sequence[str]) -> tuple[str, str] | None:
    """The folder of a mask's module and the digest of its file; None if no folder has it."""
    parts = mask.partition(":")[0].split(".")
    for folder in sys_path:
        for path in (Path(folder, *parts, "__init__.py"), Path(folder, *parts).with_suffix(".py")):
            try:
                return folder, hashlib.sha256(read_bytes(path, TEXT)).hexdigest()
            except OSError:
                continue
    return None


def mask_folders(entries: Iterable[Entry]) -> tuple[str, ...]:
    """The folders that the masks of recorded entries were imported from, each once."""
    return tuple(dict.fromkeys(entry.mask_folder for entry in entries if entry.mask_folder))


# How long, and how many at once


def estimate(spec: KernelSpec, device: str, entry: Entry | None = None) -> float:
    """Seconds that building takes on an idle machine: by experience, or less if it took less.

    It may have taken longer than by experience because the machine was busy, or because it compiled
    headers for all others.
    """
    usual = _usual(spec, device)
    if entry is not None and entry.build is not None and entry.build.seconds > 0:
        return min(entry.build.seconds, usual)
    return usual


def _usual(spec: KernelSpec, device: str) -> float:
    """Seconds that building such a spec took."""
    if spec.block and device != "cpu":
        # 14 to 29 s on an H100, for five families.
        return 25.0
    seconds = 7.0 if device == "cpu" else 3.0 if spec.phase == "training" else 1.5
    if spec.dtype == "float32" and device != "cpu":
        seconds *= 3
    padded = spec.head_dim > 128 or spec.head_dim & (spec.head_dim - 1)
    if padded and device != "cpu":
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


def workers(facts: Facts, device: str, jobs: int | None = None) -> tuple[int, str]:
    """How many processes may work at once, and what limits them. `jobs`: the user's number.

    Cores and memory are those of the container where it has fewer. GPU memory is shared out spec
    by spec while building, since specs differ.
    """
    if jobs is not None:
        return jobs, "--jobs"
    limits = [(max(1, facts.system.cpus or os.cpu_count() or 1), "cores")]
    if facts.system.ram_available_mib:
        limits.append((max(1, facts.system.ram_available_mib // RAM_MIB), "memory"))
    free = free_gpu_mib(facts, device)
    if free is not None:
        limits.append((max(1, free // CONTEXT_MIB), "GPU memory"))
    return min(limits)


def block_processes(facts: Facts, plan: Plan, jobs: int | None = None) -> int:
    """How many processes may compile the kernels of one block, beside a plan's other builds."""
    able, _ = workers(facts, "cpu", jobs)
    return max(1, min(BLOCK_PROCESSES, able // max(1, len(plan.todo))))


def free_gpu_mib(facts: Facts, device: str) -> int | None:
    """Free memory of the GPU that may be used, in MiB; of the fullest GPU if it is unknown which.

    None for the CPU, and where the facts do not know it.
    """
    shown = [gpu for gpu in facts.gpus or () if gpu.visible is not False]
    free = [gpu.memory_free_mib for gpu in shown if gpu.memory_free_mib is not None]
    return int(min(free) * SHARE) if free and device != "cpu" else None
