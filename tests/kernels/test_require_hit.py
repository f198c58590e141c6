"""`require_hit`: a job that would compile fails at its start, or where it would."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

import attn_doctor
from attn_doctor.errors import AttnDoctorError
from attn_doctor.examination import examine
from attn_doctor.facts import Facts
from attn_doctor.facts.nvidia import Gpu
from attn_doctor.host.local import LocalHost
from attn_doctor.kernels.builder.program_run import program_of
from attn_doctor.record import store
from attn_doctor.record.environment import environment_from_facts
from tests.kernels.verify.test_why import folder_with


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A cache folder with one kernel for the processor, as this very environment has built it."""
    manifest = folder_with(tmp_path)
    now = environment_from_facts(examine(LocalHost(), sys.executable), "cpu", os.environ)
    store.save(tmp_path, msgspec.structs.replace(manifest, environments={"cpu": now}))
    return tmp_path


def environ(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder), **more}


def test_nothing_moved(built: Path) -> None:
    attn_doctor.require_hit(built, later="allow", environ=environ(built))


def test_nothing_was_built(tmp_path: Path) -> None:
    with pytest.raises(attn_doctor.CacheMiss, match="nothing was built in"):
        attn_doctor.require_hit(tmp_path, later="allow", environ=environ(tmp_path))


def test_a_file_is_gone(built: Path) -> None:
    (built / "fxgraph" / "a").unlink()
    with pytest.raises(attn_doctor.CacheMiss, match="fxgraph/a is missing or has another size"):
        attn_doctor.require_hit(built, later="allow", environ=environ(built))


def test_a_variable_moved(built: Path) -> None:
    with pytest.raises(attn_doctor.CacheMiss, match="OMP_NUM_THREADS"):
        attn_doctor.require_hit(built, later="allow", environ=environ(built, OMP_NUM_THREADS="33"))


def test_the_way_to_a_hit_can_be_typed(built: Path) -> None:
    (built / "fxgraph" / "a").unlink()
    with pytest.raises(attn_doctor.CacheMiss) as caught:
        attn_doctor.require_hit(built, later="allow", environ=environ(built))
    command = f"attn-doctor build-kernels --cache-dir {built} --python {sys.executable}"
    assert str(caught.value).endswith(f"Build them first: {command}")


def test_a_torch_that_does_not_ask_these_caches(built: Path) -> None:
    unsafe = environ(built, TORCH_CACHING_PRECOMPILE="1")
    with pytest.raises(attn_doctor.CacheMiss, match=r"unset TORCH_CACHING_PRECOMPILE$"):
        attn_doctor.require_hit(built, later="allow", environ=unsafe)
    attn_doctor.require_hit(
        built, later="allow", environ=environ(built, TORCH_CACHING_PRECOMPILE="0")
    )


def test_programs_that_attn_doctor_runs_are_let_pass(tmp_path: Path) -> None:
    """What fills the cache, or explains a miss, cannot demand that it is full."""
    attn_doctor.require_hit(tmp_path, environ=environ(tmp_path, ATTN_DOCTOR_REQUIRE_HIT="off"))
    _, given = program_of([sys.executable], Facts(), {"PATH": os.defpath})
    assert given["ATTN_DOCTOR_REQUIRE_HIT"] == "off"


def test_torch_looks_elsewhere(built: Path, tmp_path: Path) -> None:
    elsewhere = environ(tmp_path / "other")
    with pytest.raises(attn_doctor.CacheMiss, match="so torch does not look into"):
        attn_doctor.require_hit(built, later="allow", environ=elsewhere)


def test_what_waits_for_its_proof_is_not_ready(built: Path) -> None:
    manifest = store.load(built)
    assert manifest is not None
    (key,) = manifest.entries
    entry = msgspec.structs.replace(manifest.entries[key], state="unverified")
    store.save(built, msgspec.structs.replace(manifest, entries={key: entry}))
    with pytest.raises(attn_doctor.CacheMiss, match="not verified on it") as caught:
        attn_doctor.require_hit(built, later="allow", environ=environ(built))
    command = f"attn-doctor cache verify --cache-dir {built} --python {sys.executable}"
    assert str(caught.value).endswith(f"Verify them first: {command}")
    assert entry.spec.title in str(caught.value)


def test_a_miss_is_an_error_of_ours() -> None:
    assert issubclass(attn_doctor.CacheMiss, AttnDoctorError)
    with pytest.raises(AttributeError, match="no attribute 'require_hits'"):
        _ = attn_doctor.require_hits


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Where torch keeps its compiler, without torch."""
    for name in ("torch", "torch._inductor", "torch._inductor.compile_fx"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    return importlib.import_module("torch._inductor.compile_fx")


class Tensor:
    shape = (1, 2, 3)
    dtype = "torch.float32"


def test_compiling_is_forbidden_once_and_for_all(built: Path, inductor: Any) -> None:
    inductor.fx_codegen_and_compile = lambda graph, inputs: (graph, inputs)
    for _ in range(2):
        attn_doctor.require_hit(built, environ=environ(built))
    with pytest.raises(attn_doctor.CacheMiss, match=r"inputs \(1, 2, 3\) float32\)") as caught:
        inductor.fx_codegen_and_compile("graph", [Tensor(), 3])
    command = f"attn-doctor cache why --cache-dir {built} --python {sys.executable} -- "
    assert command in str(caught.value)


def test_compiling_is_warned_of(built: Path, inductor: Any) -> None:
    inductor.codegen_and_compile = lambda graph: graph
    attn_doctor.require_hit(built, later="warn", environ=environ(built))
    with pytest.warns(RuntimeWarning, match="it is compiled now"):
        assert inductor.codegen_and_compile("graph") == "graph"


def test_the_strictest_of_several_calls_counts(built: Path, inductor: Any) -> None:
    inductor.fx_codegen_and_compile = lambda graph, inputs: (graph, inputs)
    for later in ("warn", "forbid", "warn", "allow"):
        attn_doctor.require_hit(built, later=later, environ=environ(built))
    with pytest.raises(attn_doctor.CacheMiss, match="was not built ahead of time"):
        inductor.fx_codegen_and_compile("graph", [])


def test_kernels_for_the_cpu_do_not_hide_those_for_another_gpu(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = store.load(built)
    assert manifest is not None
    (entry,) = manifest.entries.values()
    slot = "cuda:0 NVIDIA A100-SXM4-80GB"
    other = msgspec.structs.replace(entry, device_slot=slot)
    entries = {**manifest.entries, f"{entry.spec.id}@{slot}": other}
    environments = {**manifest.environments, slot: manifest.environments["cpu"]}
    changed = msgspec.structs.replace(manifest, entries=entries, environments=environments)
    store.save(built, changed)
    seen = examine(LocalHost(), sys.executable)

    def has(*gpus: str) -> None:
        facts = msgspec.structs.replace(
            seen, gpus=tuple(Gpu(index=at, name=one) for at, one in enumerate(gpus))
        )
        monkeypatch.setattr("attn_doctor.examination.examine", lambda *_: facts)

    has("NVIDIA H200")
    with pytest.raises(attn_doctor.CacheMiss, match=f"are for {slot}, which this machine does"):
        attn_doctor.require_hit(built, later="allow", environ=environ(built))
    has()
    attn_doctor.require_hit(built, later="allow", environ=environ(built))


def test_this_folder_is_not_torchs_own(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(built)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with pytest.raises(attn_doctor.CacheMiss, match="TORCHINDUCTOR_CACHE_DIR is not set, so torch"):
        attn_doctor.require_hit(".", later="allow", environ=dict(os.environ))


def test_a_torch_that_is_not_known_is_said(built: Path, inductor: Any) -> None:
    assert not hasattr(inductor, "fx_codegen_and_compile")
    with pytest.raises(attn_doctor.CacheMiss, match="is not known well enough"):
        attn_doctor.require_hit(built, environ=environ(built))
