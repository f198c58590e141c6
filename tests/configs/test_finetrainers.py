"""Launch scripts of Finetrainers, after the shape of its published examples."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.configs.readers.kinds import read
from attn_doctor.facts import Package
from tests.configs.machines import (
    machine,
    phase,
    predicted,
    rules,
)

SCRIPT = """#!/bin/bash
set -e
export WANDB_MODE="offline"
BACKEND="ptd"
NUM_GPUS=2
{variables}
parallel_cmd=(
  --parallel_backend $BACKEND
  --pp_degree 1 --dp_degree $NUM_GPUS
)
model_cmd=(
  --model_name "{model}"
  --pretrained_model_name_or_path "someone/a-model"
  {dtype}
)
training_cmd=(
  --training_type "lora"
  {options}
)
torchrun --nproc_per_node=$NUM_GPUS train.py \\
  "${{parallel_cmd[@]}}" \\
  "${{model_cmd[@]}}" \\
  "${{training_cmd[@]}}"
"""


def script(
    folder: Path, model: str, options: str = "", variables: str = "", dtype: str = ""
) -> Path:
    path = folder / "train.sh"
    path.write_text(
        SCRIPT.format(model=model, options=options, variables=variables, dtype=dtype),
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize(
    ("model", "provider", "rule"),
    [
        ("ltx_video", "flash_varlen", "diffusers/varlen-mask"),
        ("ltx_video", "flash", "diffusers/mask-dropped"),
        ("hunyuan_video", "flash", "diffusers/mask-dropped"),
        ("hunyuan_video", "xformers", "xformers/mask-layout"),
        ("wan", "sage", "sage/no-gradients"),
        ("wan", "flex", "flex/unfused"),
        ("wan", "flashh", "finetrainers/provider-unknown"),
    ],
)
def test_what_a_provider_does_to_a_model(
    model: str, provider: str, rule: str, tmp_path: Path
) -> None:
    path = script(tmp_path, model, f"--attn_provider_training transformer:{provider} vae:native")
    one = predicted(path)
    assert rule in rules(one)
    found = next(each for each in one.findings if each.rule == rule)
    assert found.location is not None
    assert provider in path.read_text("utf-8").splitlines()[found.location.line - 1]


@pytest.mark.parametrize(
    ("model", "provider"),
    [("wan", "flash"), ("hunyuan_video", "flash_varlen"), ("flux", "flash"), ("wan", "native")],
)
def test_what_goes_together(model: str, provider: str, tmp_path: Path) -> None:
    path = script(tmp_path, model, f"--attn_provider_training transformer:{provider}")
    one = predicted(path)
    assert phase(one, "training").backend == provider
    assert phase(one, "inference").backend == "native"
    assert not [each for each in rules(one) if "mask" in each or "gradients" in each]


def test_the_compiled_transformer_makes_flex_fused(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "wan",
        "--attn_provider_training transformer:flex\n  --compile_modules transformer",
    )
    one = predicted(path)
    assert rules(one) == []
    assert phase(one, "training").fused is True


def test_fp32_weights(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "wan",
        "--attn_provider_training transformer:flash",
        dtype="--transformer_dtype fp32",
    )
    one = predicted(path)
    found = next(each for each in one.findings if each.rule == "flash/dtype")
    assert "transformer_dtype: fp32 → bf16" in found.fixes[0].title


def test_variables_of_the_script(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "wan",
        variables="export FINETRAINERS_ATTN_PROVIDER=flash FINETRAINERS_ATTN_CHECKS=1\n"
        "DIFFUSERS_ATTN_BACKEND=flash",
    )
    one = predicted(path)
    assert phase(one, "training").backend == "flash"
    assert {
        "finetrainers/global-provider",
        "finetrainers/checks-reject-cross-attention",
        "finetrainers/bypassed-by-diffusers",
    } <= {*rules(one)}


def test_words_are_read_and_not_run(tmp_path: Path) -> None:
    created = tmp_path / "created"
    path = script(tmp_path, "wan", f"$(touch {created})\n  `touch {created}`")
    assert read(path).kind == "finetrainers"
    predicted(path)
    assert not created.exists()


def test_a_script_of_simpletuner(tmp_path: Path) -> None:
    path = tmp_path / "go.sh"
    path.write_text(
        "accelerate launch train.py --model_family=wan \\\n  --attention_mechanism=flex\n",
        encoding="utf-8",
    )
    one = predicted(path, machine("4.0.6"))
    assert rules(one) == ["simpletuner/backend-not-routed"]
    assert one.findings[0].location is not None
    assert one.findings[0].location.line == 2


def test_a_script_of_inference(tmp_path: Path) -> None:
    path = tmp_path / "infer.sh"
    path.write_text(
        'CP_2="--cp_degree 2"\nparallel_cmd=(\n  $CP_2\n)\nattn=(\n  --attn_provider sage\n)\n'
        'torchrun inference.py --model_name wan "${parallel_cmd[@]}" "${attn[@]}"\n',
        encoding="utf-8",
    )
    one = predicted(path)
    assert [(each.phase, each.backend) for each in one.phases] == [("inference", "sage")]
    assert "diffusers/context-parallel" in rules(one)


def test_providers_of_a_release_that_the_table_lacks(tmp_path: Path) -> None:
    source = tmp_path / "finetrainers" / "models" / "attention_dispatch.py"
    source.parent.mkdir(parents=True)
    members = 'FLASH = "flash"\n    NATIVE = "native"\n    MOON = "moon"'
    source.write_text(f"class AttentionProvider(str, Enum):\n    {members}\n", "utf-8")
    package = Package(installed=True, version="0.9", path=str(tmp_path / "finetrainers"))
    facts = replace(machine(), finetrainers=package)
    options = "--attn_provider_training transformer:{}"
    one = predicted(script(tmp_path, "wan", options.format("moon")), facts)
    assert "moon is in the source of this release" in one.phases[0].undecided
    one = predicted(script(tmp_path, "wan", options.format("sage")), facts)
    assert "finetrainers/provider-unknown" in rules(one)
