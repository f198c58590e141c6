"""CUDA wheels, and the libraries that take the place of torch's own.

What wins was watched with LD_DEBUG: torch 2.4.1+cu121 and 2.11.0+cu130 with a second copy of every
NVIDIA library on LD_LIBRARY_PATH.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from attn_doctor.facts import CudaWheel, ShadowingLibrary
from attn_doctor.host import Host
from attn_doctor.host.recorded import RecordedHost, RecordingHost
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed import libraries
from tests.probes.answers import machine, site_of

SITE = "/env/lib/site-packages"
#: torch/__init__.py of 2.4: it reaches for the wheels only if the loader found nothing.
PLAIN = """
def _load_global_deps() -> None:
    try:
        ctypes.CDLL(global_deps_lib_path, mode=ctypes.RTLD_GLOBAL)
    except OSError as err:
        cuda_libs: Dict[str, str] = {
            'cublas': 'libcublas.so.*[0-9]',
            'nvjitlink': 'libnvJitLink.so.*[0-9]',
        }
"""
#: Of 2.6 to 2.9: some are loaded by path at once.
SOME = """
    try:
        ctypes.CDLL(global_deps_lib_path, mode=ctypes.RTLD_GLOBAL)
        try:
            with open("/proc/self/maps") as f:
                _maps = f.read()
            if "nvidia/cuda_runtime/lib/libcudart.so" not in _maps:
                return
            _preload_cuda_deps("cuda_nvrtc", "libnvrtc.so.*[0-9]")
            _preload_cuda_deps("nvjitlink", "libnvJitLink.so.*[0-9]")
        except Exception:
            pass
"""
#: Of 2.11: all of a list.
MOST = """
def _preload_cuda_deps(err: OSError | None = None) -> None:
    cuda_libs: list[tuple[str, str]] = [
        ("cublas", "libcublasLt.so.*[0-9]"),
        ("cudnn", "libcudnn.so.*[0-9]"),
        ("cuda_nvrtc", "libnvrtc.so.*[0-9]"),
        ("cuda_nvrtc", "libnvrtc-builtins.so.*[0-9]"),
        ("cuda_runtime", "libcudart.so.*[0-9]"),
        ("nvjitlink", "libnvJitLink.so.*[0-9]"),
    ]
def _load_global_deps() -> None:
    try:
        try:
            with open("/proc/self/maps") as f:
                _maps = f.read()
            _preload_cuda_deps()
        except Exception:
            pass
"""
NAMES = (
    "cuda_runtime/lib/libcudart.so.12",
    "cublas/lib/libcublas.so.12",
    "cublas/lib/libcublasLt.so.12",
    "cudnn/lib/libcudnn.so.9",
    "cudnn/lib/libcudnn_graph.so.9",
    "nvjitlink/lib/libnvJitLink.so.12",
    "cuda_nvrtc/lib/libnvrtc.so.12",
    "cuda_nvrtc/lib/libnvrtc-builtins.so.12.4",
    "nvtx/lib/libnvToolsExt.so.1",
)


def torch(source: str = PLAIN, nvidia: str = SITE) -> dict[str, str]:
    wheels = {f"{nvidia}/nvidia/{name}": "" for name in NAMES}
    return {f"{SITE}/torch/__init__.py": source, f"{SITE}/torch/lib/libtorch_cuda.so": "", **wheels}


def copies(folder: str) -> dict[str, str]:
    return {f"{folder}/{name.rpartition('/')[2]}": "" for name in NAMES}


def shadows(host: Host, *folders: str) -> dict[str, ShadowingLibrary]:
    site = site_of(host, *(folders or (SITE,)))
    found = libraries.read(host, site, Gaps())["shadowing_libraries"]
    return {one.path: one for one in found}


def winners(host: Host, *folders: str) -> set[str]:
    return {one.name or "" for one in shadows(host, *folders).values() if one.loaded_first}


def test_wheels_with_and_without_a_suffix() -> None:
    names = (
        "nvidia_cudnn_cu13-9.19.0.56",
        "nvidia_cuda_runtime-13.0.96",
        "nvidia_cufft-12.0.0.61",
        "nvidia_ml_py-13.580.65",
        "nvidia_cutlass_dsl-4.2.0",
        "torch-2.11.0",
    )
    host = machine({f"{SITE}/{name}.dist-info/METADATA": "" for name in names})
    wheels = libraries.read(host, site_of(host, SITE), Gaps())["cuda_wheels"]
    assert wheels == (
        CudaWheel(name="nvidia-cuda-runtime", version="13.0.96", cuda_major=13),
        CudaWheel(name="nvidia-cudnn-cu13", version="9.19.0.56", cuda_major=13),
        CudaWheel(name="nvidia-cufft", version="12.0.0.61", cuda_major=13),
    )


def test_the_major_version_is_not_guessed() -> None:
    names = ("nvidia_cufft-12.0.0.61", "nvidia_cuda_runtime-0.0.1")
    host = machine({f"{SITE}/{name}.dist-info/METADATA": "" for name in names})
    wheels = libraries.read(host, site_of(host, SITE), Gaps())["cuda_wheels"]
    assert {one.cuda_major for one in wheels} == {None}


def test_nothing_shadows_a_torch_without_cuda() -> None:
    host = machine(
        {f"{SITE}/torch/__init__.py": "", **copies("/usr/local/cuda/lib64")},
        environ={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64"},
    )
    assert shadows(host) == {}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (
            PLAIN,
            {
                "libcudnn_graph.so.9",
                "libnvJitLink.so.12",
                "libnvrtc.so.12",
                "libnvrtc-builtins.so.12.4",
            },
        ),
        (SOME, {"libcudnn_graph.so.9", "libnvrtc-builtins.so.12.4"}),
        (MOST, {"libcudnn_graph.so.9"}),
    ],
)
def test_ld_library_path_precedes_runpath(source: str, names: set[str]) -> None:
    environ = {"LD_LIBRARY_PATH": "/opt/cuda/lib64:"}
    host = machine(torch(source) | copies("/opt/cuda/lib64"), environ=environ)
    found = shadows(host)
    # nvToolsExt is none of the libraries whose version matters here.
    assert len(found) == len(NAMES) - 1
    assert {one.source for one in found.values()} == {"LD_LIBRARY_PATH"}
    assert winners(host) == names


def test_another_major_version_does_not_shadow() -> None:
    files = torch() | {"/opt/cuda/lib64/libcudart.so.11.0": "", "/opt/cuda/lib64/libcudart.so": ""}
    assert shadows(machine(files, environ={"LD_LIBRARY_PATH": "/opt/cuda/lib64"})) == {}


def test_the_folders_of_the_wheels_shadow_nothing() -> None:
    folder = f"{SITE}/nvidia/cudnn/lib"
    host = machine(
        torch(),
        links={"/home/me/cudnn": folder},
        environ={"LD_LIBRARY_PATH": f"{folder}:/home/me/cudnn"},
    )
    assert shadows(host) == {}


def test_preloaded_libraries_come_first() -> None:
    files = torch(MOST) | {"/opt/x/libcudart.so.12.4.127": "", "/opt/x/libother.so.1": ""}
    preload = "/opt/x/libother.so.1 /opt/x/libcudart.so.12.4.127:/gone/libcublas.so.12"
    assert list(shadows(machine(files, environ={"LD_PRELOAD": preload})).values()) == [
        ShadowingLibrary(
            name="libcudart.so.12",
            path="/opt/x/libcudart.so.12.4.127",
            source="LD_PRELOAD",
            loaded_first=True,
        )
    ]


def test_a_stub_of_libcuda_comes_first() -> None:
    stubs = "/opt/cuda/lib64/stubs"
    files = torch() | {f"{stubs}/libcuda.so.1": "", "/opt/driver/libcuda.so.1": ""}
    host = machine(files, environ={"LD_LIBRARY_PATH": f"/opt/driver:{stubs}"})
    assert list(shadows(host)) == [f"{stubs}/libcuda.so.1"]
    assert winners(host) == {"libcuda.so.1"}


def test_conda_and_the_system_come_after_torch() -> None:
    files = torch() | copies("/env/lib") | copies("/usr/local/cuda-12.4/lib64")
    files |= {
        "/env/conda-meta/history": "",
        "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
        "/etc/ld.so.conf.d/cuda.conf": "# CUDA\n/usr/local/cuda-12.4/lib64\n",
    }
    found = shadows(machine(files))
    assert {one.source for one in found.values()} == {"conda", "system"}
    assert not any(one.loaded_first for one in found.values())
    # The parts of cuDNN go with its main library.
    assert not any("cudnn_graph" in path for path in found)


def test_wheels_outside_torchs_site_packages_come_last() -> None:
    other = "/root/.local/lib/site-packages"
    files = torch(PLAIN, other) | copies("/opt/cuda/lib64") | copies("/usr/lib64")
    host = machine(files, environ={"LD_LIBRARY_PATH": "/opt/cuda/lib64"})
    found = shadows(host, SITE, other)
    assert found["/opt/cuda/lib64/libcublas.so.12"].loaded_first
    assert found["/usr/lib64/libcublas.so.12"].loaded_first
    # A torch that loads them by their full paths loses only libcudart, which comes before.
    files = torch(MOST, other) | copies("/usr/lib64")
    assert "libcudart.so.12" in winners(machine(files), SITE, other)
    assert "libcublasLt.so.12" not in winners(machine(files), SITE, other)


def test_torch_is_read_only_if_something_may_shadow() -> None:
    recording = RecordingHost(machine(torch()), lambda name: True)
    shadows(recording)
    assert not any(question.startswith("read " + SITE) for question in recording.answers)


def test_other_systems_have_no_shadowing_libraries() -> None:
    environ = {"LD_LIBRARY_PATH": "/opt/cuda/lib64"}
    host = machine(torch() | copies("/opt/cuda/lib64"), os="macos", environ=environ)
    assert shadows(host) == {}


def test_unreadable_folders_are_skipped() -> None:
    host = machine(torch(), environ={"LD_LIBRARY_PATH": "/secret"})
    denied = {"list /secret": {"error": "EACCES"}}
    assert shadows(RecordedHost({**host.answers, **denied})) == {}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the dynamic loader of Linux")
def test_the_loader_puts_rpath_first_and_runpath_last(tmp_path: Path) -> None:
    """The order that all of this rests on, with libraries of our own."""

    def build(output: str, source: str, *options: str) -> None:
        (tmp_path / "x.c").write_text(source)
        target = tmp_path / output
        target.parent.mkdir(exist_ok=True)
        argv = ["/usr/bin/gcc", "-o", str(target), str(tmp_path / "x.c"), *options]
        try:
            subprocess.run(argv, check=True)
        except FileNotFoundError:
            pytest.skip("needs gcc")

    for folder in ("own", "other"):
        code = f'const char *x(void) {{ return "{folder}"; }}'
        build(f"{folder}/libx.so.1", code, "-shared", "-fPIC")
    code = "#include <stdio.h>\nconst char *x(void); int main(void) { puts(x()); }"
    link = (f"-L{tmp_path}/own", "-l:libx.so.1", f"-Wl,-rpath,{tmp_path}/own")
    build("rpath", code, *link, "-Wl,--disable-new-dtags")
    build("runpath", code, *link, "-Wl,--enable-new-dtags")
    environ = {"LD_LIBRARY_PATH": str(tmp_path / "other")}
    printed = [
        subprocess.run([tmp_path / name], env=environ, stdout=-1, text=True, check=True).stdout
        for name in ("rpath", "runpath")
    ]
    assert printed == ["own\n", "other\n"]
