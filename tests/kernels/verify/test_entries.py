"""What a proof does to the record: built, wrong, or still unverified."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.facts import Driver, Facts, Gpu, Program, Python, Torch, Triton
from attn_doctor.kernels.builder.plan import BuildRequest
from attn_doctor.kernels.verify.entries import (
    record,
    run_in_fresh_processes,
    unverified,
    unwritable,
    verified_in,
)
from attn_doctor.record import store
from attn_doctor.record.manifest import (
    Build,
    BuildEnvironment,
    Entry,
    EntryState,
    Manifest,
)
from attn_doctor.record.spec import KernelSpec

PLACE = "cuda:0 NVIDIA H200"
SPECS = tuple(KernelSpec(heads=2, head_dim=64, lengths=(length,)) for length in (256, 512, 1024))
WAS = BuildEnvironment(
    torch="2.11.0", torch_key="k", device="NVIDIA H200", sm=90, python="3.12.1",
    settings={"inductor": "1"},
)  # fmt: skip
FACTS = Facts(
    python=Python(version="3.12.3", path="/venv/bin/python"),
    torch=Torch(installed=True, version="2.11.0", build="cuda"),
    triton=Triton(installed=True, version="3.6.0"),
    driver=Driver(state="ok", version="580.159.04"),
    gpus=(Gpu(index=0, name="NVIDIA H200", sm=90, visible=True),),
    cc=Program(path="/usr/bin/gcc", family="gcc", version="13.3.0"),
)


def entry(spec: KernelSpec, state: EntryState = "unverified", **build: object) -> Entry:
    made = Build(at="2026-11-21T10:00:00Z", seconds=3.0, files={"a": 1}, verified=True)
    return Entry(spec=spec, device_slot=PLACE, state=state, build=replace(made, **build))


def folder_with(root: Path) -> Path:
    entries = {f"{spec.id}@{PLACE}": entry(spec) for spec in SPECS}
    manifest = Manifest(schema=1, attn_doctor="0", environments={PLACE: WAS}, entries=entries)
    store.save(root, manifest)
    return root


def request(folder: Path) -> BuildRequest:
    environ = {"CXX": "g++", "HOME": "/root"}
    return BuildRequest(specs=(), devices=(), facts=FACTS, folder=folder, environ=environ)


def test_the_outcome_of_each_proof_is_recorded(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    keys = [f"{spec.id}@{PLACE}" for spec in SPECS]
    errors = {"out": 2e-3, "dk": 2e-3}
    found = {
        keys[0]: entry(SPECS[0], "built", errors=errors, reuse_seconds=0.2, files={}),
        keys[1]: replace(entry(SPECS[1], "failed"), message="dk differs from float64 by 1"),
        keys[2]: replace(entry(SPECS[2], "not-reused"), message="AOTAutograd: 0 hits"),
    }
    assert record(request(folder), found) == [keys[0]]
    manifest = store.load(folder)
    assert manifest is not None
    good, wrong, missed = (manifest.entries[key] for key in keys)
    assert good.state == "built"
    assert good.build is not None
    assert (good.build.errors, good.build.files) == (errors, {"a": 1})
    assert (wrong.state, wrong.message) == ("failed", "dk differs from float64 by 1")
    assert wrong.build is not None
    assert not wrong.build.verified
    assert (missed.state, missed.message) == ("unverified", "AOTAutograd: 0 hits")
    now = manifest.environments[PLACE]
    assert (now.driver, now.python, now.cc) == ("580.159.04", "3.12.3", "gcc 13.3.0")
    assert (now.torch_key, now.settings) == ("k", {"inductor": "1"})
    assert unverified(manifest, [PLACE]) == {keys[2]: missed}
    assert unverified(manifest, ["cuda:0 NVIDIA A100"]) == {}


def test_a_stub_gpu_verifies_nothing(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    key = f"{SPECS[0].id}@{PLACE}"
    assert record(request(folder), {key: entry(SPECS[0], "unverified")}) == []
    manifest = store.load(folder)
    assert manifest is not None
    assert manifest.entries[key].state == "unverified"
    assert manifest.environments[PLACE].driver is None


def test_a_real_entry_is_not_written_over(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    manifest = store.load(folder)
    assert manifest is not None
    key = f"{SPECS[0].id}@{PLACE}"
    built = entry(SPECS[0], "built", errors={"out": 1e-3})
    store.save(folder, replace(manifest, entries={**manifest.entries, key: built}))
    record(request(folder), {key: entry(SPECS[0], "failed")})
    after = store.load(folder)
    assert after is not None
    assert after.entries[key] == built


def test_a_helper_of_tritons_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    messages = {
        "a": ["1 compiler ran in a fresh process: gcc", ""],
        "b": ["2 compilers ran in a fresh process: gcc, 1 Triton kernel"],
        "c": ["3 compilers ran in a fresh process: ptxas"],
        "d": ["1 compiler ran in a fresh process: x86_64-linux-gnu-gcc-12", "it missed"],
    }

    def prove(_: BuildRequest, keys: Iterable[str], __: object) -> dict[str, Entry]:
        asked.append(list(keys))
        said = {key: messages[key].pop(0) for key in asked[-1]}
        return {
            key: replace(entry(SPECS[0], "not-reused" if text else "built"), message=text)
            for key, text in said.items()
        }

    monkeypatch.setattr("attn_doctor.kernels.verify.entries.verify_entries", prove)
    found = run_in_fresh_processes(request(tmp_path), ["a", "b", "c", "d"])
    assert asked == [["a", "b", "c", "d"], ["a", "d"]]
    assert {key: one.state for key, one in found.items()} == {
        "a": "built",
        "b": "not-reused",
        "c": "not-reused",
        "d": "not-reused",
    }


def test_only_what_is_known_is_stamped() -> None:
    now = BuildEnvironment(driver=None, python="3.12.3", environment={"CXX": "g++"})
    assert verified_in(WAS, now) == replace(WAS, python="3.12.3", environment={"CXX": "g++"})


@pytest.mark.posix
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    assert unwritable(tmp_path) == ""
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert unwritable(tmp_path / "file") == "Not a directory"
