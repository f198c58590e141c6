"""Compiling without contexts on the GPU: when it is done, and what happens where it does not hold.

The children need no torch (see `fake_job.py`): one with a stub GPU leaves another
file than one that is not, so the file tells where a kernel was compiled.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor import worker
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Gpu, System
from attn_doctor.kernels.builder import off_gpu, scheduler
from attn_doctor.kernels.builder.devices import DeviceError
from attn_doctor.kernels.builder.plan import BuildRequest, plan_build
from attn_doctor.kernels.builder.progress import Step, Watcher
from attn_doctor.kernels.builder.report import Report
from attn_doctor.kernels.builder.session import BuildSession
from attn_doctor.kernels.gpus.descriptor import Descriptor
from attn_doctor.record.store import empty

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the stub GPU needs Linux")
Make = Callable[..., BuildRequest]
NULL, GPU = "folded", "kernel"


class Recorder(Watcher):
    """Keeps what a build tells."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    def step(self, step: Step) -> None:
        self.steps.append((step.kernel.spec.mask, step.phase))


@pytest.fixture
def on_gpu(request_of: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., BuildRequest]:
    """A request on a machine with a GPU and eight cores, whose stub GPU the child plays."""
    monkeypatch.setattr(scheduler, "suits", lambda _: True)
    monkeypatch.setattr(off_gpu, "suits", lambda _: True)

    def made(*masks: str, **variables: str) -> BuildRequest:
        request = request_of(*masks)
        environ = {**request.environ, "FAKE_GPU": "NVIDIA H200"}
        facts = replace(
            request.facts,
            gpus=(Gpu(name="NVIDIA H200", sm=90, visible=True, memory_free_mib=100_000),),
            system=System(os="linux", cpus=8, ram_available_mib=64_000),
        )
        beside = {**environ, "ATTN_DOCTOR_STUB_GPU": "x", **variables}
        monkeypatch.setattr(off_gpu, "environment", lambda _: beside)
        return replace(request, devices=("cuda:0",), facts=facts, environ=environ)

    return made


def built(request: BuildRequest, watcher: Watcher | None = None) -> Report:
    build = BuildSession(request, watcher or Recorder())
    build.run()
    return build.report()


def states(report: Report) -> list[str]:
    return [result.entry.state if result.entry else "none" for result in report.results]


def compiled(request: BuildRequest) -> list[str]:
    """Where each kernel was compiled."""
    return [(request.folder / "aa" / f"{spec.id}.so").read_text() for spec in request.specs]


SIX = ("a", "b", "c", "d", "e", "f")


def test_many_kernels_are_compiled_off_the_gpu_and_verified_on_it(on_gpu: Make) -> None:
    request, watcher = on_gpu(*SIX), Recorder()
    report = built(request, watcher)
    assert states(report) == ["built"] * 6
    assert compiled(request) == [NULL] * 6
    for mask in SIX:
        assert [phase for name, phase in watcher.steps if name == mask] == [
            "build", "verify", "done",
        ]  # fmt: skip
    for result in report.results:
        assert result.entry is not None
        assert result.entry.build is not None
        assert result.entry.build.verified
        # Only a verification on the GPU computes anything.
        assert result.entry.build.errors == {"out": 1e-3}
    assert "compilers_started" in report.phases


def test_few_kernels_are_compiled_on_the_gpu(on_gpu: Make) -> None:
    request = on_gpu(*SIX[:5])
    assert states(built(request)) == ["built"] * 5
    assert compiled(request) == [GPU] * 5


def test_what_does_not_hold_on_the_gpu_is_built_on_it(on_gpu: Make) -> None:
    request, watcher = on_gpu("wrong", *SIX), Recorder()
    report = built(request, watcher)
    assert states(report) == ["built"] * 7
    assert compiled(request) == [GPU] + [NULL] * 6
    # It is reported as done once, and never as failed meanwhile.
    assert [phase for name, phase in watcher.steps if name == "wrong"] == [
        "build", "verify", "build", "verify", "done",
    ]  # fmt: skip
    assert [Path(one.path).name for one in report.cleared] == [f"{request.specs[0].id}.so"]


def test_what_is_wrong_on_the_gpu_as_well_fails(on_gpu: Make) -> None:
    report = built(on_gpu("forgetful", *SIX))
    assert states(report) == ["not-reused"] + ["built"] * 6


def test_a_refusal_sends_the_rest_to_the_gpu(on_gpu: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(off_gpu, "MANY", 4)
    # What takes longest comes first: head sizes that are not a power of two, here all but a to d.
    masks = ("a", "b", "timed", "c", "sleep:x5", "sleep:x6", "sleep:x7", "d")
    request = replace(on_gpu(*masks), jobs=4)
    assert states(built(request)) == ["built"] * 8
    where = dict(zip(masks, compiled(request), strict=True))
    assert {where[mask] for mask in ("timed", "a", "b", "c", "d")} == {GPU}
    assert {where[mask] for mask in masks if "sleep" in mask} == {NULL}


def test_a_crash_off_the_gpu_costs_only_a_second_try(on_gpu: Make) -> None:
    request = on_gpu("fragile", *SIX)
    assert states(built(request)) == ["built"] * 7
    assert compiled(request) == [GPU] + [NULL] * 6


@pytest.mark.parametrize("how", ["die", "raise"])
def test_without_a_stub_gpu_all_are_built_on_the_gpu(on_gpu: Make, how: str) -> None:
    request = on_gpu(*SIX, FAKE_PREPARE=how)
    assert states(built(request)) == ["built"] * 6
    assert compiled(request) == [GPU] * 6


@pytest.mark.parametrize(
    "kind",
    [
        AttnDoctorError,
        pytest.param(DeviceError, marks=pytest.mark.thorough),
        pytest.param(PermissionError, marks=pytest.mark.thorough),
    ],
)
def test_why_it_cannot_be_is_kept_in_a_log(
    on_gpu: Make, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    request = on_gpu(*SIX)

    def refused(_: BuildRequest) -> dict[str, str]:
        raise kind("the stub GPU needs a C compiler, and there is none")

    monkeypatch.setattr(off_gpu, "environment", refused)
    assert states(built(request)) == ["built"] * 6
    assert compiled(request) == [GPU] * 6
    log = request.logs / "off-gpu.log"
    assert "needs a C compiler" in log.read_text()
    monkeypatch.setattr(off_gpu, "environment", lambda _: request.environ)
    assert states(built(replace(request, force=True))) == ["built"] * 6
    assert not log.exists()  # it would tell what is not so any more


def test_when_it_is_worth_it(request_of: Make, on_gpu: Make) -> None:
    request = on_gpu(*SIX)

    def worth(one: BuildRequest) -> bool:
        return off_gpu.worth(one, plan_build(one, empty()))

    assert worth(request)
    assert not worth(replace(request, jobs=5))
    assert not worth(replace(request_of(*SIX), jobs=6))  # on a CPU there are no contexts
    little = System(os="linux", cpus=64, ram_available_mib=9_000)
    assert not worth(replace(request, facts=replace(request.facts, system=little)))


def test_what_suits() -> None:
    from attn_doctor.record.spec import KernelSpec

    plain = KernelSpec(heads=2, head_dim=64, lengths=(128,))
    assert off_gpu.suits(plain)
    assert off_gpu.suits(replace(plain, mask="document"))
    # A user's own code, torch's timing, and a block's other operations belong on the GPU.
    assert not off_gpu.suits(replace(plain, mask="mine:mask"))
    assert not off_gpu.suits(replace(plain, mode="max-autotune"))
    assert not off_gpu.suits(replace(plain, block="flux1"))


# The GPU's properties


def gpu(name: str = "NVIDIA Test", sms: int = 66) -> dict[str, object]:
    numbers = {
        "75": 9, "76": 0, "16": sms, "38": 50_331_648, "82": 65536, "39": 2048, "1": 1024, "10": 32,
        "8": 49152, "97": 232448, "81": 233472,
    }  # fmt: skip
    return {"name": name, "total_memory": 1 << 37, "driver_cuda": 13000, "attributes": numbers}


@pytest.fixture
def asked(
    request_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[Descriptor]]:
    """The GPUs that a driver reports, which a script plays."""

    def reported(text: str) -> list[Descriptor]:
        child = tmp_path / "driver.py"
        child.write_text(f"print({text!r})")
        monkeypatch.setattr(worker, "command", lambda python, *_: [python, str(child)])
        return off_gpu._gpus(request_of("none"))

    return reported


def test_a_gpu_as_the_driver_tells_it(asked: Callable[..., list[Descriptor]]) -> None:
    [found] = asked(json.dumps([gpu()]))
    assert found.sm == 90
    assert found.multi_processor_count == 66
    assert found.shared_memory_per_block_optin == 232448
    assert found.complete
    assert not found.own  # variables stay as the user has set them


@pytest.mark.parametrize("text", ["[]", "", "no", '[{"name": "x"}]', "[1]", "null"])
def test_a_driver_that_does_not_tell(asked: Callable[..., list[Descriptor]], text: str) -> None:
    with pytest.raises(AttnDoctorError, match="the driver"):
        asked(text)


def test_gpus_of_two_kinds(
    request_of: Make, asked: Callable[..., list[Descriptor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from attn_doctor.kernels.builder import software_differences
    from attn_doctor.kernels.gpus import stub

    both = [*asked(json.dumps([gpu()])), *asked(json.dumps([gpu(sms=67)]))]
    monkeypatch.setattr(off_gpu, "_gpus", lambda _: both)
    monkeypatch.setattr(software_differences, "check_able", lambda _: None)
    monkeypatch.setattr(stub, "make", lambda _: Path("/x/libcuda.so.1"))
    with pytest.raises(AttnDoctorError, match="several kinds"):
        off_gpu.environment(request_of("none"))
    monkeypatch.setattr(off_gpu, "_gpus", lambda _: both[:1] * 2)
    request = request_of("none")
    request = replace(request, environ={**request.environ, "CUDA_VISIBLE_DEVICES": "1,2"})
    made = off_gpu.environment(request)
    assert "devices=2;" in made["ATTN_DOCTOR_STUB_GPU_TARGET"]
    assert "CUDA_VISIBLE_DEVICES" not in made
    assert made["TORCHINDUCTOR_CACHE_DIR"] == request.environ["TORCHINDUCTOR_CACHE_DIR"]


def test_the_driver_is_not_asked_by_what_lies_in_the_working_folder(tmp_path: Path) -> None:
    import subprocess

    (tmp_path / "ctypes.py").write_text("raise SystemExit('shadowing')")
    done = subprocess.run(
        worker.command(sys.executable, "cuda_driver"),
        cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=True, timeout=600,
    )  # fmt: skip
    assert isinstance(json.loads(done.stdout), list)
