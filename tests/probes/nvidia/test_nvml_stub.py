"""NVML's answers from a library without hardware: many GPUs, errors, hangs, crashes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from attn_doctor.facts import Driver, Gpu
from attn_doctor.host.local import GRACE, LocalHost
from attn_doctor.host.nvml_process import fold
from attn_doctor.probes import nvidia
from attn_doctor.probes.distributions import Distributions, Site
from attn_doctor.probes.gaps import Gaps

Machine = Callable[..., LocalHost]

H100 = {"name": "NVIDIA H100 80GB HBM3", "major": 9, "minor": 0}
RTX4090 = {
    "name": "NVIDIA GeForce RTX 4090",
    "major": 8,
    "minor": 9,
    "total": 25757220864,
    "free": 25000000000,
    "persistence": 0,
}


class Impatient(LocalHost):
    """This machine, with a shorter limit for NVML than the probe allows."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def nvml(self, seconds: float) -> dict[str, Any]:
        return super().nvml(min(seconds, self.limit))


@pytest.fixture
def limit(nvml_host: Machine) -> float:
    """Seconds in which NVML answers here if it does not hang, also beside other work."""
    host = nvml_host(gpus(H100, RTX4090, H100))
    start = time.monotonic()
    assert host.nvml(60)["outcome"] == "done"
    return max(0.7, 4 * (time.monotonic() - start))


def gpus(*kinds: dict[str, Any]) -> dict[str, Any]:
    """Settings of the stub for GPUs of these kinds."""
    fields = {f"gpu.{n}.{key}": one[key] for n, one in enumerate(kinds) for key in one}
    return {"gpus": len(kinds), **fields}


def read(host: LocalHost) -> tuple[Driver, tuple[Gpu, ...] | None, dict[str, str]]:
    gaps = Gaps()
    site = Site(folders=(), distributions=Distributions(host, ()))
    fields = nvidia.read(host, site, gaps)
    return fields["driver"], fields["gpus"], gaps.reasons


@pytest.mark.driverless
def test_eight_gpus_of_two_kinds(nvml_host: Machine) -> None:
    driver, found, gaps = read(nvml_host(gpus(*[H100] * 4, *[RTX4090] * 4)))
    assert (driver.state, driver.error, driver.vendor) == ("ok", "", "nvidia")
    assert (driver.version, driver.source) == ("580.95.05", "NVML")
    assert (driver.library_version, driver.cuda_max) == ("580.95.05", "13.0")
    assert found is not None
    assert [one.index for one in found] == list(range(8))
    assert [one.sm for one in found] == [90] * 4 + [89] * 4
    assert found[0] == Gpu(
        index=0,
        name="NVIDIA H100 80GB HBM3",
        sm=90,
        compute_capability="9.0",
        memory_total_mib=81559,
        memory_free_mib=80971,
        mig="unsupported",
        mig_devices=0,
        compute_mode="default",
        persistence=True,
        processes=0,
        uuid="GPU-00000000-1111-2222-3333-444444444444",
        pci_bus_id="0000:01:00.0",
        visible=True,
    )
    assert (found[7].compute_capability, found[7].memory_total_mib) == ("8.9", 24564)
    assert found[7].persistence is False
    assert not [name for name in gaps if name.startswith("gpus")]


def test_mig_instances_are_counted_across_holes(nvml_host: Machine) -> None:
    kinds = [{**H100, "mig": 1, "migs": 7}, {**H100, "mig": 1, "migs": 2}, {**H100, "mig": 0}]
    _, found, _ = read(nvml_host(gpus(*kinds)))
    assert found is not None
    assert [(one.mig, one.mig_devices) for one in found] == [
        ("enabled", 7),
        ("enabled", 2),
        ("disabled", 0),
    ]


def test_mig_mode_without_permission_to_list_instances(nvml_host: Machine) -> None:
    settings = {**gpus({**H100, "mig": 1, "migs": 7}), "fail.0.mig_uuids": 4}
    _, found, gaps = read(nvml_host(settings))
    assert found is not None
    assert (found[0].mig, found[0].mig_devices) == ("enabled", None)
    assert gaps["gpus[0].mig_devices"] == "NVML answered: Insufficient Permissions"


def test_processes_that_only_draw_do_not_count(nvml_host: Machine) -> None:
    busy = {**H100, "compute_pids": "10,11", "graphics_pids": "11,12"}
    _, found, _ = read(nvml_host(gpus(busy, H100)))
    assert found is not None
    assert [one.processes for one in found] == [2, 0]


@pytest.mark.parametrize(
    ("mode", "name"),
    [(0, "default"), (1, "exclusive-thread"), (2, "prohibited"), (3, "exclusive-process")],
)
def test_compute_modes(nvml_host: Machine, mode: int, name: str) -> None:
    _, found, _ = read(nvml_host(gpus({**H100, "compute_mode": mode})))
    assert found is not None
    assert found[0].compute_mode == name


@pytest.mark.parametrize(
    ("code", "state", "error"),
    [
        (4, "no-permission", "Insufficient Permissions"),
        (6, "no-device", "Not Found"),
        (11, "error", "Interrupt Request Issue"),
        (13, "error", "Function Not Found"),
        (15, "gpu-lost", "GPU is lost"),
        (16, "gpu-lost", "GPU requires reset"),
        (17, "no-permission", "GPU access blocked by the operating system"),
        (18, "library-mismatch", "Driver/library version mismatch"),
        (999, "error", "Unknown Error"),
        (77, "error", "Unknown Error"),
    ],
)
def test_errors_of_nvml_init(nvml_host: Machine, code: int, state: str, error: str) -> None:
    driver, found, gaps = read(nvml_host({"init": code}))
    assert (driver.state, driver.error) == (state, error)
    if state == "no-device":
        assert found == ()
    else:
        assert found is None
        assert gaps["gpus"] == f"NVML answered: {error}"
    # The library itself still tells what it is.
    assert driver.library_version == "580.95.05"


@pytest.mark.driverless
def test_a_driver_that_is_not_loaded_on_a_machine_without_gpu(nvml_host: Machine) -> None:
    """As in a container image that brings the libraries along."""
    driver, found, _ = read(nvml_host({"init": 9}))
    assert (driver.state, driver.error, driver.cuda_max) == ("no-gpu", "", None)
    assert found == ()


def test_no_gpu_behind_a_driver(nvml_host: Machine) -> None:
    driver, found, _ = read(nvml_host({"gpus": 0}))
    assert (driver.state, found) == ("no-device", ())


def test_errors_have_the_text_of_nvidia_smi(nvml_host: Machine) -> None:
    error = nvml_host({"init": 18}).nvml(5)["errors"]["init"]
    assert error == {
        "code": 18,
        "text": "Driver/library version mismatch",
    }


def test_one_lost_gpu_does_not_hide_the_others(nvml_host: Machine) -> None:
    driver, found, gaps = read(nvml_host({**gpus(*[H100] * 8), "fail.5.handle": 15}))
    assert (driver.state, driver.error) == ("gpu-lost", "GPU 5: GPU is lost")
    assert found is not None
    assert [one.name is None for one in found] == [n == 5 for n in range(8)]
    assert gaps["gpus[5]"] == "NVML answered: GPU is lost"


def test_gpus_that_this_user_may_not_use(nvml_host: Machine) -> None:
    settings = {**gpus(H100, H100), "fail.0.handle": 4, "fail.1.handle": 4}
    driver, found, gaps = read(nvml_host(settings))
    assert driver.state == "no-permission"
    assert found is not None
    assert len(found) == 2
    assert gaps["gpus[1]"] == "NVML answered: Insufficient Permissions"


def test_a_gpu_without_memory_of_its_own(nvml_host: Machine) -> None:
    """NVML on a DGX Spark (GB10) does not tell memory: it is the system's."""
    spark = {"name": "NVIDIA GB10", "major": 12, "minor": 1}
    driver, found, gaps = read(nvml_host({**gpus(spark), "fail.0.memory": 3}))
    assert driver.state == "ok"
    assert found is not None
    assert (found[0].sm, found[0].memory_total_mib, found[0].memory_free_mib) == (121, None, None)
    assert gaps["gpus[0].memory_total_mib"] == "NVML answered: Not Supported"
    assert gaps["gpus[0].memory_free_mib"] == "NVML answered: Not Supported"


def test_a_failing_field_leaves_the_others(nvml_host: Machine) -> None:
    settings = {**gpus(H100, H100), "fail.0.compute_capability": 999, "fail.0.name": 15}
    _, found, gaps = read(nvml_host(settings))
    assert found is not None
    assert (found[0].sm, found[0].compute_capability, found[0].name) == (None, None, None)
    assert (found[0].memory_total_mib, found[1].sm) == (81559, 90)
    assert gaps["gpus[0].sm"] == "NVML answered: Unknown Error"
    assert gaps["gpus[0].name"] == "NVML answered: GPU is lost"


def test_persistence_is_off_where_it_does_not_exist(nvml_host: Machine) -> None:
    _, found, gaps = read(nvml_host({**gpus(H100), "fail.0.persistence": 3}))
    assert found is not None
    assert found[0].persistence is False
    assert "gpus[0].persistence" not in gaps


def test_names_cannot_disturb_the_terminal(nvml_host: Machine) -> None:
    _, found, _ = read(nvml_host(gpus({**H100, "name": "\x1b[31mNVIDIA\tRed\x07\x7f"})))
    assert found is not None
    assert found[0].name == "NVIDIA Red��"


def test_the_longest_name_and_one_too_long(nvml_host: Machine) -> None:
    kinds = [{**H100, "name": "N" * 95}, {**H100, "name": "N" * 300}]
    _, found, gaps = read(nvml_host(gpus(*kinds)))
    assert found is not None
    assert (found[0].name, found[1].name) == ("N" * 95, None)
    assert gaps["gpus[1].name"] == "NVML answered: Insufficient Size"


def test_a_name_that_is_not_text(nvml_host: Machine, tmp_path: Any) -> None:
    host = nvml_host(gpus(H100, H100))
    (tmp_path / "nvml.conf").write_bytes(b"gpus=2\ngpu.0.name=NVIDIA \xff\xfe\n")
    _, found, gaps = read(host)
    assert found is not None
    assert (found[0].name, found[0].sm, found[1].sm) == (None, 90, 90)
    assert "decode" in gaps["gpus[0].name"]


def test_cuda_version_of_a_driver_without_libcuda(nvml_host: Machine) -> None:
    driver, _, _ = read(nvml_host({**gpus(H100), "fail.cuda": 12, "cuda": 12080}))
    assert driver.cuda_max == "12.8"
    driver, _, gaps = read(nvml_host({**gpus(H100), "fail.cuda": 12, "fail.cuda_v1": 12}))
    assert driver.cuda_max is None
    assert "driver.cuda_max" in gaps


def test_environment_decides_what_cuda_sees(
    nvml_host: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml_host(gpus(H100, H100, H100))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-00000002,GPU-00000000-1111")
    _, found, _ = read(LocalHost())
    assert found is not None
    assert [one.visible for one in found] == [True, False, True]


@pytest.mark.driverless
@pytest.mark.parametrize(
    ("hang", "state_known", "place"),
    [
        ("init", (), "during its start"),
        ("driver_version", ("cuda_max",), "when asked for the driver and its GPUs"),
        ("count", ("cuda_max", "version"), "when asked for the driver and its GPUs"),
        ("0.handle", ("cuda_max", "version"), "at GPU 0; without persistence mode"),
        ("2.handle", ("cuda_max", "version"), "at GPU 2; without persistence mode"),
        ("1.memory", ("cuda_max", "version"), "at GPU 1"),
    ],
)
def test_a_hang_ends_and_earlier_answers_remain(
    nvml_host: Machine, limit: float, hang: str, state_known: tuple[str, ...], place: str
) -> None:
    nvml_host({**gpus(H100, RTX4090, H100), "hang": hang})
    host = Impatient(limit)
    start = time.monotonic()
    driver, found, gaps = read(host)
    # The limit, the time to bury the child, and the slack of a busy machine.
    assert time.monotonic() - start < limit + 2 * GRACE + 5.0
    assert driver.state == "not-answering"
    assert driver.error is not None
    assert driver.error.startswith("NVML did not answer within")
    assert place in driver.error
    for name in ("version", "cuda_max"):
        known = getattr(driver, name) is not None
        assert known == (name in state_known)
        assert known != (f"driver.{name}" in gaps)
    if hang in ("init", "driver_version", "count"):
        assert found is None
        assert place in gaps["gpus"]
        return
    assert found is not None
    assert len(found) == 3
    number, _, field = hang.partition(".")
    for gpu in found:
        assert gpu.index is not None
        assert (gpu.processes is not None) == (gpu.index < int(number))
    if field == "handle":
        assert place in gaps[f"gpus[{number}]"]
    else:
        assert found[int(number)].name == "NVIDIA GeForce RTX 4090"
        assert place in gaps[f"gpus[{number}].memory_total_mib"]
        assert place in gaps["gpus[2]"]


def test_a_child_that_hangs_is_killed(nvml_host: Machine, limit: float) -> None:
    nvml_host({"hang": "init"})
    answer = Impatient(limit).nvml(limit)
    assert (answer["outcome"], answer["last"]) == ("timeout", "start")
    with pytest.raises(ProcessLookupError):
        os.kill(answer["pid"], 0)


def test_after_a_crash_earlier_answers_remain(nvml_host: Machine) -> None:
    driver, found, gaps = read(nvml_host({**gpus(H100, H100), "crash": "1.memory"}))
    assert found is not None
    assert driver.state == "error"
    assert [one.sm for one in found] == [90, 90]
    assert found[0].memory_total_mib == 81559
    assert "ended the process that asked it (code -6) at GPU 1" in str(driver.error)
    assert gaps["gpus[1].memory_total_mib"] == driver.error
    driver, found, _ = read(nvml_host({"crash": "init"}))
    assert (driver.state, found) == ("error", None)


def test_without_the_library_nothing_is_started(
    nvml_host: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoNvml(LocalHost):
        def nvml(self, seconds: float) -> dict[str, Any]:
            raise AssertionError("NVML is asked without any sign of it")

    nvml_host({})
    monkeypatch.delenv("LD_LIBRARY_PATH")
    host = NoNvml()
    if any(name.startswith("nvidia") for name in host.try_list("/dev")):
        pytest.skip("this machine has an NVIDIA driver")
    driver, found, gaps = read(host)
    assert (driver.state, driver.error, found) == ("no-gpu", "", ())
    assert (driver.libcuda, driver.device_nodes, driver.version) == ("", False, None)
    assert gaps == {}


def test_foreign_lines_are_skipped() -> None:
    text = 'warning: x\n[1]\n{"a": 1}\n{"key": "count", "value": 2}\n'
    text += '{"key": "errors", "value": 1}\n{"key": "gpus", "value": 1}\n{"key": "cou'
    assert fold(text) == {"gpus": [], "errors": {}, "last": "count", "complete": False, "count": 2}
