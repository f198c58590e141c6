"""The guard in programs of the user's own: however they start, it is there or its lack is seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attn_doctor.worker.stub_gpu import program_environment, report

from .conftest import PROGRAMS, PYTHON, Run

PLAIN = PROGRAMS / "plain.py"

with_torch = [pytest.mark.cuda_torch, pytest.mark.slow]


def own_startup_file(folder: Path) -> str:
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys\nsys.own_startup_file = True\n")
    return str(folder)


@pytest.mark.parametrize("marked", [pytest.param(None, marks=with_torch)])
def test_a_program_is_guarded_and_keeps_its_own_startup_file(
    run: Run, tmp_path: Path, marked: None
) -> None:
    ended, reports = run(str(PLAIN), PYTHONPATH=own_startup_file(tmp_path / "own"))
    assert ended.returncode == 0, ended.stderr
    assert "own True" in ended.stdout
    verdict = report.read(str(reports))
    assert verdict.refused == ()
    assert verdict.processes == 1
    (note,) = [one for one in verdict.notes if "read" in one]
    assert f"{PLAIN}:8 " in note


@pytest.mark.parametrize(
    "flags",
    [pytest.param(("-I",), marks=with_torch), pytest.param(("-S",), marks=with_torch)],
    ids=["-I", "-S"],
)
def test_a_program_without_startup_files_is_refused(run: Run, flags: tuple[str, ...]) -> None:
    packages = subprocess.run(
        [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    ended, reports = run(*flags, str(PLAIN), PYTHONPATH=packages)
    assert ended.returncode == 0, ended.stderr
    verdict = report.read(str(reports))
    assert verdict.processes == 0
    (refused,) = verdict.refused
    assert "nothing watched it" in refused


@pytest.mark.parametrize("marked", [pytest.param(None, marks=with_torch)])
def test_a_child_of_torchrun_is_guarded(run: Run, marked: None) -> None:
    argv = ["-m", "torch.distributed.run", "--nproc-per-node=1", "--master-port=0", str(PLAIN)]
    ended, reports = run(*argv)
    assert ended.returncode == 0, ended.stderr
    verdict = report.read(str(reports))
    assert verdict.refused == ()
    assert verdict.processes == 2
    assert any(f"{PLAIN}:8 " in note for note in verdict.notes)


def test_python_without_torch_starts_as_ever(tmp_path: Path) -> None:
    own = own_startup_file(tmp_path / "own")
    reports = tmp_path / "reports"
    reports.mkdir()
    environ = program_environment.environment(
        {"PYTHONPATH": own, "ATTN_DOCTOR_STUB_GPU": "/nowhere/libcuda.so.1"}, str(reports)
    )
    program = (
        f"import sys; print(sys.own_startup_file, 'ctypes' in sys.modules, sys.path[1] == {own!r})"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    assert (ended.stdout.split(), ended.stderr) == (["True", "False", "True"], "")
    # Nothing was watched, as nothing used the stub GPU.
    assert list(reports.iterdir()) == []
    assert report.read(str(reports)).refused == (
        "no process of the program was watched: it ran no Python of its own",
    )
