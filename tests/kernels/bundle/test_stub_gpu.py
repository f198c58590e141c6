"""Kernels that were built for a GPU of another machine, taken in where a stub GPU plays that GPU.

Everything is real but the GPU: keys, lookups, Triton, ptxas. What is computed means nothing, so all
that hits stays unverified here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.examination import examine
from attn_doctor.facts import Facts, Gpu
from attn_doctor.host.local import LocalHost
from attn_doctor.kernels.builder.devices import children_environment
from attn_doctor.kernels.builder.plan import BuildRequest
from attn_doctor.kernels.builder.progress import Watcher
from attn_doctor.kernels.builder.verification import verify_entries
from attn_doctor.kernels.bundle.artifact import head
from attn_doctor.kernels.bundle.compatibility import compatibility
from attn_doctor.kernels.bundle.import_entries import Imported
from attn_doctor.kernels.bundle.pack import choose, pack
from attn_doctor.kernels.bundle.unpack import private, unpack
from attn_doctor.kernels.verify.entries import record
from attn_doctor.kernels.verify.why import misses
from attn_doctor.record import store
from attn_doctor.record.environment import environment_from_facts
from attn_doctor.record.manifest import Entry

PYTHON = os.environ.get("ATTN_DOCTOR_CUDA_TORCH_PYTHON", "")
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="ATTN_DOCTOR_CUDA_TORCH_PYTHON names no CUDA torch"),
    pytest.mark.slow,
    pytest.mark.cuda_torch,
]
H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
SPEC = ("--heads", "2", "--head-dim", "64", "--seq-len", "256", "--mask", "causal")


@pytest.fixture(scope="module")
def facts() -> Facts:
    return examine(LocalHost(), PYTHON)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with one kernel for an H200, and an artifact of it beside it."""
    room = tmp_path_factory.mktemp("target")
    argv = ["build-kernels", "--target", "h200", *SPEC, "--cache-dir", str(room / "c")]
    ended = subprocess.run(
        [sys.executable, "-m", "attn_doctor", *argv, "--python", PYTHON],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    pack(room / "c", choose(room / "c"), room / "k.attn")
    return room


def request(facts: Facts, folder: Path, gpu: str, **environ: str) -> BuildRequest:
    """A request on a machine whose only GPU is a stub GPU of that name."""
    from attn_doctor.kernels.gpus import known, stub

    there = replace(known.find("h200"), name=gpu)
    variables = stub.environment(stub.make(facts), there, 1, {**os.environ, **environ})
    children, _ = children_environment({**variables, **environ}, str(folder))
    return BuildRequest(
        specs=(), devices=(), facts=seeing(facts, gpu), folder=folder, environ=children
    )


def seeing(facts: Facts, gpu: str) -> Facts:
    return replace(
        facts,
        gpus=(Gpu(index=0, name=gpu, sm=90, visible=True),),
        driver=replace(facts.driver, state="ok", version="580.159.04"),
    )


def taken(file: Path, request: BuildRequest) -> Imported:
    with private(file, request.folder) as copy:
        artifact = head(copy)
        found = compatibility(artifact, request.facts, request.environ)
        return unpack(copy, artifact, request, Watcher(), found)


def hits(entry: Entry) -> dict[str, int]:
    assert entry.build is not None
    return entry.build.hits


def test_another_folder_hits_everything_and_proves_nothing(
    built: Path, facts: Facts, tmp_path: Path
) -> None:
    wanted = request(facts, tmp_path / "n", H200)
    done = taken(built / "k.attn", wanted)
    assert (done.refused, done.kernels) == ({}, {})
    ((key, entry),) = done.unverified.items()
    assert (entry.state, done.verified) == ("unverified", {})
    found = hits(entry)
    assert (found["compilers"], found["aot_autograd.autograd_cache_hit"]) == (0, 1)
    assert found["inductor.fxgraph_cache_hit"] == 2
    assert entry.build is not None
    assert (entry.build.errors, entry.build.root) == ({}, str(built / "c"))
    manifest = store.load(wanted.folder)
    assert manifest is not None
    assert manifest.environments[entry.device_slot].driver is None

    # A miss is named, with both values and a way out; the kernel stays what it was.
    other = request(facts, wanted.folder, H200, CXX="/opt/nowhere/g++")
    missed = verify_entries(other, [key])
    assert record(other, missed) == []
    here = environment_from_facts(
        other.facts, "cuda:0", other.environ, manifest.environments[entry.device_slot]
    )
    (reason,) = misses(missed[key].message, manifest.environments[entry.device_slot], here)
    assert reason.what == "cpp.cxx: /opt/nowhere/g++ here, g++ there"
    assert reason.fix.startswith("unset CXX, or build again")


@pytest.mark.parametrize(
    ("gpu", "environ", "why"),
    [
        (H100, {}, "GPU: NVIDIA H200 there, NVIDIA H100 80GB HBM3 here"),
        (H200, {"CXX": "/opt/nowhere/g++"}, "CXX: not set there, /opt/nowhere/g++ here"),
    ],
)
def test_triton_compiles_nothing_where_all_graphs_miss(
    built: Path, facts: Facts, tmp_path: Path, gpu: str, environ: dict[str, str], why: str
) -> None:
    wanted = request(facts, tmp_path / "n", gpu, **environ)
    done = taken(built / "k.attn", wanted)
    assert (done.verified, done.unverified, done.refused) == ({}, {}, {})
    (entry,) = done.kernels.values()
    assert entry.message == f"only its Triton kernels were imported: {why}"
    found = hits(entry)
    assert (found["compilers"], found["aot_autograd.autograd_cache_miss"]) == (0, 1)
    cubins = list(wanted.folder.glob("triton/0/*/*.cubin"))
    assert len(cubins) >= 3
    assert not list(wanted.folder.glob("fxgraph/*/*"))
    manifest = store.load(wanted.folder)
    assert manifest is not None
    assert [one.state for one in manifest.entries.values()] == ["cubins"]
