"""The interpreter with torch that is chosen where the user names none, and how it is announced."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.errors import ExaminationError
from attn_doctor.host.local import LocalHost
from attn_doctor.probes.interpreter import choose
from attn_doctor.probes.interpreter.choice import pick
from attn_doctor.probes.interpreter.layout import torch_of
from tests.probes.pythons import make_venv
from tests.probes.tree import machine

OURS = "/opt/tools/attn-doctor/bin/python"
PROJECT = "/home/ada/project"
TORCH = "torch/version.py"
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX paths")


def environment(root: str, torch: str = "", config: str = "home = /usr/bin\n") -> dict[str, str]:
    """Files of a virtual environment, with torch if its version is given."""
    site = f"{root}/lib/python3.12/site-packages"
    files = {f"{root}/pyvenv.cfg": config, f"{site}/six.py": ""}
    return {**files, **({f"{site}/{TORCH}": f"__version__ = '{torch}'\n"} if torch else {})}


def picked(*roots: dict[str, str], cwd: str = PROJECT, **how: Any) -> tuple[str, str]:
    """Path and reason of the choice on a machine with these environments and our own."""
    files = {name: text for files in roots for name, text in files.items()}
    homes = {name.removesuffix("/pyvenv.cfg") for name in files if name.endswith("/pyvenv.cfg")}
    programs = [*(f"{home}/bin/python" for home in homes), OURS, *how.pop("programs", ())]
    host = machine(files, programs=programs, python=OURS, cwd=cwd, **how)
    choice = pick(host, "")
    return choice.path, choice.why


def test_torch_on_path_is_examined_if_our_own_environment_has_none() -> None:
    image = environment("/opt/venv", "2.9.1+cu128")
    expected = ("/opt/venv/bin/python", "python on PATH")
    assert picked(image, env={"PATH": "/opt/venv/bin:/usr/bin"}) == expected


def test_our_own_torch_is_the_last_choice() -> None:
    own = environment("/opt/tools/attn-doctor", "2.13.0+cpu")
    assert picked(own) == (OURS, "runs attn-doctor")
    image = environment("/opt/venv", "2.9.1+cu128")
    assert picked(own, image, env={"PATH": "/opt/venv/bin"})[1] == "python on PATH"


@pytest.mark.parametrize("name", [".venv", "venv", "env"])
def test_an_environment_in_the_folder_precedes_path(name: str) -> None:
    here = environment(f"{PROJECT}/{name}", "2.9.1")
    image = environment("/opt/venv", "2.9.1")
    how: dict[str, Any] = {"env": {"PATH": "/opt/venv/bin"}}
    assert picked(here, image, **how)[1] == f"{name} in the working directory"
    above = picked(here, image, cwd=f"{PROJECT}/src", folders=[f"{PROJECT}/src"], **how)
    assert above[1] == f"{name} in {PROJECT}"


def test_an_environment_without_torch_gives_way() -> None:
    tools, image = environment(f"{PROJECT}/.venv"), environment("/opt/venv", "2.9.1")
    assert picked(tools, image, env={"PATH": "/opt/venv/bin"})[1] == "python on PATH"
    assert picked(tools)[1] == ".venv in the working directory"


def test_the_active_environment_is_examined_even_without_torch() -> None:
    active, image = environment("/srv/active"), environment("/opt/venv", "2.9.1")
    found = picked(active, image, env={"VIRTUAL_ENV": "/srv/active", "PATH": "/opt/venv/bin"})
    assert found == ("/srv/active/bin/python", "VIRTUAL_ENV is set")


@pytest.mark.parametrize("name", ["python_embeded", "python_embedded"])
def test_a_portable_build_beside_the_working_directory(name: str) -> None:
    root = r"D:\ComfyUI_windows_portable"
    program = rf"{root}\{name}\python.exe"
    files = {rf"{root}\{name}\Lib\site-packages\torch\version.py": "__version__ = '2.9.1+cu130'\n"}
    host = machine(
        files,
        os="windows",
        programs=[program],
        cwd=rf"{root}\ComfyUI",
        folders=[rf"{root}\ComfyUI"],
    )
    choice = pick(host, "")
    assert (choice.path, choice.why) == (program, f"{name} in {root}")
    assert choice.torch == "2.9.1+cu130"


def test_all_with_torch_are_listed_in_the_order_of_preference() -> None:
    files = {**environment(f"{PROJECT}/venv", "2.9.1"), **environment("/opt/venv", "2.4.0+cu121")}
    files.update(environment("/opt/tools/attn-doctor"))
    programs = [f"{PROJECT}/venv/bin/python", "/opt/venv/bin/python3", OURS]
    env = {"PATH": "/opt/venv/bin"}
    listed = pick(
        machine(files, programs=programs, python=OURS, cwd=PROJECT, env=env), ""
    ).candidates
    assert [(one.path, one.torch, one.found) for one in listed] == [
        (programs[0], "2.9.1", "venv in the working directory"),
        (programs[1], "2.4.0+cu121", "python3 on PATH"),
    ]


def test_the_target_of_a_pyenv_shim_is_found_without_starting_it() -> None:
    root = "/home/ada/.pyenv"
    target = f"{root}/versions/3.12.1/bin/python"
    site = f"{root}/versions/3.12.1/lib/python3.12/site-packages"
    files = {
        f"{root}/shims/python": "#!/usr/bin/env bash\n",
        f"{root}/version": "3.12.1\n",
        f"{site}/{TORCH}": "__version__ = '2.9.1'\n",
    }
    programs = [f"{root}/shims/python", target]
    how: dict[str, Any] = {"env": {"PATH": f"{root}/shims"}, "programs": programs}
    assert picked(files, **how) == (target, "python on PATH")


def test_a_script_and_python_2_on_path_are_left_out() -> None:
    scripts = {"/opt/wrap/python": "#!/bin/sh\n"}
    programs = ["/opt/wrap/python", "/usr/bin/python"]
    links = {"/usr/bin/python": "/usr/bin/python2.7"}
    env = {"PATH": "/opt/wrap"}
    assert picked(scripts, programs=programs, env=env)[0] == OURS
    assert picked(programs=programs, links=links, env={"PATH": "/usr/bin"})[0] == OURS


def test_torch_of_the_base_counts_if_the_environment_sees_it() -> None:
    base = {f"/usr/lib/python3/dist-packages/{TORCH}": "__version__ = '1.13.1'\n"}
    seeing = "home = /usr/bin\ninclude-system-site-packages = true\n"
    for config, expected in ((seeing, "1.13.1"), (seeing.replace("true", "false"), "")):
        files = {**base, **environment("/srv/env", config=config)}
        python = "/srv/env/bin/python"
        host = machine(files, programs=[python], links={python: "/usr/bin/python3.12"})
        assert torch_of(host, python) == expected


def test_metadata_name_the_version_if_the_folder_is_gone() -> None:
    site = "/srv/env/lib/python3.12/site-packages"
    files = {"/srv/env/pyvenv.cfg": "", f"{site}/torch-2.9.1+cu128.dist-info/METADATA": ""}
    assert torch_of(machine(files), "/srv/env/bin/python") == "2.9.1+cu128"


@posix
def test_a_program_of_path_is_shown_before_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    python = make_venv(Path(sys.executable), tmp_path / "image")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(python.parent))
    monkeypatch.chdir(tmp_path)

    class Watched(LocalHost):
        def inside(self, python: str, seconds: float) -> dict[str, Any]:
            started.write_text(python)
            return super().inside(python, seconds)

    host = Watched()
    shown: list[str] = []
    host.show = lambda text: shown.append(f"{text} {started.exists()}")
    assert choose(host, "").path == str(python)
    assert shown == [f"Examining {python}: python on PATH, with no torch False"]


@posix
def test_a_broken_environment_with_torch_is_named() -> None:
    files = environment(f"{PROJECT}/.venv", "2.9.1")
    links = {f"{PROJECT}/.venv/bin/python": "/opt/gone/bin/python3"}
    host = machine(files, links=links, cwd=PROJECT, python=OURS)
    with pytest.raises(ExaminationError, match=r"leads to /opt/gone/bin/python3"):
        pick(host, "")
