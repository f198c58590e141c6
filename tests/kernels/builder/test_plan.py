"""What is up to date, how long the rest takes, and how many may work at once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor.facts import Facts, Gpu, System
from attn_doctor.kernels.builder import plan
from attn_doctor.record import key_parts
from attn_doctor.record.manifest import Build, Entry, Manifest
from attn_doctor.record.spec import KernelSpec

SPEC = KernelSpec(heads=24, head_dim=128, lengths=(4608,))
KEY = key_parts.key(SPEC, "cpu")
BUILD = Build(at="2026-11-21T10:00:00Z", seconds=7.0, files={"aa/k.so": 3}, verified=True)
ENTRY = Entry(spec=SPEC, device_slot="cpu", state="built", build=BUILD)


def request_of(folder: Path, **given: Any) -> plan.BuildRequest:
    return plan.BuildRequest(
        specs=(SPEC,), devices=("cpu",), facts=Facts(), folder=folder, environ={}, **given
    )


def state(
    folder: Path, entry: Entry | None, stale: dict[str, str] | None = None, **given: Any
) -> plan.PlannedBuild:
    entries = {} if entry is None else {key_parts.key(entry.spec, entry.device_slot): entry}
    manifest = Manifest(schema=1, attn_doctor="0", entries=entries)
    spec = entry.spec if entry is not None else SPEC
    request = request_of(folder, **given)
    return plan.planned_kernel(request, spec, "cpu", "cpu", manifest, stale or {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "aa").mkdir()
    (tmp_path / "aa" / "k.so").write_text("abc")
    return tmp_path


def test_states(folder: Path) -> None:
    assert state(folder, ENTRY).state == "current"
    assert not state(folder, ENTRY).todo
    assert state(folder, None).state == "new"
    assert state(folder, ENTRY, force=True).state == "forced"
    stale = state(folder, ENTRY, stale={KEY: "built for torch 2.12, this is 2.13"})
    assert (stale.state, stale.why) == ("stale", "built for torch 2.12, this is 2.13")
    failed = state(folder, replace(ENTRY, state="failed", build=None, message="ptxas died"))
    assert (failed.state, failed.why) == ("again", "failed last time: ptxas died")
    assert state(folder, replace(ENTRY, state="not-reused")).state == "again"


def test_another_place_is_another_entry(folder: Path) -> None:
    other = replace(ENTRY, device_slot="cuda:0 NVIDIA H200")
    assert state(folder, other).state == "new"


def test_files(folder: Path) -> None:
    (folder / "aa" / "k.so").write_text("ab")
    damaged = state(folder, ENTRY)
    assert damaged.state == "damaged"
    assert damaged.why == "aa/k.so is missing or has another size"
    (folder / "aa" / "k.so").unlink()
    assert state(folder, ENTRY).state == "damaged"


def test_a_users_mask_that_changed(folder: Path) -> None:
    (folder / "masks.py").write_text("def mine(b, h, q, k): return q >= k\n")
    digest = hashlib.sha256((folder / "masks.py").read_bytes()).hexdigest()
    own = replace(ENTRY, spec=replace(SPEC, mask="masks:mine"), mask_source=digest)
    given: dict[str, Any] = {"sys_path": (str(folder / "elsewhere"), str(folder))}
    assert state(folder, own, **given).state == "current"
    (folder / "masks.py").write_text("def mine(b, h, q, k): return q > k\n")
    changed = state(folder, own, **given)
    assert (changed.state, changed.why) == ("changed", "the file of masks:mine has changed")
    # Where it is not found, nothing is said of it.
    assert state(folder, own).state == "current"


def test_a_mask_in_a_package(folder: Path) -> None:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").write_text("x = 1")
    spec = replace(SPEC, mask="pkg:mine")
    assert plan.mask_source(spec, [str(folder)]) == hashlib.sha256(b"x = 1").hexdigest()
    assert plan.mask_source(SPEC, []) == ""


def test_estimates(folder: Path) -> None:
    base = plan.estimate(SPEC, "cuda:0")
    fast = replace(ENTRY, build=replace(BUILD, seconds=0.7 * base))
    assert plan.estimate(SPEC, "cuda:0", fast) == 0.7 * base  # as long as last time
    # On a busy machine the last time says too much.
    busy = replace(ENTRY, build=replace(BUILD, seconds=100 * base))
    assert plan.estimate(SPEC, "cuda:0", busy) == base
    assert plan.estimate(replace(SPEC, phase="inference"), "cuda:0") < base
    assert plan.estimate(replace(SPEC, head_dim=256), "cuda:0") > base
    assert plan.estimate(replace(SPEC, dtype="float32"), "cuda:0") > base
    two, three = (replace(SPEC, lengths=(1024, 2048, 4096)[:n]) for n in (2, 3))
    assert plan.estimate(two, "cuda:0") > base
    # The dynamic kernel of the second length serves the third.
    assert plan.estimate(three, "cuda:0") == plan.estimate(two, "cuda:0")
    assert plan.estimate(replace(three, dynamic=False), "cuda:0") == 3 * base


def test_the_longest_is_built_first() -> None:
    items = [
        plan.PlannedBuild(spec=SPEC, device="cpu", key=str(seconds), state="new", seconds=seconds)
        for seconds in (1.0, 9.0, 5.0)
    ]
    made = plan.Plan(kernels=tuple(items), cleared=(), jobs=1, limit="cores")
    assert [item.seconds for item in made.todo] == [9.0, 5.0, 1.0]
    assert made.todo is made.todo


@pytest.mark.parametrize(
    ("system", "gpus", "device", "found"),
    [
        (System(cpus=16, ram_available_mib=128_000), None, "cpu", (16, "cores")),
        (System(cpus=16, ram_available_mib=6_000), None, "cpu", (4, "memory")),
        (System(cpus=16, ram_available_mib=100), None, "cpu", (1, "memory")),
        (System(cpus=16), (Gpu(memory_free_mib=4000),), "cuda:0", (4, "GPU memory")),
        (System(cpus=16), (Gpu(memory_free_mib=4000),), "cpu", (16, "cores")),
        (System(cpus=16), (Gpu(memory_free_mib=141_000),), "cuda:0", (16, "cores")),
    ],
)
def test_workers(
    system: System, gpus: tuple[Gpu, ...] | None, device: str, found: tuple[int, str]
) -> None:
    assert plan.workers(Facts(system=system, gpus=gpus), device) == found
    assert plan.workers(Facts(system=system, gpus=gpus), device, 3) == (3, "--jobs")


def test_gpu_memory_grows_with_the_spec() -> None:
    small = plan.gpu_mib(replace(SPEC, lengths=(128,)))
    large = plan.gpu_mib(SPEC)
    assert plan.CONTEXT_MIB <= small < large
    assert plan.gpu_mib(replace(SPEC, mask="float")) > large
