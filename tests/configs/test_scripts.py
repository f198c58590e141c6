"""Python scripts and variables: what is chosen on which line, without running anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.configs.machines import phase, predicted, rules

LOAD = """import torch
from diffusers import {pipeline}
pipe = {pipeline}.from_pretrained("someone/a-model", torch_dtype=torch.bfloat16)
"""


def script(folder: Path, body: str, pipeline: str = "FluxPipeline") -> Path:
    path = folder / "run.py"
    path.write_text(LOAD.format(pipeline=pipeline) + body, encoding="utf-8")
    return path


def test_flex_without_compile(tmp_path: Path) -> None:
    one = predicted(script(tmp_path, 'pipe.transformer.set_attention_backend("flex")\n'))
    assert rules(one) == ["flex/unfused"]
    assert one.findings[0].location is not None
    assert one.findings[0].location.line == 4
    assert "torch.compile(fa.flex_attention)" in one.findings[0].fixes[0].code


@pytest.mark.parametrize(
    "compiled",
    [
        "pipe.transformer = torch.compile(pipe.transformer)\n",
        "pipe.transformer.compile_repeated_blocks()\n",
        (
            "import torch.nn.attention.flex_attention as fa\n"
            "fa.flex_attention = torch.compile(fa.flex_attention)\n"
        ),
    ],
)
def test_flex_with_compile(compiled: str, tmp_path: Path) -> None:
    body = compiled + 'NAME = "flex"\npipe.transformer.set_attention_backend(NAME)\n'
    one = predicted(script(tmp_path, body))
    assert rules(one) == []
    assert one.phases[0].fused is True


def test_calls_that_do_not_exist(tmp_path: Path) -> None:
    body = (
        "from torch.nn.attention.flex_attention import build_flex_attention_kernels\n"
        'build_flex_attention_kernels(kernel_root="/tmp/k")\n'
    )
    one = predicted(script(tmp_path, body))
    assert rules(one) == ["flex/build-helper"] * 2
    assert [each.location.line for each in one.findings if each.location] == [4, 5]


def test_re_compile_is_no_compilation(tmp_path: Path) -> None:
    body = 'import re\nre.compile("x")\npipe.transformer.set_attention_backend("flex")\n'
    assert rules(predicted(script(tmp_path, body))) == ["flex/unfused"]


def test_a_pipeline_without_the_dispatcher(tmp_path: Path) -> None:
    body = 'pipe.unet.set_attention_backend("flash")\n'
    one = predicted(script(tmp_path, body, "StableDiffusionXLPipeline"))
    assert one.phases[0].backend == "native"
    assert rules(one) == ["simpletuner/backend-not-routed"]


def test_names(tmp_path: Path) -> None:
    body = 'pipe.transformer.set_attention_backend("flash3")\n'
    assert rules(predicted(script(tmp_path, body))) == ["diffusers/backend-name-unknown"]
    body = "import sys\npipe.transformer.set_attention_backend(sys.argv[1])\n"
    one = predicted(script(tmp_path, body))
    assert rules(one) == []
    assert one.phases[0].backend == ""


def test_fp32_given_to_flash(tmp_path: Path) -> None:
    path = script(tmp_path, 'with attention_backend("flash"):\n    pipe("x")\n')
    path.write_text(path.read_text("utf-8").replace("bfloat16", "float32"), encoding="utf-8")
    assert "flash/dtype" in rules(predicted(path))


def test_transformers_compile_flex_themselves(tmp_path: Path) -> None:
    body = 'm = AutoModel.from_pretrained("x", attn_implementation="flex_attention")\n'
    one = predicted(script(tmp_path, body))
    assert one.phases[0].backend == "flex"
    assert one.phases[0].fused is True


def test_a_variable_set_too_late(tmp_path: Path) -> None:
    body = 'import os\nos.environ["DIFFUSERS_ATTN_BACKEND"] = "flash"\n'
    one = predicted(script(tmp_path, body))
    assert one.phases == ()
    assert any("after Diffusers was imported" in note for note in one.notes)


def test_a_file_of_variables(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("DIFFUSERS_ATTN_BACKEND=flex\n", encoding="utf-8")
    one = predicted(path)
    assert phase(one, "inference").backend == "flex"
    assert rules(one) == ["flex/unfused"]
