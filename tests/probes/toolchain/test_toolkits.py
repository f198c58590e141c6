"""Toolkits in every layout, and what a build would take from among them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attn_doctor.facts import Build, Toolkit
from attn_doctor.host import Host
from attn_doctor.host.local import LocalHost
from attn_doctor.host.recorded import RecordedHost, key
from attn_doctor.probes.distributions import Distributions, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.toolchain import toolkits
from tests.probes.answers import machine, site_of

ELF = "\x7fELF"
WRAPPER = '#!/bin/sh\nexec /usr/local/cuda-13.0/bin/nvcc "$@"\n'
VERSION_JSON = """{
   "cuda" : {
      "name" : "CUDA SDK",
      "version" : "13.0.1"
   },
   "cuda_nvcc" : {"name" : "CUDA NVCC", "version" : "13.0.88"}
}"""
HEADERS = ("cuda_runtime.h", "crt/host_config.h", "cublas_v2.h", "cusparse.h", "cusolverDn.h")


def toolkit(root: str, version: str = VERSION_JSON) -> dict[str, str]:
    """All that a torch extension needs, as NVIDIA's packages of CUDA 13 lay it out."""
    names = [f"include/{name}" for name in (*HEADERS, "cccl/thrust/version.h")]
    names += ["bin/nvcc", "bin/ptxas", "nvvm/bin/cicc", "lib64/libcudart.so"]
    return {**{f"{root}/{name}": ELF for name in names}, f"{root}/version.json": version}


def without(files: dict[str, str], *parts: str) -> dict[str, str]:
    return {path: text for path, text in files.items() if not any(part in path for part in parts)}


def read(host: Host, site: Site | None = None) -> tuple[tuple[Toolkit, ...], Build, dict[str, str]]:
    gaps = Gaps()
    site = site or Site(folders=(), distributions=Distributions(host, ()))
    found = toolkits.read(host, site, gaps)
    return found["toolkits"], found["build"], gaps.reasons


def test_nothing_is_nothing() -> None:
    found, build, gaps = read(machine())
    assert found == ()
    assert build == Build(
        cuda_home="",
        cuda_home_source="",
        pathfinder_home="",
        nvcc="",
        nvcc_on_path="",
        nvcc_is_script=False,
        missing_components=(),
    )
    assert gaps == {}


def test_a_link_and_its_target_are_one_toolkit() -> None:
    host = machine(
        toolkit("/usr/local/cuda-13.0"), links={"/usr/local/cuda": "/usr/local/cuda-13.0"}
    )
    (found,), build, gaps = read(host)
    assert found == Toolkit(
        root="/usr/local/cuda-13.0",
        version="13.0.1",
        source="/usr/local",
        nvcc="/usr/local/cuda-13.0/bin/nvcc",
        ptxas="/usr/local/cuda-13.0/bin/ptxas",
        missing_components=(),
        in_use=True,
        first_on_path=False,
    )
    assert (build.cuda_home, build.cuda_home_source) == ("/usr/local/cuda", "/usr/local/cuda")
    assert (build.version, build.missing_components, gaps) == ("13.0.1", (), {})


def test_a_wrapper_script_misleads_torch() -> None:
    files = {**toolkit("/usr/local/cuda-13.0"), "/usr/local/bin/nvcc": WRAPPER}
    (found,), build, _ = read(machine(files, environ={"PATH": "/usr/local/bin:/usr/bin"}))
    assert (found.root, found.source, found.in_use) == ("/usr/local/cuda-13.0", "PATH", False)
    assert (build.cuda_home, build.cuda_home_source) == ("/usr/local", "nvcc on PATH")
    assert build.nvcc == build.nvcc_on_path == "/usr/local/bin/nvcc"
    assert build.nvcc_is_script
    # nvcc itself still finds its own headers, ptxas and cicc; the C++ compiler and linker do not.
    assert build.missing_components == (
        "headers",
        "crt",
        "cublas",
        "cusparse",
        "cusolver",
        "cudart",
    )
    assert build.version == "13.0.1"


def test_nvcc_called_through_a_link_finds_none_of_its_tools() -> None:
    files = toolkit("/usr/local/cuda-13.0")
    host = machine(
        files,
        environ={"PATH": "/home/me/bin"},
        links={"/home/me/bin/nvcc": "/usr/local/cuda-13.0/bin/nvcc"},
    )
    (found,), build, gaps = read(host)
    assert (found.root, found.source, found.in_use) == ("/usr/local/cuda-13.0", "PATH", False)
    assert build.cuda_home == "/home/me"
    assert build.nvcc_is_script is False
    assert found.first_on_path
    assert {"ptxas", "nvvm", "cccl"} <= set(build.missing_components or ())
    assert build.version == "13.0.1"
    assert gaps == {}


def test_the_first_nvcc_on_path_may_be_in_a_linked_folder() -> None:
    host = machine(
        {**toolkit("/opt/cuda-11.8"), **toolkit("/usr/local/cuda-12.8")},
        environ={"CUDA_HOME": "/usr/local/cuda-12.8", "PATH": "/opt/cuda/bin"},
        links={"/opt/cuda": "/opt/cuda-11.8"},
    )
    found, build, _ = read(host)
    assert build.nvcc_on_path == "/opt/cuda/bin/nvcc"
    assert [(one.root, one.first_on_path, one.in_use) for one in found] == [
        ("/usr/local/cuda-12.8", False, True),
        ("/opt/cuda-11.8", True, False),
    ]


def test_debians_wrapped_nvcc_is_complete() -> None:
    tools = "/usr/lib/nvidia-cuda-toolkit"
    files = {f"/usr/include/{name}": "" for name in (*HEADERS, "thrust/version.h")}
    files |= {
        "/usr/bin/nvcc": f'#!/bin/sh\n\nexec {tools}/bin/nvcc "$@"\n',
        "/usr/bin/ptxas": ELF,
        f"{tools}/bin/nvcc": ELF,
        f"{tools}/bin/cicc": ELF,
        "/usr/lib/x86_64-linux-gnu/libcudart.so": ELF,
        "/usr/include/cuda_runtime_api.h": "/** CUDA Runtime API Version */\n"
        "#define CUDART_VERSION  11080\n",
    }
    (found,), build, gaps = read(machine(files, environ={"PATH": "/usr/bin"}))
    assert (found.root, found.version, found.missing_components) == ("/usr", "11.8", ())
    assert (build.cuda_home, build.version, build.missing_components) == ("/usr", "11.8", ())
    assert found.in_use
    assert build.nvcc_is_script is False
    assert gaps == {}
    named, _, _ = read(machine(files, environ={"PATH": "/usr/bin", "CUDA_HOME": tools}))
    assert all(one.in_use for one in named if one.source == "PATH")


def test_conda_keeps_headers_under_targets() -> None:
    target = "/conda/targets/x86_64-linux/include"
    files = {f"{target}/{name}": "" for name in (*HEADERS, "thrust/version.h")}
    files |= {f"/conda/bin/{name}": ELF for name in ("nvcc", "ptxas")}
    files |= {
        "/conda/nvvm/bin/cicc": ELF,
        "/conda/lib/libcudart.so": ELF,
        "/conda/conda-meta/cuda-nvcc-tools-12.8.93-he02047a_0.json": "{}",
    }
    host = machine(files, environ={"CONDA_PREFIX": "/conda", "PATH": "/conda/bin:/usr/bin"})
    (found,), build, _ = read(host)
    assert (found.root, found.version, found.missing_components) == ("/conda", "12.8", ())
    assert build.pathfinder_home == build.cuda_home == "/conda"
    # With conda not on PATH it is found as conda's.
    host = machine(files, environ={"CONDA_PREFIX": "/conda"})
    assert [one.source for one in read(host)[0]] == ["conda"]


def test_a_virtual_environment_is_not_conda() -> None:
    host = machine({"/env/bin/nvcc": ELF})
    assert read(host, site_of(host, "/env/lib"))[0] == ()


def wheels() -> dict[str, str]:
    site = "/env/lib/site-packages"
    new = f"{site}/nvidia/cu13"
    return {
        f"{site}/nvidia_cuda_nvcc-13.0.88.dist-info/METADATA": "",
        f"{site}/nvidia_cuda_nvcc_cu12-12.8.93.dist-info/METADATA": "",
        f"{new}/bin/nvcc": ELF,
        f"{new}/bin/ptxas": ELF,
        f"{new}/nvvm/bin/cicc": ELF,
        f"{new}/include/cuda_runtime.h": "",
        # nvcc's headers come from another wheel, whose version is free
        f"{new}/include/cuda_runtime_api.h": "#define CUDART_VERSION 13050\n",
        f"{new}/include/crt/host_config.h": "",
        f"{new}/lib/libcudart.so.13": ELF,
        f"{site}/nvidia/cuda_nvcc/bin/ptxas": ELF,
        f"{site}/nvidia/cuda_nvcc/include/crt/host_config.h": "",
    }


def test_wheels_are_not_complete_toolkits() -> None:
    host = machine(wheels())
    found, build, _ = read(host, site_of(host, "/env/lib/site-packages"))
    assert [(one.source, one.version) for one in found] == [("wheel", "13.0"), ("wheel", "12.8")]
    math = ("cublas", "cusparse", "cusolver")
    assert found[0].missing_components == (*math, "cccl", "cudart")
    assert found[1].missing_components == ("nvcc", "headers", *math, "cccl", "cudart", "nvvm")
    assert found[1].nvcc == ""
    assert build.cuda_home == ""
    assert build.pathfinder_home == "/env/lib/site-packages/nvidia/cu13"


def test_cuda_home_may_point_to_a_wheel() -> None:
    root = "/env/lib/site-packages/nvidia/cu13"
    host = machine(wheels(), environ={"CUDA_HOME": root})
    found, build, _ = read(host, site_of(host, "/env/lib/site-packages"))
    assert [(one.source, one.in_use) for one in found] == [("CUDA_HOME", True), ("wheel", False)]
    assert build.cuda_home == root
    assert "cudart" in (build.missing_components or ())


def test_torch_and_pathfinder_prefer_different_variables() -> None:
    files = {**toolkit("/opt/a"), **toolkit("/opt/b", '{"cuda": {"version": "12.8.0"}}')}
    host = machine(files, environ={"CUDA_HOME": "/opt/a", "CUDA_PATH": "/opt/b"})
    found, build, _ = read(host)
    assert [(one.root, one.source, one.version, one.in_use) for one in found] == [
        ("/opt/a", "CUDA_HOME", "13.0.1", True),
        ("/opt/b", "CUDA_PATH", "12.8.0", False),
    ]
    assert (build.cuda_home, build.pathfinder_home) == ("/opt/a", "/opt/b")


def test_a_variable_that_leads_nowhere() -> None:
    host = machine(toolkit("/usr/local/cuda-13.0"), environ={"CUDA_HOME": "/nope"})
    (found,), build, gaps = read(host)
    assert not found.in_use
    assert (build.cuda_home, build.nvcc, build.version) == ("/nope", "", None)
    assert {"nvcc", "headers", "cudart"} <= set(build.missing_components or ())
    assert gaps == {}


def test_compiler_search_paths_count_only_for_the_build() -> None:
    files = without(toolkit("/opt/cuda"), "cublas", "cusparse", "cusolver", "lib64")
    files |= {f"/more/{name}": "" for name in HEADERS} | {"/libs/libcudart.so": ELF}
    environ = {"CUDA_HOME": "/opt/cuda", "CPATH": "/x:/more", "LIBRARY_PATH": "/libs"}
    (found,), build, _ = read(machine(files, environ=environ))
    assert found.missing_components == ("cublas", "cusparse", "cusolver", "cudart")
    assert build.missing_components == ()


def test_lib64_hides_lib_as_it_does_for_torch() -> None:
    files = without(toolkit("/opt/cuda"), "lib64")
    host = machine({**files, "/opt/cuda/lib/libcudart.so": ELF})
    assert read(host)[0][0].missing_components == ()
    host = machine({**files, "/opt/cuda/lib/libcudart.so": ELF, "/opt/cuda/lib64/other.so": ELF})
    assert read(host)[0][0].missing_components == ("cudart",)


@pytest.mark.parametrize("part", ["bin/nvcc", "ptxas", "cicc", "thrust", "cublas", "host_config"])
def test_each_missing_part_is_reported(part: str) -> None:
    names = {"bin/nvcc": "nvcc", "cicc": "nvvm", "thrust": "cccl", "host_config": "crt"}
    (found,), _, _ = read(machine(without(toolkit("/usr/local/cuda-13.0"), part)))
    assert found.missing_components == (names.get(part, part),)


def test_a_version_is_read_from_text_then_from_headers() -> None:
    root = "/usr/local/cuda-11.0"
    old = {
        **without(toolkit(root), "version.json"),
        f"{root}/version.txt": "CUDA Version 11.0.228\n",
    }
    assert read(machine(old))[0][0].version == "11.0.228"
    header = without(toolkit(root), "version.json")
    header[f"{root}/include/cuda_runtime_api.h"] = "#define CUDART_VERSION  11040\n"
    assert read(machine(header))[0][0].version == "11.4"


def test_only_a_system_nvcc_is_run() -> None:
    files = without(toolkit("/opt/cuda"), "version.json")
    answer = "Cuda compilation tools, release 12.6, V12.6.85\n"
    runs = {"/opt/cuda/bin/nvcc --version": answer}
    (found,), _, gaps = read(machine(files, runs=runs))
    assert (found.version, gaps) == ("12.6", {})
    (found,), _, gaps = read(machine(files, runs=runs, foreign=("/opt/cuda/bin/nvcc",)))
    assert found.version is None
    assert "not the system's own" in gaps["toolkits[0].version"]
    script = {**files, "/opt/cuda/bin/nvcc": "#!/bin/sh\nccache real-nvcc\n"}
    (found,), _, gaps = read(machine(script, runs=runs))
    assert found.version is None
    (found,), _, gaps = read(machine(files))
    assert found.version is None
    assert gaps["toolkits[0].version"] == "/opt/cuda/bin/nvcc does not exist"


def test_a_runtime_without_compiler_is_named_by_its_folder() -> None:
    files = {"/usr/local/cuda-12.4/lib64/libcudart.so.12": ELF}
    host = machine(files, links={"/usr/local/cuda": "/usr/local/cuda-12.4"})
    (found,), build, gaps = read(host)
    assert (found.version, found.nvcc, found.in_use) == ("12.4", "", True)
    assert (build.cuda_home, build.nvcc) == ("/usr/local/cuda", "")
    assert "nvcc" in (build.missing_components or ())
    assert gaps == {}


def test_the_loader_leads_pathfinder_to_a_toolkit() -> None:
    files = toolkit("/usr/local/cuda-13.0") | {
        "/usr/local/cuda-13.0/targets/x86_64-linux/lib/libcudart.so.13": ELF,
        "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
        "/etc/ld.so.conf.d/988_cuda-13.conf": "/usr/local/cuda-13.0/targets/x86_64-linux/lib\n",
    }
    assert read(machine(files))[1].pathfinder_home == "/usr/local/cuda-13.0"
    assert read(machine(without(files, "988_cuda")))[1].pathfinder_home == ""


def test_hpc_sdk() -> None:
    root = "/opt/nvidia/hpc_sdk/Linux_x86_64/25.7/cuda/12.9"
    files = toolkit(root, '{"cuda": {"version": "12.9.1"}}')
    (found,), _, _ = read(machine(files))
    assert (found.root, found.source, found.version) == (root, "HPC SDK", "12.9.1")


def windows_toolkit(version: str) -> dict[str, str]:
    root = f"{toolkits.WINDOWS}\\v{version}"
    names = [f"include\\{name}".replace("/", "\\") for name in (*HEADERS, "thrust/version.h")]
    names += ["bin\\nvcc.exe", "bin\\ptxas.exe", "nvvm\\bin\\cicc.exe", "lib\\x64\\cudart.lib"]
    files = {f"{root}\\{name}": "" for name in names}
    return {**files, f"{root}\\version.json": f'{{"cuda": {{"version": "{version}.1"}}}}'}


def test_windows() -> None:
    files = {**windows_toolkit("12.8"), **windows_toolkit("13.0")}
    root = toolkits.WINDOWS + "\\v12.8"
    found, build, _ = read(machine(files, os="windows"))
    assert [(one.version, one.missing_components) for one in found] == [
        ("12.8.1", ()),
        ("13.0.1", ()),
    ]
    # torch takes the first that a listing gives, not the newest.
    assert (build.cuda_home, build.cuda_home_source) == (root, "Program Files")
    environ = {"CUDA_PATH_V12_8": root}
    found, _, _ = read(machine(files, os="windows", environ=environ))
    assert [one.source for one in found] == ["CUDA_PATH_V12_8", "Program Files"]


@pytest.mark.parametrize(
    ("environ", "home", "source"),
    [
        ({"CUDA_HOME": "/x", "CUDA_PATH": "/y"}, "/x", "CUDA_HOME"),
        ({"CUDA_HOME": "", "CUDA_PATH": "/y"}, "/y", "CUDA_PATH"),
        ({"CUDA_HOME": "", "PATH": "/opt/t/bin"}, "/opt/t", "nvcc on PATH"),
        ({"CUDA_PATH": "", "PATH": "/opt/t/bin"}, "", "CUDA_PATH"),
        ({"PATH": "/nowhere:/opt/t/bin"}, "/opt/t", "nvcc on PATH"),
        ({"PATH": "/nowhere"}, "/usr/local/cuda", "/usr/local/cuda"),
    ],
)
def test_cuda_home_is_resolved_as_torch_does(
    environ: dict[str, str], home: str, source: str
) -> None:
    host = machine({"/opt/t/bin/nvcc": ELF, "/usr/local/cuda/README": ""}, environ=environ)
    build = read(host)[1]
    assert (build.cuda_home, build.cuda_home_source) == (home, source)


def test_an_unreadable_folder_is_not_an_error() -> None:
    denied = {"error": "EACCES"}
    answers = machine({"/usr/local/cuda/bin/nvcc": ELF}).answers
    keys = [key("list", "/usr/local"), key("read", "/usr/local/cuda/bin/nvcc")]
    found, build, _ = read(RecordedHost({**answers, **dict.fromkeys(keys, denied)}))
    assert found == ()
    assert build.cuda_home == "/usr/local/cuda"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_torch_itself_agrees(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.write_text(WRAPPER)
    nvcc.chmod(0o755)
    cases: list[dict[str, str]] = [
        {"PATH": "/usr/bin:/bin"},
        {"PATH": f"{tmp_path}/bin:/usr/bin"},
        {"PATH": f"{tmp_path}/bin", "CUDA_HOME": "/x", "CUDA_PATH": "/y"},
        {"PATH": f"{tmp_path}/bin", "CUDA_PATH": "/y"},
        {"PATH": f"{tmp_path}/bin", "CUDA_HOME": ""},
        {"PATH": f"{tmp_path}/bin", "CUDA_PATH": ""},
    ]
    code = (
        "import json, os, sys; from torch.utils import cpp_extension as c; homes = []\n"
        "for case in json.loads(sys.argv[1]):\n"
        "    os.environ.clear(); os.environ.update(case); homes.append(c._find_cuda_home() or '')\n"
        "print(json.dumps(homes))\n"
    )
    argv = [sys.executable, "-c", code, json.dumps(cases)]
    answer = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    homes = json.loads(answer.splitlines()[-1])
    before = dict(os.environ)
    try:
        for case, home in zip(cases, homes, strict=True):
            os.environ.clear()
            os.environ.update(case)
            assert read(LocalHost())[1].cuda_home == home, case
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_in_a_folder_of_wheels_the_compiler_counts_not_its_headers() -> None:
    root = "/srv/wheels/nvidia/cu13"
    files = without(toolkit(root), "version.json")
    files[f"{root}/include/cuda_runtime_api.h"] = "#define CUDART_VERSION  13050\n"
    environ = {"CUDA_HOME": root}
    assert read(machine(files, environ=environ))[0][0].version == "13.5"
    files["/srv/wheels/nvidia_cuda_nvcc-13.2.86.dist-info/METADATA"] = "Version: 13.2.86\n"
    assert read(machine(files, environ=environ))[0][0].version == "13.2"
