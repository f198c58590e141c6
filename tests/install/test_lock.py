"""`install --lock`: what is written for another machine, tried as its reader would."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from attn_doctor.facts import Facts, System
from attn_doctor.install.demand import Demand, words_of
from attn_doctor.install.lock import Form, form_of, locked, platform_of
from attn_doctor.install.plan import Installation, installation
from attn_doctor.render.edge import safe
from tests.environments import wheel
from tests.install.machines import machine

MACHINES = {
    "linux": (("gpu=rtx4090", "driver=595"), {"arch": "x86_64"}, "manylinux_2_28_x86_64"),
    "windows": (("gpu=none", "os=windows"), {"arch": "x86_64"}, "win_amd64"),
    "macos": (("gpu=none", "os=macos"), {"arch": "arm64"}, "macosx_14_0_arm64"),
}


@pytest.fixture
def offered(tmp_path: Path) -> Path:
    """A torch for each system, named as PyTorch names them, and what kernels needs."""
    folder = tmp_path / "offered"
    folder.mkdir()
    for *_, platform in MACHINES.values():
        path = wheel(folder, "torch", "2.15.0", {"torch/__init__.py": ""})
        path.rename(folder / f"torch-2.15.0-cp312-cp312-{platform}.whl")
    wheel(folder, "kernels", "0.14.0", {"kernels/__init__.py": ""}, ("pyjwt>=2",))
    wheel(folder, "pyjwt", "2.10.1", {"jwt/__init__.py": ""})
    return folder


def environ(folder: Path) -> dict[str, str]:
    own = {"UV_OFFLINE": "1", "UV_NO_CONFIG": "1", "UV_FIND_LINKS": str(folder)}
    cache = str(folder.parent / "cache")
    return {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "UV_CACHE_DIR": cache, **own}


def lock(words: str, name: str, form: Form, uv: str, folder: Path) -> str:
    """The file, as it is written."""
    pretended, system, _ = MACHINES[name]
    facts: Facts = machine(*pretended, "python=3.12.3", **system)
    found = installation(Demand(words=words_of(words.split())), facts, read=False)
    assert isinstance(found, Installation)
    return safe(locked(found.plan, facts, "a machine", uv, environ(folder), form))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.thorough
def test_requirements_with_hashes(name: str, uv: str, offered: Path) -> None:
    text = lock("torch hub", name, "requirements", uv, offered)
    assert "torch==2.15.0" in text
    assert "pyjwt==2.10.1" in text  # its name ends like that of a secret
    pinned = [line for line in text.splitlines() if "==" in line]
    assert len(pinned) == text.count("--hash=sha256:") == 3


@pytest.mark.thorough
def test_what_uv_and_a_shell_say_of_them(uv: str, offered: Path, tmp_path: Path) -> None:
    """The requirements install, every hash checked; the script runs."""
    text = lock("hub", "linux", "requirements", uv, offered)
    path = tmp_path / "requirements.txt"
    path.write_text("\n".join(line for line in text.splitlines() if "index-url" not in line))
    given = environ(offered)
    target = tmp_path / "there"
    argv = [uv, "pip", "install", "--require-hashes", "--target", str(target)]
    argv += ["--python-version", "3.12", "--python-platform", "x86_64-manylinux_2_28"]
    subprocess.run([*argv, "-r", str(path)], check=True, env=given)
    assert (target / "jwt/__init__.py").is_file()
    path.write_text(re.sub("sha256:[0-9a-f]{8}", "sha256:00000000", path.read_text()))
    argv[argv.index(str(target))] = str(tmp_path / "other")
    ended = subprocess.run([*argv, "-r", str(path)], env=given, capture_output=True, check=False)
    assert ended.returncode != 0
    assert b"Hash mismatch" in ended.stderr
    script = lock("hub", "linux", "script", uv, offered)
    subprocess.run(["sh", "-n"], input=script.encode(), check=True)
    assert script.startswith("#!/bin/sh\n")
    assert "--index-strategy unsafe-best-match" in script  # PyTorch's index has old releases too
    image = lock("hub", "linux", "dockerfile", uv, offered)
    assert "FROM python:3.12-slim" in image
    assert image.rstrip().splitlines()[-1].startswith("RUN python -m pip install")


@pytest.mark.parametrize(("glibc", "named"), [(None, 28), ("2.29", 28), ("2.35", 35), ("2.41", 40)])
def test_the_glibc_of_the_machine(glibc: str | None, named: int) -> None:
    """flash-attn for aarch64 may need a later one than torch's wheels."""
    system = System(os="linux", arch="aarch64", glibc=glibc)
    assert platform_of(system) == f"aarch64-manylinux_2_{named}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("requirements.txt", "requirements"),
        ("setup.sh", "script"),
        ("Dockerfile", "dockerfile"),
        ("gpu.Dockerfile", "dockerfile"),
        ("Containerfile", "dockerfile"),
        ("-", "requirements"),
    ],
)
def test_the_form_follows_the_name(name: str, expected: str) -> None:
    assert form_of(name) == expected
