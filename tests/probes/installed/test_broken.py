"""Imports that reach a package whose own import fails."""

from __future__ import annotations

import msgspec
import pytest

from attn_doctor.facts import Driver, Extension, Facts, Gpu, Package, Torch, Triton
from attn_doctor.probes.installed.broken import with_broken_imports
from attn_doctor.probes.installed.reach import Reach
from tests.probes.environments import SITE, distribution, environment

DISPATCH = "diffusers/models/attention_dispatch.py"
#: Of Diffusers 0.36.0.
GUARDED = """
import torch
from ..utils import is_xformers_available, is_xformers_version
_REQUIRED = "0.0.29"
_CAN_USE_XFORMERS_ATTN = is_xformers_available() and is_xformers_version(">=", _REQUIRED)
if _CAN_USE_XFORMERS_ATTN:
    import xformers.ops as xops
else:
    xops = None
"""
#: Of Diffusers 0.42.1.
CAUGHT = """
from ..utils import is_xformers_available
if is_xformers_available():
    try:
        import xformers.ops as xops
    except (ImportError, OSError):
        xops = None
"""
#: Of xformers 0.0.32.
FLASH3 = """
import importlib.util
if importlib.util.find_spec("...flash_attn_3._C", package=__package__):
    from ...flash_attn_3 import _C
"""
BROKEN = Extension(
    package="xformers",
    name="_C",
    path=f"{SITE}/xformers/flash_attn_3/_C.so",
    load_error="undefined symbol x",
)


def examined(dispatch: str, xformers: str, extension: Extension = BROKEN) -> Package:
    host, site = environment(
        distribution(
            "diffusers",
            "0.36.0",
            files=("diffusers/__init__.py", "diffusers/models/__init__.py"),
            texts={
                DISPATCH: dispatch,
                "diffusers/utils/__init__.py": "def later():\n    import torchaudio",
            },
        ),
        distribution(
            "xformers",
            xformers,
            files=(
                "xformers/__init__.py",
                "xformers/ops/__init__.py",
                "xformers/flash_attn_3/_C.so",
            ),
            texts={
                "xformers/ops/__init__.py": "from .fmha import flash3",
                "xformers/ops/fmha/__init__.py": "",
                "xformers/ops/fmha/flash3.py": FLASH3,
            },
        ),
    )
    facts = Facts(
        diffusers=Package(installed=True, path=f"{SITE}/diffusers", import_error=""),
        xformers=Package(installed=True, path=f"{SITE}/xformers", import_error=""),
        extensions=(extension,),
    )
    return with_broken_imports(host, site, facts).diffusers


def test_what_stops_the_operators_of_xformers() -> None:
    """Importing xformers itself works."""
    imports = 'import importlib.util\nif importlib.util.find_spec("flash_attn"):\n'
    host, site = environment(
        distribution(
            "xformers",
            "0.0.34",
            files=("xformers/__init__.py",),
            texts={"xformers/ops/__init__.py": f"{imports}    import flash_attn"},
        ),
        distribution(
            "flash-attn",
            "2.8.3",
            files=("flash_attn_2_cuda.so",),
            texts={"flash_attn/__init__.py": "import flash_attn_2_cuda"},
        ),
    )
    for error, fails in (("undefined symbol x", True), ("", False)):
        extension = Extension(
            package="flash_attn",
            name="flash_attn_2_cuda",
            path=f"{SITE}/flash_attn_2_cuda.so",
            loads=not error,
            load_error=error,
        )
        facts = Facts(
            xformers=Package(installed=True, path=f"{SITE}/xformers", import_error=""),
            extensions=(extension,),
        )
        found = with_broken_imports(host, site, facts).xformers
        assert found.import_error == ""
        assert bool(found.load_error) is fails


@pytest.mark.parametrize(("version", "stops"), [("0.0.31", True), ("0.0.29.post3", False)])
def test_a_flash_attn_that_xformers_refuses(version: str, stops: bool) -> None:
    """Before 0.0.30 it catches its own refusal."""
    host, site = environment(
        distribution(
            "xformers",
            version,
            files=("xformers/__init__.py", "xformers/ops/fmha/flash.py"),
            texts={
                "xformers/ops/__init__.py": "from . import fmha",
                "xformers/ops/fmha/__init__.py": "from . import flash",
            },
        ),
    )
    facts = Facts(
        xformers=Package(
            installed=True,
            version=version,
            path=f"{SITE}/xformers",
            import_error="",
            extensions=("_C",),
            flash_attn_range=">=2.7.1,<2.7.3",
        ),
        flash_attn=Package(installed=True, version="2.8.3", import_error=""),
    )
    found = with_broken_imports(host, site, facts).xformers
    assert bool(found.load_error) is stops


def test_a_module_that_does_not_load_stops_what_imports_it() -> None:
    assert examined(GUARDED, "0.0.32").import_error == (
        "xformers/ops/fmha/flash3.py imports xformers.flash_attn_3._C, which fails: "
        "undefined symbol x"
    )


@pytest.mark.parametrize(
    ("dispatch", "xformers"),
    [
        (CAUGHT, "0.0.32"),
        (GUARDED, "0.0.28"),  # too old to be imported
        ('import os\nA = os.getenv("A", "0") == "1"\nif A:\n    import xformers.ops', "0.0.32"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import xformers.ops", "0.0.32"),
        ("@one\n@two(\n    3,\n)\ndef later(\n    a,\n) -> None:\n    import xformers.ops", "1"),
    ],
)
def test_an_import_that_does_not_happen_or_is_caught(dispatch: str, xformers: str) -> None:
    assert examined(dispatch, xformers).import_error == ""


@pytest.mark.parametrize(("size", "ends"), [(98304, True), (98305, False)])
def test_no_handler_catches_a_module_that_was_cut_short(size: int, ends: bool) -> None:
    """The loader dies of SIGBUS where the pages are missing that it reads."""
    error = f"it ends after {size} of at least 100000 bytes"
    cut = msgspec.structs.replace(BROKEN, load_error=error)
    assert bool(examined(CAUGHT, "0.0.32", cut).import_error) == ends


@pytest.mark.parametrize(
    ("first", "runs"),
    [("from ..utils import _C_flash", True), ("import peft", True), ("import diffusers", False)],
)
def test_a_handler_runs_where_the_first_import_fails(first: str, runs: bool) -> None:
    """As in xformers 0.0.29, which takes the package flash-attn where it has no kernels."""
    text = f"try:\n    {first}\nexcept ImportError:\n    import xformers.flash_attn_3._C"
    assert bool(examined(text, "0.0.32").import_error) == runs


def test_a_condition_that_is_not_understood() -> None:
    found = examined("if wanted():\n    import xformers.ops", "0.0.32")
    assert found.import_error is None
    assert "xformers.flash_attn_3._C, which may fail" in (found.import_doubt or "")


@pytest.mark.parametrize(
    ("torchvision", "error", "doubt"),
    [
        (Package(import_error="it is built for CUDA 12.8, and it compares them"), True, False),
        (Package(import_doubt="it requires torch==2.8.0"), None, True),
        (
            Package(import_error="", load_error="_C: undefined symbol", version="0.24.1"),
            True,
            False,
        ),
        (
            Package(import_error="", load_error="_C: undefined symbol", version="0.16.1"),
            False,
            False,
        ),
    ],
)
def test_torchvision_stops_what_imports_it(
    torchvision: Package, error: bool | None, doubt: bool
) -> None:
    host, site = environment(
        distribution(
            "transformers",
            "4.57.6",
            files=("transformers/__init__.py",),
            texts={
                "transformers/modeling_utils.py": "from .image_utils import x",
                "transformers/image_utils.py": "if is_vision_available():\n"
                "    import PIL\n    if is_torchvision_available():\n"
                "        try:\n            import torchvision.io\n"
                "        except ImportError:\n            pass",
            },
        ),
        distribution("torchvision", "0.24.1", files=("torchvision/__init__.py", "PIL/__init__.py")),
    )

    facts = Facts(
        transformers=Package(installed=True, path=f"{SITE}/transformers", import_error=""),
        torchvision=msgspec.structs.replace(torchvision, installed=True),
    )
    found = with_broken_imports(host, site, facts).transformers
    assert (found.import_error is None) == (error is None)
    assert bool(found.import_error) == bool(error)
    assert bool(found.import_doubt) == doubt


@pytest.mark.parametrize(
    ("gpus", "error", "doubt"),
    [((), False, False), ((Gpu(visible=True),), True, False), (None, False, True)],
)
def test_flash_attn_is_imported_where_torch_has_a_gpu(
    gpus: tuple[Gpu, ...] | None, error: bool, doubt: bool
) -> None:
    """By Transformers 4.44 to 4.51."""
    host, site = environment(
        distribution(
            "transformers",
            "4.51.3",
            files=("transformers/__init__.py",),
            texts={
                "transformers/modeling_utils.py": "if is_flash_attn_2_available():\n"
                "    from flash_attn.bert_padding import pad_input"
            },
        ),
        distribution("flash_attn", "2.8.3", files=("flash_attn/__init__.py",)),
    )
    facts = Facts(
        torch=Torch(installed=True, build="cuda"),
        driver=Driver(state="ok"),
        gpus=gpus,
        transformers=Package(installed=True, path=f"{SITE}/transformers", import_error=""),
        flash_attn=Package(installed=True, import_error="it imports x, which is not installed"),
    )
    found = with_broken_imports(host, site, facts).transformers
    assert (bool(found.import_error), bool(found.import_doubt)) == (error, doubt)


@pytest.mark.parametrize(
    ("triton", "fails"),
    [
        (Triton(installed=False), "not installed"),
        (Triton(installed=True), ""),
        (Triton(), ""),
        (Triton(installed=True, setuptools_missing=True), "imports setuptools"),
    ],
)
def test_sageattention_without_triton(triton: Triton, fails: str) -> None:
    host, site = environment(
        distribution(
            "sageattention",
            "1.0.6",
            texts={
                "sageattention/__init__.py": "from .core import sageattn",
                "sageattention/core.py": "import torch\nfrom .quant import x",
                "sageattention/quant.py": "import triton\nimport triton.language as tl",
            },
        ),
    )
    package = Package(installed=True, path=f"{SITE}/sageattention", import_error="")
    facts = Facts(sageattention=package, triton=triton)
    found = with_broken_imports(host, site, facts).sageattention.import_error
    assert fails in (found or "")
    assert bool(found) == bool(fails)


def test_imports_that_cannot_be_followed_are_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Reach, entry: str) -> None:
        raise RecursionError(entry)

    monkeypatch.setattr(Reach, "find", fails)
    package = examined(CAUGHT, "0.0.32")
    assert package.import_error is None
    assert package.import_doubt == "its imports could not be followed"


C10D = "torch.distributed.distributed_c10d"


#: Of xformers 0.0.35, 0.0.29 and torchao 0.14.1.
@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            f"from {C10D} import GroupName",
            f"imports GroupName from {C10D}, and this torch has no such name",
        ),
        (
            "import torch.distributed._symmetric_memory as symm_mem",
            "imports torch.distributed._symmetric_memory, and this torch has no such module",
        ),
        (
            "import torch\nBOUNDS.update({torch.int1: 1})",
            "uses torch.int1, and this torch has no such name",
        ),
        (f"from {C10D} import ProcessGroup", ""),
        ("import torch\nBOUNDS.update({torch.uint1: 1})", ""),
        ("import torch\nif newer(torch):\n    BOUNDS.update({torch.int1: 1})", ""),
        ("import torch\nONE = torch.int1 if newer(torch) else None", ""),
        ("try:\n    import torch.distributed._symmetric_memory\nexcept ImportError:\n    pass", ""),
        ("import torch\ntry:\n    ONE = torch.int1\nexcept AttributeError:\n    pass", ""),
    ],
)
@pytest.mark.parametrize("wanted", [">=2.6", ">=2.4"])
def test_names_that_a_package_takes_from_another_torch(text: str, error: str, wanted: str) -> None:
    host, site = environment(
        distribution(
            "torch",
            "2.4.1",
            files=("torch/__init__.py", "torch/distributed/__init__.py"),
            texts={
                "torch/distributed/distributed_c10d.py": "class ProcessGroup:\n"
                "    def __getattr__(self, name):\n        setattr(self, name, 0)"
            },
        ),
        distribution(
            "torchao",
            "0.14.1",
            files=("torchao/__init__.py",),
            texts={
                "torchao/__init__.py": "from . import quantization",
                "torchao/quantization.py": text,
            },
        ),
        distribution(
            "transformers",
            "4.57.6",
            files=("transformers/__init__.py", "transformers/utils/__init__.py"),
            texts={
                "transformers/utils/import_utils.py": 'TORCHAO_MIN_VERSION = "0.4.0"',
                "transformers/modeling_utils.py": "from .utils import is_torchao_available\n"
                "if is_torchao_available():\n    import torchao",
            },
        ),
    )
    torchao = Package(
        installed=True, path=f"{SITE}/torchao", import_error="", requires_torch=wanted
    )
    facts = Facts(
        torch=Torch(installed=True, version="2.4.1"),
        torchao=torchao,
        transformers=Package(installed=True, path=f"{SITE}/transformers", import_error=""),
    )
    found = with_broken_imports(host, site, facts)
    fails = error and wanted == ">=2.6"
    assert found.torchao.import_error == (f"torchao/quantization.py {error}" if fails else "")
    assert bool(found.transformers.import_error) == bool(fails)


@pytest.mark.parametrize(
    ("error", "fails"),
    [
        ("it requires safetensors>=0.4.1, and none is installed", True),
        # Only its module for attention fails, which Diffusers does not import.
        ("transformers/modeling_utils.py imports safetensors, which is not installed", False),
    ],
)
def test_a_framework_follows_another_that_fails_in_its_own_test(error: str, fails: bool) -> None:
    host, site = environment(
        distribution(
            "diffusers",
            "0.29.2",
            files=("diffusers/__init__.py", "diffusers/models/__init__.py"),
            texts={
                "diffusers/models/attention_processor.py": "from .lora import LoRALinearLayer",
                "diffusers/models/lora.py": "from ..utils import is_transformers_available\n"
                "if is_transformers_available():\n    from transformers import CLIPTextModel",
            },
        ),
        distribution("transformers", "4.42.4", files=("transformers/__init__.py",)),
    )
    facts = Facts(
        diffusers=Package(installed=True, path=f"{SITE}/diffusers", import_error=""),
        transformers=Package(installed=True, path=f"{SITE}/transformers", import_error=error),
    )
    found = with_broken_imports(host, site, facts).diffusers.import_error
    said = f"diffusers/models/lora.py imports transformers, which fails: {error}"
    assert found == (said if fails else "")
