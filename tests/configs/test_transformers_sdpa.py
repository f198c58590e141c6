"""Models of Transformers with and without torch's own attention, from source that is not run."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.configs.transformers_sdpa import has_sdpa
from attn_doctor.facts import Package
from attn_doctor.rulebook import library
from tests.configs.machines import machine, predicted

NEWEST = library.tables()["sdpa"]["release"]
MODELS = {
    "old_one": """from ...modeling_utils import PreTrainedModel
class OldOnePreTrainedModel(PreTrainedModel):
    base_model_prefix = "a"
class OldOneForCausalLM(OldOnePreTrainedModel):
    pass
""",
    "new_one": """from ...modeling_utils import PreTrainedModel
class NewOnePreTrainedModel(PreTrainedModel):
    _supports_sdpa = _supports_flex_attn = True
class NewOneForCausalLM(NewOnePreTrainedModel):
    pass
class NewOneForConditionalGeneration(NewOnePreTrainedModel):
    _supports_sdpa: bool = False
""",
    "no_attention": """from ...modeling_utils import PreTrainedModel
class NoAttentionForCausalLM(PreTrainedModel):
    pass
""",
    "derived": """from ..new_one.modeling_new_one import NewOnePreTrainedModel
class DerivedForCausalLM(NewOnePreTrainedModel):
    pass
class DerivedModel(NewOnePreTrainedModel):
    _supports_sdpa = is_there()
""",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "transformers"
    for name, text in MODELS.items():
        (folder / "models" / name).mkdir(parents=True)
        (folder / "models" / name / f"modeling_{name}.py").write_text(
            f"{text}class Attention: ...\nx = softmax\n" if name != "no_attention" else text
        )
    return folder


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OldOneForCausalLM", False),
        ("NewOneForCausalLM", True),
        ("NewOneForConditionalGeneration", False),
        ("DerivedForCausalLM", True),
        ("DerivedModel", None),
        ("NoAttentionForCausalLM", None),
        ("UnknownForCausalLM", None),
        ("AutoModelForCausalLM", None),
    ],
)
def test_what_the_installed_source_says(name: str, expected: bool | None, package: Path) -> None:
    there = Package(installed=True, version="4.99.0", path=str(package))
    assert has_sdpa(name, replace(machine(), transformers=there)) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("LlamaForCausalLM", True), ("BloomForCausalLM", False), ("AutoModelForCausalLM", None)],
)
def test_what_the_table_of_the_newest_release_says(name: str, expected: bool | None) -> None:
    newest = Package(installed=True, version=NEWEST)
    assert has_sdpa(name, replace(machine(), transformers=newest)) is expected
    older = Package(installed=True, version="4.40.0")
    assert has_sdpa(name, replace(machine(), transformers=older)) is None


@pytest.mark.parametrize(
    ("name", "backend", "shown"),
    [
        ("BloomForCausalLM", "eager", "eager of Transformers, as BloomForCausalLM has no sdpa"),
        ("LlamaForCausalLM", "native", "sdpa of Transformers"),
    ],
)
def test_a_script_that_names_its_model(name: str, backend: str, shown: str, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(f"from transformers import {name}\n{name}.from_pretrained('a').generate(x)\n")
    (one,) = predicted(path).phases
    assert (one.backend, one.shown) == (backend, shown)
