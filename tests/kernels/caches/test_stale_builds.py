"""What moved, what that does to kernels, and exactly which files go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor.derived.kernel_drift import manifests
from attn_doctor.facts import BuiltKernels, Driver, Facts, Gpu, Python, Torch, Triton
from attn_doctor.host.local import LocalHost
from attn_doctor.kernels.caches.stale_builds import stale
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine.manifests import of_folder
from attn_doctor.record.drift import changed_components, stale_reason
from attn_doctor.record.manifest import (
    Build,
    BuildEnvironment,
    Entry,
    Manifest,
    Warmup,
)
from attn_doctor.record.spec import KernelSpec

PLACE = "cuda:0 NVIDIA H200"
H200 = BuildEnvironment(
    torch="2.11.0+cu130", torch_cuda="13.0", torch_key="k", triton="3.6.0", triton_key="t",
    ptxas="13.0.48", python="3.12.3", device="NVIDIA H200", sm=90, driver="580.95.05",
    cc="gcc 12.2.0", cxx="g++ 12.2.0", settings={"inductor": "1"},
)  # fmt: skip
CPU = BuildEnvironment(
    torch="2.13.0+cpu", torch_cuda="", triton="", python="3.11.7", device="cpu", cpu="avx2"
)


@pytest.mark.parametrize(
    ("was", "changes", "effect", "text"),
    [
        (H200, {"torch": "2.12.0+cu130"}, "rebuild", "built for torch 2.11.0+cu130, this is 2.12"),
        (H200, {"triton": "3.6.1"}, "rebuild", "built by Triton 3.6.0, this is 3.6.1"),
        (H200, {"triton": ""}, "rebuild", "built by Triton 3.6.0, which is not installed now"),
        (H200, {"torch_cuda": "12.8"}, "rebuild", "built for a torch with CUDA 13.0, this one has"),
        (
            H200,
            {"device": "NVIDIA A100"},
            "rebuild",
            "built on NVIDIA H200, the GPU here is NVIDIA",
        ),
        (H200, {"sm": 80}, "rebuild", "built for sm_90, the GPU here is sm_80"),
        (H200, {"driver": "575.1"}, "none", "compiled kernels stay valid"),
        (H200, {"ptxas": "12.8.93"}, "none", "the cached kernels are still used"),
        (H200, {"cc": "gcc 14.1.0"}, "none", "the cached kernels are still used"),
        (H200, {"python": "3.13.1"}, "rebuild", "built with Python 3.12.3, this is 3.13.1"),
        (H200, {"settings": {"inductor": "2"}}, "rebuild", "Inductor's settings are not those"),
        (H200, {"environment": {"OMP_NUM_THREADS": "4"}}, "none", "still used"),
        (H200, {"environment": {"TRITON_PTXAS_PATH": "/x"}}, "none", "still used"),
        (H200, {"environment": {"NVIDIA_TF32_OVERRIDE": "0"}}, "none", "still used"),
        (H200, {"environment": {"CC": "/opt/gcc/bin/gcc"}}, "none", "still used"),
        (
            H200,
            {"environment": {"CXX": "/opt/gcc/bin/g++"}},
            "rebuild",
            "CXX was not set, now it is /opt/gcc/bin/g++",
        ),
        (
            H200,
            {"environment": {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}},
            "rebuild",
            "TORCHINDUCTOR_MAX_AUTOTUNE was not set, now it is 1",
        ),
        (CPU, {"environment": {"OMP_NUM_THREADS": "4"}}, "rebuild", "was not set, now it is 4"),
        (CPU, {"python": "3.12.1"}, "rebuild", "built with Python 3.11.7, this is 3.12.1"),
        (CPU, {"cpu": "avx512"}, "rebuild", "built for a processor with avx2"),
    ],
)
def test_each_component_has_its_effect(
    was: BuildEnvironment, changes: dict[str, Any], effect: str, text: str
) -> None:
    (one,) = changed_components(was, replace(was, **changes))
    assert one.effect == effect
    assert text in one.sentence
    assert (stale_reason([one]) != "") == (effect == "rebuild")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"torch": None},
        {"python": "3.12.9"},
        {"environment": {"CXX": "g++"}},
        {"triton": "3.6.0.post3"},
        {"settings": {}},
        {"environment": {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHDYNAMO_DISABLE": "1"}},
        {"environment": {"TORCH_COMPILE_JOB_ID": "a", "TORCHINDUCTOR_FX_GRAPH_CACHE": "0"}},
    ],
)
def test_what_is_the_same_or_not_known_has_not_moved(changes: dict[str, Any]) -> None:
    assert changed_components(H200, replace(H200, **changes)) == ()


def test_what_torch_brings_along_is_reported_briefly() -> None:
    now = replace(
        H200, torch="2.12.0+cu132", torch_cuda="13.2", torch_key="l", triton="3.7.0", triton_key="u"
    )
    assert stale_reason(changed_components(H200, now)) == (
        "built for torch 2.11.0+cu130, this is 2.12.0+cu132 (Triton changed too)"
    )


def spec(length: int) -> KernelSpec:
    return KernelSpec(heads=24, head_dim=128, lengths=(length,))


def entry(length: int, files: dict[str, int], place: str = PLACE) -> Entry:
    build = Build(at="2026-11-20T10:00:00Z", seconds=3.5, files=files, verified=True)
    return Entry(spec=spec(length), device_slot=place, state="built", build=build)


A100 = "cuda:0 NVIDIA A100-SXM4-80GB"
MANIFEST = Manifest(
    schema=1,
    attn_doctor="0.1.0",
    environments={PLACE: H200, A100: replace(H200, device=A100[7:], sm=80), "cpu": CPU},
    entries={
        f"a@{PLACE}": entry(1024, {"ab/one.py": 10, "ab/shared.py": 5}),
        f"b@{PLACE}": entry(2048, {"ab/two.py": 20}),
        f"a@{A100}": entry(1024, {"cd/three.py": 30, "ab/shared.py": 5}, A100),
    },
    warmups={
        "w": Warmup(
            argv=("python", "warm.py"), folder="/x", device_slot=PLACE, at="", seconds=9.0,
            files={"ab/warm.py": 7},
        )
    },
)  # fmt: skip


@pytest.mark.posix
def test_a_stale_place_loses_its_files_but_none_that_another_place_uses() -> None:
    found = stale(MANIFEST, PLACE, replace(H200, torch="2.12.0+cu130"), "/r")
    assert set(found.specs) == {f"a@{PLACE}", f"b@{PLACE}"}
    assert set(found.warmups) == {"w"}
    assert [one.path for one in found.files] == ["/r/ab/one.py", "/r/ab/two.py", "/r/ab/warm.py"]
    assert {one.why for one in found.files} == {
        "built for torch 2.11.0+cu130, this is 2.12.0+cu130"
    }
    assert found.seconds == 7.0


def test_a_driver_alone_makes_nothing_stale() -> None:
    found = stale(MANIFEST, PLACE, replace(H200, driver="595.1.1"), "/r")
    assert (found.specs, found.files) == ({}, ())
    assert [one.component for one in found.moved] == ["driver"]


@pytest.mark.posix
def test_one_entry_may_be_stale_for_a_reason_of_its_own() -> None:
    found = stale(MANIFEST, PLACE, H200, "/r", only=[f"a@{PLACE}"])
    assert set(found.specs) == {f"a@{PLACE}"}
    assert [one.path for one in found.files] == ["/r/ab/one.py"]


@pytest.mark.posix
def test_small_kernels_go_with_another_cuda_only(tmp_path: Path, make: Any) -> None:
    old = make.small_kernel(tmp_path, nvrtc="12.8").name
    make.small_kernel(tmp_path, nvrtc="13.0")
    now = replace(H200, torch="2.12.0+cu130")
    found = stale(MANIFEST, PLACE, now, "/r", jiterator=str(tmp_path))
    assert [one.path for one in found.files if not one.path.startswith("/r/")] == [
        str(tmp_path / old)
    ]
    same = stale(MANIFEST, PLACE, H200, "/r", jiterator=str(tmp_path))
    assert same.files == ()


# Facts

TODAY = Facts(
    python=Python(version="3.12.3", path="/venv/bin/python"),
    torch=Torch(installed=True, version="2.11.0+cu130", build="cuda", cuda="13.0"),
    triton=Triton(installed=True, version="3.6.0"),
    driver=Driver(version="580.95.05", state="ok"),
    gpus=(Gpu(index=0, name="NVIDIA H200", sm=90),),
)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine compares all sizes too."""
    monkeypatch.setattr("attn_doctor.probes.machine.manifests.BUDGET", 10.0)


def folder(tmp_path: Path, manifest: Manifest = MANIFEST) -> Path:
    from attn_doctor.record.store import save

    for one in manifest.entries.values():
        for path, size in one.build.files.items() if one.build else ():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(b"x" * size)
    (tmp_path / "ab" / "warm.py").write_bytes(b"x" * 7)
    save(tmp_path, manifest)
    return tmp_path


def read(tmp_path: Path, facts: Facts = TODAY) -> dict[str | None, BuiltKernels]:
    gaps = Gaps()
    found = of_folder(LocalHost(), str(tmp_path), gaps)
    assert gaps.reasons == {}
    return {one.device_slot: one for one in manifests(replace(facts, manifests=found), {}) or ()}


def test_the_record_becomes_facts(tmp_path: Path) -> None:
    found = read(folder(tmp_path))
    here, other = found[PLACE], found[A100]
    assert (here.specs, here.built, here.warmups, here.missing_files) == (2, 2, 1, 0)
    assert (here.device_present, here.drift, here.stale, here.seconds) == (True, "", 0, 16.0)
    assert here.driver_change == ""
    assert (other.device_present, other.drift, other.stale) == (False, "", 0)


def test_cleared_kernels_are_counted(tmp_path: Path) -> None:
    key = f"b@{PLACE}"
    cleared = replace(MANIFEST.entries[key], state="cleared", build=None)
    found = read(folder(tmp_path, replace(MANIFEST, entries={**MANIFEST.entries, key: cleared})))
    assert (found[PLACE].specs, found[PLACE].built, found[PLACE].cleared) == (2, 1, 1)


def test_drift_shows_in_the_facts(tmp_path: Path) -> None:
    torch = Torch(installed=True, version="2.12.0+cu130", build="cuda", cuda="13.0")
    driver = Driver(version="595.1.1", state="ok")
    found = read(folder(tmp_path), replace(TODAY, torch=torch, driver=driver))[PLACE]
    assert found.drift == "built for torch 2.11.0+cu130, this is 2.12.0+cu130"
    assert (found.stale, found.driver_change) == (3, "newer")
    assert "compiled kernels stay valid" in (found.harmless_drift or "")


def test_an_exchanged_gpu_is_drift_unless_another_place_fits(tmp_path: Path) -> None:
    a100 = replace(TODAY, gpus=(Gpu(index=0, name="NVIDIA A10", sm=86),))
    found = read(folder(tmp_path), a100)
    assert "built on NVIDIA H200, the GPU here is NVIDIA A10" in (found[PLACE].drift or "")
    assert found[PLACE].device_present is False


@pytest.mark.parametrize("gpus", [None, ()])
def test_without_gpus_nothing_is_said_of_kernels_for_gpus(tmp_path: Path, gpus: Any) -> None:
    found = read(folder(tmp_path), replace(TODAY, gpus=gpus))[PLACE]
    assert found.device_present is (None if gpus is None else False)
    assert not found.drift


def many(folder: str, name: str, *unverified: int | None) -> tuple[BuiltKernels, ...]:
    """Records for several GPUs of one kind."""
    return tuple(
        BuiltKernels(
            path=f"{folder}/m", folder=folder, error="", device_slot=f"cuda:{number} {name}",
            device=name, unverified=count, built=0,
        )
        for number, count in enumerate(unverified)
    )  # fmt: skip


def test_what_waits_for_a_gpu_is_reported_once_for_each_kind() -> None:
    records = (
        *many("/k", "NVIDIA H200", 2, 2, 2),  # one of them is here: the others are not missed
        *many("/k", "NVIDIA B200", 3, 4),
        *many("/other", "NVIDIA B200", 5),
    )
    found = manifests(replace(TODAY, manifests=records), {}) or ()
    assert [one.awaiting_gpu for one in found] == [0, 0, 0, 7, 0, 5]
    without_gpus = manifests(replace(TODAY, manifests=records, gpus=()), {}) or ()
    assert [one.awaiting_gpu for one in without_gpus] == [6, 0, 0, 7, 0, 5]
    unread = manifests(replace(TODAY, manifests=records, gpus=None), {}) or ()
    assert {one.awaiting_gpu for one in unread} == {None}
    (half, _) = manifests(replace(TODAY, manifests=many("/k", "NVIDIA B200", 1, None)), {}) or ()
    assert half.awaiting_gpu is None


def test_files_that_are_gone_are_counted(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "ab" / "two.py").unlink()
    (tmp_path / "ab" / "one.py").write_bytes(b"")
    assert read(tmp_path)[PLACE].missing_files == 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"schema": 99, "attn_doctor": "9.0"}', "a newer attn-doctor wrote it (9.0)"),
        ('{"schema": 1, "entries": {', "it is damaged: "),
        ("", "it is damaged: "),
    ],
)
def test_a_record_that_cannot_be_used_says_why(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "attn-doctor" / "manifest.json"
    path.parent.mkdir()
    path.write_text(text)
    (found,) = of_folder(LocalHost(), str(tmp_path), Gaps()) or ()
    assert (found.error or "").startswith(error)
    assert manifests(replace(TODAY, manifests=(found,)), {}) == (found,)


def test_no_record_is_no_gap(tmp_path: Path) -> None:
    gaps = Gaps()
    assert of_folder(LocalHost(), str(tmp_path / "none"), gaps) == ()
    assert gaps.reasons == {}


def test_the_record_is_hand_readable(tmp_path: Path) -> None:
    data = json.loads((folder(tmp_path) / "attn-doctor" / "manifest.json").read_text())
    assert data["environments"][PLACE]["torch"] == "2.11.0+cu130"
