"""Fixtures that more than one folder of tests uses."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from attn_doctor import worker
from attn_doctor.host.local import LocalHost

# Tests of `tools` import it from the checkout; last, so that `attn_doctor` is what is installed.
sys.path.append(str(Path(__file__).parents[1]))

pytest_plugins = ["tests.environments"]

# Hundreds of tests start attn-doctor. Without bytecode each start compiles the whole package.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests name the compiler, the toolkit and the Python that they mean. Those of this machine would be
# found before: many GPU machines set them, and their `python` has torch.
for _name in ("CC", "CXX", "CUDAHOSTCXX", "CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST"):
    os.environ.pop(_name, None)
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")
if sys.prefix != sys.base_prefix:
    os.environ["VIRTUAL_ENV"] = sys.prefix

# On a busy machine making inputs takes as long as it takes. Times are measured in `benchmarks/`.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One worker more than processors: many tests wait for processes that they started.

    None leaves the number to xdist.
    """
    return (os.cpu_count() or 1) + 1 if config.option.numprocesses == "auto" else None


@lru_cache
def _has_links() -> bool:
    """Whether this user may make symbolic links here; Windows asks for a right."""
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder, "link")
        with contextlib.suppress(OSError, NotImplementedError):
            link.symlink_to(folder)
        return link.is_symlink()


#: Marks of tests: whether this machine has what they need, and why they are skipped elsewhere.
NEEDS: dict[str, tuple[Callable[[], bool], str]] = {
    "posix": (lambda: os.name == "posix", "written for POSIX: paths, shells, programs, signals"),
    "symlinks": (_has_links, "no symbolic links can be made here"),
    "native": (
        lambda: not os.environ.get("ATTN_DOCTOR_TESTS_EMULATED"),
        "needs ptrace, true entries in /proc or quick starts; qemu has none of them",
    ),
    "gcc": (
        lambda: sys.platform == "linux" and os.path.exists("/usr/bin/gcc"),
        "needs Linux and /usr/bin/gcc",
    ),
    "driverless": (
        lambda: not os.path.exists("/proc/driver/nvidia/version"),
        "the driver, the GPUs and the toolkit of this machine would count",
    ),
    "torch": (
        lambda: bool(os.environ.get("ATTN_DOCTOR_TORCH_PYTHON")),
        "ATTN_DOCTOR_TORCH_PYTHON names no interpreter with torch",
    ),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use an interpreter with torch, before `-m` chooses among them."""
    for item in items:
        if "torch_python" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.torch)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs what this machine lacks, before its fixtures are made."""
    for mark, (there, reason) in NEEDS.items():
        if item.get_closest_marker(mark) and not there():
            pytest.skip(reason)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `libnvidia-ml.so.1` that needs no hardware; see `nvml_stub/stub.c`."""
    if not NEEDS["gcc"][0]():
        pytest.skip(NEEDS["gcc"][1])
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).parent / "nvml_stub" / "stub.c"
    output = folder / "libnvidia-ml.so.1"
    subprocess.run(
        ["/usr/bin/gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", output, source],
        check=True,
    )
    (folder / "libcuda.so.1").symlink_to(output)
    return folder


class PatientHost(LocalHost):
    """This machine, which waits for NVML also while other work keeps all cores busy."""

    def nvml(self, seconds: float) -> dict[str, Any]:
        return super().nvml(max(seconds, 60.0))


@pytest.fixture
def nvml_host(
    nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., LocalHost]:
    """This machine with the stub's GPUs: `nvml_host({"gpus": 8, "fail.2.memory": 3})`."""

    def host(settings: dict[str, object]) -> LocalHost:
        path = tmp_path / "nvml.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        monkeypatch.setenv("NVML_STUB", str(path))
        monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
        return PatientHost()

    return host


@pytest.fixture
def child_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """A copy of the workers' package whose `kernels/job.py` is the file that it is called with.

    Pools then start their workers from this copy. Returns the path of its launcher.
    """

    def copied(job: Path) -> Path:
        folder = tmp_path / "attn_doctor" / "worker"
        source = Path(worker.LAUNCHER).parent
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder.parent / "__init__.py").touch()
        shutil.copy(job, folder / "kernels" / "job.py")
        monkeypatch.setattr(worker, "LAUNCHER", str(folder / "launch.py"))
        return folder / "launch.py"

    return copied


@pytest.fixture
def serve(child_with: Callable[[Path], Path]) -> Path:
    """The launcher of real workers with a fake `kernels/job.py`."""
    return child_with(Path(__file__).parent / "kernels" / "builder" / "fake_job.py")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder."""
    folder = Path(os.path.realpath(tmp_path)) / "cache"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def torch_python() -> str:
    """The interpreter with torch; a test that uses it has the mark `torch`."""
    return os.environ["ATTN_DOCTOR_TORCH_PYTHON"]
