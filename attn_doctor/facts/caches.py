"""Cache folders, and the kernels that were built into them ahead of time."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts.kinds import CacheKind, DriverChange, Version


class Cache(Struct, frozen=True, kw_only=True):
    """A cache folder of compiled code."""

    kind: CacheKind | None = None
    """`inductor` and its parts `fxgraph` and `aotautograd`, `triton`, `extensions`, `jiterator`,
    `driver`, and `cute` if FlashAttention 4 is set to keep its kernels."""
    path: str | None = None
    """Its path, whether it exists or not."""
    source: str | None = None
    """The variable that sets its path, or `default`."""
    exists: bool | None = None
    """The folder exists."""
    bytes: int | None = None
    """Size of its files; only of those counted if `complete` is false."""
    entries: int | None = None
    """Number of its files; only of those counted if `complete` is false."""
    last_modified: str | None = None
    """Date and time of its newest file, UTC, ISO 8601; empty if it has no files."""
    complete: bool | None = None
    """All files were counted within the time limit."""
    writable: bool | None = None
    """This user can write to it, or can create it."""
    noexec: bool | None = None
    """It is on a `noexec` mount."""
    filesystem: str | None = None
    """Type of its file system."""
    network: bool | None = None
    """Its file system is on another machine."""
    volatile: bool | None = None
    """Its files can be lost at reboot or when the container ends: it is in /tmp, in memory, or in a
    container's own layer."""
    stale_locks: int | None = None
    """Lock files of extension builds older than an hour; no running build leaves such a lock."""
    danger: str | None = None
    """A folder above it, the folder or a file through which another user decides which code it
    holds, such as `/tmp/a belongs to bob (uid 1001, mode 0755)`; empty if there is none. Only the
    files that were counted are examined."""


class BuiltKernels(Struct, frozen=True, kw_only=True):
    """What `attn-doctor build-kernels` recorded for one device in one cache folder."""

    path: str | None = None
    """Path of the manifest (`manifest.json`)."""
    folder: str | None = None
    """The cache folder that it describes."""
    error: str | None = None
    """Why the manifest cannot be used; empty if it can."""
    device_slot: str | None = None
    """The device of these kernels: `cpu`, or index and name, such as `cuda:0 NVIDIA H200`."""
    specs: int | None = None
    """Kernel specs in the manifest."""
    built: int | None = None
    """Specs that were built and verified: a fresh process reused them."""
    recompiled: int | None = None
    """Specs that were built, but that a fresh process did not fully reuse."""
    unverified: int | None = None
    """Specs and warm-ups that were built without their GPU, or imported without a run. They still
    have to be compared with a float64 reference on that GPU."""
    awaiting_gpu: int | None = None
    """Derived: unverified specs and warm-ups of this folder for a GPU that this machine does not
    have. Counted at the first manifest for that GPU, 0 at the others."""
    kernels_only: int | None = None
    """Specs of which only Triton's compiled kernels were imported."""
    failed: int | None = None
    """Specs that could not be built."""
    cleared: int | None = None
    """Specs whose files were deleted and that were not built again."""
    warmups: int | None = None
    """Programs that were run to fill the caches (`build-kernels -- python …`)."""
    seconds: float | None = None
    """Build time in seconds; the next start needs it again if the kernels are lost."""
    last_build: str | None = None
    """Date and time of the last build, UTC, ISO 8601; empty if nothing was built."""
    torch: Version | None = None
    """torch of the build."""
    torch_cuda: str | None = None
    """CUDA of that torch; empty for a CPU build."""
    triton: Version | None = None
    """Triton of the build; empty if there was none."""
    ptxas: str | None = None
    """ptxas of the build."""
    python: Version | None = None
    """Python of the build."""
    device: str | None = None
    """Name of the GPU, or `cpu`."""
    sm: int | None = None
    """Its compute capability ×10."""
    driver: Version | None = None
    """GPU driver of the build."""
    cc: str | None = None
    """C compiler of the build."""
    cxx: str | None = None
    """C++ compiler of the build."""
    cpu: str | None = None
    """Vector instructions of the compiled code; CPU kernels only."""
    environment: tuple[str, ...] | None = None
    """Environment variables of the build that affect kernels, as `NAME=value`."""
    missing_files: int | None = None
    """Recorded files that are missing or have another size."""
    embedded_paths: tuple[str, ...] | None = None
    """Other folders in which its graphs were built. torch writes autotuning results beside the
    files there."""
    blocked_embedded_path: str | None = None
    """The first of them that this user can neither write to nor create; empty if there is none."""
    device_present: bool | None = None
    """Derived: this machine has that device."""
    drift: str | None = None
    """Derived: changes since the build that require a rebuild; empty if there are none."""
    harmless_drift: str | None = None
    """Derived: changes since the build that require no rebuild; empty if there are none."""
    stale: int | None = None
    """Derived: specs and warm-ups that have to be rebuilt because of `drift`."""
    driver_change: DriverChange | None = None
    """Derived: the driver is `newer` or `older` than at the build; empty if it is the same."""
