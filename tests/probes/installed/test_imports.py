"""Requirements that are not met, and imports that fail for them. Each is really imported too."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attn_doctor.host.local import LocalHost
from attn_doctor.probes.distributions import scan
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed.imports import Imports


class Environment:
    """A folder of packages, each with its requirements and its sources."""

    def __init__(self, site: Path) -> None:
        self.site = site

    def install(self, name: str, *requires: str, version: str = "1.0", **files: str) -> None:
        info = self.site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {r}" for r in requires)]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        for file, text in files.items():
            path = self.site / name / f"{'__init__' if file == 'init' else file}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def imports(self, *roots: str) -> Imports:
        where = scan(LocalHost(), (str(self.site),), str(self.site), Gaps(), python="3.12.3")
        return Imports(LocalHost(), where, roots)

    def fails(self, module: str) -> bool:
        """Whether the import really fails."""
        code = f"import sys; sys.path.insert(0, {str(self.site)!r}); import {module}"
        argv = [sys.executable, "-I", "-S", "-c", code]
        return subprocess.run(argv, capture_output=True, check=False).returncode != 0


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "site")


def forward(text: str) -> str:
    """`text` with its paths as Linux writes them."""
    return text.replace("\\", "/")


def test_an_import_at_the_left_margin_fails(environment: Environment) -> None:
    environment.install("top", "low", init="from .part import name", part="import low\nname = 1")
    environment.install("low", "absent>=2", init="from low import deep", deep="import absent")
    found = environment.imports("top")
    unmet = [(one.package, one.needs, one.installed) for one in found.unmet]
    assert unmet == [("low", "absent>=2", "")]
    assert (
        forward(found.error("top", "top")) == "low/deep.py imports absent, which is not installed"
    )
    assert environment.fails("top")


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    import absent\nexcept ImportError:\n    absent = None\n",
        "def call():\n    import absent\n",
        "if False:\n    import absent\n",
        '"""\nimport absent\n"""\n',
        "# import absent\n",
    ],
)
def test_a_guarded_import_does_not_fail(environment: Environment, source: str) -> None:
    environment.install("top", "absent", init=source)
    found = environment.imports("top")
    assert len(found.unmet) == 1
    assert found.error("top", "top") == ""
    assert not environment.fails("top")


def test_names_that_a_package_resolves_on_demand(environment: Environment) -> None:
    hub = "_SUBMOD_ATTRS = {'http': ['fetch']}\ndef __getattr__(name):\n"
    hub += "    import importlib\n    return importlib.import_module('hub.http').fetch\n"
    environment.install("hub", "absent", init=hub, http="import absent\nfetch = 1")
    environment.install("top", "hub", init="from hub import (\n    fetch,\n)")
    found = environment.imports("top", "hub")
    assert "hub/http.py imports absent" in forward(found.error("top", "top"))
    assert environment.fails("top")
    assert found.error("hub", "hub") == ""
    assert not environment.fails("hub")


def test_a_version_that_the_package_tests_at_import(environment: Environment) -> None:
    environment.install("absent", version="0.1", init="")
    environment.install(
        "top",
        "absent>=1",
        init="",
        dependency_versions_check="wanted = 'absent other'.split()",
        dependency_versions_table='deps = {\n    "absent": "absent>=1",\n    "more": "more",\n}',
    )
    found = environment.imports("top")
    assert [(one.needs, one.installed) for one in found.unmet] == [("absent>=1", "0.1")]
    assert found.error("top", "top") == "it requires absent>=1, and absent 0.1 is installed"


def test_requirements_of_extras_and_other_systems_do_not_count(environment: Environment) -> None:
    requires = ('absent; extra == "all"', 'other; sys_platform == "atari"', "nvidia-cudnn-cu12")
    environment.install("top", *requires, init="import absent")
    assert environment.imports("top").unmet == ()


@pytest.mark.parametrize(
    ("functional", "error"),
    [
        ("def relu(): ...\n", "ao/low.py imports Scaling from torch.functional, and"),
        ("class Scaling: ...\n", ""),
        ("from torch.other import *\n", ""),
        ("def __getattr__(name): ...\n", ""),
    ],
)
def test_a_name_that_an_older_torch_does_not_have(
    environment: Environment, functional: str, error: str
) -> None:
    """torchao 0.18 imports ScalingType, which torch 2.9 lacks; Transformers imports torchao."""
    environment.install("torch", init="", functional=functional, other="Scaling = 1\n")
    environment.install("torchao", init="")
    environment.install("ao", init="from . import low", low="from torch.functional import Scaling")
    environment.install(
        "top",
        init="from . import part",
        part="def is_torchao_available(): return True\nif is_torchao_available():\n    import ao\n",
    )
    where = scan(LocalHost(), (str(environment.site),), "", Gaps(), python="3.12.3")
    found = Imports(LocalHost(), where, ("top", "ao"), ("ao", "torchao"))
    assert forward(found.error("top", "top")).startswith(error)
    assert forward(found.error("ao", "ao")).startswith(error)
    assert bool(found.error("ao", "ao")) is environment.fails("ao") is bool(error)
    assert environment.fails("top") is bool(error)
    assert Imports(LocalHost(), where, ("top", "ao")).error("ao", "ao") == ""


def test_a_wrong_version_that_the_import_reaches_makes_it_doubtful(
    environment: Environment,
) -> None:
    """typing_extensions 4.5 stops `import torch`; sympy 1.14 beside a pin of 1.13.1 does not."""
    environment.install("low", version="4.5", init="")
    environment.install("lazy", version="1.14", init="")
    environment.install(
        "mid", "low>=4.10", "lazy==1.13.1", init="import low\ndef late():\n    import lazy\n"
    )
    environment.install("top", "mid", init="from mid import late")
    environment.install("apart", init="")
    found = environment.imports("top", "mid", "apart")
    reason = "mid/__init__.py imports low 4.5, and mid requires low>=4.10"
    assert found.error("top", "top") == found.error("mid", "mid") == ""
    assert forward(found.doubt("mid", "mid")) == forward(found.doubt("top", "top")) == reason
    assert found.doubt("apart", "apart") == ""


@pytest.mark.parametrize(
    ("hub", "doubt"), [("lazy = ['fetch']", False), ("lazy = ['other']", True)]
)
def test_a_wrong_version_that_has_all_names_serves(
    environment: Environment, hub: str, doubt: bool
) -> None:
    lazy = f"def __getattr__(name): ...\n{hub}"
    environment.install("hub", version="2.0", init=lazy, utils="def quiet(): ...\n")
    environment.install(
        "top",
        "hub<2",
        init="from hub import lazy\nfrom . import sub\nimport hub.utils as tools\ntools.quiet()",
        sub="from hub import (\n    fetch as get,  # it\n)",
    )
    assert bool(environment.imports("top").doubt("top", "top")) == doubt


def test_a_version_that_is_tested_without_metadata(environment: Environment) -> None:
    environment.install(
        "transformers",
        init="",
        dependency_versions_check='checked = ["accelerate", "tokenizers", "numpy"]',
        dependency_versions_table='deps = {\n    "accelerate": "accelerate>=1.1",\n'
        '    "tokenizers": "tokenizers<2",\n    "numpy": "numpy>=1",\n}',
    )
    environment.install("numpy", version="2.0", init="")
    assert environment.imports("transformers").error("transformers", "transformers") == ""
    (environment.site / "accelerate.py").write_text("", "utf-8")
    found = environment.imports("transformers")
    assert found.error("transformers", "transformers") == (
        "it requires accelerate>=1.1, and none is installed"
    )
    assert [(one.package, one.needs) for one in found.unmet] == [
        ("transformers", "accelerate>=1.1")
    ]


@pytest.mark.parametrize(
    ("version", "error"),
    [
        ("0.5.0", ""),
        ("0.13.2", "it requires peft>=0.17.0, and peft 0.13.2 is installed"),
        ("1", ""),
    ],
)
def test_a_peft_that_diffusers_uses_and_refuses(
    environment: Environment, version: str, error: str
) -> None:
    environment.install(
        "diffusers",
        init="",
        dependency_versions_check='checked = "python".split()',
        dependency_versions_table='deps = {\n    "peft": "peft>=0.17.0",\n}',
        **{
            "utils/__init__": "",
            "utils/constants": 'MIN_PEFT_VERSION = "0.6.0"\ndep_version_check("peft")',
        },
    )
    environment.install("transformers", init="")
    environment.install("peft", version=version, init="")
    found = environment.imports("diffusers")
    assert found.error("diffusers", "diffusers") == error
    assert [one.needs for one in found.unmet] == ["peft>=0.17.0"] * bool(error)


def test_a_requirement_of_extras_does_not_make_an_import_doubtful(
    environment: Environment,
) -> None:
    environment.install("low", version="4.5", init="")
    environment.install("top", 'low>=4.10; extra == "all"', init="import low")
    assert environment.imports("top").doubt("top", "top") == ""


def test_another_version_of_a_cuda_wheel_is_reported(environment: Environment) -> None:
    environment.install("nvidia-nccl-cu12", version="2.18.1")
    environment.install("torch", "nvidia-nccl-cu12==2.27.5", "triton==3.5.1", init="")
    environment.install("triton", version="3.0.0", init="")
    (unmet,) = environment.imports("torch").unmet
    assert (unmet.needs, unmet.installed) == ("nvidia-nccl-cu12==2.27.5", "2.18.1")


def test_an_import_that_the_metadata_do_not_declare(environment: Environment) -> None:
    """accelerate 0.20.3 imports pkg_resources, which setuptools 82 does not have."""
    files = {
        "utils/__init__": "from . import torch_xla as x",
        "utils/torch_xla": "import pkg_resources",
    }
    environment.install("accelerate", init="from .utils import x", **files)
    environment.install("setuptools", version="84.2.1", init="")
    found = environment.imports("accelerate")
    said = "accelerate/utils/torch_xla.py imports pkg_resources, which is not installed"
    assert forward(found.error("accelerate", "accelerate")) == said
    (unmet,) = found.unmet
    assert (unmet.needs, unmet.installed) == ("setuptools<81", "84.2.1")
    assert environment.fails("accelerate")
    environment.install("pkg_resources", init="")
    found = environment.imports("accelerate")
    assert (found.error("accelerate", "accelerate"), found.unmet) == ("", ())
    assert not environment.fails("accelerate")


def test_triton_without_ops(environment: Environment) -> None:
    """bitsandbytes 0.43 imports triton.ops where Triton is installed; Triton 3.2 lost it."""
    guarded = (
        "try:\n    import triton\nexcept ImportError:\n    pass\n"
        "else:\n    from triton.ops import x\n"
    )
    environment.install(
        "bitsandbytes",
        init="from .triton import int8_matmul_mixed_dequantize",
        **{"triton/__init__": "", "triton/int8_matmul_mixed_dequantize": guarded},
    )
    assert environment.imports("bitsandbytes").error("bitsandbytes", "bitsandbytes") == ""
    assert not environment.fails("bitsandbytes")
    environment.install("triton", init="", version="3.5.1")
    found = environment.imports("bitsandbytes")
    assert "imports triton.ops" in found.error("bitsandbytes", "bitsandbytes")
    assert [(one.package, one.needs) for one in found.unmet] == [("triton", "bitsandbytes>=0.45")]
    assert environment.fails("bitsandbytes")
    environment.install("triton", version="2.3.1", **{"ops/__init__": "x = 1"})
    assert environment.imports("bitsandbytes").error("bitsandbytes", "bitsandbytes") == ""
    assert not environment.fails("bitsandbytes")


def test_two_copies_of_a_requirement_are_in_doubt(environment: Environment) -> None:
    environment.install("top", "low>=2", init="")
    environment.install("low", version="1.0", init="")
    environment.install("low", version="2.0")
    found = environment.imports("top")
    assert (found.unmet, found.error("top", "top")) == ((), "")
    assert found.doubt("top", "top") == (
        "it requires low>=2, and only one of the installed copies has that version"
    )


def test_a_try_that_raises_again_fails(environment: Environment) -> None:
    source = "try:\n    import absent\nexcept ImportError:\n    raise ImportError('needs absent')\n"
    environment.install("top", "absent", init=source)
    found = environment.imports("top").error("top", "top")
    assert forward(found) == "top/__init__.py imports absent, which is not installed"
    assert environment.fails("top")


@pytest.mark.parametrize(("text", "fails"), [("value = 1\n", False), ("other = 1\n", True)])
def test_a_name_that_another_version_does_not_have(
    environment: Environment, text: str, fails: bool
) -> None:
    environment.install("top", "low>=2", init="from low.deep import value")
    environment.install("low", init="", deep=text)
    found = environment.imports("top").error("top", "top")
    expected = "top/__init__.py imports value from low.deep, and this low has no such name"
    assert forward(found) == (expected if fails else "")
    assert environment.fails("top") == fails


def test_a_decorator_imports_the_compiler(environment: Environment) -> None:
    source = "import torch\nclass A:\n    @torch.compiler.disable\n    def call(self): ...\n"
    environment.install("top", "torch", init=source)
    environment.install("torch", "sympy", init="", _dynamo="import sympy\n")
    found = environment.imports("top", "torch").error("top", "top")
    assert forward(found) == "torch/_dynamo.py imports sympy, which is not installed"


@pytest.mark.parametrize("has", ["", "backends", "compiler"])
def test_a_name_that_torch_imports_from_one_of_two_modules_of_triton(
    environment: Environment, has: str
) -> None:
    """torch 2.6 beside Triton 2.1.0: cannot import name 'AttrsDescriptor'."""
    environment.install("top", "torch", init="import torch.hints")
    hints = (
        "if available():\n    try:\n"
        "        from triton.backends.compiler import AttrsDescriptor\n\n"
        "        def wrapper():\n            pass\n\n    except ImportError:\n"
        "        from triton.compiler.compiler import AttrsDescriptor\n"
    )
    environment.install("torch", "triton==3.2.0", init="", hints=hints)
    modules = {"compiler/__init__": "", "compiler/compiler": "x = 1"}
    if has:
        modules |= {f"{has}/__init__": "", f"{has}/compiler": "class AttrsDescriptor: ...\n"}
    environment.install("triton", version="2.1.0", init="", **modules)
    said = forward(environment.imports("top").error("top", "top"))
    lacks = (
        "torch/hints.py imports AttrsDescriptor from triton.compiler.compiler, and this triton has"
        " no such name"
    )
    assert said == ("" if has else lacks)


@pytest.mark.parametrize(("wanted", "fails"), [("triton==3.8.0", True), ("triton==2.1.0", False)])
def test_a_triton_that_lacks_a_module_of_the_one_required(
    environment: Environment, wanted: str, fails: bool
) -> None:
    """Nothing is followed where Triton has the version that torch requires."""
    environment.install("top", "torch", init="import torch.hints")
    hints = "if has_triton_package():\n    import triton\n    import triton.backends.compiler\n"
    torch = "def has_triton_package():\n    return True\n"
    environment.install("torch", wanted, init="", hints=torch + hints)
    environment.install("triton", version="2.1.0", init="")
    said = forward(environment.imports("top").error("top", "top"))
    lacks = "torch/hints.py imports triton.backends, which triton 2.1.0 lacks"
    assert said == (lacks if fails else "")
    assert environment.fails("top")
    (environment.site / "triton" / "backends").mkdir()
    assert environment.imports("top").error("top", "top") == ""


@pytest.mark.parametrize("setuptools", [True, False])
def test_torch_takes_a_triton_that_cannot_be_imported_for_absent(
    environment: Environment, setuptools: bool
) -> None:
    """Triton 2.1 imports setuptools. torch reaches its compiler by functorch, in its wheel too."""
    either = "from triton.compiler.compiler import AttrsDescriptor\n"
    guarded = (
        "try:\n    import triton\n    there = True\nexcept ImportError:\n    there = False\n"
        "if there:\n    try:\n        from triton.backends.compiler import AttrsDescriptor\n"
        f"    except ImportError:\n        {either}"
    )
    environment.install(
        "torch", "triton==3.2.0", init="", debugging="import functorch.compile", hints=guarded
    )
    (environment.site / "functorch").mkdir()
    (environment.site / "functorch" / "__init__.py").write_text("")
    (environment.site / "functorch" / "compile.py").write_text("import torch.hints\n")
    modules = {"common/build": "import setuptools", "compiler/compiler": "x = 1"}
    packages = {"common/__init__": "", "compiler/__init__": ""}
    environment.install(
        "triton", version="2.1.0", init="from .common import build", **modules, **packages
    )
    if setuptools:
        environment.install("setuptools", init="")
    said = forward(environment.imports("torch", "triton").error("torch", "torch.debugging"))
    assert said.startswith("torch/hints.py imports AttrsDescriptor") == setuptools
    assert environment.fails("torch.debugging") == setuptools


def test_an_optional_package_with_another_numpy_is_in_doubt(environment: Environment) -> None:
    """transformers imports scikit-learn where it is installed; SciPy 1.11 fails with NumPy 2."""
    source = "if is_sklearn_available():\n    import sklearn\n"
    files = {"generation/__init__": "", "generation/candidate_generator": source}
    environment.install("transformers", init="", **files)
    environment.install("numpy", init="", version="2.2.6")
    assert environment.imports("transformers").doubt("transformers", "transformers") == ""
    environment.install("scikit-learn", "scipy", init="")
    environment.install("scipy", "numpy<1.28", init="")
    said = environment.imports("transformers").doubt("transformers", "transformers")
    assert forward(said) == (
        "transformers/generation/candidate_generator.py imports scikit-learn, for which scipy "
        "requires numpy<1.28, and 2.2.6 is installed"
    )


def test_a_function_that_huggingface_hub_lost(environment: Environment) -> None:
    """diffusers 0.27 imports cached_download, and only says that huggingface-hub may be new."""
    source = "from huggingface_hub import cached_download, hf_hub_download\n"
    files = {"utils/__init__": "", "utils/dynamic_modules_utils": source}
    environment.install("diffusers", "huggingface-hub>=0.20.2", init="", **files)
    environment.install("huggingface-hub", version="0.36.2")
    hub = environment.site / "huggingface_hub" / "__init__.py"
    hub.parent.mkdir()
    hub.write_text("_SUBMOD_ATTRS = {'file_download': ['hf_hub_download']}\n")
    found = environment.imports("diffusers")
    assert "imports cached_download" in found.error("diffusers", "diffusers")
    assert [one.needs for one in found.unmet] == ["huggingface-hub<0.26"]
    hub.write_text("_SUBMOD_ATTRS = {'file_download': ['cached_download']}\n")
    found = environment.imports("diffusers")
    assert (found.error("diffusers", "diffusers"), found.unmet) == ("", ())


def test_a_class_of_torchao_that_an_earlier_transformers_imports(environment: Environment) -> None:
    """Transformers 4.51 to 4.56 import it in modeling_utils; torchao 0.7 lacks it, 0.9 has it."""
    source = (
        "if is_torchao_available():\n    from torchao.quantization import Int4WeightOnlyConfig\n"
    )
    environment.install("transformers", init="", modeling_utils=source)
    environment.install("torchao", init="", version="0.7.0", **{"quantization/__init__": "x = 1\n"})
    found = environment.imports("transformers")
    assert "imports Int4WeightOnlyConfig" in found.error("transformers", "transformers")
    assert [one.needs for one in found.unmet] == ["torchao<0.14,>=0.9"]
    file = environment.site / "torchao" / "quantization" / "__init__.py"
    file.write_text("from x import Int4WeightOnlyConfig\n")
    found = environment.imports("transformers")
    assert (found.error("transformers", "transformers"), found.unmet) == ("", ())


def test_a_name_that_pipelines_import(environment: Environment) -> None:
    """Diffusers 0.33's dispatcher can be imported beside Transformers 5, and no pipeline."""
    source = "if True:\n    from transformers.utils import FLAX_WEIGHTS_NAME as NAME\n"
    files = {"pipelines/__init__": "", "pipelines/pipeline_loading_utils": source}
    environment.install("diffusers", init="", **files)
    names = {"utils/__init__": "WEIGHTS_NAME = 'x'\n"}
    environment.install("transformers", init="", version="5.17.0", **names)
    found = environment.imports("diffusers")
    assert [(one.needs, one.installed) for one in found.unmet] == [("transformers<5", "5.17.0")]
    assert found.error("diffusers", "diffusers") == ""
    assert found.later("diffusers").startswith("diffusers")
    file = environment.site / "transformers" / "utils" / "__init__.py"
    file.write_text("FLAX_WEIGHTS_NAME = 'x'\n")
    assert environment.imports("diffusers").unmet == ()


def test_a_model_that_pipelines_import(environment: Environment) -> None:
    """Diffusers 0.38 imports a model of Transformers 4.48; newer releases list none."""
    source = "from transformers import (\n    Dinov2WithRegistersConfig,\n)\n"
    files = {"models/__init__": "", "models/autoencoders/__init__": ""}
    environment.install(
        "diffusers", init="", **files, **{"models/autoencoders/autoencoder_rae": source}
    )
    environment.install("transformers", init="Cache = 1\n", version="4.46.3")
    assert [one.needs for one in environment.imports("diffusers").unmet] == ["transformers>=4.48"]
    file = environment.site / "transformers" / "__init__.py"
    file.write_text("define_import_structure(__file__)\n")
    assert environment.imports("diffusers").unmet == ()


@pytest.mark.parametrize(("first", "needs"), [("", ["torchao<0.16"]), ("logger = 1\n", [])])
def test_a_module_whose_absence_is_caught(
    environment: Environment, first: str, needs: list[str]
) -> None:
    """Diffusers up to 0.36 catches it with a logger that it does not have yet."""
    source = (
        f"{first}def _update_torch_safe_globals():\n"
        "    from torchao.dtypes.uintx.uint4_layout import UInt4Tensor\n"
        "if True:\n    _update_torch_safe_globals()\n"
    )
    files = {"quantizers/__init__": "", "quantizers/torchao/__init__": ""}
    environment.install(
        "diffusers", init="", **files, **{"quantizers/torchao/torchao_quantizer": source}
    )
    environment.install("torchao", init="", version="0.18.0")
    assert [one.needs for one in environment.imports("diffusers").unmet] == needs


@pytest.mark.parametrize(
    ("torch", "numpy", "needs"),
    [("2.2.2+cu121", "2.1.3", ["numpy<2"]), ("2.2.2", "1.26.4", []), ("2.3.0", "2.1.3", [])],
)
def test_a_torch_compiled_for_numpy_1(
    environment: Environment, torch: str, numpy: str, needs: list[str]
) -> None:
    environment.install("torch", init="", version=torch)
    environment.install("numpy", init="", version=numpy)
    assert [one.needs for one in environment.imports("torch").unmet] == needs


def test_a_requirement_that_is_much_older_is_in_doubt(environment: Environment) -> None:
    """kernels 0.17.2 fails with huggingface-hub 0.36, which has all that it imports."""
    environment.install("hub", init="strict = 1\nfetch = 1\n", version="0.36.2")
    uses = "from hub import strict\n@strict\nclass Name: ...\n"
    environment.install("top", "hub>=1.10", init=uses)
    environment.install("near", "hub>=0.40", init=uses)
    environment.install("calls", "hub>=1.10", init="from hub import fetch\ndef get(): fetch()\n")
    found = environment.imports("top", "near", "calls")
    assert found.doubt("top", "top")
    assert found.doubt("near", "near") == ""
    assert found.doubt("calls", "calls") == ""


def test_a_package_that_is_too_old_for_what_it_imports(environment: Environment) -> None:
    """PEFT 0.17 imports a name that Transformers 5 lacks; Diffusers 0.42 asks 0.14 for another."""
    source = "from transformers import Cache, HybridCache\n"
    environment.install("peft", init="", version="0.17.0", peft_model=source, helpers="")
    names = "Cache = EncoderDecoderCache = 1\n"
    environment.install("transformers", init=names, version="5.17.0")
    source = "if True:\n    from peft.helpers import disable_input_dtype_casting\n"
    environment.install(
        "diffusers", init="", **{"hooks/__init__": "", "hooks/layerwise_casting": source}
    )
    found = environment.imports("diffusers", "peft").unmet
    said = [(one.needs, one.package, one.installed) for one in found]
    assert said == [
        ("peft>=0.18", "diffusers", "0.17.0"),
        ("peft>=0.18", "transformers", "0.17.0"),
    ]
    file = environment.site / "diffusers" / "hooks" / "layerwise_casting.py"
    file.write_text('ASK = is_peft_version(">", "0.14.0")\n' + source)
    found = environment.imports("diffusers", "peft").unmet
    assert [one.package for one in found] == ["transformers"]


PEFT = """
@lru_cache
def is_torchao_available():
    TORCHAO_MINIMUM_VERSION = packaging.version.parse("0.16.0")
    torchao_version = packaging.version.parse(importlib_metadata.version("torchao"))
    if torchao_version < TORCHAO_MINIMUM_VERSION:
        raise ImportError("incompatible")
"""


@pytest.mark.parametrize(
    ("torchao", "needs"), [("0.14.1", ["torchao>=0.16.0"]), ("0.17.0", []), ("", [])]
)
def test_what_peft_asks_for_before_it_changes_a_model(
    environment: Environment, torchao: str, needs: list[str]
) -> None:
    environment.install("peft", init="", version="0.19.1", import_utils=PEFT)
    if torchao:
        environment.install("torchao", init="", version=torchao)
    found = environment.imports("peft").unmet
    assert [one.needs for one in found] == needs


def test_a_tokenizer_that_transformers_5_lacks(environment: Environment) -> None:
    """AutoPipelineForText2Image of Diffusers 0.35.2 imports it; the other pipelines do not."""
    source = "from transformers import BertModel, MT5Tokenizer\n"
    module = "pipelines/hunyuandit/pipeline_hunyuandit"
    folders = {"pipelines/__init__": "", "pipelines/hunyuandit/__init__": ""}
    environment.install("diffusers", init="", version="0.35.2", **folders, **{module: source})
    lazily = "import_structure = define_import_structure()\n"
    environment.install("transformers", init=lazily, version="5.12.1")
    found = environment.imports("diffusers")
    assert [(one.needs, one.package) for one in found.unmet] == [
        ("diffusers>=0.37", "transformers")
    ]
    assert ("diffusers", "transformers<5") in [*found.bounds()]
    models = {"models/__init__": "", "models/mt5/__init__": "", "models/mt5/tokenization_mt5": ""}
    environment.install("transformers", init=lazily, version="4.57.6", **models)
    assert environment.imports("diffusers").unmet == ()


def test_accelerate_is_in_doubt_where_transformers_fails(environment: Environment) -> None:
    source = "if is_transformers_available():\n    from transformers import x\n"
    files = {"utils/__init__": "", "utils/megatron_lm": source}
    environment.install("accelerate", init="", **files)
    environment.install("transformers", "absent", init="")
    said = environment.imports("accelerate").doubt("accelerate", "accelerate")
    assert "transformers requires absent, and none is installed" in said


def test_a_file_that_hides_triton_leaves_imports_in_doubt(environment: Environment) -> None:
    environment.install("top", init="")
    environment.install("triton", init="", version="3.9.0")
    assert environment.imports("top").doubt("top", "top") == ""
    (environment.site / "triton" / "__init__.py").unlink()
    (environment.site / "triton.py").write_text("experiment = 1")
    assert "is imported in place of triton" in environment.imports("top").doubt("top", "top")


@pytest.mark.parametrize(("tag", "doubt"), [("312", False), ("311", True)])
def test_a_numpy_for_another_python(environment: Environment, tag: str, doubt: bool) -> None:
    environment.install("top", init="")
    environment.install("numpy", init="")
    core = environment.site / "numpy" / "_core"
    core.mkdir()
    (core / f"_multiarray_umath.cpython-{tag}-x86_64-linux-gnu.so").write_bytes(b"")
    there = scan(
        LocalHost(), (str(environment.site),), str(environment.site), Gaps(),
        python="3.12.3", cache_tag="cpython-312",
    )  # fmt: skip
    found = Imports(LocalHost(), there, ("top",))
    for said in (found.doubt("top", "top"), found.error("torch", "torch")):
        assert said.endswith("is made for Python 3.11") == doubt


@pytest.mark.parametrize("end", ["py", "pyc", "abi3.so"])
@pytest.mark.parametrize("by_code", [False, True])
@pytest.mark.parametrize(("name", "doubt"), [("inspect", True), ("low", True), ("mine", False)])
def test_a_file_in_front_of_a_module(
    environment: Environment, tmp_path: Path, name: str, doubt: bool, end: str, by_code: bool
) -> None:
    """In a folder of PYTHONPATH, or in one that code of a .pth file puts first."""
    environment.install("top", "low", init="")
    environment.install("low", init="")
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / f"{name}.{end}").write_text("experiment = 1")
    plain = () if by_code else (str(scripts),)
    if by_code:
        code = f"import sys; sys.path.insert(0, {str(scripts)!r})\n"
        (environment.site / "first.pth").write_text(code)
    there = scan(
        LocalHost(), (*plain, str(environment.site)), str(environment.site), Gaps(),
        python="3.12.3", plain=plain,
    )  # fmt: skip
    said = Imports(LocalHost(), there, ("top",)).doubt("top", "top")
    assert said.endswith(f"is imported in place of the module {name}") == doubt


def test_an_archive_in_pythonpath(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.install("top", init="")
    archive = tmp_path / "low.whl"
    archive.write_bytes(b"")
    monkeypatch.setenv("PYTHONPATH", str(archive))
    assert str(archive) in environment.imports("top").doubt("top", "top")


def test_files_without_metadata_are_imported(environment: Environment) -> None:
    environment.install("top", "low>=2", init="import low")
    environment.install("low", init="name = 1")
    shutil.rmtree(environment.site / "low-1.0.dist-info")
    found = environment.imports("top")
    assert [(one.needs, one.installed) for one in found.unmet] == [("low>=2", "")]
    assert found.error("top", "top") == ""
    assert not environment.fails("top")


def test_an_optional_scipy_made_for_another_numpy(environment: Environment) -> None:
    """SciPy 1.18 beside NumPy 1.26 raises AttributeError, which xformers does not catch."""
    environment.install("numpy", version="1.26.4", init="")
    environment.install("scipy", "numpy<2.8,>=2.0.0", version="1.18.1", init="")
    environment.install("xformers", init="", checkpoint="_scipy_is_available = False\n")
    found = environment.imports("xformers")
    assert "imports scipy, for which scipy requires numpy" in found.doubt("xformers", "xformers")
    assert [(one.package, one.installed) for one in found.unmet] == [("scipy", "1.26.4")]


def test_a_function_that_torchao_uses(environment: Environment) -> None:
    source = "def constant(cls):\n    torch.utils._pytree.register_constant(cls)\n"
    environment.install("torchao", init="", version="0.17.0", utils=source)
    names = {"utils/__init__": "", "utils/_pytree": "def tree_map(): ...\n"}
    environment.install("torch", init="", version="2.6.0", **names)
    found = environment.imports("torchao")
    assert "register_constant from torch.utils._pytree" in found.error("torchao", "torchao")
    assert found.unmet == ()


_FOR_PYTHON = "import sys\nif sys.version_info < (3, 10):\n    import {}\nelse:\n    import {}\n"


@pytest.mark.parametrize(
    ("source", "fails"),
    [
        (_FOR_PYTHON.format("json", "absent"), True),
        (_FOR_PYTHON.format("absent", "json"), False),
        ("import sys\nif sys.version_info >= (3, 10):\n    import absent\n", True),
    ],
)
def test_a_block_for_some_releases_of_python(
    environment: Environment, source: str, fails: bool
) -> None:
    environment.install("top", "absent", init=source)
    assert bool(environment.imports("top").error("top", "top")) is fails
    assert environment.fails("top") is fails


def test_modules_of_a_list_that_a_loop_imports(environment: Environment) -> None:
    loop = 'from importlib import import_module\nsubmodules = [\n    "part",\n]\n'
    loop += 'for submodule in submodules:\n    full_module_name = f"top.{submodule}"\n'
    loop += "    import_module(full_module_name)\n"
    environment.install("top", "absent", init=loop, part="import absent")
    found = environment.imports("top").error("top", "top")
    assert "top/part.py imports absent" in forward(found)
    assert environment.fails("top")


def test_blocks_of_torch_for_a_triton_that_cannot_be_imported(environment: Environment) -> None:
    torch = "def has_triton_package():\n    try:\n        import triton\n        return True\n"
    torch += "    except ImportError:\n        return False\n"
    torch += "if has_triton_package():\n    from triton import name\n"
    environment.install("torch", "triton", init=torch)
    environment.install("triton", "absent", init="import absent\nname = 1")
    found = environment.imports("torch", "triton")
    assert "triton/__init__.py imports absent" in forward(found.error("triton", "triton"))
    assert found.error("torch", "torch") == ""
    assert not environment.fails("torch")


@pytest.mark.parametrize(
    ("guard", "needs"),
    [
        ("if is_torchao_available():", ["torchao>=0.15"]),
        ('if is_torchao_available() and is_torchao_version(">=", "0.15.0"):', []),
    ],
)
def test_a_class_that_torchao_got_later(
    environment: Environment, guard: str, needs: list[str]
) -> None:
    source = f"{guard}\n    from torchao.quantization import FqnToConfig, quantize_\n"
    path = "quantizers/torchao/torchao_quantizer"
    environment.install("diffusers", init="", **{path: source})
    environment.install("torchao", version="0.9.0", **{"init": "", "quantization/__init__": ""})
    assert [one.needs for one in environment.imports("diffusers").unmet] == needs
