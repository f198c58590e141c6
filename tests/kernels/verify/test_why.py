"""What moved between a key that was built and a key that a program looked for."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from attn_doctor.facts import Facts, Program, Python, Torch, Triton
from attn_doctor.kernels.verify.why import kernels_by_device, reasons
from attn_doctor.record import store
from attn_doctor.record.key_parts import known_keys
from attn_doctor.record.manifest import (
    NOT_REQUESTED,
    Build,
    BuildEnvironment,
    Entry,
    Manifest,
    Warmup,
)
from attn_doctor.record.spec import KernelSpec
from attn_doctor.record.trace import Lookup
from attn_doctor.render.caches.why import program_text, why_text
from attn_doctor.render.humanize import span
from attn_doctor.render.terminal import Terminal

SPEC = KernelSpec(heads=2, head_dim=64, lengths=(256,), dtype="float32", phase="inference")
TENSOR = (
    "TensorMetadata(dtype=torch.{0}, shape=torch.Size([1, 2, {1}, 64]), stride=({2}, 64, 1), x=1)"
)


def tensor(dtype: str = "float32", length: int = 256, stride: str = "32768, 16384") -> str:
    return TENSOR.format(dtype, length, stride)


def lines(**values: str) -> tuple[str, ...]:
    parts = {
        "gm": "def forward(self):\n    ge = q >= kv\n    return ge",
        "example_inputs[0]": tensor(),
        "example_inputs[1]": tensor(),
        "inductor_config[max_autotune]": "False",
        **values,
    }
    return tuple(f"[{hash(value)}] {name}: {value}" for name, value in parts.items())


def missed(what: str = "miss", kind: str = "fxgraph", reason: str = "", **values: str) -> Lookup:
    components = lines(**values) if what == "miss" else ()
    return Lookup(kind=kind, what=what, key="fnew", components=components, reason=reason)


KNOWN = {
    "other": [Lookup(kind="fxgraph", what="miss", key="f0", components=("[1] gm: x",))],
    SPEC.title: [Lookup(kind="fxgraph", what="miss", key="f1", components=lines())],
}


def differences_of(**values: str) -> list[tuple[str, str, str]]:
    (reason,) = reasons([missed(**values)], KNOWN)
    assert reason.nearest == SPEC.title
    return [(one.name, one.was, one.now) for one in reason.factors]


def test_fields_of_a_tensor_that_differ_are_named() -> None:
    values = {"example_inputs[0]": tensor("bfloat16"), "example_inputs[1]": tensor("bfloat16")}
    assert differences_of(**values) == [
        ("example_inputs[0], example_inputs[1]", "dtype=float32", "dtype=bfloat16")
    ]
    assert differences_of(**{"example_inputs[1]": tensor(stride="64, 16384")}) == [
        ("example_inputs[1]", "stride=(32768, 16384, 64, 1)", "stride=(64, 16384, 64, 1)")
    ]
    assert differences_of(**{"example_inputs[0]": tensor(length=512)}) == [
        ("example_inputs[0]", "shape=Size([1, 2, 256, 64])", "shape=Size([1, 2, 512, 64])")
    ]


def test_settings_and_the_line_of_the_graph_are_named() -> None:
    assert differences_of(**{"inductor_config[max_autotune]": "True"}) == [
        ("inductor_config[max_autotune]", "False", "True")
    ]
    changed = "def forward(self):\n    gt = q > kv\n    return gt"
    assert differences_of(gm=changed) == [("gm", "ge = q >= kv", "gt = q > kv")]


def test_a_component_on_one_side_only() -> None:
    assert differences_of(new="1") == [("new", "not there", "1")]


def test_hits_bypasses_and_unrelated_keys() -> None:
    assert reasons([missed("hit")], KNOWN) == []
    (bypassed,) = reasons([missed("bypass", reason="HOP")], KNOWN)
    assert "torch did not use its cache: HOP" in program_text("/c", 0, [bypassed], Terminal())
    (strange,) = reasons([missed()], {})
    assert "nothing comparable was built" in program_text("/c", 0, [strange], Terminal())


def test_what_only_says_less_is_left_out() -> None:
    whole = Lookup(kind="aotautograd", what="miss", key="a")
    found = reasons([whole, missed(gm="x")], KNOWN)
    assert [one.kind for one in found] == ["fxgraph"]
    assert len(reasons([whole], KNOWN)) == 1


def folder_with(folder: Path) -> Manifest:
    build = Build(at="2026-11-21T10:00:00Z", seconds=12.0, files={"fxgraph/a": 1}, verified=True)
    entry = Entry(spec=SPEC, device_slot="cpu", state="built", build=build)
    was = BuildEnvironment(
        torch="2.13.0+cpu", python="3.11.7", triton="", device="cpu", cxx="g++ 12.2.0"
    )
    manifest = Manifest(
        schema=1,
        attn_doctor="0",
        environments={"cpu": was},
        entries={f"{SPEC.id}@cpu": entry},
    )
    (folder / "fxgraph").mkdir(parents=True)
    (folder / "fxgraph" / "a").write_bytes(b"x")
    store.save(folder, manifest)
    keys = {"schema": 1, "keys": {"fxgraph": [{"key": "f1", "lines": list(lines())}]}}
    path = folder / "attn-doctor" / "keys" / f"{SPEC.id}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(keys))
    return manifest


def facts(torch: str = "2.13.0+cpu") -> Facts:
    return Facts(
        python=Python(version="3.11.7", path="/venv/bin/python"),
        torch=Torch(installed=True, version=torch, build="cpu", local="cpu"),
        triton=Triton(installed=False),
        cxx=Program(path="/usr/bin/g++", version="12.2.0", family="gcc"),
        gpus=(),
    )


def test_saved_keys_are_read(tmp_path: Path) -> None:
    manifest = folder_with(tmp_path)
    known = known_keys(manifest, tmp_path)
    assert known[SPEC.title][0].components == lines()
    (tmp_path / "attn-doctor" / "keys" / f"{SPEC.id}.json").write_bytes(b"\xff{")
    assert known_keys(manifest, tmp_path) == {}


def test_the_record_against_this_machine(tmp_path: Path) -> None:
    manifest = folder_with(tmp_path)
    (alike,) = kernels_by_device(manifest, facts(), tmp_path, {})
    assert [item.state for item in alike.items] == ["current"]
    assert "reused; no relevant component changed" in why_text(str(tmp_path), [alike], Terminal())
    (other,) = kernels_by_device(manifest, facts("2.14.0+cpu"), tmp_path, {})
    assert next((one.component, one.was, one.now) for one in other.changed) == (
        "torch", "2.13.0+cpu", "2.14.0+cpu",
    )  # fmt: skip
    text = why_text(str(tmp_path), [other], Terminal())
    assert "✗ torch: 2.13.0+cpu → 2.14.0+cpu (compiled again)" in text
    # The record's time counts where it is not far above what such a build usually takes.
    assert 3 < other.seconds <= 12
    assert f"about {span(other.seconds)} in each process" in text
    assert f"build: attn-doctor build-kernels --cache-dir {tmp_path}\n" in text


def test_a_variable_is_shown_with_the_command_that_restores_it(tmp_path: Path) -> None:
    manifest = folder_with(tmp_path)
    (place,) = kernels_by_device(manifest, facts(), tmp_path, {"OMP_NUM_THREADS": "1"})
    text = why_text(str(tmp_path), [place], Terminal())
    assert "OMP_NUM_THREADS: unset → 1" in text
    assert "undo:  unset OMP_NUM_THREADS" in text


@pytest.mark.posix
def test_a_value_with_blanks_is_quoted_for_the_shell(tmp_path: Path) -> None:
    manifest = folder_with(tmp_path)
    was = replace(manifest.environments["cpu"], environment={"CXX": "ccache g++"})
    manifest = replace(manifest, environments={"cpu": was})
    (place,) = kernels_by_device(manifest, facts(), tmp_path, {"CXX": "g++"})
    text = why_text(str(tmp_path), [place], Terminal())
    assert "undo:  export CXX='ccache g++'\n" in text


def test_the_build_time_of_a_failed_kernel_is_unknown(tmp_path: Path) -> None:
    manifest = folder_with(tmp_path)
    (key,) = manifest.entries
    failed = replace(manifest.entries[key], state="failed", build=None, message="no memory")
    (place,) = kernels_by_device(replace(manifest, entries={key: failed}), facts(), tmp_path, {})
    text = why_text(str(tmp_path), [place], Terminal())
    assert f"✗ {SPEC.title} was not built: failed last time: no memory\n" in text
    assert "It costs" not in text


def warmed(folder: Path, **more: object) -> Manifest:
    """A record with one warm-up alone."""
    fields = {"verified": True, "files": {"fxgraph/a": 1}, **more}
    warmup = Warmup(
        argv=("/venv/bin/python", "warm up.py"),
        folder=str(folder),
        device_slot="cpu",
        at="2026-11-21T10:00:00Z",
        seconds=3.0,
        **fields,  # type: ignore[arg-type]
    )
    return replace(folder_with(folder), entries={}, warmups={"w": warmup})


@pytest.mark.posix
def test_a_program_is_run_again_where_it_ran(tmp_path: Path) -> None:
    manifest = warmed(tmp_path)
    (place,) = kernels_by_device(manifest, facts(), tmp_path, {})
    assert place.misses == ()
    (place,) = kernels_by_device(manifest, facts("2.14.0+cpu"), tmp_path, {})
    again = f"attn-doctor build-kernels --cache-dir {tmp_path} -- /venv/bin/python 'warm up.py'"
    assert place.build == (f"cd {tmp_path} && {again}",)


def test_a_program_whose_second_run_missed_is_not_reused(tmp_path: Path) -> None:
    missed = warmed(tmp_path, verified=False, message="2 graphs were compiled again")
    (place,) = kernels_by_device(missed, facts(), tmp_path, {})
    assert place.misses == ("/venv/bin/python warm up.py: 2 graphs were compiled again",)
    unasked = replace(missed.warmups["w"], message=NOT_REQUESTED)
    (place,) = kernels_by_device(replace(missed, warmups={"w": unasked}), facts(), tmp_path, {})
    assert place.misses == ()


def test_kernels_for_a_gpu_elsewhere_are_built_again_for_it(tmp_path: Path) -> None:
    manifest = folder_with(tmp_path)
    (entry,) = manifest.entries.values()
    there = "cuda:0 NVIDIA H200"
    spec = replace(entry.spec, phase="training")
    entry = replace(entry, spec=spec, device_slot=there, state="unverified")
    (tmp_path / "fxgraph" / "a").unlink()
    manifest = replace(manifest, environments={}, entries={f"{spec.id}@{there}": entry})
    (place,) = kernels_by_device(manifest, facts(), tmp_path, {})
    assert place.build == (f"attn-doctor build-kernels --cache-dir {tmp_path} --target h200",)


def test_a_mask_is_looked_for_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from another folder: the file may have changed there."""
    masks, cache, away = (tmp_path / name for name in ("masks", "cache", "away"))
    for one in (masks, away):
        one.mkdir()
    source = masks / "mine.py"
    source.write_text("def near(b, h, q, k): return q >= k\n")
    manifest = folder_with(cache)
    (entry,) = manifest.entries.values()
    spec = replace(entry.spec, mask="mine:near")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    entry = replace(entry, spec=spec, mask_source=digest, mask_folder=str(masks))
    manifest = replace(manifest, entries={f"{spec.id}@cpu": entry})
    monkeypatch.chdir(away)
    (place,) = kernels_by_device(manifest, facts(), cache, {})
    assert place.misses == ()
    source.write_text("def near(b, h, q, k): return q > k\n")
    (place,) = kernels_by_device(manifest, facts(), cache, {})
    assert "the file of mine:near has changed" in place.misses[0]
