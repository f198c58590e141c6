"""Folders whose paths graphs hold, and that cannot be made here."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from attn_doctor.derived.kernel_drift import manifests
from attn_doctor.facts import BuiltKernels, Facts, Gpu
from attn_doctor.host.local import LocalHost
from attn_doctor.kernels.caches.integrity import embedded_paths
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine.manifests import of_folder
from attn_doctor.record.manifest import Manifest, Warmup
from tests.kernels.verify.test_entries import (
    PLACE,
    SPECS,
    WAS,
    entry,
)

WARM = Warmup(
    argv=("python", "w.py"), folder="/x", device_slot=PLACE, at="", seconds=1.0, unverified=True
)


def manifest(*held: str) -> Manifest:
    entries = {
        f"{spec.id}@{PLACE}": entry(spec, root=root, files={})
        for spec, root in zip(SPECS, held, strict=False)
    }
    return Manifest(
        schema=1,
        attn_doctor="0",
        environments={PLACE: WAS},
        entries=entries,
        warmups={"w": replace(WARM, root=held[-1])},
    )


def test_each_folder_is_asked_for_once() -> None:
    asked: list[str] = []

    def writable(path: str) -> bool:
        asked.append(path)
        return path != "/b"

    found = embedded_paths(manifest("/a", "", "/b"), writable)
    assert [(one.path, one.count, one.writable) for one in found] == [
        ("/a", 1, True),
        ("/b", 2, False),
    ]
    assert asked == ["/a", "/b"]
    assert "2 entries were built in /b" in found[1].sentence
    assert "ends with OSError" in found[1].sentence


def test_kernels_for_the_processor_hold_no_path() -> None:
    whole = manifest("/a")
    cpu = {key: replace(one, device_slot="cpu") for key, one in whole.entries.items()}
    assert embedded_paths(replace(whole, entries=cpu, warmups={}), lambda _: False) == ()


def built(folder: Path, whole: Manifest) -> BuiltKernels:
    from attn_doctor.record import store

    store.save(folder, whole)
    (found,) = of_folder(LocalHost(), str(folder), Gaps()) or ()
    return found


def test_the_facts_name_what_is_blocked(tmp_path: Path) -> None:
    # No user can make a path below a file.
    (tmp_path / "file").write_text("", encoding="utf-8")
    blocked, free = f"{tmp_path}/file/cache", f"{tmp_path}/free/cache"
    found = built(tmp_path / "c", manifest(blocked, free, free))
    assert found.embedded_paths == (blocked, free)
    assert found.blocked_embedded_path == blocked
    assert found.unverified == 4
    assert (found.built, found.kernels_only) == (0, 0)
    fine = built(tmp_path / "d", manifest(free))
    assert fine.blocked_embedded_path == ""


def test_an_index_that_is_not_there_is_not_here(tmp_path: Path) -> None:
    record = built(tmp_path, manifest(""))
    one = (Gpu(index=0, name="NVIDIA H200", sm=90, visible=True),)
    second = replace(record, device_slot="cuda:1 NVIDIA H200")
    found = manifests(Facts(gpus=one, manifests=(record, second)), {}) or ()
    assert [(each.device_present, each.drift) for each in found] == [(True, ""), (False, "")]
    found = manifests(Facts(gpus=one * 2, manifests=(record, second)), {}) or ()
    assert [each.device_present for each in found] == [True, True]


def test_kernels_of_another_machines_gpu_are_no_drift(tmp_path: Path) -> None:
    record = built(tmp_path, manifest(""))
    other = Facts(gpus=(Gpu(index=0, name="NVIDIA RTX A6000", sm=86, visible=True),))
    (here,) = manifests(replace(other, manifests=(record,)), {}) or ()
    assert (here.device_present, here.drift, here.unverified) == (False, "", 2)
    # Once they were verified on their GPU, another GPU in its place is reported.
    verified = replace(record, built=1, torch="2.11.0")
    (moved,) = manifests(replace(other, manifests=(verified,)), {}) or ()
    assert moved.drift == (
        "built on NVIDIA H200, the GPU here is NVIDIA RTX A6000;"
        " built for sm_90, the GPU here is sm_86"
    )
