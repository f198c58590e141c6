"""The packages by their metadata, wheel names, build records and compiled files."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from attn_doctor.derived.backend_wheels import accepts_kernels
from attn_doctor.facts import Facts, Package
from attn_doctor.probes.distributions import scan
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed import packages
from tests.probes.environments import SITE, distribution, environment

LINUX = "cp312-cp312-linux_x86_64"
FLASH_FILES = (
    "flash_attn/__init__.py",
    "flash_attn/flash_attn_interface.py",
    "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so",
)
FLASH_URL = (
    "https://github.com/Dao-AILab/flash-attention/releases/download/v2.8.3/"
    "flash_attn-2.8.3%2Bcu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
)
#: xformers/cpp_lib.json of the wheel of 0.0.35 on PyPI, less its environment.
RECORD = {
    "version": {"cuda": 1208, "hip": None, "torch": "2.10.0+cu128", "python": "3.10.19"},
    "env": {"TORCH_CUDA_ARCH_LIST": "7.5 8.0+PTX 8.0 9.0a", "PYTORCH_ROCM_ARCH": None},
}


def read(*parts: dict[str, str], **platform: Any) -> tuple[dict[str, Package], dict[str, str]]:
    host, there = environment(*parts, **platform)
    gaps = Gaps()
    return packages.read(host, there, gaps), gaps.reasons


def test_every_package_of_the_facts_is_read() -> None:
    hints = {field.name for field in msgspec.structs.fields(Facts) if field.type is Package}
    assert set(packages.FIELDS) == hints
    found, gaps = read()
    absent = dict.fromkeys(packages.FIELDS, Package(installed=False))
    assert found == {"unmet_requirements": (), **absent}
    assert gaps == {}


def test_flash_attn_from_a_release_wheel() -> None:
    found, gaps = read(
        distribution("einops", "0.8.1"),
        distribution(
            "flash_attn",
            "2.8.3",
            requires=("torch", "einops"),
            tags=(LINUX,),
            files=FLASH_FILES,
            direct_url={"archive_info": {"hash": "sha256=0"}, "url": FLASH_URL},
        ),
    )
    assert found["flash_attn"] == Package(
        installed=True,
        version="2.8.3",
        distribution="flash-attn",
        path=f"{SITE}/flash_attn",
        source="url",
        source_url=FLASH_URL,
        python_tag="cp312",
        abi_tag="cp312",
        platform_tag="linux_x86_64",
        import_error="",
        import_doubt="",
        built_torch="2.8",
        built_cuda="12",
        built_cxx11_abi=True,
        built_python="3.12",
        extensions=("flash_attn_2_cuda",),
        requires_torch="",
        requires_python=">=3.9",
    )
    assert gaps == {}


def test_a_local_build_of_flash_attn_has_no_record() -> None:
    found, gaps = read(distribution("flash_attn", "2.8.3", tags=(LINUX,), files=FLASH_FILES))
    assert found["flash_attn"].built_torch is None
    assert found["flash_attn"].built_python == "3.12"
    assert "no record" in gaps["flash_attn.built_torch"]
    assert "no record" in gaps["flash_attn.built_cuda"]


def test_flash_attn_without_its_extension() -> None:
    found, gaps = read(distribution("flash_attn", "2.8.3", files=FLASH_FILES[:2]))
    assert found["flash_attn"].extensions == ()
    assert gaps == {}


def test_flash_attn_4_alone_is_not_flash_attn_2() -> None:
    cute = distribution("flash_attn_4", "4.0.0b36", files=("flash_attn/cute/interface.py",))
    found, _ = read(cute)
    assert found["flash_attn"] == Package(installed=False)
    assert found["flash_attn_4"].path == f"{SITE}/flash_attn/cute"
    # The folder is there, but what it holds is FlashAttention 4.
    both, _ = read(cute, distribution("flash_attn", "2.8.3"))
    assert both["flash_attn"].installed is True
    assert both["flash_attn"].path == ""


@pytest.mark.parametrize(
    ("name", "files", "extensions"),
    [
        ("flash_attn_3", ("flash_attn_3/_C.abi3.so",), ("_C",)),
        (
            "flashattn-hopper",
            ("flashattn_hopper_cuda.cpython-312-x86_64-linux-gnu.so",),
            ("flashattn_hopper_cuda",),
        ),
    ],
)
def test_flash_attn_3(name: str, files: tuple[str, ...], extensions: tuple[str, ...]) -> None:
    found, _ = read(distribution(name, "3.0.0b1", files=("flash_attn_interface.py", *files)))
    assert found["flash_attn_3"].path == f"{SITE}/flash_attn_interface.py"
    assert found["flash_attn_3"].extensions == extensions


def test_sageattention_for_windows() -> None:
    folder = r"C:\env\Lib\site-packages"
    version = "2.2.0+cu128torch2.9.0andhigher.post4"
    url = f"https://me:secret@example.org/sageattention-{version}-cp39-abi3-win_amd64.whl"
    info = f"{folder}\\sageattention-{version}.dist-info"
    files = {
        f"{info}\\METADATA": f"Name: sageattention\nVersion: {version}\nRequires-Python: >=3.9\n",
        f"{info}\\WHEEL": "Tag: cp39-abi3-win_amd64\n",
        f"{info}\\direct_url.json": json.dumps({"url": url, "archive_info": {}}),
        f"{folder}\\sageattention\\__init__.py": "",
        f"{folder}\\sageattention\\_fused.pyd": "",
        f"{folder}\\sageattention\\_qattn_sm80.pyd": "",
        f"{folder}\\sageattention\\core.py": "",
    }
    host, _ = environment(files, os="windows", machine="AMD64")
    there = scan(host, (folder,), r"C:\env", Gaps(), python="3.12.3")
    sage = packages.read(host, there, Gaps())["sageattention"]
    assert sage.extensions == ("_qattn_sm80", "_fused")
    assert (sage.python_tag, sage.abi_tag, sage.platform_tag) == ("cp39", "abi3", "win_amd64")
    # Built for 2.9.0 and newer: no single torch, but a floor.
    assert (sage.built_torch, sage.built_cuda) == (None, "12.8")
    assert sage.requires_torch == ">=2.9.0"
    assert "secret" not in (sage.source_url or "")
    assert (sage.source_url or "").startswith("https://***@example.org/")


def test_xformers_build_record() -> None:
    found, gaps = read(
        distribution(
            "xformers",
            "0.0.35",
            requires=("torch>=2.10", "numpy"),
            tags=("py39-none-manylinux_2_28_x86_64",),
            files=("xformers/__init__.py", "xformers/_C.so"),
            texts={"xformers/cpp_lib.json": json.dumps(RECORD)},
        )
    )
    xformers = found["xformers"]
    assert (xformers.built_torch, xformers.built_cuda) == ("2.10.0+cu128", "12.8")
    assert xformers.built_python == "3.10.19"
    assert xformers.requires_torch == ">=2.10"
    assert gaps == {}


def test_xformers_with_a_broken_build_record() -> None:
    found, gaps = read(
        distribution(
            "xformers", "0.0.35", files=("xformers/_C.so",), texts={"xformers/cpp_lib.json": "{"}
        )
    )
    assert found["xformers"].built_torch is None
    assert "xformers.built_torch" in gaps


@pytest.mark.parametrize(
    ("source", "accepted"),
    [
        (
            "FLASH_VER_MIN = (2, 6, 3)\n    FLASH_VER_LAST = (2, 7, 2)  # inclusive",
            ">=2.6.3,<2.7.3",
        ),
        (
            'FLASH_VER_MIN = parse_version("2.7.1")\nFLASH_VER_LAST = parse_version("2.8.4")',
            ">=2.7.1,<=2.8.4",
        ),
        ("FLASH_VER_MIN = least()", ""),
    ],
)
def test_xformers_names_the_flash_attn_that_it_accepts(source: str, accepted: str) -> None:
    files = {"xformers/ops/fmha/flash.py": source, "xformers/__init__.py": ""}
    found, _ = read(distribution("xformers", "0.0.36", texts=files))
    assert found["xformers"].flash_attn_range == accepted


@pytest.mark.parametrize(
    ("version", "accepts"), [("0.17.1", False), ("0.17.2", True), ("0.18.0", False)]
)
def test_transformers_names_the_kernels_that_it_accepts(version: str, accepts: bool) -> None:
    source = 'KERNELS_MIN_VERSION = "0.17.2"\nKERNELS_MAX_VERSION = "0.18.0"\n'
    files = {"transformers/utils/import_utils.py": source, "transformers/__init__.py": ""}
    found, _ = read(distribution("transformers", "5.22.2", texts=files))
    one = found["transformers"]
    assert one.kernels_range == ">=0.17.2,<0.18.0"
    facts = Facts(transformers=one, kernels=Package(installed=True, version=version))
    assert accepts_kernels(facts) is accepts


def test_torchvision_names_its_cuda_in_its_version() -> None:
    found, _ = read(
        distribution(
            "torchvision",
            "0.26.0+cu130",
            requires=("numpy", "torch==2.11.0", 'gdown>=4.7.3; extra == "gdown"'),
            files=("torchvision/_C.so", "torchvision/image.so", "torchvision/image.py"),
        )
    )
    vision = found["torchvision"]
    assert vision.requires_torch == "==2.11.0"
    assert vision.built_cuda == "13.0"
    assert vision.extensions == ("_C", "image")


def test_extras_do_not_require_torch() -> None:
    found, _ = read(
        distribution(
            "transformers",
            "5.23.0",
            requires=('torch>=2.4; extra == "torch"', 'accelerate; extra == "torch"'),
            files=("transformers/__init__.py",),
        ),
        distribution("accelerate", "1.9.0", requires=("torch>=2.0.0", "torch!=2.1.*")),
    )
    assert found["transformers"].requires_torch == ""
    assert found["accelerate"].requires_torch == ">=2.0.0,!=2.1.*"
    assert found["accelerate"].path == ""


def test_bitsandbytes_libraries() -> None:
    found, _ = read(
        distribution(
            "bitsandbytes",
            "0.50.2",
            tags=("py3-none-manylinux_2_24_x86_64", "py3-none-manylinux_2_28_x86_64"),
            files=(
                "bitsandbytes/__init__.py",
                "bitsandbytes/libbitsandbytes_cuda128.so",
                "bitsandbytes/libbitsandbytes_cpu.so",
            ),
        )
    )
    assert found["bitsandbytes"].extensions == ("libbitsandbytes_cpu", "libbitsandbytes_cuda128")
    assert found["bitsandbytes"].platform_tag == "manylinux_2_24_x86_64.manylinux_2_28_x86_64"


@pytest.mark.parametrize(
    ("direct_url", "installer", "source", "url"),
    [
        (None, "pip", "index", ""),
        (None, "uv", "index", ""),
        (None, "conda", "conda", ""),
        (None, "debian", "system", ""),
        (
            {"url": "https://github.com/huggingface/diffusers", "vcs_info": {"vcs": "git"}},
            "pip",
            "vcs",
            "https://github.com/huggingface/diffusers",
        ),
        (
            {"url": "file:///src/diffusers", "dir_info": {"editable": True}},
            "pip",
            "editable",
            "file:///src/diffusers",
        ),
        ({"url": "file:///src/diffusers", "dir_info": {}}, "pip", "local", "file:///src/diffusers"),
        ({"url": "file:///a.whl", "archive_info": {}}, "pip", "local", "file:///a.whl"),
        ({"url": "https://e.org/a.whl", "archive_info": {}}, "pip", "url", "https://e.org/a.whl"),
    ],
)
def test_sources_of_installations(direct_url: Any, installer: str, source: str, url: str) -> None:
    found, gaps = read(
        distribution("diffusers", "0.42.1", direct_url=direct_url, installer=installer)
    )
    assert (found["diffusers"].source, found["diffusers"].source_url) == (source, url)
    assert gaps == {}


def test_an_unknown_source_has_a_reason() -> None:
    broken = {f"{SITE}/diffusers-0.42.1.dist-info/direct_url.json": "[1]"}
    found, gaps = read(distribution("diffusers", "0.42.1"), broken)
    assert found["diffusers"].source is None
    assert "cannot be parsed" in gaps["diffusers.source"]


def test_editable_install_is_found_in_its_tree() -> None:
    url = {"url": "file:///src/my%20project", "dir_info": {"editable": True}}
    found, _ = read(
        distribution("simpletuner", "4.10.1", direct_url=url),
        {"/src/my project/src/simpletuner/__init__.py": ""},
    )
    assert found["simpletuner"].path == "/src/my project/src/simpletuner"


def test_development_egg() -> None:
    found, _ = read(
        {
            f"{SITE}/easy-install.pth": "/src/sage\n",
            "/src/sage/sageattention.egg-info/PKG-INFO": "Name: sageattention\nVersion: 2.2.0\n\n",
            "/src/sage/sageattention/_qattn_sm89.cpython-312-x86_64-linux-gnu.so": "",
        }
    )
    sage = found["sageattention"]
    assert (sage.version, sage.source, sage.path) == (
        "2.2.0",
        "editable",
        "/src/sage/sageattention",
    )
    assert (sage.python_tag, sage.extensions) == ("", ("_qattn_sm89",))


def test_metadata_that_cannot_be_read() -> None:
    files = distribution("diffusers", "0.42.1")
    del files[f"{SITE}/diffusers-0.42.1.dist-info/METADATA"]
    found, gaps = read(files)
    assert found["diffusers"].requires_torch is None
    assert "cannot be read" in gaps["diffusers.requires_torch"]


@pytest.mark.parametrize(
    ("package", "version", "torch", "error"),
    [
        ("torchaudio", "2.11.0+cu130", "13.2", "it is built for CUDA 13.0, torch for CUDA 13.2"),
        ("torchaudio", "2.11.0+cu130", "13.0", ""),
        ("torchaudio", "2.11.0+cpu", "13.0", ""),
        ("torchaudio", "2.11.1+cu132", "13.0", ""),
        ("torchaudio", "2.11.1+cu132", "12.6", "it is built for CUDA 13.2, torch for CUDA 12.6"),
        ("torchvision", "0.29.2+cu130", "13.2", ""),
        ("torchvision", "0.21.0+cu124", "13.2", "it is built for CUDA 12.4, torch for CUDA 13.2"),
    ],
)
def test_packages_that_compare_their_cuda_with_torch(
    package: str, version: str, torch: str, error: str
) -> None:
    found, _ = read(
        distribution("torch", "2.15.0", texts={"torch/version.py": f"cuda = '{torch}'\n"}),
        distribution(
            package,
            version.partition("+")[0],
            texts={f"{package}/version.py": f"__version__ = '{version}'\n"},
        ),
    )
    import_error = found[package].import_error
    assert import_error is not None
    assert import_error.partition(", and")[0] == error


@pytest.mark.parametrize(
    ("source", "required"),
    [('    min_torch_version = _parse_version("2.11.0")\n', ">=2.11.0"), ("import torch\n", "")],
)
def test_torchao_names_the_torch_that_it_needs_in_its_source(source: str, required: str) -> None:
    files = {"torchao/__init__.py": source}
    found, _ = read(distribution("torchao", "0.18.0", texts=files))
    assert found["torchao"].requires_torch == required


@pytest.mark.parametrize("inside", [False, True])
def test_a_file_that_hides_a_package(inside: bool) -> None:
    """A user's diffusers.py in a folder of PYTHONPATH; a folder there may work or not."""
    file = "/scripts/diffusers/__init__.py" if inside else "/scripts/diffusers.py"
    host, _ = environment(
        distribution("diffusers", "0.42.1", files=("diffusers/__init__.py",)), {file: "x = 1\n"}
    )
    there = scan(host, ("/scripts", SITE), "/env", Gaps(), python="3.12.3", plain=("/scripts",))
    found = packages.read(host, there, Gaps())["diffusers"]
    said = "/scripts/diffusers.py is imported in its place"
    assert found.import_error == (None if inside else said)


@pytest.mark.parametrize("indented", [False, True])
@pytest.mark.parametrize("amd", [False, True])
def test_flash_attn_imports_an_extension_that_is_not_there(indented: bool, amd: bool) -> None:
    """`FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE` installs the Python files only."""
    name = "flash_attn/flash_attn_interface.py"
    source = "import flash_attn_2_cuda as flash_attn_gpu\n"
    texts = {
        "flash_attn/__init__.py": "from flash_attn.flash_attn_interface import x\n",
        name: f"if AMD:\n    import other\nelse:\n    {source}" if indented else source,
    }
    part = distribution("flash_attn", "2.8.3", texts=texts)
    environ = {"FLASH_ATTENTION_TRITON_AMD_ENABLE": "TRUE"} if amd else {}
    found, _ = read(part, environ=environ)
    said = f"{name} imports flash_attn_2_cuda, which is not installed"
    assert found["flash_attn"].import_error == ("" if amd else said)


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, ""),
        ({"DIFFUSERS_ATTN_BACKEND": "flash"}, ""),
        ({"DIFFUSERS_ATTN_BACKEND": "sdpa"}, "DIFFUSERS_ATTN_BACKEND is sdpa"),
        ({"USE_TORCH": "auto"}, ""),
        ({"USE_TORCH": "0"}, "USE_TORCH or USE_TF lets it take torch for absent"),
        ({"USE_TF": "1"}, "USE_TORCH or USE_TF lets it take torch for absent"),
    ],
)
def test_variables_that_stop_diffusers(environ: dict[str, str], said: str) -> None:
    """Each was seen with diffusers 0.38.0 or 0.42.1."""
    texts = {
        "diffusers/models/attention_dispatch.py": '    FLASH = "flash"\n',
        "diffusers/utils/import_utils.py": 'USE_TORCH = os.environ.get("USE_TORCH", "AUTO")\n',
    }
    found, _ = read(distribution("diffusers", "0.42.1", texts=texts), environ=environ)
    error = found["diffusers"].import_error
    assert error is not None
    assert error.partition(", which")[0] == said


def test_diffusers_without_metadata_is_read_from_its_sources() -> None:
    found, gaps = read({f"{SITE}/diffusers/__init__.py": '__version__ = "0.36.0"\n'})
    one = found["diffusers"]
    assert (one.installed, one.version, one.path) == (True, "0.36.0", f"{SITE}/diffusers")
    assert one.import_error is None
    assert "has no metadata" in gaps["diffusers.import_error"]
    assert read({f"{SITE}/diffusers/__init__.py": ""})[0]["diffusers"].installed is False
