"""Compiled modules as the loader sees them: environments made here, and real loading beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor.examination import derive
from attn_doctor.facts import Extension, Facts
from attn_doctor.host.local import LocalHost
from attn_doctor.host.recorded import RecordedHost, RecordingHost, key
from attn_doctor.probes.distributions import scan
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed import extensions
from tests.binaries.sources import library
from tests.probes.answers import machine, site_of

C10 = "namespace c10 { int old(int x) { return x; } }"
USER = 'namespace c10 { int %s(int); } extern "C" int use() { return c10::%s(1); }'


class Environment:
    """A folder that looks like an environment with torch and flash-attn."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.site = root / "lib" / "python3.12" / "site-packages"
        self.torch = self.site / "torch"
        (self.torch / "lib").mkdir(parents=True)
        (self.torch / "version.py").write_text(
            "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n"
        )
        library(self.torch / "lib" / "libc10.so", C10, "-Wl,-soname,libc10.so")
        library(
            self.torch / "lib" / "libtorch_python.so",
            "int torch_python() { return 0; }",
            f"-L{self.torch / 'lib'}", "-Wl,--no-as-needed", "-lc10", "-Wl,-rpath,$ORIGIN",
        )  # fmt: skip
        self.package("flash-attn", "2.8.3", "flash_attn", "flash_attn_interface.py")

    def package(self, name: str, version: str, module: str, *files: str) -> None:
        """Install a distribution of empty files."""
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        for file in ("__init__.py", *files):
            (self.site / module / file).parent.mkdir(parents=True, exist_ok=True)
            (self.site / module / file).write_text("")

    def extension(self, function: str, *options: str) -> Path:
        """flash-attn's extension, which calls `c10::function`."""
        return library(
            self.site / "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so",
            USER % (function, function),
            f"-L{self.torch / 'lib'}", "-Wl,--no-as-needed", "-lc10", *options,
        )  # fmt: skip

    def read(self, **variables: str) -> tuple[tuple[Extension, ...], dict[str, str]]:
        """The extensions, read and then read again from a recording of that."""
        host = LocalHost()
        host._variables.update(variables)
        recording = RecordingHost(host, lambda name: name.startswith(("LD_", "KERNELS_", "HF_")))
        found, gaps = self._read(recording)
        assert self._read(RecordedHost(recording.answers)) == (found, gaps)
        return derive(Facts(extensions=found)).extensions or (), gaps

    def _read(self, host: Any) -> tuple[tuple[Extension, ...], dict[str, str]]:
        gaps = Gaps()
        where = scan(host, (str(self.site),), str(self.root), gaps)
        return extensions.read(host, where, gaps)["extensions"], gaps.reasons


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path)


def loads(environment: Environment, path: Path, **variables: str) -> str:
    """What the loader says when torch's libraries are there; empty if it loads."""
    first = environment.torch / "lib" / "libtorch_python.so"
    code = f"import ctypes; ctypes.CDLL({str(first)!r}); ctypes.CDLL({str(path)!r})"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return ran.stderr.strip().rpartition("\n")[2]


def test_it_loads(environment: Environment) -> None:
    path = environment.extension("old")
    (found,), gaps = environment.read()
    assert gaps == {}
    assert (found.package, found.name, found.path) == ("flash_attn", "flash_attn_2_cuda", str(path))
    assert (
        found.missing_libraries,
        found.undefined_symbol_count,
        found.mismatch,
        found.outdated_libraries,
    ) == ((), 0, "", ())
    assert found.loads is True
    assert loads(environment, path) == ""


def test_built_for_another_torch(environment: Environment) -> None:
    path = environment.extension("newer", "-Wl,--unresolved-symbols=ignore-all")
    (found,), _ = environment.read()
    assert (found.undefined_symbol_count, found.first_undefined_symbols) == (1, ("c10::newer(…)",))
    assert (found.mismatch, found.loads) == ("torch", False)
    assert "undefined symbol: _ZN3c105newerEi" in loads(environment, path)


def test_a_function_of_the_driver(environment: Environment) -> None:
    """Extensions for Hopper link against libcuda themselves."""
    driver = environment.root / "driver" / "libcuda.so.1"
    library(driver, "int cuTensorMap() { return 0; }", "-Wl,-soname,libcuda.so.1")
    source = "int cuTensorMap(); int run() { return cuTensorMap(); }"
    path = environment.site / "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so"
    library(path, source, str(driver))
    named = {"LD_LIBRARY_PATH": str(driver.parent)}
    (found,), _ = environment.read(**named)
    assert (found.undefined_symbol_count, found.loads) == (0, True)
    assert loads(environment, path, **named) == ""
    # A driver that is older than the function.
    library(driver, "int cuInit() { return 0; }", "-Wl,-soname,libcuda.so.1")
    (found,), _ = environment.read(**named)
    assert (found.first_undefined_symbols, found.mismatch) == (("cuTensorMap(…)",), "libraries")
    assert "undefined symbol: _Z11cuTensorMapv" in loads(environment, path, **named)


def test_a_missing_library_is_found_in_another_folder(environment: Environment) -> None:
    beside = environment.site / "nvidia" / "cuda_runtime" / "lib" / "libcudart.so.12"
    library(beside, "int cudart() { return 0; }", "-Wl,-soname,libcudart.so.12")
    path = environment.extension("old", str(beside))
    (found,), gaps = environment.read()
    assert gaps == {}
    assert found.missing_libraries == ("libcudart.so.12",)
    assert found.missing_found_at == (str(beside),)
    assert (found.cuda_major, found.loads) == (12, False)
    assert "libcudart.so.12: cannot open shared object file" in loads(environment, path)
    # The loader finds it in a folder of LD_LIBRARY_PATH.
    named = {"LD_LIBRARY_PATH": str(beside.parent)}
    (found,), _ = environment.read(**named)
    assert (found.missing_libraries, found.missing_found_at, found.loads) == ((), (), True)
    assert loads(environment, path, **named) == ""


@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
def test_a_folder_that_the_extension_names(environment: Environment, tags: str) -> None:
    beside = environment.site / "nvidia" / "cuda_runtime" / "lib" / "libcudart.so.12"
    library(beside, "int cudart() { return 0; }", "-Wl,-soname,libcudart.so.12")
    path = environment.extension(
        "old", str(beside), f"-Wl,-rpath,$ORIGIN/nvidia/cuda_runtime/lib,{tags}"
    )
    (found,), _ = environment.read()
    assert (found.missing_libraries, found.loads) == ((), True)
    assert loads(environment, path) == ""


def test_libraries_loaded_by_torch_count(environment: Environment) -> None:
    """Only libtorch_python names the folder of this one."""
    beside = environment.site / "nvidia" / "cu13" / "lib" / "libcudart.so.13"
    library(beside, "int cudart() { return 0; }", "-Wl,-soname,libcudart.so.13")
    library(
        environment.torch / "lib" / "libtorch_python.so",
        "int torch_python() { return 0; }",
        f"-L{environment.torch / 'lib'}", "-Wl,--no-as-needed", "-lc10", str(beside),
        "-Wl,-rpath,$ORIGIN:$ORIGIN/../../nvidia/cu13/lib",
    )  # fmt: skip
    path = environment.extension("old", str(beside))
    (found,), _ = environment.read()
    assert (found.missing_libraries, found.cuda_major, found.loads) == ((), 13, True)
    assert loads(environment, path) == ""


def test_libraries_that_torch_opens_by_path_count(environment: Environment) -> None:
    """As torch does from 2.6 on: of the CUDA runtime whichever wheel has a folder of its own."""
    wheels = environment.site / "nvidia"
    other = wheels / "cuda_runtime" / "lib" / "libcudart.so.12"
    library(other, "int cudart() { return 0; }", "-Wl,-soname,libcudart.so.12")
    path = environment.extension("old", str(other))
    assert environment.read()[0][0].missing_libraries == ("libcudart.so.12",)
    (environment.torch / "__init__.py").write_text(
        'def _preload_cuda_deps(err=None):\n    libs = [("cuda_runtime", "libcudart.so.*[0-9]")]\n'
        'def _load_global_deps():\n    try:\n        with open("/proc/self/maps") as f:\n'
        "            _maps = f.read()\n        _preload_cuda_deps()\n    except Exception:\n"
        "        pass\n"
    )
    (found,), _ = environment.read()
    assert (found.missing_libraries, found.loads) == ((), True)
    assert str(path) == found.path


def test_what_the_wheels_bring_that_torch_opens_by_path(environment: Environment) -> None:
    """Once its own libraries were not found. No system has libraries of these numbers."""
    wheels = environment.site / "nvidia"
    linker = wheels / "nvjitlink" / "lib" / "libnvJitLink.so.99"
    library(linker, "int link() { return 0; }", "-Wl,-soname,libnvJitLink.so.99")
    sparse = wheels / "cusparse" / "lib" / "libcusparse.so.99"
    library(
        sparse, "int sparse() { return 0; }", "-Wl,-soname,libcusparse.so.99",
        "-Wl,--no-as-needed", str(linker), "-Wl,-rpath,$ORIGIN/../../nvjitlink/lib",
    )  # fmt: skip
    library(
        environment.torch / "lib" / "libtorch_python.so", "int torch_python() { return 0; }",
        f"-L{environment.torch / 'lib'}", "-Wl,--no-as-needed", "-lc10", str(sparse),
        "-Wl,-rpath,$ORIGIN",
    )  # fmt: skip
    environment.extension("old", str(linker))
    assert environment.read()[0][0].missing_libraries == ("libnvJitLink.so.99",)
    (environment.torch / "__init__.py").write_text('libs = {"cuda_runtime": "libcudart.so.*[0-9]"}')
    (found,), _ = environment.read()
    assert (found.missing_libraries, found.loads) == ((), True)


def test_a_library_too_old(environment: Environment, tmp_path: Path) -> None:
    script = tmp_path / "new.map"
    script.write_text("THING_1.2 { global: *; };\nTHING_1.10 { global: newer*; } THING_1.2;\n")
    folder = environment.torch / "lib"
    source = 'extern "C" { int thing() { return 0; } int newer_thing() { return 1; } }'
    named = ("-Wl,-soname,libthing.so.1",)
    thing = library(folder / "libthing.so.1", source, f"-Wl,--version-script={script}", *named)
    path = library(
        environment.site / "flash_attn_2_cuda.so",
        'extern "C" int newer_thing(); int use() { return newer_thing(); }',
        str(thing), "-Wl,-rpath,$ORIGIN/torch/lib",
    )  # fmt: skip
    assert environment.read()[0][0].loads is True
    script = tmp_path / "old.map"
    script.write_text("THING_1.2 { global: *; };\nTHING_1.9 { global: newer*; } THING_1.2;\n")
    library(thing, source, f"-Wl,--version-script={script}", *named)
    (found,), _ = environment.read()
    assert found.outdated_libraries == ("libthing.so.1",)
    assert found.missing_symbol_versions == ("THING_1.10 of libthing.so.1",)
    assert found.loads is False
    assert "version `THING_1.10' not found" in loads(environment, path)


def test_symbols_of_a_missing_torch_library_are_unknown(environment: Environment) -> None:
    environment.extension("old")
    (environment.torch / "lib" / "libc10.so").unlink()
    (found,), gaps = environment.read()
    assert found.missing_libraries == ("libc10.so",)
    assert (found.undefined_symbol_count, found.mismatch) == (None, "unchecked")
    assert gaps["extensions[0].undefined_symbol_count"] == (
        "libc10.so, which would define its symbols, is missing"
    )
    assert found.loads is False


def test_a_file_that_is_damaged(environment: Environment) -> None:
    path = environment.extension("old")
    path.write_bytes(path.read_bytes()[:1000])
    (found,), gaps = environment.read()
    assert found.path == str(path)
    assert (found.missing_libraries, found.undefined_symbol_count, found.archs, found.loads) == (
        None,
        None,
        None,
        False,
    )
    assert "it ends after 1000 of at least" in gaps["extensions[0].missing_libraries"]
    assert "it ends after 1000 of at least" in gaps["extensions[0].archs"]


def test_no_compiled_modules(environment: Environment) -> None:
    assert environment.read() == ((), {})


def test_a_recording_without_the_answers(environment: Environment) -> None:
    environment.extension("old")
    recording = RecordingHost(LocalHost(), lambda _: False)
    environment._read(recording)
    asked = ("binary ", "versions ", "gpu_code ", "unresolved ")
    older = {name: one for name, one in recording.answers.items() if not name.startswith(asked)}
    (found,), gaps = environment._read(RecordedHost(older))
    assert (found.missing_libraries, found.undefined_symbol_count, found.archs) == (
        None,
        None,
        None,
    )
    assert "not in the recording" in gaps["extensions[0].missing_libraries"]


def test_bitsandbytes_has_only_the_library_for_this_cuda(environment: Environment) -> None:
    environment.package("bitsandbytes", "0.50.2", "bitsandbytes")
    for name in ("cpu", "cuda126", "cuda130"):
        library(environment.site / "bitsandbytes" / f"libbitsandbytes_{name}.so", "int x;")
    found, _ = environment.read()
    assert [one.name for one in found] == ["libbitsandbytes_cuda130"]


def test_kernels_of_the_hub(environment: Environment, tmp_path: Path) -> None:
    environment.package("kernels", "0.17.2", "kernels")
    build = (
        tmp_path / "hub" / "kernels--kernels-community--flash-attn3" / "snapshots" / "a" / "build"
    )
    arch = os.uname().machine
    for variant in ("torch210-cxx11-cu130", "torch211-cxx11-cu130", "torch211-cxx11-cu126"):
        library(build / f"{variant}-{arch}-linux" / "flash_attn3" / "_fa3_1.abi3.so", "int x;")
    library(build / f"torch-stable-abi212-cu130-{arch}-linux" / "_fa3_2.abi3.so", "int x;")
    found, _ = environment.read(KERNELS_CACHE=str(tmp_path / "hub"), HF_HUB_CACHE="/none")
    assert [(one.package, one.name) for one in found] == [
        ("hub", "kernels-community/flash-attn3/_fa3_1")
    ]
    assert f"/torch211-cxx11-cu130-{arch}-linux/" in str(found[0].path)


def test_a_kernel_of_the_hub_for_the_other_cxx_abi_is_not_loaded(
    environment: Environment, tmp_path: Path
) -> None:
    environment.package("kernels", "0.17.2", "kernels")
    config = environment.site / "torch" / "share" / "cmake" / "Torch" / "TorchConfig.cmake"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI=1")\n')
    build = (
        tmp_path / "hub" / "kernels--kernels-community--flash-attn3" / "snapshots" / "a" / "build"
    )
    library(build / f"torch211-cxx98-cu130-{os.uname().machine}-linux" / "_fa3.so", "int x;")
    assert environment.read(KERNELS_CACHE=str(tmp_path / "hub"), HF_HUB_CACHE="/none")[0] == ()


# Windows


def windows(
    needed: list[str], *files: str, unresolved: Mapping[str, Any] | None = None, **variables: str
) -> tuple[Extension, dict[str, str]]:
    site = r"C:\env\Lib\site-packages"
    pyd = rf"{site}\flash_attn_2_cuda.cp312-win_amd64.pyd"
    info = rf"{site}\flash_attn-2.8.3.dist-info\METADATA"
    module = [rf"{site}\flash_attn\{name}" for name in ("__init__.py", "flash_attn_interface.py")]
    texts = dict.fromkeys((pyd, *module, rf"{site}\torch\lib\c10.dll", *files), "")
    texts[info] = "Metadata-Version: 2.1\nName: flash-attn\nVersion: 2.8.3\n"
    code = {"cubins": {"80": 3}, "ptx": {}, "isa": "", "whole": True, "damaged": ""}
    host = machine(
        texts,
        os="windows",
        environ={"SystemRoot": r"C:\Windows", **variables},
        more={
            key("binary", pyd): {"answer": {"format": "pe", "needed": needed}},
            key("gpu_code", pyd): {"answer": code},
            key("unresolved", [pyd]): {"answer": [unresolved or {}]},
        },
    )
    gaps = Gaps()
    (found,) = extensions.read(host, site_of(host, site, prefix=r"C:\env"), gaps)["extensions"]
    return found, gaps.reasons


def test_dlls_are_found_where_windows_looks() -> None:
    system = r"C:\Windows\System32\KERNEL32.dll"
    found, gaps = windows(
        ["C10.dll", "kernel32.dll", "python312.dll", "api-ms-win-crt-runtime-l1-1-0.dll"], system
    )
    assert (found.missing_libraries, found.archs, found.mismatch) == ((), ("80",), "")
    assert found.undefined_symbol_count == 0
    assert not gaps


def test_functions_that_a_dll_of_torch_lacks() -> None:
    name = "?toScalarType@TypeMeta@caffe2@@QEAA?AW4ScalarType@c10@@XZ"
    lacking = {"count": 1, "torch": 1, "first": [name]}
    found, _ = windows(["c10.dll"], unresolved=lacking)
    assert (found.mismatch, found.undefined_symbol_count) == ("torch", 1)
    assert found.first_undefined_symbols == ("caffe2::TypeMeta::toScalarType(…)",)


def test_functions_of_a_dll_that_is_missing_are_unknown() -> None:
    found, gaps = windows(["c10.dll", "torch_cuda.dll"])
    assert (found.mismatch, found.missing_libraries) == ("unchecked", ("torch_cuda.dll",))
    assert gaps["extensions[0].undefined_symbol_count"] == (
        "torch_cuda.dll, which would define its symbols, is missing"
    )


def test_a_dll_of_another_cuda() -> None:
    other = r"C:\CUDA\v12.8\bin\cudart64_12.dll"
    found, _ = windows(["c10.dll", "cudart64_12.dll"], other, CUDA_PATH=r"C:\CUDA\v12.8")
    assert found.missing_libraries == ("cudart64_12.dll",)
    assert found.missing_found_at == (other,)
    assert found.cuda_major == 12


def test_none_on_macos() -> None:
    host = machine({}, os="macos")
    assert extensions.read(host, site_of(host, "/env"), Gaps()) == {"extensions": ()}


# A real torch


def test_beside_a_real_torch(tmp_path: Path, torch_python: str) -> None:
    """Needs Linux and g++ too."""
    python = torch_python
    code = "import torch; print(torch.__path__[0])"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    torch = Path(found.strip())
    environment = Environment(tmp_path)
    for name in ("version.py", "lib"):
        place = environment.torch / name
        place.rename(tmp_path / f"old-{name}")
        place.symlink_to(torch / name)
    for function, error in (("get_backtrace", ""), ("gone_since", "undefined symbol")):
        source = (
            "#include <string>\nnamespace c10 { std::string FUNCTION(size_t, size_t, bool); }"
            "\nint use() { return c10::FUNCTION(0, 1, true).size(); }"
        ).replace("FUNCTION", function)
        # A real extension needs the library of the torch it is loaded into by its name alone.
        path = library(
            environment.site / "flash_attn_2_cuda.so", source,
            "-Wl,--unresolved-symbols=ignore-all", "-Wl,--no-as-needed",
            str(torch / "lib" / "libc10.so"),
        )  # fmt: skip
        (extension,), _ = environment.read()
        code = f"import torch, ctypes; ctypes.CDLL({str(path)!r})"
        ran = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        assert error in ran.stderr
        assert (ran.returncode == 0) is (error == "")
        assert extension.loads is (error == "")
        assert extension.mismatch == ("torch" if error else "")


@pytest.mark.parametrize("length", [0, 40, 5000])
def test_a_file_that_ends_early_is_a_fault(environment: Environment, length: int) -> None:
    path = environment.extension("old")
    path.write_bytes(path.read_bytes()[:length])
    (found,), _ = environment.read()
    assert found.fault
    assert found.loads is False
    assert found.load_error == found.fault


def test_the_loader_does_not_read_the_table_of_sections(environment: Environment) -> None:
    whole = environment.extension("old").read_bytes()
    (before,), _ = environment.read()
    environment.extension("old").write_bytes(whole[:-1])
    (after,), _ = environment.read()
    assert (after.fault, after.loads, after.load_error) == ("", before.loads, before.load_error)


def test_an_extension_of_another_python_is_a_fault(environment: Environment) -> None:
    ours = environment.extension("old")
    theirs = ours.with_name(ours.name.replace("312", "311"))
    ours.rename(theirs)
    where = scan(LocalHost(), (str(environment.site),), str(environment.root), Gaps())

    def faults(cache_tag: str) -> list[str | None]:
        found = extensions.read(LocalHost(), replace(where, cache_tag=cache_tag), Gaps())
        return [one.fault for one in found["extensions"]]

    assert faults("cpython-312") == ["it is made for Python 3.11, and this is Python 3.12"]
    assert faults("cpython-311") == [""]
    ours.write_bytes(theirs.read_bytes())
    assert faults("cpython-312") == ["", ""], "the other file is the one that is imported"


def test_a_symbol_of_the_c_library_without_a_version(environment: Environment) -> None:
    """torchvision 0.29 needs `dlopen`, linked without glibc's versions."""
    code = 'extern "C" void *dlopen(const char *, int); void *use() { return dlopen("", 1); }'
    path = library(environment.site / "flash_attn_2_cuda.so", code, "-nostdlib")
    (found,), _ = environment.read()
    assert (found.first_undefined_symbols, found.loads) == ((), True)
    assert loads(environment, path) == ""


def test_a_symbol_of_the_cpp_library_without_a_version(environment: Environment) -> None:
    """torchaudio 2.11 needs `std::string`, linked without libstdc++'s versions."""
    stub = library(
        environment.root / "libstdc++.so.6", "int none;", "-Wl,-soname,libstdc++.so.6", "-nostdlib"
    )
    path = library(
        environment.site / "flash_attn_2_cuda.so",
        "#include <string>\nbool use(std::string &one) { one.clear(); return one.find('x'); }",
        "-O2", "-nostdlib", "-Wl,--no-as-needed", str(stub), "-lc",
    )  # fmt: skip
    (found,), _ = environment.read()
    assert (found.first_undefined_symbols, found.loads) == ((), True)
    assert loads(environment, path) == ""
