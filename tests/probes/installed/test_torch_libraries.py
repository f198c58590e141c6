"""Libraries without which `import torch` fails: read here, and tried with the real loader."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attn_doctor.facts import Torch
from attn_doctor.host.local import LocalHost
from attn_doctor.probes.distributions import scan
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed import torch
from tests.binaries.sources import library
from tests.probes.environments import environment
from tests.probes.installed.test_torch import package

RUNTIME = "-Wl,-rpath,$ORIGIN/../../nvidia/cuda_runtime/lib"


class Environment:
    """An environment whose torch needs the CUDA runtime of a wheel beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = root / "lib" / "python3.12" / "site-packages"
        self.lib = self.site / "torch" / "lib"
        self.runtime = self.site / "nvidia" / "cuda_runtime" / "lib" / "libcudart.so.12"
        library(self.runtime, "int cudart() { return 0; }", "-Wl,-soname,libcudart.so.12")
        self.lib.mkdir(parents=True)
        (self.lib.parent / "version.py").write_text("__version__ = '2.4.1+cu121'\n")
        needs = ("-Wl,--no-as-needed", f"-L{self.runtime.parent}", "-l:libcudart.so.12", RUNTIME)
        library(self.lib / "libc10_cuda.so", "int c10() { return 0; }", *needs)
        library(
            self.lib / "libtorch_python.so", "int torch_python() { return 0; }",
            "-Wl,--no-as-needed", f"-L{self.lib}", "-lc10_cuda", "-Wl,-rpath,$ORIGIN",
            f"-Wl,-rpath-link,{self.runtime.parent}",
        )  # fmt: skip

    def read(self, **variables: str) -> tuple[Torch, dict[str, str]]:
        host, gaps = LocalHost(), Gaps()
        host._variables.update(variables)
        site = scan(host, (str(self.site),), str(self.root), gaps)
        return torch.read(host, site, gaps)["torch"], gaps.reasons

    def loads(self, **variables: str) -> bool:
        """Whether the loader takes what `import torch` loads."""
        code = f"import ctypes; ctypes.CDLL({str(self.lib / 'libtorch_python.so')!r})"
        return not subprocess.run(
            [sys.executable, "-c", code], env=variables, capture_output=True, check=False
        ).returncode


@pytest.fixture
def installed(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


def test_all_there(installed: Environment) -> None:
    assert installed.read()[0].missing_libraries == ()
    assert installed.loads()


def test_a_wheel_was_left_out(installed: Environment) -> None:
    installed.runtime.unlink()
    assert installed.read()[0].missing_libraries == ("libcudart.so.12",)
    assert not installed.loads()


def test_the_library_of_its_extension_is_gone(installed: Environment, tmp_path: Path) -> None:
    extension = installed.lib.parent / "_C.cpython-312-x86_64-linux-gnu.so"
    first = installed.lib / "libtorch_python.so"
    library(
        extension, "int extension() { return 0; }", "-Wl,--no-as-needed", f"-L{installed.lib}",
        "-ltorch_python", "-Wl,-rpath,$ORIGIN/lib", "-Wl,--allow-shlib-undefined",
        f"-Wl,-rpath-link,{installed.runtime.parent}",
    )  # fmt: skip
    assert "libtorch_python" not in (installed.read()[0].installation_error or "")
    first.rename(tmp_path / first.name)
    error = installed.read()[0].installation_error
    assert error is not None
    assert f"torch/lib lacks {first.name}, which torch/{extension.name} needs" in error
    with_folder = installed.read(LD_LIBRARY_PATH=str(tmp_path))[0].installation_error
    assert with_folder is not None
    assert "libtorch_python" not in with_folder


def test_a_library_of_torch_itself_is_gone(installed: Environment) -> None:
    (installed.lib / "libc10_cuda.so").unlink()
    found, reasons = installed.read()
    assert not found.missing_libraries
    assert "torch/lib lacks libc10_cuda.so" in (found.installation_error or ""), reasons
    assert not installed.loads()


def test_the_loader_finds_it_in_another_folder(installed: Environment, tmp_path: Path) -> None:
    other = tmp_path / "opt"
    other.mkdir()
    installed.runtime.rename(other / installed.runtime.name)
    found, _ = installed.read(LD_LIBRARY_PATH=str(other))
    assert found.missing_libraries == ()
    assert installed.loads(LD_LIBRARY_PATH=str(other))


@pytest.mark.parametrize(
    ("tags", "made", "lacks"),
    [
        ("--enable-new-dtags", "int other() { return 0; }", "libc10_cuda.so needs _Z4helpv"),
        ("--enable-new-dtags", "int help() { return 0; }", ""),
        # RPATH is searched before LD_LIBRARY_PATH.
        ("--disable-new-dtags", "int other() { return 0; }", ""),
        ("--enable-new-dtags", None, "its ELF header is truncated"),
    ],
)
@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LD_PRELOAD"])
def test_another_library_comes_first(
    installed: Environment, tmp_path: Path, variable: str, tags: str, made: str | None, lacks: str
) -> None:
    soname = "-Wl,-soname,libhelp.so.1"
    own = library(installed.lib / "libhelp.so.1", "int help() { return 0; }", soname)
    library(
        installed.lib / "libc10_cuda.so", "int help(); int c10() { return help(); }",
        f"-L{own.parent}", "-l:libhelp.so.1", "-Wl,-rpath,$ORIGIN", f"-Wl,{tags}",
    )  # fmt: skip
    other = tmp_path / "other" / own.name
    other.parent.mkdir()
    if made is None:
        other.write_bytes(own.read_bytes()[:20])
    else:
        library(other, made, soname)
    value = str(other if variable == "LD_PRELOAD" else other.parent)
    if variable == "LD_PRELOAD" and tags == "--disable-new-dtags":
        lacks = "libc10_cuda.so needs _Z4helpv"
    if variable == "LD_PRELOAD" and made is None:
        lacks = ""  # the loader passes over a file of LD_PRELOAD that it cannot load
    found, gaps = installed.read(**{variable: value})
    assert found.missing_libraries == (), gaps
    expected = (str(other), lacks, variable) if lacks else ("", "", "")
    assert (found.foreign_library, found.foreign_fault, found.foreign_variable) == expected
    assert bool(found.import_error) == bool(lacks)
    assert installed.loads(**{variable: value}) == (not lacks)


def test_unreadable_files_give_unknown(installed: Environment) -> None:
    (installed.lib / "libc10_cuda.so").write_bytes(b"\x7fELF" + b"\xff" * 60)
    found, gaps = installed.read()
    assert found.missing_libraries is None
    assert "libc10_cuda.so: " in gaps["torch.missing_libraries"]


def test_libraries_are_unknown_on_other_systems() -> None:
    host, site = environment(package("2.11.0"), os="macos")
    gaps = Gaps()
    assert torch.read(host, site, gaps)["torch"].missing_libraries is None
    assert gaps.reasons["torch.missing_libraries"].endswith("on Linux only")


def with_nccl(installed: Environment, has: str, needs: str) -> Path:
    """Add an NCCL that has one function, and a torch that needs one of it; return the NCCL."""
    nccl = installed.site / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
    library(nccl, f'extern "C" int {has}() {{ return 0; }}', "-Wl,-soname,libnccl.so.2")
    library(
        installed.lib / "libtorch_cuda.so",
        f'extern "C" int {needs}(); int torch_cuda() {{ return {needs}(); }}',
        "-Wl,--no-as-needed", f"-L{nccl.parent}", "-l:libnccl.so.2",
        "-Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib", "-Wl,--unresolved-symbols=ignore-all",
        "-Wl,-z,now",
    )  # fmt: skip
    library(
        installed.lib / "libtorch_python.so", "int torch_python() { return 0; }",
        "-Wl,--no-as-needed", f"-L{installed.lib}", "-ltorch_cuda", "-Wl,-rpath,$ORIGIN",
        "-Wl,--allow-shlib-undefined",
    )  # fmt: skip
    return nccl


@pytest.mark.parametrize("defined", [True, False])
def test_a_cuda_wheel_of_another_version_lacks_a_symbol(
    installed: Environment, defined: bool
) -> None:
    """nvidia-nccl-cu12 2.18.1 beside torch 2.9.1: `undefined symbol: ncclMemFree`."""
    with_nccl(installed, "ncclMemFree" if defined else "ncclOld", "ncclMemFree")
    for name, version, needs in (
        ("torch", "2.4.1", "nvidia-nccl-cu12==2.20.5"),
        ("nvidia_nccl_cu12", "2.18.1", ""),
    ):
        info = installed.site / f"{name}-{version}.dist-info"
        info.mkdir()
        text = f"Name: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(text + (f"Requires-Dist: {needs}\n" if needs else ""))
    said = installed.read()[0].import_error or ""
    assert installed.loads() is defined
    assert said.startswith("" if defined else "libtorch_cuda.so: undefined symbol ncclMemFree")
    assert bool(said) is not defined


@pytest.mark.parametrize("defined", [True, False])
def test_a_wheel_for_another_cuda_overwrites_a_library(
    installed: Environment, defined: bool
) -> None:
    """nvidia-nccl-cu12 2.21.5 beside torch 2.11.0 for CUDA 13: no `ncclCommWindowDeregister`."""
    nccl = with_nccl(installed, "ncclNew" if defined else "ncclOld", "ncclNew")
    (installed.lib.parent / "version.py").write_text(
        "__version__ = '2.11.0+cu130'\ncuda = '13.0'\n"
    )
    for name, version, size in (("cu13", "2.28.9", 1), ("cu12", "2.21.5", nccl.stat().st_size)):
        info = installed.site / f"nvidia_nccl_{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: nvidia-nccl-{name}\nVersion: {version}\n")
        (info / "RECORD").write_text(f"nvidia/nccl/lib/libnccl.so.2,sha256=a,{size}\n")
    found = installed.read()[0]
    assert installed.loads() is defined
    assert found.overwritten_wheel == "nvidia-nccl-cu13==2.28.9"
    said = (
        "libtorch_cuda.so: undefined symbol ncclNew; another wheel has overwritten nvidia-nccl-cu13"
    )
    assert (found.import_error or "").startswith("" if defined else said)
    assert bool(found.import_error) is not defined


@pytest.mark.parametrize("defined", [True, False])
def test_a_cuda_wheel_lacks_a_symbol_that_another_one_needs(
    installed: Environment, defined: bool
) -> None:
    """nvidia-nvjitlink-cu12 12.1 beside torch 2.6: `undefined symbol: __nvJitLinkComplete_12_4`."""
    nvidia = installed.site / "nvidia"
    (installed.site / "link.map").write_text("libnvJitLink.so.12 { global: complete*; };\n")
    version = f"-Wl,--version-script={installed.site / 'link.map'},-soname,libnvJitLink.so.12"
    needed = 'extern "C" int complete_12_4() { return 0; }'
    link = library(nvidia / "nvjitlink" / "lib" / "libnvJitLink.so.12", needed, version)
    cusparse = library(
        nvidia / "cusparse" / "lib" / "libcusparse.so.12",
        'extern "C" int complete_12_4(); int sparse() { return complete_12_4(); }',
        "-Wl,-soname,libcusparse.so.12", f"-L{link.parent}", "-l:libnvJitLink.so.12",
        "-Wl,-rpath,$ORIGIN/../../nvjitlink/lib,-z,now",
    )  # fmt: skip
    if not defined:
        library(link, 'extern "C" int complete_12_1() { return 0; }', version)
    library(
        installed.lib / "libtorch_cuda.so", "int torch_cuda() { return 0; }",
        "-Wl,--no-as-needed,--allow-shlib-undefined", f"-L{cusparse.parent}",
        "-l:libcusparse.so.12", "-Wl,-rpath,$ORIGIN/../../nvidia/cusparse/lib",
    )  # fmt: skip
    library(
        installed.lib / "libtorch_python.so", "int torch_python() { return 0; }",
        "-Wl,--no-as-needed,--allow-shlib-undefined", f"-L{installed.lib}", "-ltorch_cuda",
        "-Wl,-rpath,$ORIGIN",
    )  # fmt: skip
    for name, release, needs in (
        ("torch", "2.6.0", "Requires-Dist: nvidia-nvjitlink-cu12==12.4.127\n"),
        ("nvidia_nvjitlink_cu12", "12.1.105", ""),
    ):
        info = installed.site / f"{name}-{release}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: {release}\n{needs}")
    said = installed.read()[0].import_error or ""
    assert installed.loads() is defined
    assert bool(said) is not defined
    assert said.startswith("" if defined else "libcusparse.so.12: undefined symbol complete_12_4;")
