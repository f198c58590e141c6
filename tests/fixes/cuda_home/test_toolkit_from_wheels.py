"""Wheels become a toolkit; what cannot be installed is said before anything is made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts, Gpu, Python, System, Torch
from attn_doctor.fixes.cuda_home import toolkit_from_wheels
from attn_doctor.fixes.cuda_home.advice import advice
from attn_doctor.fixes.cuda_home.toolkit_from_wheels import (
    Installation,
    assemble,
    install,
    plan,
)
from attn_doctor.fixes.journal import begin
from attn_doctor.fixes.undo import chosen, undo, undo_plan
from attn_doctor.host import Space
from attn_doctor.host.local import LocalHost
from attn_doctor.probes.toolchain import cuda_root
from attn_doctor.rulebook import library
from tests.fixes.cuda_home.trees import HEADERS, make, program

pytestmark = pytest.mark.gcc


def facts(cuda: str = "13.0", site: Path | None = None, pip: str = "25.0", uv: str = "") -> Facts:
    return Facts(
        torch=Torch(installed=True, version="2.11.0", build="cuda", cuda=cuda),
        system=System(os="linux", arch="x86_64", musl=False),
        python=Python(
            path=sys.executable,
            site_packages=(str(site),) if site else (),
            pip=pip,
            uv=uv,
        ),
    )


def wheels(folder: Path, release: str) -> Path:
    """What `pip install --target` leaves: one folder for all parts, or one for each."""
    made = make(folder.parent / f"made-{release}", release)
    nvidia = folder / "nvidia"
    names = {"13": ("cu13",) * 4}.get(release[:2], ("cuda_nvcc", "cuda_runtime", "cuda_nvcc", "x"))
    for part, source in zip(names, ("bin", "include", "nvvm", "lib"), strict=True):
        if source != "lib":
            shutil.copytree(made / source, nvidia / part / source)
    library = nvidia / names[1] / "lib"
    library.mkdir()
    shutil.copy2(made / "lib64" / "libcudart.so", library / f"libcudart.so.{release[:2]}")
    (nvidia / names[1] / "__init__.py").write_text("")
    for name in (f"cuda_toolkit-{release}.2", f"nvidia_cuda_nvcc_cu12-{release}.88"):
        (folder / f"{name}.dist-info").mkdir()
    return folder


@pytest.mark.parametrize("release", ["13.0", "12.8"])
def test_both_layouts_become_a_whole_toolkit(tmp_path: Path, release: str) -> None:
    root = tmp_path / "root"
    wheels(root / "wheels", release)
    assemble(root, None)
    assert cuda_root.missing_components(LocalHost(), str(root)) == ()
    assert (root / "lib64" / "libcudart.so").is_file()
    assert not (root / "wheels").exists()
    assert not list(root.rglob("__init__.py"))
    written = json.loads((root / "version.json").read_text())
    assert written["cuda"]["version"] == f"{release}.2"
    assert written["cuda_nvcc"]["version"] == f"{release}.88"


def test_what_is_missing_is_linked_from_the_environment(tmp_path: Path) -> None:
    root = tmp_path / "root"
    wheels(root / "wheels", "13.0")
    (root / "wheels" / "nvidia" / "cu13" / "include" / "cublas_v2.h").unlink()
    own = tmp_path / "site" / "nvidia" / "cu13"
    for name in ("include/cublas_v2.h", "include/cuda_runtime.h", "lib/libcublas.so.13"):
        (own / name).parent.mkdir(parents=True, exist_ok=True)
        (own / name).write_text("of the environment")
    assemble(root, own)
    header = root / "include" / "cublas_v2.h"
    assert header.samefile(own / "include" / "cublas_v2.h")
    assert (root / "lib64" / "libcublas.so").read_text() == "of the environment"
    assert (root / "include" / "cuda_runtime.h").read_text() == "", "the wheel's own comes first"
    shutil.rmtree(own)
    assert header.read_text() == "of the environment", "it outlives the environment"


def test_the_plan_takes_the_release_of_torch(tmp_path: Path) -> None:
    wanted = plan(LocalHost(), facts(), {"XDG_DATA_HOME": str(tmp_path)})
    assert wanted.root == tmp_path / "attn-doctor" / "toolkits" / "cuda-13.0"
    assert wanted.requirement.startswith("cuda-toolkit[nvcc,crt,nvvm,")
    assert wanted.requirement.endswith("cublas,cusparse,cusolver,curand,cufft,nvjitlink]==13.0.*")
    assert wanted.argv[:4] == (sys.executable, "-m", "pip", "install")
    assert wanted.linked is None
    assert not wanted.root.exists()


def test_what_torch_brought_along_is_not_downloaded_again(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "cuda_toolkit-13.0.2.dist-info").mkdir(parents=True)
    for name in HEADERS:
        path = site / "nvidia" / "cu13" / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    environ = {"XDG_DATA_HOME": str(tmp_path)}
    wanted = plan(LocalHost(), facts(site=site), environ)
    assert wanted.linked == site / "nvidia" / "cu13"
    assert "cublas" not in wanted.requirement
    assert wanted.requirement.endswith("==13.0.2")
    other = plan(LocalHost(), facts("13.2", site=site), environ)
    assert other.linked is None, "another release does not fit"


def test_uv_installs_where_there_is_no_pip(tmp_path: Path) -> None:
    wanted = plan(LocalHost(), facts(pip="", uv="/usr/bin/uv"), {"XDG_DATA_HOME": str(tmp_path)})
    assert wanted.argv[:5] == ("/usr/bin/uv", "pip", "install", "--python", sys.executable)
    with pytest.raises(AttnDoctorError, match="has no pip, and there is no uv"):
        plan(LocalHost(), facts(pip="", uv=""), {"XDG_DATA_HOME": str(tmp_path)})


def test_cuda_12_has_no_compiler_in_wheels(tmp_path: Path) -> None:
    environ = {"XDG_DATA_HOME": str(tmp_path)}
    with pytest.raises(AttnDoctorError, match=r"wheels of CUDA 12\.8 contain no compiler"):
        plan(LocalHost(), facts("12.8"), environ)
    found = advice(facts("12.8"), library.tables(), environ)
    assert found is not None
    folder = tmp_path / "attn-doctor" / "toolkits" / "cuda-12.8"
    assert [way.commands[-1] for way in found.ways] == [
        f"conda create -y -p {folder} -c nvidia/label/cuda-12.8.2 cuda-toolkit",
        f"sh cuda_12.8.2_570.211.01_linux.run --silent --toolkit --toolkitpath={folder} --override",
    ]
    assert "contain no compiler" in found.note


@pytest.mark.parametrize(
    ("torch", "gpu", "release"),
    [
        ("12.8", "12.8", "12.8"),
        ("12.8", "12.9", "12.9"),
        ("12.4", "12.8", "12.8"),
        ("12.4", "11.8", "12.4"),
        ("12.8", "13.0", "12.8"),
    ],
)
def test_the_advice_is_for_a_toolkit_that_knows_the_gpu(torch: str, gpu: str, release: str) -> None:
    here = msgspec.structs.replace(facts(torch), gpus=(Gpu(min_nvcc=gpu),))
    found = advice(here, library.tables(), {"XDG_DATA_HOME": "/home/me/.local/share"})
    assert found is not None
    assert found.release == release
    assert ("does not know this GPU" in found.note) == (release != torch)


def test_advice_for_cuda_13_and_for_none(tmp_path: Path) -> None:
    environ = {"XDG_DATA_HOME": str(tmp_path)}
    found = advice(facts("13.0"), library.tables(), environ)
    assert found is not None
    assert found.ways[0].commands == ("attn-doctor fix --cuda-home --install",)
    assert found.note == ""
    none = msgspec.structs.replace(facts(), torch=Torch(installed=True, build="cpu"))
    assert advice(none, library.tables(), environ) is None
    with pytest.raises(AttnDoctorError, match="this torch has none"):
        plan(LocalHost(), none, environ)


def test_a_full_disk_and_a_folder_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = LocalHost()
    environ = {"XDG_DATA_HOME": str(tmp_path)}
    monkeypatch.setattr(host, "space", lambda path: Space(total=1 << 40, free=100 << 20))
    with pytest.raises(AttnDoctorError, match=r"needs \d+ MiB, and .* has 100 MiB free"):
        plan(host, facts(), environ)
    (tmp_path / "attn-doctor" / "toolkits" / "cuda-13.0").mkdir(parents=True)
    with pytest.raises(AttnDoctorError, match="exists and does not fit"):
        plan(LocalHost(), facts(), environ)


def test_no_home_for_a_toolkit() -> None:
    with pytest.raises(AttnDoctorError, match="set HOME or XDG_DATA_HOME"):
        plan(LocalHost(), facts(), {})


# Carrying it out


def wanted_by(tmp_path: Path, installer: str) -> Installation:
    path = program(tmp_path / "installer", f"#!/bin/sh\n{installer}\n")
    return Installation(root=tmp_path / "cuda-13.0", requirement="cuda-toolkit", argv=(str(path),))


def carried_out(tmp_path: Path, wanted: Installation) -> str:
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    with begin(environ, title="test") as journal:
        install(LocalHost(), wanted, environ, journal, lambda _: None)
        return journal.id


def test_an_installed_toolkit_is_taken_back_whole(tmp_path: Path) -> None:
    ready = wheels(tmp_path / "ready", "13.0")
    root = tmp_path / "cuda-13.0"
    wanted = wanted_by(tmp_path, f"cp -r {ready} {root}/wheels")
    id = carried_out(tmp_path, wanted)
    assert cuda_root.missing_components(LocalHost(), str(root)) == ()
    run = chosen({"HOME": str(tmp_path)}, id)
    assert undo(run, undo_plan(run)).faults == ()
    assert not root.exists()
    assert ready.is_dir()


@pytest.mark.parametrize(
    ("installer", "said"),
    [
        ("echo 'No matching distribution found' >&2; exit 1", "ended with code 1: No matching"),
        (
            "mkdir -p {root}/wheels/nvidia/cu13/bin",
            "the wheels give an incomplete toolkit: it lacks",
        ),
        ("true", "could not be filled: No such file"),
    ],
)
def test_a_failed_installation_leaves_nothing(tmp_path: Path, installer: str, said: str) -> None:
    wanted = wanted_by(tmp_path, installer.format(root=tmp_path / "cuda-13.0"))
    with pytest.raises(AttnDoctorError, match=said):
        carried_out(tmp_path, wanted)
    assert not (tmp_path / "cuda-13.0").exists()


def test_an_installer_that_takes_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolkit_from_wheels, "LIMIT", 0.3)
    with pytest.raises(AttnDoctorError, match="could not be installed: it did not end"):
        carried_out(tmp_path, wanted_by(tmp_path, "exec sleep 60"))
    assert not (tmp_path / "cuda-13.0").exists()


def test_a_killed_installation_is_taken_back(tmp_path: Path) -> None:
    root = tmp_path / "cuda-13.0"
    wanted = wanted_by(tmp_path, f"mkdir {root}/wheels; touch {tmp_path}/started; exec sleep 60")
    script = (
        "import sys; sys.path[:0] = [sys.argv[1]]\n"
        "from pathlib import Path\n"
        "from tests.fixes.cuda_home.test_toolkit_from_wheels import carried_out\n"
        "from attn_doctor.fixes.cuda_home.toolkit_from_wheels import Installation\n"
        "home, root, program = map(Path, sys.argv[2:])\n"
        "carried_out(home, Installation(root=root, requirement='x', argv=(str(program),)))\n"
    )
    checkout = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", script, checkout, str(tmp_path), str(root), wanted.argv[0]]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 300  # under qemu it starts late
    while time.monotonic() < end:
        # On a busy machine the installer may start before its number is noted.
        noted = any('"child"' in one.read_text() for one in tmp_path.rglob("journal.jsonl"))
        if noted and (tmp_path / "started").exists():
            break
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert (root / "wheels").is_dir()
    run = chosen({"HOME": str(tmp_path)}, "")
    # The installer outlived it, and is ended first.
    assert undo(run, undo_plan(run)).faults == ()
    assert not root.exists()
