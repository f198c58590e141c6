"""Compiles it once, keeps it where no other user can write, or says what is missing."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor import processes
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import CudaWheel, Facts, Program, Python, System, Torch, Triton
from attn_doctor.kernels.gpus.stub import (
    compile as compiling,
)
from attn_doctor.kernels.gpus.stub import (
    generated,
    storage,
)
from attn_doctor.kernels.gpus.stub.cuda_libraries import Toolkit, find

NAMES = ("one", "two")


def facts(tmp_path: Path, major: int = 13) -> Facts:
    """An environment with empty files where torch's CUDA wheels lie."""
    site = tmp_path / "site"
    one = site / "nvidia" / ("cu13" if major == 13 else "cuda_runtime")
    blas = one if major == 13 else site / "nvidia" / "cublas"
    for path in (
        *(one / "include" / name for name in ("cuda.h", "cuda_occupancy.h", "driver_types.h")),
        one / "include" / "vector_types.h",
        one / "lib" / f"libcudart.so.{major}",
        blas / "lib" / f"libcublas.so.{major}",
        blas / "lib" / f"libcublasLt.so.{major}",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return Facts(
        system=System(os="linux", distribution="debian", musl=False, cpus=2, user_is_root=False),
        python=Python(
            path="/env/bin/python", site_packages=(str(site),), pip="25.0", prefix="/env"
        ),
        torch=Torch(
            installed=True, version="2.11.0", build="cuda", cuda=f"{major}.0", path="/none"
        ),
        triton=Triton(installed=True),
        cc=Program(path="/usr/bin/gcc", version="12.2", family="gcc", source="PATH"),
        cuda_wheels=(CudaWheel(name="nvidia-cuda-runtime", version="13.0.96", cuda_major=13),),
    )


def refusal(given: Facts) -> str:
    with pytest.raises(AttnDoctorError) as caught:
        compiling.make(given, {"XDG_CACHE_HOME": "/nowhere/at/all"})
    return str(caught.value)


# What is missing


@pytest.mark.parametrize("major", [12, 13])
def test_the_wheels_are_found(tmp_path: Path, major: int) -> None:
    found = find(facts(tmp_path, major))
    names = [Path(one).name for one in found.libraries]
    assert names == [f"lib{one}.so.{major}" for one in ("cudart", "cublas", "cublasLt")]
    assert Path(found.include, "driver_types.h").exists()


@pytest.mark.parametrize("os_", ["macos", "windows"])
def test_only_linux(tmp_path: Path, os_: str) -> None:
    given = replace(facts(tmp_path), system=System(os=os_))
    assert f"on Linux only, not on {os_}: the stub GPU is loaded by LD_PRELOAD" in refusal(given)


def test_not_with_musl(tmp_path: Path) -> None:
    given = replace(facts(tmp_path), system=System(os="linux", musl=True))
    assert "cannot be built with musl (Alpine)" in refusal(given)


def test_without_torch(tmp_path: Path) -> None:
    given = replace(facts(tmp_path), torch=Torch(installed=False))
    assert refusal(given).startswith("torch is not installed in /env/bin/python: kernels for")


def test_a_build_for_the_cpu(tmp_path: Path) -> None:
    torch = Torch(installed=True, version="2.11.0+cpu", build="cpu")
    text = refusal(replace(facts(tmp_path), torch=torch))
    assert text.startswith("torch 2.11.0+cpu in /env/bin/python is a build for cpu: kernels for an")
    assert "the same wheel as on the machine with the GPU" in text


def test_conda(tmp_path: Path) -> None:
    given = facts(tmp_path)
    given = replace(
        given,
        python=replace(given.python, site_packages=(str(tmp_path / "none"),)),
        torch=replace(given.torch, source="conda"),
    )
    assert "(conda puts the libraries into /env/lib), and the stub GPU was not" in refusal(given)


def test_a_runtime_of_torchs_own(tmp_path: Path) -> None:
    given = facts(tmp_path)
    runtime = tmp_path / "torch" / "lib" / "libcudart-1b2f.so.13"
    runtime.parent.mkdir(parents=True)
    runtime.touch()
    given = replace(
        given,
        python=replace(given.python, site_packages=(str(tmp_path / "none"),)),
        torch=replace(given.torch, path=str(tmp_path / "torch")),
    )
    assert f"torch 2.11.0 brings its own CUDA runtime ({runtime}) without headers" in refusal(given)


def test_missing_headers_name_the_wheel_and_the_command(tmp_path: Path) -> None:
    given = facts(tmp_path)
    header = tmp_path / "site" / "nvidia" / "cu13" / "include" / "driver_types.h"
    header.unlink()
    assert refusal(given) == (
        f"{header} is missing, which belongs to nvidia-cuda-runtime; install it again:"
        " /env/bin/python -m pip install --force-reinstall --no-deps nvidia-cuda-runtime==13.0.96"
    )


def test_no_compiler_gives_the_rules_command(tmp_path: Path) -> None:
    given = replace(facts(tmp_path), cc=Program(path="", source=""))
    assert refusal(given) == (
        "the stub GPU needs a C compiler, and there is none."
        " Install a compiler and the C headers with apt-get: sudo apt-get install -y g++ libc6-dev"
    )


def test_an_unknown_compiler_is_not_a_missing_one(tmp_path: Path) -> None:
    given = replace(facts(tmp_path), cc=Program(), gaps={"cc": "PATH could not be followed"})
    assert refusal(given) == (
        "it is unknown whether a C compiler is installed: PATH could not be followed"
    )


def test_a_damaged_library_is_named(tmp_path: Path) -> None:
    text = refusal(facts(tmp_path))  # its libraries are empty files
    assert "libc" in text
    assert "is damaged" in text


def test_a_compiler_that_fails_is_quoted(toolkit: Toolkit, tmp_path: Path) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'x.c:1: error: nothing works' >&2\nexit 1\n")
    broken.chmod(0o700)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(
        AttnDoctorError, match=r"could not compile the stub GPU.*exit code 1"
    ) as one:
        compiling.compile_into(out, toolkit, str(broken), 1)
    assert "x.c:1: error: nothing works" in str(one.value)


def test_no_headers_of_the_c_library(toolkit: Toolkit, tmp_path: Path) -> None:
    bare = tmp_path / "cc"
    bare.write_text(
        "#!/bin/sh\necho 'x.c:1:10: fatal error: stdio.h: No such file or directory' >&2\nexit 1\n"
    )
    bare.chmod(0o700)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(AttnDoctorError, match=r"does not find stdio.h of the C library.*libc6-dev"):
        compiling.compile_into(out, toolkit, str(bare), 1)


def test_the_source_has_no_warnings(toolkit: Toolkit, compiler: str, tmp_path: Path) -> None:
    source = Path(compiling.__file__).parent / "source"
    options = ["-std=gnu11", "-O1", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    options.append("-Wno-unused-parameter")  # functions of CUDA have more than matter here
    files = [str(one) for one in sorted(source.glob("*.c"))]
    argv = [compiler, *options, f"-I{source}", "-isystem", toolkit.include, *files]
    ended = processes.run(argv, 60.0, joined=True)
    assert ended.ok, ended.out


# What is exported


def test_the_library_offers_all_functions_and_nothing_of_its_own(
    library: Path, toolkit: Toolkit
) -> None:
    offered = generated.defined(str(library))
    wanted = {name for name in generated.defined(toolkit.libraries[0]) if name.startswith("cuda")}
    assert len(wanted) > 200
    assert wanted <= offered
    assert {"cuInit", "cuMemcpyDtoH_v2", "stub_gpu_on_read", "stub_gpu_launches"} <= offered
    assert {
        one for one in offered if not one.startswith(("cu", "__cuda", "stub_gpu_", "nccl"))
    } == set()


def test_names_of_the_driver_are_read_from_its_header() -> None:
    header = (
        "    #define cuMemAlloc                          cuMemAlloc_v2\n"
        "    #define cuMemcpy                            __CUDA_API_PTDS(cuMemcpy)\n"
        "    #define cuOther                             somethingElse\n"
        "CUresult CUDAAPI cuMemAlloc(CUdeviceptr *dptr, size_t bytesize);\n"
        "CUresult CUDAAPI cuInit(unsigned int Flags);\n"
    )
    assert generated.versions(header) == {"cuMemAlloc": "cuMemAlloc_v2", "cuMemcpy": "cuMemcpy"}
    assert generated.declared(header) == {"cuMemAlloc", "cuMemAlloc_v2", "cuMemcpy", "cuInit"}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("cublasGemmEx", "stub_launched(); return 0"),
        ("cublasSgemm_v2", "stub_launched(); return 0"),
        ("cublasLtMatmul", "stub_launched(); return 0"),
        ("cublasSetStream_v2", "return 0"),
        ("cublasDestroy_v2", "return 0"),
        ("cublasLtMatmulDescSetAttribute", "return 0"),
        ("cublasLtMatmulDescInit_internal", "return 0"),
        ("cublasLtMatmulDescGetAttribute", 'return stub_blas_refused("'),
        ("cublasGetAtomicsMode", 'return stub_blas_refused("'),
        ("cublasLtMatmulAlgoGetIds", 'return stub_blas_refused("'),
        ("cublasSdot_v2", 'return stub_blas_refused_result("'),
        ("cublasIsamax_v2", 'return stub_blas_refused_result("'),
        ("cudaGraphLaunch", 'return stub_runtime_refused("'),
        ("__cudaInitModule", 'return stub_runtime_refused("'),
    ],
)
def test_what_a_function_answers(name: str, answer: str) -> None:
    made = generated.text([name, "_init", "not_cuda"], [], {})
    assert f"WEAK int {name}(void) {{ {answer}" in made
    assert "_init" not in made.replace("cublasLtMatmulDescInit_internal", "")
    assert "not_cuda" not in made


# Keeping


def made(folder: Path, calls: list[Path]) -> Path:
    def fill(out: Path) -> None:
        calls.append(out)
        for name in NAMES:
            (out / name).write_text(name)

    return storage.kept(folder, NAMES, fill)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "cache"
    folder.mkdir(mode=0o700)
    return folder


@pytest.mark.posix
def test_it_is_compiled_once(cache: Path) -> None:
    calls: list[Path] = []
    folder = cache / "stub-gpu" / "digest"
    assert made(folder, calls) == folder == made(folder, calls)
    assert len(calls) == 1
    assert sorted(os.listdir(folder.parent)) == ["digest"]
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert (folder / "one").read_text() == "one"


@pytest.mark.parametrize("harm", ["cut", "gone", "open", "link"])
@pytest.mark.posix
def test_a_harmed_one_is_compiled_again(cache: Path, harm: str) -> None:
    calls: list[Path] = []
    folder = made(cache / "stub-gpu" / "digest", calls)
    if harm == "cut":
        (folder / "one").write_text("o")
    elif harm == "gone":
        (folder / "two").unlink()
    elif harm == "open":
        (folder / "one").chmod(0o722)
    else:
        (folder / "one").rename(cache / "one")
        (folder / "one").symlink_to(cache / "one")
    made(folder, calls)
    assert len(calls) == 2
    assert (folder / "one").read_text() == "one"
    assert not (folder / "one").is_symlink()
    assert sorted(os.listdir(folder.parent)) == ["digest"]


@pytest.mark.posix
def test_a_folder_that_others_can_write_is_refused(cache: Path) -> None:
    calls: list[Path] = []
    (cache / "stub-gpu").mkdir()
    (cache / "stub-gpu").chmod(0o777)
    with pytest.raises(
        AttnDoctorError, match=r"stub-gpu can be written by all users.*XDG_CACHE_HOME"
    ):
        made(cache / "stub-gpu" / "digest", calls)
    assert calls == []


@pytest.mark.posix
def test_a_parent_that_others_can_write_is_refused(cache: Path) -> None:
    calls: list[Path] = []
    (cache / "stub-gpu").mkdir(mode=0o700)
    cache.chmod(0o777)
    with pytest.raises(AttnDoctorError, match="cache can be written by all users"):
        made(cache / "stub-gpu" / "digest", calls)
    assert calls == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="chown needs root")
def test_a_folder_of_another_user_is_refused(cache: Path) -> None:
    (cache / "stub-gpu").mkdir(mode=0o700)
    os.chown(cache / "stub-gpu", 12345, -1)
    with pytest.raises(AttnDoctorError, match="stub-gpu belongs to 12345"):
        made(cache / "stub-gpu" / "digest", [])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="chown needs root")
def test_a_library_of_another_user_is_not_loaded(cache: Path) -> None:
    calls: list[Path] = []
    folder = made(cache / "stub-gpu" / "digest", calls)
    os.chown(folder / "one", 12345, -1)
    made(folder, calls)
    assert len(calls) == 2
    assert (folder / "one").stat().st_uid == os.geteuid()


@pytest.mark.posix
def test_nowhere_to_write(tmp_path: Path) -> None:
    file = tmp_path.resolve() / "file"
    file.touch()
    with pytest.raises(AttnDoctorError, match=r"cannot be kept in .*Not a directory"):
        made(file / "stub-gpu" / "digest", [])


@pytest.mark.posix
def test_two_at_once_agree(cache: Path) -> None:
    calls: list[Path] = []
    folder = cache / "stub-gpu" / "digest"
    threads = [threading.Thread(target=made, args=(folder, calls)) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (folder / "one").read_text() == "one"
    assert sorted(os.listdir(folder.parent)) == ["digest"]


@pytest.mark.posix
def test_what_failed_leaves_nothing(cache: Path) -> None:
    def fill(out: Path) -> None:
        (out / "one").touch()
        raise AttnDoctorError("no")

    with pytest.raises(AttnDoctorError, match=r"^no$"):
        storage.kept(cache / "stub-gpu" / "digest", NAMES, fill)
    assert os.listdir(cache / "stub-gpu") == []


def test_the_cache_folder(tmp_path: Path) -> None:
    real = tmp_path.resolve()
    assert storage.root({"XDG_CACHE_HOME": str(real)}) == real / "attn-doctor" / "stub-gpu"
    home = storage.root({"XDG_CACHE_HOME": "relative", "HOME": str(real)})
    assert home == real / ".cache" / "attn-doctor" / "stub-gpu"
    with pytest.raises(AttnDoctorError, match="neither XDG_CACHE_HOME nor HOME"):
        storage.root({})


@pytest.mark.skipif(sys.platform != "linux", reason="the stub GPU needs Linux")
def test_a_path_that_cannot_be_preloaded(
    toolkit: Toolkit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "find", lambda _: toolkit)
    with pytest.raises(AttnDoctorError, match="from a path with a space or a colon"):
        compiling.make(facts(tmp_path), {"XDG_CACHE_HOME": str(tmp_path / "my cache")})
