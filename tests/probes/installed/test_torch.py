"""torch read from its text files: every kind of build, and installations that went wrong."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor.facts import Torch
from attn_doctor.host.local import LocalHost
from attn_doctor.host.recorded import RecordedHost, key
from attn_doctor.probes.distributions import scan
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed import torch
from tests.probes.answers import machine
from tests.probes.environments import SITE, distribution, environment, site

#: torch/version.py as the build writes it.
VERSION = """\
from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '{version}'
debug = {debug}
cuda: Optional[str] = {cuda}
git_version = '70d99e998b4955e0049d13a98d77ae1b14db1f45'
hip: Optional[str] = {hip}
rocm: Optional[str] = {rocm}
xpu: Optional[str] = {xpu}
"""
#: The lines of TorchConfig.cmake around the C++ ABI, up to torch 2.7 and from 2.8 on.
OLD_CMAKE = """\
if(ON)
  set(TORCH_CXX_FLAGS "-D_GLIBCXX_USE_CXX11_ABI={}")
endif()
"""
NEW_CMAKE = "#   TORCH_CXX_FLAGS    -- Additional (required) compiler flags\nif(TORCH_CXX_FLAGS)\n"
FLEX = "def create_block_mask():\n    pass\n\ndef flex_attention():\n    pass\n"
REQUIRES_211 = (
    "filelock",
    "setuptools<82",
    'cuda-toolkit[cublas,cudart]==13.0.2; platform_system == "Linux"',
    'cuda-bindings<14,>=13.0.3; platform_system == "Linux"',
    'nvidia-cudnn-cu13==9.19.0.56; platform_system == "Linux"',
    'triton==3.6.0; platform_system == "Linux"',
    'optree>=0.13.0; extra == "optree"',
)
X86 = 'platform_system == "Linux" and platform_machine == "x86_64"'
REQUIRES_24 = (
    f"nvidia-cudnn-cu12 (==9.1.0.70) ; {X86}",
    'triton (==3.0.0) ; platform_system == "Linux" and python_version < "3.13"',
)
TOOLKIT = (
    "nvidia-cublas==13.1.0.3.*; (sys_platform == 'linux') and extra == 'cublas'",
    "nvidia-cuda-runtime==13.0.96.*; (sys_platform == 'linux') and extra == 'cudart'",
    "nvidia-cuda-nvcc==13.0.88.*; (sys_platform == 'linux') and extra == 'nvcc'",
)


def package(version: str, cmake: str = NEW_CMAKE, flex: str = FLEX, **said: str) -> dict[str, str]:
    """The files of a torch package."""
    values = {"debug": "False", "cuda": "None", "hip": "None", "rocm": "None", "xpu": "None"}
    return {
        f"{SITE}/torch/__init__.py": "raise RuntimeError('imported')\n",
        f"{SITE}/torch/version.py": VERSION.format(version=version, **{**values, **said}),
        f"{SITE}/torch/lib/libc10.so": "",
        f"{SITE}/torch/share/cmake/Torch/TorchConfig.cmake": cmake,
        **({f"{SITE}/torch/nn/attention/flex_attention.py": flex} if flex else {}),
    }


def read(*parts: dict[str, str], **platform: Any) -> tuple[Torch, dict[str, str]]:
    host, there = environment(*parts, **platform)
    gaps = Gaps()
    return torch.read(host, there, gaps)["torch"], gaps.reasons


def test_wheel_from_pypi() -> None:
    found, gaps = read(
        distribution("torch", "2.11.0", requires=REQUIRES_211, python=">=3.10"),
        package("2.11.0+cu130", cuda="'13.0'"),
        distribution("cuda_toolkit", "13.0.2", requires=TOOLKIT),
        distribution("nvidia_cublas", "13.1.0.3"),
    )
    assert found == Torch(
        installed=True,
        version="2.11.0+cu130",
        local="cu130",
        build="cuda",
        cuda="13.0",
        debug=False,
        git_version="70d99e998b4955e0049d13a98d77ae1b14db1f45",
        cxx11_abi=True,
        path=f"{SITE}/torch",
        installation_error="",
        import_error="",
        import_doubt="",
        foreign_library="",
        foreign_fault="",
        foreign_variable="",
        unknown_log="",
        lost_plugin="",
        unrecorded_plugin="",
        source="index",
        from_pypi=True,
        from_pythonpath=False,
        has_flex=True,
        flex_import_error="",
        has_build_helper=False,
        bytecode=False,
        bytecode_writable=False,
        requires_triton="==3.6.0",
        requires_python=">=3.10",
        missing_nvidia_wheels=("nvidia-cuda-runtime", "nvidia-cudnn-cu13"),
        overwritten_wheel="",
    )
    # Nothing but what is in libraries, which this recording lacks.
    assert set(gaps) == {"torch.cubins", "torch.ptx", "torch.missing_libraries"}


def test_what_flex_attention_imports_when_it_is_called() -> None:
    """Only releases that name the module in one of two files import it; triton 2.1 lacks a part."""
    backend = "torch._dynamo.backends.debugging"
    parts = (
        distribution("torch", "2.6.0", requires=("triton==3.2.0",)),
        distribution("triton", "2.1.0"),
        {
            f"{SITE}/torch/_dynamo/__init__.py": "",
            f"{SITE}/torch/_dynamo/backends/__init__.py": "",
            f"{SITE}/torch/_dynamo/backends/debugging.py": "import triton.backends\n",
            f"{SITE}/triton/__init__.py": "",
        },
    )
    calls = FLEX + f"    from {backend} import (\n        x,\n    )\n"
    found, _ = read(*parts, package("2.6.0+cu124", flex=calls, cuda="'12.4'"))
    assert "triton.backends, which triton 2.1.0 lacks" in (found.flex_import_error or "")
    # torch 2.13: the module calls a helper.
    helper = {f"{SITE}/torch/_higher_order_ops/utils.py": f"    from {backend} import (\n"}
    found, _ = read(*parts, helper, package("2.6.0+cu124", cuda="'12.4'"))
    assert "triton.backends, which triton 2.1.0 lacks" in (found.flex_import_error or "")
    found, _ = read(*parts, package("2.6.0+cu124", cuda="'12.4'"))
    assert found.flex_import_error == ""


@pytest.mark.parametrize(
    ("loads", "there", "lost"),
    [
        ('group_name = "torch.backends"\n', False, "torch-npu"),
        ('group_name = "torch.backends"\n', True, ""),
        ("", False, ""),  # torch 2.4
    ],
)
def test_a_backend_of_another_package(loads: str, there: bool, lost: str) -> None:
    """Seen with torch 2.13.0 beside metadata of torch_npu. One that is there may fail too."""
    group = "[console_scripts]\na = b:c\n\n[torch.backends]\ntorch_npu = torch_npu:_autoload\n"
    found, _ = read(
        package("2.13.0+cpu"),
        distribution("torch", "2.13.0+cpu"),
        distribution("torch_npu", "2.7.1"),
        {f"{SITE}/torch_npu-2.7.1.dist-info/entry_points.txt": group},
        {f"{SITE}/torch/__init__.py": loads},
        {f"{SITE}/torch_npu/__init__.py": ""} if there else {},
    )
    assert found.lost_plugin == lost
    assert found.unrecorded_plugin == (f"{SITE}/torch_npu-2.7.1.dist-info" if lost else "")
    assert bool(found.import_error) is bool(lost)
    assert (found.import_error is None) is there


@pytest.mark.parametrize(
    ("asked", "unknown"),
    [
        ("", ""),
        ("+dynamo,-aot", ""),
        ("+all,dynamo", ""),
        ("torch._dynamo,inspect", ""),
        ("dynamo,attention", "attention"),
    ],
)
def test_a_log_that_torch_does_not_know(asked: str, unknown: str) -> None:
    """Seen with torch 2.13.0 and TORCH_LOGS=attention."""
    logs = 'register_log("dynamo", ["torch._dynamo"])\nregister_log("aot", [])\n'
    found, _ = read(
        package("2.13.0+cpu"),
        distribution("torch", "2.13.0+cpu"),
        {f"{SITE}/torch/_logging/_registrations.py": logs},
        environ={"TORCH_LOGS": asked},
    )
    assert found.unknown_log == unknown
    assert bool(found.import_error) is bool(unknown)


def test_a_log_of_a_module_beside_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = 'register_log("dynamo", ["torch._dynamo"])\n'
    folder = tmp_path / "site-packages" / "torch" / "_logging"
    folder.mkdir(parents=True)
    (folder / "_registrations.py").write_text(logs)
    (tmp_path / "myproject").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_LOGS", "+myproject,other")
    host = LocalHost()
    path = str(folder.parent)
    assert torch._unknown_log(host, site(host), path) == "other"


def test_a_python_that_was_built_without_ctypes() -> None:
    host, there = environment(package("2.13.0"))
    found = torch.read(host, replace(there, ctypes=False), Gaps())["torch"]
    assert found.import_error == "it imports ctypes, and this Python was built without it"


def test_old_metadata_with_brackets() -> None:
    found, _ = read(
        distribution("torch", "2.4.1", requires=REQUIRES_24),
        package("2.4.1+cu121", OLD_CMAKE.format(0), flex="", cuda="'12.1'"),
    )
    assert found.requires_triton == "==3.0.0"
    assert found.missing_nvidia_wheels == ("nvidia-cudnn-cu12",)
    assert found.cxx11_abi is False
    assert (found.has_flex, found.has_build_helper) == (False, False)


@pytest.mark.parametrize(
    ("python", "platform", "triton", "missing"),
    [
        ("3.13.1", {}, "", ("nvidia-cudnn-cu12",)),
        ("3.12.3", {"machine": "aarch64"}, "==3.0.0", ()),
        ("3.12.3", {"os": "macos", "machine": "arm64"}, "", ()),
    ],
)
def test_markers_are_evaluated_for_the_examined_machine(
    python: str, platform: dict[str, Any], triton: str, missing: tuple[str, ...]
) -> None:
    host, _ = environment(
        distribution("torch", "2.4.1", requires=REQUIRES_24),
        package("2.4.1", cuda="'12.1'"),
        **platform,
    )
    found = torch.read(host, site(host, python), Gaps())["torch"]
    assert found.requires_triton == triton
    assert found.missing_nvidia_wheels == missing


@pytest.mark.parametrize(
    ("said", "platform", "expected"),
    [
        ({}, {}, ("cpu", None, None)),
        ({}, {"os": "macos"}, ("mps", None, None)),
        ({"cuda": "'12.8'"}, {}, ("cuda", "12.8", None)),
        ({"hip": "'6.4.43482-0f2d60242'"}, {}, ("rocm", None, "6.4.43482")),
        ({"hip": "'7.1.25424'", "rocm": "'7.1.1'"}, {}, ("rocm", None, "7.1.1")),
        ({"xpu": "'20250302'"}, {}, ("xpu", None, None)),
    ],
)
def test_what_it_was_built_for(
    said: dict[str, str], platform: dict[str, Any], expected: tuple[str, str | None, str | None]
) -> None:
    found, _ = read(distribution("torch", "2.13.0"), package("2.13.0", **said), **platform)
    assert (found.build, found.cuda, found.hip) == expected


def test_windows() -> None:
    folder = r"C:\env\Lib\site-packages"
    said = dict.fromkeys(("cuda", "hip", "rocm", "xpu"), "None")
    text = VERSION.format(version="2.13.0+cpu", debug="True", **said)
    host, _ = environment({f"{folder}\\torch\\version.py": text}, os="windows")
    there = scan(host, (folder,), r"C:\env", Gaps(), python="3.12.3")
    found = torch.read(host, there, Gaps())["torch"]
    assert (found.build, found.debug) == ("cpu", True)
    assert found.cxx11_abi is None  # there is no libstdc++
    assert found.path == f"{folder}\\torch"


def windows(*files: str, needed: tuple[str, ...], **variables: str) -> tuple[Torch, dict[str, str]]:
    """A torch whose `torch_cpu.dll` needs DLLs, in an environment of the Python in `C:\\Python`."""
    folder = r"C:\env\Lib\site-packages"
    said = dict.fromkeys(("cuda", "hip", "rocm", "xpu"), "None")
    dll = rf"{folder}\torch\lib\torch_cpu.dll"
    texts = {
        rf"{folder}\torch\version.py": VERSION.format(version="2.15.0+cpu", debug="False", **said),
        r"C:\env\pyvenv.cfg": "home = C:\\Python\n",
        dll: "",
        **dict.fromkeys(files, ""),
    }
    host = machine(
        texts,
        os="windows",
        environ={"SystemRoot": r"C:\Windows", **variables},
        more={key("binary", dll): {"answer": {"format": "pe", "needed": needed}}},
    )
    gaps = Gaps()
    there = scan(host, (folder,), r"C:\env", gaps, python="3.13.2")
    return torch.read(host, there, gaps)["torch"], gaps.reasons


def test_runtimes_that_windows_does_not_find() -> None:
    needed = ("VCRUNTIME140.dll", "VCRUNTIME140_THREADS.dll", "KERNEL32.dll", "c10.dll")
    system = r"C:\Windows\System32\kernel32.dll"
    python = r"C:\Python\vcruntime140.dll"
    found, gaps = windows(system, python, needed=needed)
    assert found.missing_libraries == ("vcruntime140_threads.dll",)
    assert "torch.foreign_library" in gaps
    tools = r"C:\tools\vcruntime140_threads.dll"
    found, _ = windows(system, python, tools, needed=needed, PATH=r"C:\Windows;C:\tools")
    assert found.missing_libraries == ()
    found, gaps = windows(needed=needed)
    assert found.missing_libraries is None
    assert gaps["torch.missing_libraries"] == r"C:\Windows\System32 cannot be listed"


@pytest.mark.parametrize(
    ("cmake", "expected"),
    [(OLD_CMAKE.format(1), True), (OLD_CMAKE.format(0), False), (NEW_CMAKE, True), ("", None)],
)
def test_cxx11_abi(cmake: str, expected: bool | None) -> None:
    found, gaps = read(distribution("torch", "2.6.0"), package("2.6.0", cmake))
    assert found.cxx11_abi is expected
    assert ("torch.cxx11_abi" in gaps) == (expected is None)


def test_build_helper_is_found_if_torch_has_it() -> None:
    flex = FLEX + "\ndef build_flex_attention_kernels(path):\n    pass\n"
    found, _ = read(distribution("torch", "2.20.0"), package("2.20.0", flex=flex))
    assert found.has_build_helper is True


def test_flex_module_that_cannot_be_read() -> None:
    host, there = environment(distribution("torch", "2.11.0"), package("2.11.0"))
    answers = dict(host.answers)
    answers[key("read", f"{SITE}/torch/nn/attention/flex_attention.py")] = {"error": "EACCES"}
    gaps = Gaps()
    found = torch.read(RecordedHost(answers), there, gaps)["torch"]
    assert (found.has_flex, found.has_build_helper) == (True, None)
    assert "cannot be read" in gaps.reasons["torch.has_build_helper"]


def without(name: str) -> dict[str, str]:
    files = package("2.11.0+cu130", cuda="'13.0'")
    return {path: text for path, text in files.items() if f"/torch/{name}" not in path}


@pytest.mark.parametrize(
    ("parts", "broken", "version"),
    [
        ([distribution("torch", "2.11.0")], "metadata, but no torch folder", "2.11.0"),
        ([package("2.11.0+cu130")], "no metadata", "2.11.0+cu130"),
        ([distribution("torch", "2.11.0"), without("lib")], "no torch/lib", "2.11.0+cu130"),
        (
            [distribution("torch", "2.11.0"), without("version.py")],
            "no torch/version.py",
            "2.11.0",
        ),
        (
            [distribution("torch", "2.10.0"), package("2.11.0+cu130")],
            "metadata of 2.10.0, files of 2.11.0+cu130",
            "2.11.0+cu130",
        ),
        (
            [distribution("torch", "2.11.0+cpu"), package("2.11.0+cu130")],
            "metadata of 2.11.0+cpu, files of 2.11.0+cu130",
            "2.11.0+cu130",
        ),
        (
            # NVIDIA's containers: the metadata folder has the local part in its normal form.
            [
                distribution("torch", "2.6.0a0+ecf3bae40a.nv25.1"),
                package("2.6.0a0+ecf3bae40a.nv25.01"),
            ],
            "",
            "2.6.0a0+ecf3bae40a.nv25.01",
        ),
        (
            [distribution("torch", "2.11.0"), {f"{SITE}/torch.py": "x = 1\n"}],
            f"{SITE}/torch.py is where the torch folder should be",
            "2.11.0",
        ),
    ],
    ids=["folder", "metadata", "lib", "version", "mixed", "local", "container", "shadowed"],
)
def test_broken(parts: list[dict[str, str]], broken: str, version: str) -> None:
    found, _ = read(*parts)
    assert found.installed is True
    assert found.installation_error == broken
    assert found.version == version


def test_remains_of_an_uninstall_are_found() -> None:
    found, gaps = read({f"{SITE}/torch/lib/libtorch_cuda.so": ""})
    assert found.version is None
    assert found.installation_error == "no metadata, no torch/__init__.py, no torch/version.py"
    for name in ("version", "cuda", "build", "source", "requires_triton", "missing_nvidia_wheels"):
        assert gaps[f"torch.{name}"]


def test_missing_packages_leave_no_gaps() -> None:
    assert read() == (Torch(installed=False), {})


def test_conda() -> None:
    built = distribution("torch", "2.10.0", installer="")
    record = {"/env/conda-meta/pytorch-2.10.0-cuda129_generic_py312_h9d4f0e6_200.json": "{}"}
    assert read(built, package("2.10.0", cuda="'12.9'"), record)[0].source == "conda"
    found, gaps = read(built, package("2.10.0", cuda="'12.9'"))
    assert found.source is None
    assert "do not name its installer" in gaps["torch.source"]


def test_editable_checkout() -> None:
    tree = {path.replace(SITE, "/src/pytorch"): text for path, text in package("2.12.0a0").items()}
    found, _ = read(
        distribution(
            "torch",
            "2.12.0a0",
            direct_url={"dir_info": {"editable": True}, "url": "file:///src/pytorch"},
        ),
        tree,
    )
    assert found.path == "/src/pytorch/torch"
    assert (found.source, found.installation_error) == ("editable", "")


def test_real_files(tmp_path: Path) -> None:
    host, _ = environment(distribution("torch", "2.11.0"), package("2.11.0+cu130", cuda="'13.0'"))
    for name, kept in host.answers.items():
        if name.startswith("read "):
            path = tmp_path / name.removeprefix("read /")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(kept["answer"])
    local = LocalHost()
    folder = str(tmp_path / SITE.lstrip("/"))
    found = torch.read(local, scan(local, (folder,), "", Gaps(), python="3.12.3"), Gaps())["torch"]
    assert found.version == "2.11.0+cu130"
    assert found.path == os.path.join(folder, "torch")
    assert found.installation_error == ""


@pytest.mark.slow
def test_versions_agree_with_the_running_interpreter() -> None:
    """Distributions that are really installed here are found with the version Python gives."""
    local = LocalHost()
    folders = tuple(path for path in sys.path if path.endswith("-packages") and os.path.isdir(path))
    there = scan(local, folders, sys.prefix, Gaps())
    names = ("msgspec", "packaging", "pytest", "psutil")
    for name in names:
        one = there.distributions.get(name)
        assert one is not None
        assert one.version == importlib.metadata.version(name)
        python = importlib.metadata.metadata(name).get_all("Requires-Python")
        assert there.distributions.headers(one)["Requires-Python"] == python


@pytest.mark.parametrize(
    ("versions", "error"),
    [
        (("1.13.1", "2.11.0"), ""),
        (("1.13.1", "1.12.0"), "metadata of 1.12.0, files of 2.11.0+cu130"),
    ],
)
def test_one_of_two_metadata_folders_agrees(versions: tuple[str, str], error: str) -> None:
    files = {"torch/version.py": "__version__ = '2.11.0+cu130'\ncuda: str = '13.0'\n"}
    files |= {"torch/__init__.py": "", "torch/lib/x": ""}
    parts = [distribution("torch", version, texts=files) for version in versions]
    host, where = environment(*parts)
    assert torch.read(host, where, Gaps())["torch"].installation_error == error


def test_sources_in_pythonpath_are_what_is_imported() -> None:
    """A checkout of torch has the modules and no compiled extension."""
    host, _ = environment(
        distribution("torch", "2.11.0"),
        package("2.11.0+cu130"),
        {"/src/torch/__init__.py": "", "/src/torch/version.py": "", "/src/torch/_C/x.pyi": "",
         "/src/torch/lib/x": ""},
    )  # fmt: skip
    where = scan(host, ("/src", SITE), "/env", Gaps(), plain=("/src",))
    found = torch.read(host, where, Gaps())["torch"]
    assert (found.path, found.from_pythonpath) == ("/src/torch", True)
    assert found.installation_error == "torch/_C, its main extension, is missing"
