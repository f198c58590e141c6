"""`attn-doctor install` with real installers, in environments with tiny packages."""

from __future__ import annotations

import json
import platform
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from attn_doctor.fixes import ready_wheels
from tests.binaries.sources import library
from tests.command import Ended, run
from tests.environments import TORCH, Environment, wheel
from tests.wheels.range_server import serving

#: What `check` looks for in a torch that is whole.
FILES = {
    "torch/__init__.py": "",
    "torch/lib/readme": "",
    "torch/nn/attention/flex_attention.py": "",
}


def install(where: Environment, *words: str) -> Ended:
    """`attn-doctor install` on an environment."""
    argv = where.argv(*words)
    argv[0] = "install"
    return run(*argv, environ=where.variables)


def torch_wheel(folder: Path, version: str, cuda: str = "") -> None:
    text = TORCH.replace("2.11.0+cu130", version).replace("'13.0'", repr(cuda or None))
    # A file outside of site-packages, in a folder that the environment does not have.
    data = {f"torch-{version}.data/data/share/torch/notes.txt": "x"}
    wheel(folder, "torch", version, {**FILES, **data, "torch/version.py": text})


@pytest.fixture
def empty(env: Environment, tmp_path: Path) -> Environment:
    """An environment without torch; the index has one release for the processor."""
    for path in [*env.site.glob("torch*"), *env.site.glob("triton*"), *env.site.glob("diffusers*")]:
        shutil.rmtree(path)
    folder = tmp_path / "offered"
    folder.mkdir()
    torch_wheel(folder, "2.14.1+cpu")
    env.variables["PIP_FIND_LINKS"] = str(folder)
    return env


@pytest.mark.recipes
@pytest.mark.posix
def test_torch_into_an_empty_environment(empty: Environment) -> None:
    """The newest release is not offered, so the one before is taken."""
    before, frozen = empty.tree(), empty.freeze()
    for path in empty.prefix.rglob("__pycache__"):
        shutil.rmtree(path)
    planned = install(empty, "torch", "--dry-run")
    assert not [*empty.prefix.rglob("*.pyc")]  # of pip, which was asked
    assert planned.returncode == 0, planned.text
    assert "2.14.1 for the processor, from PyTorch's index cpu" in planned.stdout
    assert "+ torch 2.14.1+cpu" in planned.stdout
    assert empty.tree() == before
    done = install(empty, "torch", "--yes")
    assert done.returncode == 0, done.text
    assert "✓ `import torch` works" in done.stdout
    assert (empty.prefix / "share/torch/notes.txt").is_file()
    assert empty.freeze() == "".join(sorted([*frozen.splitlines(True), "torch==2.14.1+cpu\n"]))
    again = install(empty, "torch", "--yes")
    assert (again.returncode, "2.14.1+cpu stays" in again.stdout) == (0, True)
    assert empty.fix("undo", "--yes", examine=False).returncode == 0
    assert empty.tree() == before
    assert not (empty.prefix / "share").exists()


@pytest.mark.posix
def test_without_a_terminal_nothing_is_changed(empty: Environment) -> None:
    before = empty.tree()
    ended = install(empty, "torch")
    assert (ended.returncode, "run the same command with --yes" in ended.text) == (1, True)
    found = json.loads(install(empty, "torch", "--json").stdout)
    assert (found["exit_code"], found["applied"]) == (1, False)
    assert empty.tree() == before


@pytest.mark.posix
def test_an_import_that_fails(empty: Environment, tmp_path: Path) -> None:
    text = TORCH.replace("2.11.0+cu130", "2.15.0+cpu").replace("'13.0'", "None")
    failing = {"torch/__init__.py": "raise OSError('no libcudart')", "torch/version.py": text}
    files = {**FILES, **failing}
    wheel(tmp_path / "offered", "torch", "2.15.0+cpu", files)
    ended = install(empty, "torch", "--yes")
    assert (ended.returncode, "✗ `import torch` fails: OSError: no libcudart" in ended.stdout) == (
        1,
        True,
    )


@pytest.mark.posix
def test_no_set(empty: Environment) -> None:
    ended = install(empty, "xformers", "--pretend", "os=macos")
    assert ended.returncode == 1
    assert "no set of releases fits macos arm64" in ended.stdout
    assert "PyTorch publishes no torch for CUDA for macOS" in ended.stdout
    (one,) = json.loads(install(empty, "sage", "--for", "training", "--json").stdout)["conflict"]
    assert "no backward pass" in one["reason"]


@pytest.mark.posix
def test_wrong_usage(empty: Environment) -> None:
    ended = install(empty, "flsh")
    assert (ended.returncode, "flsh is not known to install; did you mean flash" in ended.text) == (
        2,
        True,
    )


FLASH = "flash_attn-2.8.3+cu13torch2.10cxx11abiTRUE-{0}-{0}-linux_{1}.whl"
MACHINE = platform.machine()


@pytest.fixture
def release(
    env: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Environment]:
    """A release on a loopback server, with a compiled flash-attn for the torch here."""
    with serving(tmp_path / "release") as server:
        server.folder.mkdir()
        python = f"cp3{env.site.parent.name.rpartition('.')[2]}"
        published = ready_wheels.ReadyWheel(
            package="flash-attn",
            version="2.8.3",
            publisher="a test",
            official=True,
            file=FLASH.format(python, MACHINE),
            url=server.url(FLASH.format(python, MACHINE).replace("+", "%2B")),
            torch="2.11",
            and_later=False,
            cuda="13",
            abi=None,
            python=f"{python}-{python}",
            platform=f"linux_{MACHINE}",
        )
        monkeypatch.setattr(ready_wheels, "_all", lambda: (published,))
        ready_wheels._of.cache_clear()
        yield env
        ready_wheels._of.cache_clear()
    ready_wheels._of.cache_clear()


def flash(where: Environment, folder: Path, function: str) -> None:
    """Put a wheel with an extension that calls a function of torch into the release."""
    library(where.site / "torch/lib/libc10.so", "namespace c10 { int known(int x) { return x; } }")
    code = f"namespace c10 {{ int {function}(int); }} int use() {{ return c10::{function}(1); }}"
    made = library(folder / "flash.so", code)
    python = f"cp3{where.site.parent.name.rpartition('.')[2]}"
    path = wheel(folder, "flash_attn", "2.8.3", {"flash_attn/__init__.py": ""})
    with zipfile.ZipFile(path, "a") as archive:
        archive.write(made, "flash_attn_2_cuda.so")
    path.rename(folder / "release" / FLASH.format(python, MACHINE))


@pytest.mark.posix
def test_a_wheel_that_loads_is_named_by_its_address(release: Environment, tmp_path: Path) -> None:
    flash(release, tmp_path, "known")
    ended = install(release, "flash", "--dry-run", "--no-resolve")
    assert "2.11.0+cu130 stays" in ended.stdout, ended.text
    assert "2.8.3, prebuilt; published by a test" in ended.stdout
    assert "loads: this torch has all 1 symbols that it needs" in ended.stdout
    assert "pip install 'flash-attn @ http://127.0.0.1:" in ended.stdout


@pytest.mark.posix
@pytest.mark.driverless
def test_a_wheel_that_lacks_a_symbol_is_not_taken(release: Environment, tmp_path: Path) -> None:
    flash(release, tmp_path, "newer")
    ended = install(release, "flash", "--dry-run", "--no-resolve", "--keep-torch")
    assert ended.returncode == 1, ended.text
    assert "no set of releases fits" in ended.stdout
    assert "127.0.0.1" not in ended.stdout


def test_reinstall_replaces_a_package_that_loads() -> None:
    machine = "os=windows,gpu=rtx4090,torch=2.7.1+cu128,python=3.12,driver=576.52,flash-attn=2.5.8"
    argv = ("install", "flash", "--community", "--dry-run", "--no-read", "--no-resolve")
    kept = run(*argv, "--pretend", machine)
    assert "2.5.8 stays" in kept.stdout, kept.text
    replaced = run(*argv, "--reinstall", "--pretend", machine)
    assert "pip install --force-reinstall --no-deps --no-cache-dir 'flash-attn @" in replaced.stdout
