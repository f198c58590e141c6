"""Folders of compiled things, and what was built into them ahead of time."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts.kinds import Version


class Cache(Struct, frozen=True, kw_only=True):
    """A folder of compiled things."""

    kind: str | None = None
    """`inductor` and its parts `fxgraph` and `aotautograd`, `triton`, `extensions`, `jiterator`,
    `driver`, and `cute` where FlashAttention 4 is told to keep its kernels."""
    path: str | None = None
    """Where it lies, or would be made."""
    source: str | None = None
    """The variable that sets the place, or `default`."""
    exists: bool | None = None
    """It is there."""
    bytes: int | None = None
    """Size of its files; of those counted, where `complete` is false."""
    entries: int | None = None
    """Number of files; of those counted, where `complete` is false."""
    last_modified: str | None = None
    """Day and time of its newest file, UTC, ISO 8601; empty if it has none."""
    complete: bool | None = None
    """All of it was counted within the time limit."""
    writable: bool | None = None
    """This user may write to it, or could create it."""
    noexec: bool | None = None
    """It lies on a `noexec` mount."""
    filesystem: str | None = None
    """Kind of file system it lies on."""
    network: bool | None = None
    """The file system lies on another machine."""
    volatile: bool | None = None
    """It lies under the temporary directory, in memory, or in a container's own layer: lost at
    reboot or when the container ends."""
    stale_locks: int | None = None
    """Lock files of extension builds that are older than an hour, as no live build leaves them."""
    foreign_owner: bool | None = None
    """It belongs to another user."""


class BuiltKernels(Struct, frozen=True, kw_only=True):
    """What `attn-doctor build-kernels` recorded for one device in one cache folder."""

    path: str | None = None
    """The record (manifest.json)."""
    folder: str | None = None
    """The cache folder it speaks of."""
    error: str | None = None
    """Why the record cannot be used; empty if it can."""
    device_slot: str | None = None
    """The device that was built for: `cpu`, or as in `cuda:0 NVIDIA H200`."""
    specs: int | None = None
    """Kernel specs in the record."""
    built: int | None = None
    """Those that were built and proven to be reused."""
    recompiled: int | None = None
    """Those that were built, and that a fresh process compiled again."""
    unverified: int | None = None
    """Kernels and warm-ups that were built without their GPU, or taken in without being run, and
    that still have to be compared with a float64 reference on it."""
    awaiting_gpu: int | None = None
    """Derived: those of all records of this folder for the same GPU, if none of that name is on
    this machine; counted at the first such record, 0 at the others."""
    kernels_only: int | None = None
    """Those of which only Triton's compiled kernels were taken in."""
    failed: int | None = None
    """Those that could not be built."""
    cleared: int | None = None
    """Those whose files were cleared and that have not been built again."""
    warmups: int | None = None
    """Programs that were run to fill the caches (`build-kernels -- python …`)."""
    seconds: float | None = None
    """Seconds that building took; the next start pays them again if the kernels are lost."""
    last_build: str | None = None
    """Day and time of the last build, UTC, ISO 8601; empty if nothing was built."""
    torch: Version | None = None
    """Torch they were built with."""
    torch_cuda: str | None = None
    """CUDA of that torch; empty for a CPU build."""
    triton: Version | None = None
    """Triton they were built with; empty without one."""
    ptxas: str | None = None
    """ptxas they were compiled by."""
    python: Version | None = None
    """Python they were built under."""
    device: str | None = None
    """Name of the GPU, or `cpu`."""
    sm: int | None = None
    """Its compute capability ×10."""
    driver: Version | None = None
    """GPU driver at that time."""
    cc: str | None = None
    """C compiler at that time."""
    cxx: str | None = None
    """C++ compiler at that time."""
    cpu: str | None = None
    """Vector instructions they were compiled for; CPU kernels only."""
    environment: tuple[str, ...] | None = None
    """Environment variables that matter and were set, as `NAME=value`."""
    missing_files: int | None = None
    """Recorded files that are gone or have another size."""
    embedded_paths: tuple[str, ...] | None = None
    """Folders other than this one in which its graphs were built, and beside whose files torch
    writes the results of its autotuning."""
    blocked_embedded_path: str | None = None
    """The first of them that this user can neither write to nor create; empty if there is none."""
    device_present: bool | None = None
    """Derived: that device is on this machine."""
    drift: str | None = None
    """Derived: what has moved since, so that kernels have to be built anew; empty if nothing."""
    harmless_drift: str | None = None
    """Derived: what has moved since and makes no kernel stale; empty if nothing."""
    stale: int | None = None
    """Derived: specs and warm-ups that have to be built anew because of `drift`."""
    driver_change: str | None = None
    """Derived: the driver is `newer` or `older` than at that time; empty if it is the same."""
