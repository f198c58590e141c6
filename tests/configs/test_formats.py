"""Configurations of many programs: what each setting leads to, on which line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.backends import catalogue
from attn_doctor.backends.readiness import Readiness
from attn_doctor.configs.formats import formats
from attn_doctor.configs.predict import predict
from attn_doctor.configs.prediction import Prediction
from attn_doctor.configs.readers.kinds import read_all
from attn_doctor.facts import Facts, Package
from tests.configs.machines import evaluated, machine

LLAMA = "model_name_or_path: a/b\nstage: sft\nfinetuning_type: lora\n"
AXOLOTL = "base_model: a/b\ndatasets:\n  - path: x\n    type: alpaca\nmicro_batch_size: 1\n"
TOOLKIT = """job: extension
config:
  process:
    - type: sd_trainer
      training_folder: out
      train:
        {}
"""
COMPOSE = """services:
  llm:
    image: vllm/vllm-openai:v0.25.0
    command: ["--model", "a/b", "--attention-backend", "FLASHINFER"]
  pictures:
    image: me/comfyui:1
    command: python main.py --listen --use-sage-attention
"""
POD = """kind: Pod
spec:
  containers:
    - name: llm
      image: vllm/vllm-openai:latest
      env:
        - name: VLLM_ATTENTION_BACKEND
          value: TRITON_ATTN
"""
#: File, content, title, backend (or what is shown), line.
CASES = [
    ("a.yaml", LLAMA + "flash_attn: fa2\n", "LLaMA-Factory", "flash", 4),
    ("a.yaml", LLAMA + "flash_attn: sdpa\n", "LLaMA-Factory", "native", 4),
    ("a.yaml", LLAMA, "LLaMA-Factory", "native", 0),
    ("a.yaml", AXOLOTL + "flash_attention: true\n", "Axolotl", "flash", 6),
    ("a.yaml", AXOLOTL + "attn_implementation: flex_attention\n", "Axolotl", "flex", 6),
    ("a.yaml", AXOLOTL + "flash_attention: false\nsdp_attention: true\n", "Axolotl", "native", 7),
    ("a.yaml", TOOLKIT.format("attention_backend: flash"), "AI Toolkit", "flash", 7),
    ("a.yaml", TOOLKIT.format("sdp: true"), "AI Toolkit", "native", 7),
    ("a.json", '{"training_method": "LORA",\n "attention_mechanism": "CUDNN"}', "OneTrainer",
     "_native_cudnn", 2),
    ("a.toml", 'max_train_steps = 5\nxformers = true\n', "sd-scripts", "xformers", 2),
    ("a.sh", "accelerate launch sdxl_train_network.py --sdpa\n", "sd-scripts", "native", 1),
    ("a.sh", "train_text_to_image.py \\\n --enable_xformers_memory_efficient_attention\n",
     "Diffusers' training scripts", "xformers", 2),
    ("a.sh", "python src/musubi_tuner/wan_train_network.py --dit x --flash_attn\n", "Musubi Tuner",
     "flash", 1),
    ("a.sh", "python wan_generate_video.py --attn_mode sageattn\n", "Musubi Tuner", "sage", 1),
    ("a.bat", ".\\python_embeded\\python.exe -s ComfyUI\\main.py --use-sage-attention\n", "ComfyUI",
     "sage", 1),
    ("a.bat", "@echo off\nset COMMANDLINE_ARGS=--xformers --medvram\ncall webui.bat\n",
     "Stable Diffusion WebUI or Forge", "xformers", 2),
    ("a.sh", "python main.py --use-pytorch-cross-attention\n", "ComfyUI", "native", 1),
    ("a.sh", "trl sft --attn_implementation flash_attention_2\n", "TRL", "flash", 1),
    ("a.sh", "python mine.py --attn_implementation sdpa\n", "Transformers", "native", 1),
    ("a.sh", "python -m sglang.launch_server --attention-backend torch_native\n", "SGLang",
     "native", 1),
    ("Dockerfile", 'FROM x\nENV A=1\nCMD ["vllm", "--attention-backend", "FLASHINFER"]\n',
     "vLLM", "FLASHINFER", 3),
    ("config.json", '{"architectures": ["X"],\n "_attn_implementation": "eager"}', "Transformers",
     "_native_math", 2),
]  # fmt: skip


def one_of(folder: Path, name: str, content: str, facts: Facts | None = None) -> list[Prediction]:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    facts = facts or machine()
    return [predict(one, facts, evaluated(facts)) for one in read_all(path)]


@pytest.mark.parametrize(("name", "content", "title", "backend", "line"), CASES)
def test_what_a_setting_leads_to(
    name: str, content: str, title: str, backend: str, line: int, tmp_path: Path
) -> None:
    (one,) = one_of(tmp_path, name, content)
    assert one.title == title
    phase = one.phases[0]
    assert backend in (phase.backend, phase.shown)
    assert phase.line == line
    assert not phase.undecided


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.yaml", LLAMA + "flash_attn: fast\n", "LLaMA-Factory stops"),
        ("a.sh", "wan_train_network.py --sage_attn --sdpa\n", "does not support training"),
        ("a.sh", "python wan_train_network.py --dit x\n", "one of --sdpa"),
        ("a.sh", "main.py --use-sage-attention --use-flash-attention\n", "be given together"),
        ("a.yaml", TOOLKIT.format("attention_backend: flash2"), "Diffusers has no backend flash2"),
    ],
)  # fmt: skip
def test_a_program_that_stops(name: str, content: str, why: str, tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, name, content)
    assert {each.state for each in one.phases} == {Readiness.NOT_READY}
    assert why in one.phases[0].why
    assert [each.severity.value for each in one.findings] == ["error"]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.sh", "llamafactory-cli train examples/a.yaml\n", "examples/a.yaml may choose"),
        ("pod.yaml", POD, "before 0.14 alone"),
        ("a.sh", "python ComfyUI/main.py --listen\n", "xformers runs if it is installed"),
        ("a.yaml", AXOLOTL + "attn_implementation: mine\n", "mine is not a name"),
    ],
)
def test_undecided(name: str, content: str, why: str, tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, name, content)
    assert why in one.phases[0].undecided
    assert one.findings == ()


def test_each_container_of_a_compose_file(tmp_path: Path) -> None:
    found = one_of(tmp_path, "compose.yaml", COMPOSE)
    assert [(one.title, one.phases[0].shown) for one in found] == [
        ("vLLM", "FLASHINFER"),
        ("ComfyUI", "sage"),
    ]


def test_the_first_of_two_settings_counts(tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, "a.sh", "sdxl_train_network.py --sdpa \\\n --xformers\n")
    assert one.phases[0].backend == "xformers"
    assert one.ignored == ("--sdpa in line 1, because --xformers comes first",)


def test_a_backend_that_is_not_installed_is_an_error(tmp_path: Path) -> None:
    facts = replace(machine(), sageattention=Package(installed=False))
    (one,) = one_of(tmp_path, "a.bat", "python main.py --use-sage-attention\n", facts)
    assert one.phases[0].state is Readiness.NOT_READY
    assert [each.severity.value for each in one.findings] == ["error"]
    assert "ComfyUI stops if the package is missing" in one.findings[0].title


def test_without_flash_attn_transformers_takes_the_hub(tmp_path: Path) -> None:
    facts = replace(machine(), flash_attn=Package(installed=False))
    (one,) = one_of(tmp_path, "a.sh", "x.py --attn_implementation flash_attention_2\n", facts)
    assert one.phases[0].backend == "flash_hub"


def test_a_workflow(tmp_path: Path) -> None:
    node = {"type": "PathchSageAttentionKJ", "mode": 0, "widgets_values": ["auto", False]}
    muted = {"type": "WanVideoModelLoader", "mode": 2, "widgets_values": ["flash_attn_2"]}
    content = json.dumps({"nodes": [node, muted], "links": []}, indent=1)
    (one,) = one_of(tmp_path, "flow.json", content)
    assert [each.backend for each in one.phases] == ["sage"]
    api = {"1": {"class_type": "WanVideoModelLoader", "inputs": {"attention_mode": "flash_attn_3"}}}
    (one,) = one_of(tmp_path, "flow.json", json.dumps(api))
    assert [each.backend for each in one.phases] == ["_flash_3"]


def test_a_notebook(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["flash"]},
        {"cell_type": "code", "source": ["%pip list\n", "p = FluxPipeline.from_pretrained('x')"]},
        {"cell_type": "code", "source": ["p.transformer.set_attention_backend('flash')\n",
                                         "!accelerate launch sdxl_train_network.py --xformers"]},
    ]  # fmt: skip
    content = json.dumps({"cells": cells, "nbformat": 4}, indent=1)
    script, command = one_of(tmp_path, "a.ipynb", content)
    assert script.phases[0].backend == "flash"
    assert script.phases[0].why == "cell 3, line 1: set_attention_backend"
    assert "set_attention_backend" in content.splitlines()[script.phases[0].line - 1]
    assert command.phases[0].why == "cell 3, line 2: --xformers"


def test_every_format_has_a_source() -> None:
    backends = {name.backend for name in catalogue.load().names}
    for one in formats().values():
        assert one.source.startswith("https://")
        targets = [target for choice in one.choice for target in choice.values.values()]
        assert {each.backend for each in (*targets, one.default)} <= {"", *backends}
