"""Building for a GPU of another machine: what is unverified, what stays, what is refused.

The children here need no torch (see `fake_job.py`); two at the end are real, with the CUDA
build of torch and no GPU.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor import worker
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Cache, Facts, Gpu, Python, System, Torch, Triton
from attn_doctor.kernels.builder.manifest_writer import UNFINISHED
from attn_doctor.kernels.builder.plan import BuildRequest, plan_build
from attn_doctor.kernels.builder.plan import joined as joined_plans
from attn_doctor.kernels.builder.program_run import Program
from attn_doctor.kernels.builder.progress import Step, Watcher
from attn_doctor.kernels.builder.rebuild_request import recorded
from attn_doctor.kernels.builder.report import Report, joined
from attn_doctor.kernels.builder.session import BuildSession
from attn_doctor.kernels.builder.software_differences import check, differences
from attn_doctor.kernels.builder.target import (
    Target,
    TargetError,
    folder_remark,
    target_of,
    targets_of,
    variables_remark,
)
from attn_doctor.kernels.builder.warmup import WarmupResult, warm_up
from attn_doctor.record import store
from attn_doctor.record.drift import changed_components
from attn_doctor.record.manifest import BuildEnvironment, Manifest
from attn_doctor.render.build_kernels.json import plan_json, report_json
from attn_doctor.render.build_kernels.text import plan_text, report_text
from attn_doctor.render.build_kernels.warmup_text import warmup_text
from attn_doctor.render.terminal import Terminal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a stub GPU needs Linux")
Make = Callable[..., BuildRequest]
ROOT = Path(__file__).parents[3]
CUDA_TORCH = os.environ.get("ATTN_DOCTOR_CUDA_TORCH_PYTHON", "")
H200, A100 = "cuda:0 NVIDIA H200", "cuda:0 NVIDIA A100-SXM4-80GB"


class Recorder(Watcher):
    """Keeps what a build tells."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str, str]] = []

    def step(self, step: Step) -> None:
        state = step.entry.state if step.entry is not None else ""
        self.steps.append((step.kernel.spec.mask, step.phase, state))


def target(word: str = "h200", devices: int = 1, **fields: object) -> Target:
    return replace(target_of(word, devices, {}), **fields)


def aimed(request: BuildRequest, one: Target, **variables: str) -> BuildRequest:
    """The request for a target, its stub GPU played by the child."""
    environ = {
        **request.environ,
        "ATTN_DOCTOR_STUB_GPU": "x",
        "FAKE_GPU": one.name,
        "FAKE_SM": str(one.sm),
    }
    return replace(
        request,
        target=one,
        devices=one.devices,
        facts=one.there(request.facts),
        environ={**environ, **variables},
    )


def at_the_gpu(request: BuildRequest, name: str = "NVIDIA H200") -> BuildRequest:
    """The request on the machine that has the GPU."""
    gpus = (Gpu(name=name, sm=90, visible=True),)
    environ = {**request.environ, "FAKE_GPU": name}
    environ.pop("ATTN_DOCTOR_STUB_GPU", None)
    facts = replace(request.facts, gpus=gpus)
    return replace(request, target=None, devices=("cuda:0",), facts=facts, environ=environ)


def built(request: BuildRequest, watcher: Watcher | None = None) -> Report:
    build = BuildSession(request, watcher or Recorder())
    if build.plan.todo or build.plan.unknown:
        build.run()
    return build.report()


def states(report: Report) -> list[str]:
    return [result.entry.state if result.entry else "none" for result in report.results]


def manifest(request: BuildRequest) -> Manifest:
    return manifest_of(request.folder)


# What is built


def test_unverified_written_down_as_the_target_has_it_and_then_up_to_date(request_of: Make) -> None:
    request = aimed(request_of("none", "causal"), target(environment={"CXX": "/opt/gcc/bin/g++"}))
    watcher = Recorder()
    report = built(request, watcher)
    assert states(report) == ["unverified"] * 2
    assert not report.failed
    assert ("none", "done", "unverified") in watcher.steps
    found = manifest(request)
    assert set(found.entries) == {f"{spec.id}@{H200}" for spec in request.specs}
    for entry in found.entries.values():
        assert entry.build is not None
        # A second process reused it; nothing was compared.
        assert (entry.build.verified, entry.build.errors) == (True, {})
        assert entry.build.reuse_seconds is not None
    there = found.environments[H200]
    assert (there.device, there.sm, there.torch) == ("NVIDIA H200", 90, "2.13.0+cpu")
    # This machine's driver and compilers are not the target's.
    assert (there.driver, there.cc, there.cxx) == (None, None, None)
    assert there.environment == {"CXX": "/opt/gcc/bin/g++"}
    assert changed_components(there, request.environment_of("cuda:0", there)) == ()
    assert [item.state for item in plan_build(request, found).kernels] == ["current"] * 2
    again = built(request)
    assert (states(again), again.start_seconds) == (["unverified"] * 2, None)
    forced = replace(request, force=True, specs=request.specs[:1])
    assert [item.state for item in plan_build(forced, found).kernels] == ["forced"]
    assert states(built(forced)) == ["unverified"]


def test_nothing_that_was_timed_without_a_gpu_stays(request_of: Make) -> None:
    request = aimed(request_of("none"), target())
    own = request.folder / "cd" / "real.best_config"
    own.parent.mkdir()
    own.write_text("timed on a GPU")
    report = built(request)
    assert own.exists()
    gone = {Path(one.path).name for one in report.cleared}
    assert gone == {f"{request.specs[0].id}.best_config", "x.lock"}
    assert not list((request.folder / "locks").glob("*"))


def test_two_targets_and_two_indices_share_a_folder_with_the_cpu(request_of: Make) -> None:
    request = request_of("none")
    built(request)
    both = [aimed(request, one) for one in (target(devices=2), target("a100-sxm4-80gb"))]
    report = joined([built(one) for one in both])
    assert states(report) == ["unverified"] * 3
    places = {entry.device_slot: entry.state for entry in manifest(request).entries.values()}
    assert places == {
        "cpu": "built", H200: "unverified", "cuda:1 NVIDIA H200": "unverified", A100: "unverified",
    }  # fmt: skip
    shown = json.loads(report_json(report, 0))
    assert [one["id"] for one in shown["targets"]] == ["h200", "a100-sxm4-80gb"]
    assert {(one["state"], one["reused"], one["verified"]) for one in shown["kernels"]} == {
        ("unverified", True, False)
    }
    assert [one["device_slot"] for one in shown["kernels"]] == [H200, "cuda:1 NVIDIA H200", A100]
    text = report_text(report, Terminal(width=100))
    assert "for NVIDIA H200 (SM 9.0), cuda:0 to cuda:1, on a stub GPU" in text
    assert "  cuda:0 NVIDIA A100-SXM4-80GB\n" in text
    assert "3 kernels: 3 unverified; " in text
    assert f"  attn-doctor cache verify --cache-dir {request.folder}\n" in text
    assert "start training with" not in text
    assert f"  export TORCHINDUCTOR_CACHE_DIR={request.folder} TRITON_HOME={request.folder}" in text


def test_a_plan_says_for_what(request_of: Make) -> None:
    request = request_of("none", "causal")
    plans = [plan_build(aimed(request, target(word)), store.empty()) for word in ("h200", "t4")]
    plan = joined_plans(plans)
    assert len(plan.todo) == 4
    text = plan_text(plan, "/c", request.facts, Terminal(width=100), notes=["a remark"])
    assert "for Tesla T4 (SM 7.5), on a stub GPU" in text
    assert "Note: a remark." in text
    shown = json.loads(plan_json(plan, "/c", 1, ["a remark"]))
    assert [one["name"] for one in shown["targets"]] == ["NVIDIA H200", "Tesla T4"]
    assert shown["notes"] == ["a remark"]
    # bfloat16 on SM 7.5 would run unfused.
    [result] = built(replace(aimed(request, target("t4")), specs=request.specs[:1])).results
    assert result.entry is not None
    assert "no bfloat16" in result.entry.message


def test_gpu_memory_and_the_machines_own_gpus_do_not_matter(request_of: Make) -> None:
    request = request_of("none", "causal")
    tiny = replace(request.facts, gpus=(Gpu(name="T", visible=True, memory_free_mib=100),))
    plan = plan_build(aimed(replace(request, facts=tiny), target()), store.empty())
    assert (plan.jobs, plan.limit) == (2, "specs")


# What was verified stays, what is unverified is verified


def test_on_the_gpu_unverified_ones_are_verified_and_not_built_again(request_of: Make) -> None:
    request = aimed(request_of("none", "causal"), target())
    built(request)
    here = at_the_gpu(request)
    plan = plan_build(here, manifest(request))
    assert [item.state for item in plan.kernels] == ["unverified"] * 2
    assert "would verify" in plan_text(plan, "/c", request.facts, Terminal())
    watcher = Recorder()
    report = built(here, watcher)
    assert states(report) == ["built"] * 2
    assert {phase for _, phase, _ in watcher.steps} == {"verify", "done"}
    found = manifest(request)
    assert all(one.build and one.build.errors == {"out": 1e-3} for one in found.entries.values())
    assert found.environments[H200].driver == "1.2.3"
    assert [item.state for item in plan_build(here, found).kernels] == ["current"] * 2


def test_what_does_not_hold_on_the_gpu_goes_and_is_built_there(request_of: Make) -> None:
    request = aimed(request_of("wrong", "none"), target())
    built(request)
    wrong = request.folder / f"aa/{request.specs[0].id}.so"
    assert wrong.read_text() == "folded"
    watcher = Recorder()
    report = built(at_the_gpu(request), watcher)
    assert states(report) == ["built"] * 2
    assert wrong.read_text() == "kernel"
    assert [Path(one.path).name for one in report.cleared] == [wrong.name]
    assert report.cleared[0].why.endswith("it failed its verification on this GPU")
    assert ("wrong", "build", "") in watcher.steps
    assert ("none", "build", "") not in watcher.steps


def test_a_verified_kernel_stays_as_it_is(request_of: Make) -> None:
    request = request_of("none")
    here = at_the_gpu(request)
    built(here)
    aim = replace(aimed(request_of("none", "causal"), target()), force=True)
    plan = plan_build(aim, manifest(request))
    assert [item.state for item in plan.kernels] == ["current", "new"]
    assert states(built(aim)) == ["built", "unverified"]
    # What the GPU's own machine recorded of itself is still there.
    assert manifest(request).environments[H200].driver == "1.2.3"


def test_what_torch_reports_after_the_last_kernel_is_recorded(request_of: Make) -> None:
    here = at_the_gpu(request_of("none"))
    slow = replace(here, environ={**here.environ, "FAKE_ENVIRONMENT_SECONDS": "0.4"})
    assert states(built(slow)) == ["built"]
    assert manifest(here).environments[H200].driver == "1.2.3"


def test_what_was_verified_for_another_torch_is_not_cleared_from_afar(request_of: Make) -> None:
    request = request_of("none")
    built(at_the_gpu(request))
    aim = aimed(request, target())
    other = replace(aim, facts=replace(aim.facts, torch=replace(aim.facts.torch, version="2.14.0")))
    with pytest.raises(AttnDoctorError, match=r"made on a real cuda:0 NVIDIA H200: .*--cache-dir"):
        plan_build(other, manifest(request))


def test_drift_here_makes_unverified_ones_stale(request_of: Make) -> None:
    request = aimed(request_of("none"), target())
    built(request)
    found = manifest(request)
    was = replace(found.environments[H200], torch="2.12.0")
    store.save(request.folder, replace(found, environments={H200: was}))
    plan = plan_build(request, manifest(request))
    assert [item.state for item in plan.kernels] == ["stale"]
    report = built(request)
    assert states(report) == ["unverified"]
    assert [Path(one.path).name for one in report.cleared][:1] == [f"{request.specs[0].id}.so"]


def test_the_record_of_a_target_is_built_again(request_of: Make) -> None:
    request = aimed(request_of("none", "causal"), target())
    with pytest.raises(AttnDoctorError, match="nothing was built in"):
        recorded(request, "")
    built(request)
    known, _ = recorded(request, "")
    assert (known.devices, len(known.specs)) == (("cuda:0",), 2)
    assert known.only == frozenset(manifest(request).entries)
    with pytest.raises(AttnDoctorError, match="for Tesla T4 yet"):
        recorded(aimed(request, target("t4")), "")
    # Here, where no such GPU is, the folder does not look as if it were for this machine.
    with pytest.raises(AttnDoctorError, match=r"build-kernels --cache-dir \S+ --target h200$"):
        recorded(request_of(), "")


def elsewhere(request: BuildRequest, serve: Path) -> None:
    """The build, in another process."""
    worker.LAUNCHER = str(serve)
    built(request)


def test_kill_9_and_on(request_of: Make, serve: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    request = aimed(request_of("none", "sleep:x12", "sleep:x13"), target())
    started = multiprocessing.get_context("spawn").Process(target=elsewhere, args=(request, serve))
    started.start()
    end = time.monotonic() + 300  # under qemu it starts late
    while (found := store.load(request.folder)) is None or "unverified" not in {
        entry.state for entry in found.entries.values()
    }:
        assert time.monotonic() < end
        time.sleep(0.02)
    started.kill()
    started.join()
    left = {entry.state: entry.message for entry in manifest(request).entries.values()}
    assert left == {"unverified": "", "failed": UNFINISHED}
    watcher = Recorder()
    assert states(built(request, watcher)) == ["unverified"] * 3
    assert "none" not in {mask for mask, _, _ in watcher.steps}


# What is refused


def test_a_kernel_that_no_stub_gpu_made_is_not_taken(request_of: Make) -> None:
    request = aimed(request_of("none"), target())
    environ = {name: text for name, text in request.environ.items() if "STUB" not in name}
    watcher = Recorder()
    report = built(replace(request, environ=environ), watcher)
    assert states(report) == ["failed"]
    assert report.results[0].entry is not None
    assert "the stub GPU was not loaded" in report.results[0].entry.message
    assert watcher.steps[-1] == ("none", "done", "failed")


def test_a_real_gpu_behind_the_stub_gpu_ends_the_build(request_of: Make) -> None:
    request = aimed(request_of("none"), target(), FAKE_GPU="NVIDIA T400")
    with pytest.raises(TargetError, match="torch sees NVIDIA T400 instead of the stub GPU"):
        built(request)
    assert store.load(request.folder) is None


def test_the_same_version_from_another_wheel_ends_the_build(request_of: Make) -> None:
    one = target()
    own = replace(one, descriptor=replace(one.descriptor, software={"torch_key": "aa"}))
    with pytest.raises(TargetError, match=r"torch has the same version here .* other files"):
        built(aimed(request_of("none"), own, FAKE_TORCH_KEY="bb"))
    assert states(built(aimed(request_of("none"), own, FAKE_TORCH_KEY="aa"))) == ["unverified"]
    # What is not known is not compared.
    assert own.as_there(BuildEnvironment(device="NVIDIA H200")).device == "NVIDIA H200"


def test_other_settings_there_are_remarked_upon() -> None:
    one = target()
    own = replace(one, descriptor=replace(one.descriptor, settings={"inductor": "aa"}))
    assert own.remark(BuildEnvironment(settings={"inductor": "aa"})) == ""
    assert own.remark(BuildEnvironment()) == ""
    assert "Inductor's settings on the NVIDIA H200's machine are not those here" in own.remark(
        BuildEnvironment(settings={"inductor": "bb"})
    )


SOFTWARE = {
    "torch": "2.11.0+cu130", "torch_git": "70d99e998b4955e0049d13a98d77ae1b14db1f45",
    "torch_cuda": "13.0", "triton": "3.6.0", "abi": "cp312", "machine": "x86_64",
}  # fmt: skip
SAME = Facts(
    system=System(os="linux", arch="x86_64"),
    python=Python(path="/env/bin/python", version="3.12.1", abi="cp312"),
    torch=Torch(
        installed=True, version="2.11.0+cu130", build="cuda", cuda="13.0", has_flex=True,
        git_version="70d99e998b4955e0049d13a98d77ae1b14db1f45",
    ),
    triton=Triton(installed=True, version="3.6.0"),
)  # fmt: skip


def described(**software: str) -> Target:
    one = target()
    return replace(one, descriptor=replace(one.descriptor, software={**SOFTWARE, **software}))


def test_the_same_software_is_let_through() -> None:
    check(SAME, described())
    # A table describes a GPU, and no software.
    check(replace(SAME, torch=replace(SAME.torch, version="2.13.0")), target())
    assert differences(Facts(), described()) == ()


@pytest.mark.parametrize(
    ("other", "component", "remedy"),
    [
        (
            {"torch": "2.12.1+cu128"},
            "torch: 2.12.1+cu128 there, 2.11.0+cu130 here",
            "/env/bin/python -m pip install torch==2.12.1 --index-url",
        ),
        ({"torch_git": "0000000"}, "torch's commit: 0000000 there", "same wheel of torch"),
        ({"torch_cuda": "12.8"}, "CUDA of torch: 12.8 there, 13.0 here", "pip install torch=="),
        ({"triton": "3.7.0"}, "Triton: 3.7.0 there, 3.6.0 here", "pip install triton==3.7.0"),
        ({"abi": "cp311"}, "Python ABI: cp311 there, cp312 here", "environment of Python 3.11"),
        ({"machine": "aarch64"}, "processor: aarch64 there, x86_64", "same kind of processor"),
    ],
)
def test_other_software_is_named_with_its_remedy(
    other: dict[str, str], component: str, remedy: str
) -> None:
    with pytest.raises(TargetError) as caught:
        check(SAME, described(**other))
    first, *rest = str(caught.value).splitlines()
    assert "would not be reused on the NVIDIA H200" in first
    assert component in rest[0]
    assert remedy in rest[-1]
    assert len(rest) == 2


@pytest.mark.parametrize("name", ["NVIDIA GH200 480GB", "NVIDIA GB10", "NVIDIA Thor"])
def test_a_gpu_beside_nvidias_own_processor_needs_a_build_on_aarch64(name: str) -> None:
    grace = replace(target(), descriptor=replace(target().descriptor, name=name))
    assert [one.there for one in differences(SAME, grace)] == ["aarch64"]
    assert differences(replace(SAME, system=System(os="linux", arch="aarch64")), grace) == ()


def test_another_torch_is_one_difference() -> None:
    found = differences(SAME, described(torch="2.12.0+cu130", torch_git="0", triton="3.7.0"))
    assert [one.component for one in found] == ["torch"]


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        (
            replace(SAME, torch=replace(SAME.torch, build="cpu", version="2.13.0+cpu")),
            "without CUDA; .*\n  /env/bin/python -m pip install --force-reinstall torch==2.13",
        ),
        (
            replace(
                SAME,
                torch=replace(SAME.torch, build="cpu", version="2.13.0+cpu"),
                python=replace(SAME.python, pip="", uv="/bin/uv"),
            ),
            "\n  /bin/uv pip install --python /env/bin/python --reinstall torch==2",
        ),
        (replace(SAME, torch=replace(SAME.torch, version="2.6.0+cu124")), "older than 2.7"),
        (replace(SAME, torch=Torch(installed=False)), "torch is not installed in /env/bin/python"),
        (replace(SAME, torch=replace(SAME.torch, has_flex=False)), "has no FlexAttention"),
        (replace(SAME, system=System(os="windows")), "needs Linux, and this is windows"),
    ],
)
def test_environments_that_build_for_no_target(facts: Facts, shown: str) -> None:
    with pytest.raises(TargetError, match=shown):
        check(facts, target())


def test_words_for_targets(tmp_path: Path) -> None:
    found = targets_of(["h200,t4", "NVIDIA H200"], 2, {"CXX": "g++-13", "HOME": "/root"})
    assert [one.name for one in found] == ["NVIDIA H200", "Tesla T4"]
    assert found[0].devices == ("cuda:0", "cuda:1")
    # A table has no variables: those of this shell are used, and named.
    assert found[0].environment == {"CXX": "g++-13"}
    assert "CXX=g++-13" in variables_remark(found[0], {"CXX": "g++-13"})
    assert variables_remark(target(), {}) == ""
    with pytest.raises(AttnDoctorError, match="sm_89"):
        targets_of(["sm_89"], 1, {})
    (tmp_path / "mine.toml").write_text(
        (ROOT / "rules/tables/targets/h200.toml").read_text()
        + '\n[software]\ntorch = "2.11.0+cu130"\n[environment]\nCXX = "/opt/gcc/bin/g++"\n'
    )
    [own] = targets_of([str(tmp_path / "mine.toml")], 1, {"CXX": "g++-13"})
    assert own.environment == {"CXX": "/opt/gcc/bin/g++"}
    remark = variables_remark(own, {"CXX": "g++-13", "TORCHINDUCTOR_CUDAGRAPHS": "1"})
    assert "CXX=/opt/gcc/bin/g++, no TORCHINDUCTOR_CUDAGRAPHS" in remark


def test_the_path_of_the_folder(tmp_path: Path) -> None:
    real = tmp_path.resolve()
    assert folder_remark(real, str(real)) == ""
    assert "must be the cache folder on the target too" in folder_remark(real, "")
    (real / "link").symlink_to(real)
    assert f"{real}/link is a link here" in folder_remark(real, str(real / "link"))


# A warm-up of the user's own

TRACES = Path(__file__).parents[2] / "record" / "traces"
#: Compiles once as torch would, and reports as the guard of a stub GPU does.
COMPILES = f"""
import json, os, shutil
from pathlib import Path
cache, trace = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]), Path(os.environ["TORCH_TRACE"])
report = Path(os.environ["ATTN_DOCTOR_STUB_GPU_REPORT"])
entry = cache / "fxgraph" / "vx" / "fvxhxirv7ns53xb3cooypdqefwim5x6epssei4nbbefhocvrxmt6" / "a"
name = "hit" if entry.exists() else "miss"
shutil.copy(Path({str(TRACES)!r}) / f"{{name}}.log", trace / "dedicated_log.log")
entry.parent.mkdir(parents=True, exist_ok=True)
entry.write_text("graph")
refused = []
def tell():
    path = report / f"guard-{{os.getpid()}}.json"
    shown = {{"schema": 1, "pid": os.getpid(), "refused": refused, "reads": [], "notes": {{}}}}
    path.write_text(json.dumps({{**shown, "launches": 3, "unknown": []}}))
tell()
"""
LINE = "train.py:12: `if loss.item() > 1:` reads what no GPU has computed, and then compiles"
#: A framework that swallows the exception: the program itself ends well.
ONE = {"kind": "read", "sentence": LINE, "file": "train.py", "line": 12, "text": "if loss"}
SWALLOWS = COMPILES + f"refused.append({ONE!r})\ntell()\n"
#: Refused only in the second run.
LATER = COMPILES + f"if name == 'hit':\n  refused.append({ONE!r})\n  tell()\n"


def program(cache: Path, source: str, one: Target) -> Program:
    facts = Facts(
        python=Python(path=sys.executable, version="3.12.1"),
        torch=Torch(installed=True, version="2.11.0+cu130", build="cuda"),
        caches=(Cache(kind="inductor", path=str(cache)),),
    )
    return Program(
        argv=(sys.executable, "-c", source),
        facts=one.there(facts),
        device=one.devices[0],
        folder=cache,
        environ={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)},
        target=one,
    )


def warmed(cache: Path, source: str, one: Target | None = None) -> tuple[WarmupResult, str]:
    asked = program(cache, source, one or target())
    ran = warm_up(asked, verify=True)
    return ran, warmup_text(ran, asked, None, Terminal(width=100))


def test_a_warm_up_is_unverified(cache: Path) -> None:
    ran, text = warmed(cache, COMPILES)
    assert ran.code == 0
    assert ran.warmup is not None
    assert (ran.warmup.verified, ran.warmup.unverified) == (True, True)
    assert ran.warmup.device_slot == H200
    found = store.load(cache)
    assert found is not None
    [key] = found.warmups
    assert (cache / "attn-doctor" / "keys" / f"{key}.json").exists()
    assert found.environments[H200].driver is None
    assert "for NVIDIA H200 (SM 9.0)" in text
    assert "Unverified:" in text
    # For another GPU it is another warm-up.
    warmed(cache, COMPILES, target("t4"))
    found = store.load(cache)
    assert found is not None
    assert {one.device_slot for one in found.warmups.values()} == {H200, "cuda:0 Tesla T4"}


@pytest.mark.parametrize("source", [SWALLOWS, LATER])
def test_a_refused_warm_up_leaves_nothing(cache: Path, source: str) -> None:
    (cache / "ab").mkdir()
    (cache / "ab" / "other.py").write_text("of another program")
    ran, text = warmed(cache, source)
    assert ran.code == 1
    assert (ran.refused, ran.warmup) == ((LINE,), None)
    assert store.load(cache) is None
    assert {one.name for one in cache.rglob("*") if one.is_file()} & {"a", "other.py"} == {
        "other.py"
    }
    assert "Refused: " in text
    assert "train.py:12: `if loss.item() > 1:`" in " ".join(text.split())
    assert "compiled by a run that was refused" in text


def test_a_program_that_nothing_watched_is_refused(cache: Path) -> None:
    ran, _ = warmed(cache, "pass")
    assert ran.code == 1
    assert ran.warmup is None
    assert "no process of the program was watched" in ran.refused[0]


# With torch's CUDA build, and no GPU

needs_cuda_torch = pytest.mark.skipif(
    not CUDA_TORCH, reason="ATTN_DOCTOR_CUDA_TORCH_PYTHON names no interpreter with a CUDA torch"
)
SMALL = ("--heads", "2", "--head-dim", "64", "--seq-len", "256", "--for", "inference")


def command(folder: Path, *arguments: str) -> list[str]:
    where = ["--python", CUDA_TORCH, "--cache-dir", str(folder), "--format", "json"]
    return [sys.executable, "-m", "attn_doctor", "build-kernels", *where, *arguments]


def attn_doctor(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *arguments),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@needs_cuda_torch
@pytest.mark.cuda_torch
@pytest.mark.slow
def test_real_kernels_for_two_gpus_that_are_not_here(cache: Path) -> None:
    """The first build is killed half-way; the next goes on, and a second process hits everything"""
    what = ("--target", "h200,a100-sxm4-80gb", *SMALL, "--mask", "none,causal")
    with subprocess.Popen(
        command(cache, *what, "--jobs", "1"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as started:
        while (found := store.load(cache)) is None or "unverified" not in {
            entry.state for entry in found.entries.values()
        }:
            assert started.poll() is None
            time.sleep(0.05)
        started.kill()
    [first] = [key for key, one in found.entries.items() if one.state == "unverified"]
    done = attn_doctor(cache, *what, "--output", str(cache / "kernels.tar.gz"))
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert [one["state"] for one in shown["kernels"]] == ["unverified"] * 4
    for one in shown["kernels"]:
        assert one["hits"]["inductor.fxgraph_cache_hit"] >= 1
        assert one["hits"]["compilers"] == 0
        assert not one["errors"]
    # What was finished before it was killed was not built again.
    stages = {f"{one['id']}@{one['device_slot']}": one["stages"] for one in shown["kernels"]}
    assert stages[first] == {}
    assert shown["artifact"]["kernels"] == 4
    again = manifest_of(cache)
    for entry in again.entries.values():
        assert entry.build is not None
        assert any(name.endswith(".cubin") for name in entry.build.files)
    assert {one.environment.get("CXX") for one in again.environments.values()} == {
        os.environ.get("CXX")
    }
    assert attn_doctor(cache, *what, "--check").returncode == 0


DEPENDS = """\
import torch
x = torch.randn(4, 64, device="cuda")
first = torch.compile(lambda x: (x * 2).sin())
second = torch.compile(lambda x: (x * 3).cos())
if first(x).sum().item() > 0:
    second(x)
else:
    second(-x)
"""


@needs_cuda_torch
@pytest.mark.cuda_torch
@pytest.mark.slow
def test_a_real_program_that_depends_on_data_is_refused_with_its_line(
    cache: Path, tmp_path: Path
) -> None:
    script = tmp_path / "warm_up.py"
    script.write_text(DEPENDS)
    done = attn_doctor(cache, "--target", "h200", "--", "python", str(script))
    assert done.returncode == 1
    shown = json.loads(done.stdout)
    assert f"{script}:5 (if first(x).sum().item() > 0:)" in shown["refused"][0]
    assert shown["warmup"] is None
    assert store.load(cache) is None
    assert not list(cache.rglob("*.cubin"))


def manifest_of(folder: Path) -> Manifest:
    found = store.load(folder)
    assert found is not None
    return found
