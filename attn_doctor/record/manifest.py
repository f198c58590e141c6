"""The manifest beside the caches: what was built, for which machine, and how it was verified.

No cache key of torch or Triton holds the driver's version, and a miss is silent. So the builder
writes down everything that decided the result; `check` and `cache why` compare it with the
machine of today. The file is plain JSON, one per cache folder, written by one rename.

It does not know what other programs wrote into the same folder: their entries are in use, but not
ours.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from attn_doctor.record.spec import KernelSpec

SCHEMA = 1
#: The message of a warm-up without a second run.
NOT_REQUESTED = "not verified: --no-verify was given"
#: The manifest's path below the cache folder.
NAME = "attn-doctor/manifest.json"

#: `built`: a second process reused it, and its results are right. `unverified`: a second process
#: reused it, its numbers were never computed on a GPU. `cubins`: only its compiled kernels were
#: imported, no graph. `not-reused`: a second process did not fully reuse it. `cleared`: its files
#: were deleted, it can be built again.
EntryState = Literal["built", "unverified", "cubins", "not-reused", "failed", "cleared"]


class BuildEnvironment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything outside the spec that decides reuse. Empty text: absent. None: unknown."""

    torch: str | None = None
    torch_cuda: str | None = None
    """CUDA that torch was built for; "" in a CPU build."""
    torch_key: str | None = None
    """Digest of torch's version and sources, part of every FX and AOT key."""
    triton: str | None = None
    triton_key: str | None = None
    ptxas: str | None = None
    python: str | None = None
    device: str | None = None
    """Name of the GPU as torch gives it, or "cpu"."""
    sm: int | None = None
    """Compute capability times ten, such as 90."""
    driver: str | None = None
    cc: str | None = None
    """First line of the C compiler's `--version`; "" if there is none."""
    cxx: str | None = None
    cpu: str | None = None
    """Vector instructions that Inductor compiles for, such as avx2; for CPU kernels."""
    environment: dict[str, str] = {}
    """Environment variables that enter keys and were set."""
    settings: dict[str, str] = {}
    """Digests of Inductor's and Dynamo's configuration."""


class Build(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one spec was built and verified."""

    at: str
    """UTC, ISO 8601."""
    seconds: float
    """First call in the building process, backward included."""
    reuse_seconds: float | None = None
    """The same in the second process, which verified reuse."""
    errors: dict[str, float] = {}
    """Relative error against a float64 reference: out, and in training dq, dk, dv."""
    compared: dict[str, float] = {}
    """How much was compared: `calls`, each with other inputs; `heads`, `rows` of the output in all
    calls, and the `share` of all their rows."""
    keys: dict[str, list[str]] = {}
    """Cache kind (aotautograd, fxgraph, triton) → keys of its entries."""
    files: dict[str, int] = {}
    """Files below the cache folder that belong to this spec → bytes."""
    verified: bool = False
    """A second, fresh process hit every cache and ran no compiler; what it computed was right as
    well, unless the entry is unverified."""
    hits: dict[str, int] = {}
    """Counters of that process."""
    limits: list[str] = []
    """What is not reused all the same, such as "torch 2.9 lowers the backward again in every
    process"."""
    root: str = ""
    """Cache folder whose path its graphs hold, where that is another folder."""


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One spec for one device in one cache folder: built, built but not reused, or failed."""

    spec: KernelSpec
    device_slot: str
    """The device it was built on: "cpu", or as in "cuda:0 NVIDIA H200". The index is part of the
    generated source, and one folder may serve machines with different GPUs."""
    state: EntryState
    mask_source: str = ""
    """SHA-256 of the file that holds the user's mask function; empty for our own masks."""
    mask_folder: str = ""
    """Folder from which that file was imported; empty where it is not known."""
    build: Build | None = None
    cause: str = ""
    """The rule that explains a failure, when one does."""
    message: str = ""
    """Last line of a failure, or what differs when it is built but not reused."""


class Warmup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user's program that was run so that the cache holds its kernels."""

    argv: tuple[str, ...]
    """The command, with `***` in place of secrets: others may read this file."""
    folder: str
    """Working directory it ran in."""
    device_slot: str
    at: str
    """UTC, ISO 8601."""
    seconds: float
    reuse_seconds: float | None = None
    """The same program, run again."""
    files: dict[str, int] = {}
    """Files below the cache folder that it added or used → bytes."""
    keys: dict[str, list[str]] = {}
    """Cache kind → keys of its entries."""
    hits: dict[str, int] = {}
    """Cache lookups of the second run, hits and misses by kind."""
    verified: bool = False
    """The second run hit every cache and added nothing."""
    unverified: bool = False
    """Both runs were on a stub GPU: no numbers were computed."""
    message: str = ""
    """What the second run compiled again, or why there was none."""
    root: str = ""
    """As in `Build`."""

    @property
    def fault(self) -> str:
        """Why its kernels are not reused; empty if they are, or if it is unknown."""
        return "" if self.verified or self.message == NOT_REQUESTED else self.message


class Manifest(Struct, frozen=True, kw_only=True):
    """The record of one cache folder."""

    schema: int
    attn_doctor: str
    environments: dict[str, BuildEnvironment] = {}
    """Device slot → what all its entries were built in. Stale entries leave the manifest
    before anything is built anew, so one value holds for all of them."""
    entries: dict[str, Entry] = {}
    """`<KernelSpec.id>@<device slot>` → entry."""
    warmups: dict[str, Warmup] = {}
    """Twelve digits of argv, folder and device → warm-up."""
