"""Configurations of many programs: what each setting leads to, on which line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor import derived
from attn_doctor.backends import catalogue
from attn_doctor.backends.readiness import Readiness
from attn_doctor.configs.formats import formats
from attn_doctor.configs.predict import predict
from attn_doctor.configs.prediction import Prediction
from attn_doctor.configs.readers.kinds import read_all
from attn_doctor.configs.readers.settings import ConfigError
from attn_doctor.facts import Facts, Package
from attn_doctor.pretend import pretend
from attn_doctor.rulebook import library
from tests.backends import scenario
from tests.configs.machines import evaluated, machine
from tests.effort import at_most

LLAMA = "model_name_or_path: a/b\ndo_train: true\nfinetuning_type: lora\n"
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
    ("a.json", '{"LoRA_type": "Standard",\n "xformers": "sdpa"}', "kohya_ss GUI", "native", 2),
    ("a.json", '{"LoRA_type": "Flux1", "flux1_checkbox": true,\n "xformers": "xformers"}',
     "kohya_ss GUI", "native", 1),
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
    ("Dockerfile", 'FROM x\nENV A=1\nCMD ["vllm", "serve", "--attention-backend", "FLASHINFER"]\n',
     "vLLM", "FLASHINFER", 3),
    ("config.json", '{"architectures": ["X"],\n "_attn_implementation": "eager"}', "Transformers",
     "eager", 2),
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
        (
            "a.sh",
            "python ComfyUI/main.py --listen\n",
            "it depends on whether xformers is installed",
        ),
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
    assert one.phases[0].backend == "transformers_flash_hub"


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


CLI_ARGS = "services:\n  ui:\n    image: you/comfyui:1\n    environment:\n      - CLI_ARGS={}\n"
WEBUI = "services:\n  ui:\n    image: you/ui:1\n    environment:\n      CLI_ARGS: {}\n"
QUOTED = 'export COMMANDLINE_ARGS="--cuda-malloc \\\n  --xformers \\\n  --api"\n'
CARETS = "set COMMANDLINE_ARGS= ^\n  --api ^\n  --opt-sdp-attention --xformers\ncall webui.bat\n"
WITHIN = 'docker run me/ui bash -c "cd ComfyUI; python main.py --use-sage-attention"\n'
HANDED = "docker run -e VLLM_ATTENTION_BACKEND=FLASHINFER vllm/vllm-openai:nightly --model a/b\n"
MENU = """set GIT=
IF "%one%" == "1" (
    set COMMANDLINE_ARGS=--xformers
) ELSE (
    set COMMANDLINE_ARGS=--opt-sdp-attention
)
call webui.bat
"""
RECIPE = "command: |\n  vllm serve a/b \\\n    --attention-backend TRITON_ATTN \\\n    --port 1\n"
SWITCHED = "A=1 llamafactory-cli train x.yaml \\\n  do_train=true \\\n  flash_attn=fa2\n"
BENCH = "python -m sglang.bench_serving --backend sglang --num-prompt 3\n"
IMAGE = CLI_ARGS.format("--cpu").replace("you/comfyui:1", "ghcr.io/a/comfyui/core:cpu")
GEMMA = "gemma4_hybrid_attn_impl: true\nattn_implementation: flash_attention_2\n"
ARCH = "job: extension\nname_or_path: a/b\ntrigger_word: x\narch: {}\n"
PIPE = "pipeline_stages = 1\n[adapter]\ntype = 'lora'\n[model]\ntype = '{}'\n"


@pytest.mark.parametrize(
    ("name", "content", "backends"),
    [
        ("a.yml", CLI_ARGS.format("--use-sage-attention"), ["sage"]),
        ("a.yml", CLI_ARGS.format(""), ["native"]),
        ("a.yml", WEBUI.format('"--allow-code --xformers"'), ["xformers"]),
        ("a.sh", QUOTED, ["xformers"]),
        ("a.bat", CARETS, ["xformers"]),
        ("a.bat", 'set "COMMANDLINE_ARGS=--opt-sdp-attention"\n', ["native"]),
        ("a.bat", 'set COMMANDLINE_ARGS=--xformers --dir "F:\\x y"\n', ["xformers"]),
        ("a.sh", WITHIN, ["sage"]),
        ("a.sh", "python ComfyUI/main.py --cpu\n", ["comfyui_sub_quad"]),
        ("a.toml", PIPE.format("wan"), ["flash_varlen"]),
        ("a.toml", PIPE.format("qwen_image"), ["native"]),
        ("a.toml", PIPE.format("chroma"), ["native"]),
        ("a.yaml", RECIPE, [""]),
        ("a.sh", SWITCHED, ["flash"]),
        ("a.yml", IMAGE, ["comfyui_sub_quad"]),
        ("a.yaml", AXOLOTL + GEMMA, ["native", "flash"]),
        ("a.yaml", ARCH.format("hidream"), ["flash"]),
        ("a.yaml", ARCH.format("omnigen2"), ["flash_varlen"]),
        ("a.yaml", ARCH.format("wan22_14b"), ["native"]),
        ("a.sh", "python run_sft.py --attn_implementation flash_attention_2\n", ["flash"]),
        ("a.toml", PIPE.format("ltx-video"), ["native"]),
        ("a.toml", PIPE.format("hidream"), ["flash"]),
        ("a.toml", PIPE.format("cosmos"), [""]),
        ("a.toml", PIPE.format("lumina_2") + "dtype = 'bfloat16'\n", ["flash_varlen"]),
        ("a.toml", PIPE.format("lumina_2") + "dtype = 'float32'\n", ["native"]),
        ("a.sh", "python -m sglang.launch_server --attention-backend torch_native\n", ["native"]),
    ],
)
def test_where_a_setting_stands(
    name: str, content: str, backends: list[str], tmp_path: Path
) -> None:
    absent = Package(installed=False)
    facts = replace(machine(), xformers=absent, flash_attn_3=absent)
    found = one_of(tmp_path, name, content, facts)
    assert [phase.backend for one in found for phase in one.phases] == backends


@pytest.mark.parametrize("word", ["$CLI_ARGS", "${EXTRA_OPTIONS}", '"$@"', '"${LIST[@]}"'])
def test_options_that_a_file_does_not_hold_are_a_condition(word: str, tmp_path: Path) -> None:
    line = f"python ComfyUI/main.py --listen {word}\n"
    facts = replace(machine(), xformers=Package(installed=False))
    (one,) = one_of(tmp_path, "a.sh", line, facts)
    assert one.phases[0].backend == "native"
    assert one.phases[0].when.endswith(" adds no option for attention")


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.sh", "FLAGS=$(best)\npython wan_train_network.py --dit a $N $FLAGS\n", "$(best)"),
        ("a.sh", 'CMD=(python -m sglang.launch_server)\nCMD+=($MORE)\n"${CMD[@]}"\n', "$MORE"),
        (
            "compose.yaml",
            "services:\n  a:\n    image: me/comfyui:1\n    env_file: .env\n    ports:\n",
            ".env or the image me/comfyui:1",
        ),
    ],
)
def test_options_that_are_not_followed(name: str, content: str, what: str, tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, name, content)
    assert one.phases[0].when == f"{what} adds no option for attention"
    assert one.findings == ()


def test_a_file_for_inference_trains_nothing(tmp_path: Path) -> None:
    content = "model_name_or_path: a/b\ninfer_backend: huggingface\n"
    (one,) = one_of(tmp_path, "a.yaml", content)
    assert [phase.phase for phase in one.phases] == ["inference"]


def test_options_that_a_file_holds_in_a_variable(tmp_path: Path) -> None:
    line = "python ComfyUI/main.py --listen $CLI_ARGS\n"
    (one,) = one_of(tmp_path, "a.sh", f"CLI_ARGS=--use-sage-attention\n{line}")
    assert one.phases[0].backend == "sage"


def test_options_that_branches_set_are_conditions(tmp_path: Path) -> None:
    facts = replace(machine(), xformers=Package(installed=False))
    found = one_of(tmp_path, "a.bat", MENU, facts)
    assert [(one.phases[0].backend, one.phases[0].line, one.phases[0].when) for one in found] == [
        ("native", 5, "line 5 runs"),
        ("xformers", 3, "line 3 runs"),
    ]
    (one,) = one_of(tmp_path, "a.bat", f"{MENU}set COMMANDLINE_ARGS=--xformers\n")
    assert (one.phases[0].backend, one.phases[0].line) == ("xformers", 8)


def test_a_command_that_asks_a_server_is_not_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        one_of(tmp_path, "a.sh", BENCH)


def test_a_node_for_the_models_of_one_program(tmp_path: Path) -> None:
    node = {"type": "SeedVR2LoadDiTModel", "widgets_values": ["a.safetensors", "flash_attn_2"]}
    (one,) = one_of(tmp_path, "a.json", json.dumps({"nodes": [node], "links": []}))
    first, second = one.phases
    assert (first.backend, first.when) == ("flash", "the model is SeedVR2's")
    assert (second.shown, second.when) == ("what ComfyUI was started with", "it is another model")


def test_options_that_the_dockerfile_beside_a_script_holds(tmp_path: Path) -> None:
    line = "python ComfyUI/main.py --listen ${CLI_ARGS}\n"
    facts = replace(machine(), xformers=Package(installed=False))
    (tmp_path / "Dockerfile").write_text('FROM a/b\nENV A=1 \\\n  CLI_ARGS="--lowvram"\n')
    (one,) = one_of(tmp_path, "start.sh", line, facts)
    assert (one.phases[0].backend, one.phases[0].undecided) == ("native", "")
    assert any("CLI_ARGS of" in note and "Dockerfile" in note for note in one.notes)
    (tmp_path / "Dockerfile").write_text("ENV CLI_ARGS=--use-sage-attention\n")
    (one,) = one_of(tmp_path, "start.sh", line, facts)
    assert (one.phases[0].backend, one.phases[0].line) == ("sage", 1)
    (tmp_path / "Dockerfile").write_text("ENV OTHER=--use-sage-attention\n")
    (one,) = one_of(tmp_path, "start.sh", line, facts)
    assert one.phases[0].when == "$CLI_ARGS adds no option for attention"


@pytest.mark.parametrize(
    ("option", "fault"),
    [("sage", "SageAttention ignores"), ("flash", "runs torch's own"), ("pytorch-cross", "")],
)
def test_what_comfyui_does_to_a_mask(option: str, fault: str, tmp_path: Path) -> None:
    words = "os=linux,python=3.12,gpu=rtx4090,torch=2.9.1+cu128,sageattention=2.2.0"
    words += ",flash-attn=2.8.3"
    facts = derived.derive(pretend(Facts(), [words], library.tables()), library.tables())
    facts = replace(facts, xformers=Package(installed=False))
    line = f"python ComfyUI/main.py --use-{option}-attention\n"
    said = one_of(tmp_path, "a.sh", line, facts)[0].phases[0].exceptions
    masked = " ".join(one for one in said if one.startswith("with a mask: "))
    assert fault in masked
    assert bool(masked) is bool(fault)


def test_a_variable_that_later_releases_ignore(tmp_path: Path) -> None:
    for name, content in (("pod.yaml", POD), ("a.sh", HANDED)):
        (one,) = one_of(tmp_path, name, content)
        first, second = one.phases
        assert first.when == "vLLM is older than 0.15"
        assert first.shown in ("TRITON_ATTN", "FLASHINFER")
        assert second.when.startswith("vLLM is 0.15 or newer")
        assert "what vLLM chooses" in second.shown


def test_an_option_whose_meaning_depends_on_the_release(tmp_path: Path) -> None:
    facts = replace(machine(), xformers=Package(installed=True, version="0.0.35"))
    line = "python ComfyUI/main.py --use-flash-attention"
    (one,) = one_of(tmp_path, "a.sh", line, facts)
    assert [(each.backend, "newer" in each.when) for each in one.phases] == [
        ("flash", True),
        ("xformers", False),
    ]
    (one,) = one_of(tmp_path, "a.sh", f"{line} --disable-xformers", facts)
    assert [each.backend for each in one.phases] == ["flash"]


def test_prefill_and_decode_have_a_phase_each(tmp_path: Path) -> None:
    line = "python -m sglang.launch_server --attention-backend triton"
    (one,) = one_of(tmp_path, "a.sh", f"{line} --prefill-attention-backend fa3\n")
    assert [(each.shown, each.when) for each in one.phases] == [
        ("fa3, of sgl-kernel", "it reads the prompt"),
        ("triton", ""),
    ]


def test_every_node_of_a_workflow_counts_for_its_models(tmp_path: Path) -> None:
    nodes = [
        {"type": "PathchSageAttentionKJ", "mode": 0, "widgets_values": ["auto", False]},
        {"type": "WanVideoModelLoader", "mode": 0, "widgets_values": ["x", "sdpa"]},
    ]
    below = {"subgraphs": [{"nodes": [{"type": "PatchFlashAttentionKJ", "mode": 0}]}]}
    content = json.dumps({"nodes": nodes, "links": [], "definitions": below}, indent=1)
    (one,) = one_of(tmp_path, "flow.json", content)
    assert {(each.backend, each.when) for each in one.phases} == {
        ("sage", "the model passes PathchSageAttentionKJ"),
        ("native", "the model passes WanVideoModelLoader"),
        ("flash", "the model passes PatchFlashAttentionKJ"),
    }


def test_nodes_of_one_kind_with_different_values(tmp_path: Path) -> None:
    nodes = [
        {"type": "WanVideoModelLoader", "mode": 0, "widgets_values": ["x", "sdpa"]},
        {"type": "WanVideoModelLoader", "mode": 0, "widgets_values": ["y", "sageattn"]},
    ]
    content = json.dumps({"nodes": nodes, "links": []}, indent=1)
    (one,) = one_of(tmp_path, "flow.json", content)
    assert sorted(each.backend for each in one.phases) == ["native", "sage"]


def test_an_input_that_another_node_gives_is_undecided(tmp_path: Path) -> None:
    api = {"1": {"class_type": "PathchSageAttentionKJ", "inputs": {"sage_attention": ["2", 0]}}}
    edited = {
        "type": "PathchSageAttentionKJ",
        "inputs": [{"name": "sage_attention", "link": 3}],
        "widgets_values": ["auto"],
    }
    for content in (api, {"nodes": [edited], "links": []}):
        (one,) = one_of(tmp_path, "flow.json", json.dumps(content, indent=1))
        assert one.phases[0].undecided


TRAINING = "model_name_or_path: a/b\ndataset_name: c/d\nlearning_rate: 1e-5\n"


def test_a_recipe_of_a_trainer_is_for_training(tmp_path: Path) -> None:
    content = f"{TRAINING}attn_implementation: flash_attention_2\n"
    (one,) = one_of(tmp_path, "recipe.yaml", content)
    assert (one.title, one.phases[0].phase, one.phases[0].backend) == ("TRL", "training", "flash")
    (one,) = one_of(tmp_path, "recipe.yaml", TRAINING)
    assert (one.phases[0].phase, one.phases[0].backend) == ("training", "native")


@pytest.mark.parametrize(
    ("name", "content", "wanted", "phases"),
    [
        ("recipe.yaml", TRAINING, "training", ["training"]),
        ("recipe.yaml", TRAINING, "inference", ["training"]),
        ("config.json", '{"_attn_implementation": "sdpa"}', "training", ["training"]),
        ("config.json", '{"_attn_implementation": "sdpa", "model_type": "x"}', "",
         ["training", "inference"]),
        ("a.sh", "python mine.py --attn_implementation sdpa\n", "", ["training", "inference"]),
        ("a.sh", "train_x.py --attn_implementation sdpa\n", "", ["training"]),
        ("a.sh", "x.py --attn_implementation sdpa --max_new_tokens 9\n", "", ["inference"]),
        ("a.yaml", "lr: 1\nattn_implementation: sdpa\n", "", ["training"]),
        ("a.json", '{"model_family": "flux"}', "training", ["training"]),
        ("a.json", '{"model_family": "flux"}', "inference", ["validation"]),
        ("a.sh", "train.py --training_type lora\n", "inference", ["inference"]),
        ("a.py", 'pipe.transformer.set_attention_backend("flash")\n', "training", ["training"]),
    ],
)  # fmt: skip
def test_the_phase_that_is_asked_for(
    name: str, content: str, wanted: Any, phases: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    facts = machine()
    one = predict(read_all(tmp_path / name)[0], facts, evaluated(facts), wanted)
    assert [each.phase for each in one.phases] == phases
    if wanted == "inference" and phases == ["training"]:
        assert "TRL is not for inference" in one.notes[-1]


def test_advisories_of_a_configuration(tmp_path: Path) -> None:
    """torch 2.11 on an H100 has two faults of cuDNN's backward, one for some lengths alone."""
    (tmp_path / "recipe.yaml").write_text(TRAINING)
    facts, findings = scenario.machine("h200-torch-2.11-cu130")
    reading = read_all(tmp_path / "recipe.yaml")[0]
    trained = predict(reading, facts, findings).phases[0]
    assert trained.state is Readiness.READY
    assert any("64 tokens over" in one and "ATTN-2026-0001" in one for one in trained.exceptions)
    (tmp_path / "config.json").write_text('{"_attn_implementation": "sdpa"}')
    reading = read_all(tmp_path / "config.json")[0]
    inferred = predict(reading, facts, findings, "inference").phases[0]
    assert not any("ATTN-2026-0001" in one for one in inferred.exceptions)


def test_an_advisory_that_every_call_has_is_an_error() -> None:
    from attn_doctor.configs.asked import Asked
    from attn_doctor.configs.asked import evaluated as evaluate
    from attn_doctor.configs.backend_support import BackendSupport
    from attn_doctor.configs.readers.settings import Reading

    facts, findings = scenario.machine("h200-torch-2.11-cu130")
    support = BackendSupport(facts, findings, "")
    reading = Reading(kind="format", file="a.yaml", form="yaml")
    asked = Asked(
        key="k", value="sdpa", backend="native", phase="training", line=3, dtype="bf16",
        head_dim=128, tokens=4160,
    )  # fmt: skip
    phase, found = evaluate(asked, reading, support)
    assert phase.state is Readiness.NOT_READY
    assert [one.rule for one in found] == ["advisories/ATTN-2026-0001"]
    assert (found[0].severity.value, found[0].location and found[0].location.line) == ("error", 3)
    phase, found = evaluate(replace(asked, tokens=4096), reading, support)
    assert (phase.state, found) == (Readiness.READY, [])
    # Whether a gradient has another layout, or a tensor an odd address, is not known.
    assert phase.exceptions
    assert all(one.startswith("except for ") for one in phase.exceptions)
    assert not any("ATTN-2026-0001" in one for one in phase.exceptions)


@pytest.mark.parametrize(
    "content",
    [
        "git clone https://example.org/x/ComfyUI\ncd ComfyUI\npip install vllm sglang\n",
        "docker pull vllm/vllm-openai:latest\ndocker build -t me/comfyui:1 .\n",
        "conda create -n vllm\n",
        "stop(){ pkill -f sglang.launch_server || true; }\n",
        "if pgrep -f sglang.launch_server; then exit; fi\n",
    ],
)
def test_a_program_that_is_named_and_not_started(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(content)
    with pytest.raises(ConfigError, match="nothing in it is known"):
        read_all(tmp_path / "a.sh")


def test_a_text_of_powershell_is_no_command(tmp_path: Path) -> None:
    (tmp_path / "a.ps1").write_text('$attn_mode = "sageattn"\n$script = "wan_generate_video.py"\n')
    with pytest.raises(ConfigError, match="nothing in it is known"):
        read_all(tmp_path / "a.ps1")


def test_sd_scripts_reads_no_json(tmp_path: Path) -> None:
    settings: dict[str, object] = {"output_name": "a", "network_module": "networks.lora"}
    (one,) = one_of(tmp_path, "a.json", json.dumps({**settings, "xformers": True}))
    assert one.phases[0].backend == "xformers"
    with pytest.raises(ConfigError, match="nothing in it is known"):
        one_of(tmp_path, "b.json", json.dumps({**settings, "xformers": False}))


def test_a_section_that_another_setting_passes_over(tmp_path: Path) -> None:
    content = "backend: {}\nvllm:\n  dtype: bf16\nhf:\n  attn_implementation: sdpa\n"
    (one,) = one_of(tmp_path, "a.yaml", content.format("hf"))
    assert (one.phases[0].asked, one.phases[0].line) == ("sdpa", 5)
    with pytest.raises(ConfigError, match="nothing in it is known"):
        one_of(tmp_path, "b.yaml", content.format("vllm"))


WRAPPED = (
    "docker run "
    + "--label a=b " * 30
    + "vllm/vllm-openai:v0.25.0 --attention-backend FLASHINFER\n"
)
POWERSHELL = """$attn_mode = $args[0]
$ext_args = [System.Collections.ArrayList]::new()
if ($attn_mode -ieq "flash") {
  [void]$ext_args.Add("--flash_attn")
} else {
  [void]$ext_args.Add("--sdpa")
}
python "./musubi-tuner/wan_train_network.py" `
  --dit=$dit `
  $ext_args
"""
LISTED = """FLAGS=(
  --dit "$DIT"
  --sdpa --mixed_precision bf16  # a remark (with parentheses)
)
accelerate launch qwen_image_train_network.py \\
  "${FLAGS[@]}"
"""
SEVERAL = "[SD]\noutput_name = 'a'\nxformers = true\n[flux]\noutput_name = 'b'\nsdpa = true\n"
CALLED = (
    "c = DictDefault(\n  base_model='a',\n  datasets=[],\n  adapter='b',\n  sdp_attention=True)"
)
GIVEN = (
    "a = dict(\n  stage='sft',\n  do_train=True,\n  model_name_or_path='a',\n  flash_attn='fa2')"
)
HANDED_ON = (
    "services:\n  a:\n    image: me/comfyui:1\n    environment:\n"
    "      COMFYUI_ARGS: --use-sage-attention\n"
)
ENGINE = (
    "services:\n  a:\n    image: vllm/vllm-openai:v1\n    command: --model a ${ENGINE_ARGS:-}\n"
)
INNER = (
    "services:\n  a:\n    image: vllm/vllm-openai:v1\n"
    """    command: ["--attention-config", "{\\"backend\\": \\"FLASHINFER\\"}"]\n"""
)
NOTHING = "adds no option for attention"
LONG = """ARGS="--listen"
if [ -n "$MY_ARGS" ]; then ARGS="$ARGS $MY_ARGS"; fi
if [ -n "$PORT" ]; then ARGS="$ARGS --port $PORT"; else ARGS="$ARGS --port 1"; fi
if [ -n "$D" ]; then ARGS="$ARGS --output-directory $D"; fi
if [ $# -gt 0 ]; then ARGS="$ARGS $@"; fi
python ComfyUI/main.py $ARGS
"""
NAMED_ALIKE = """attn_mode=sageattn
if [ $X = 1 ]; then
  A=--attn_mode=$attn_mode
fi
python wan_generate_video.py $A
"""
TWICE = """MODE=torch
if true; then
  MODE=flash
fi
FLAGS="--attn_mode $MODE"
if [ "$X" = 1 ]; then
  FLAGS="$FLAGS --flash_attn_note"
fi
python wan_generate_video.py $FLAGS
"""
ARMS = """if [ "$A" = 1 ]; then
  python ComfyUI/main.py --novram
elif [ "$B" = 1 ]; then
  python ComfyUI/main.py --cpu
else
  python ComfyUI/main.py
fi
"""
CHOICES = """case "$1" in
  sage) ARGS=--use-sage-attention ;;
  flash) ARGS=--use-flash-attention ;;
  *) ARGS= ;;
esac
python ComfyUI/main.py --listen $ARGS
"""
STARTS = """case "$1" in
  fast) ARGS=--use-sage-attention; python ComfyUI/main.py --use-sage-attention ;;
  slow) python ComfyUI/main.py ;;
esac
"""
LABELS = """goto %1
:fast
python ComfyUI\\main.py --use-sage-attention
goto :eof
:slow
python ComfyUI\\main.py
"""
BRANCHED = (
    'ARGS="--listen"\nif [ "$X" = 1 ]; then\n  ARGS="$ARGS {}"\nfi\npython ComfyUI/main.py $ARGS\n'
)


@pytest.mark.parametrize(
    ("name", "content", "title", "backend", "line"),
    [
        ("a.sh", WRAPPED, "vLLM", "FLASHINFER", 1),
        ("a.sh", "docker run --name vllm --entrypoint sglang me/x:1 serve\n", "SGLang", "", 0),
        ("a.sh", 'CMD="vllm serve a/b --attention-backend TRITON_ATTN"\neval $CMD\n', "vLLM",
         "TRITON_ATTN", 1),
        ("a.bat", "set ARGS=--use-sage-attention\npython ComfyUI\\main.py %ARGS%\n", "ComfyUI",
         "sage", 1),
        ("a.sh", "accelerate launch --config_file a.yaml trl/scripts/sft.py --x 1\n", "TRL",
         "native", 0),
        ("a.sh", "VLLM_ATTENTION_BACKEND=${1:-XFORMERS} vllm serve a/b\n", "vLLM", "XFORMERS", 1),
        ("a.toml", 'network_module = "a"\nt5xxl = "b"\nmax_train_steps = 1\nxformers = true\n',
         "sd-scripts", "native", 4),
        ("a.yaml", "model_name_or_path: a\nlearning_rate: 1\nuse_flash_attention_2: true\n",
         "TRL", "flash", 3),
        ("a.sh", "/opt/venv/bin/vllm serve a\n", "vLLM", "", 0),
        ("a.bat", 'start "x" cmd /k "cd /d C:\\ComfyUI && python main.py --port 1"\n', "ComfyUI",
         "native", 0),
        ("a.sh", 'eval "$(python - <<X\nprint(1)\nX\n)"\nvllm serve a\n', "vLLM", "", 0),
        ("a.sh", "python hidream_o1_train.py --dit a\n", "Musubi Tuner", "native", 0),
        ("Makefile", "ARGS ?= --use-sage-attention\nrun:\n\t@python ComfyUI/main.py $(ARGS)\n",
         "ComfyUI", "sage", 1),
        ("a.sh", "cd /app/ComfyUI\npython main.py\n", "ComfyUI", "native", 0),
        ("a.sh", 'X=$(python -c "\nprint(\'(\')\n")\nN=$((10#$A))\nvllm serve a\n', "vLLM", "", 0),
        ("a.sh", "llamafactory-cli train --deepspeed a.json --stage sft\n", "LLaMA-Factory",
         "native", 0),
        ("a.yaml", HANDED_ON, "ComfyUI", "sage", 5),
        ("a.yaml", "stage: sft\nfinetuning_type: lora\ntemplate: qwen\n", "LLaMA-Factory",
         "native", 0),
        ("a.sh", LISTED, "Musubi Tuner", "native", 3),
        ("a.sh", "cd x && A=1 python ComfyUI/main.py --use-sage-attention\n", "ComfyUI", "sage", 1),
        ("a.sh", BRANCHED.format("--port 1"), "ComfyUI", "native", 0),
        ("a.ps1", '$list = @("--sdpa")\npython wan_train_network.py @list\n', "Musubi Tuner",
         "native", 1),
        ("a.bat", '"%PY%" "%~dp0launch.py" --medvram --opt-sdp-attention\n',
         "Stable Diffusion WebUI or Forge", "native", 1),
        ("a.sh", "python launch.py --use-cuda --use-xformers\n", "SD.Next", "xformers", 1),
        ("a.sh", "python gen_img.py --sdpa\n", "sd-scripts", "native", 1),
        ("Dockerfile", 'FROM a/vllm-openai:1\nCMD ["--attention-backend", "FLASHINFER"]\n', "vLLM",
         "FLASHINFER", 2),
        ("a.sh", "python trl/scripts/sft.py --learning_rate 1\n", "TRL", "native", 0),
        ("a.sh", "vllm serve a --attention-config '{\"backend\": \"FLASHINFER\"}'\n", "vLLM",
         "FLASHINFER", 1),
        ("a.sh", "vllm serve a -ac.backend FLASHINFER\n", "vLLM", "FLASHINFER", 1),
        ("a.sh", "vllm serve a -ac '{\"flash_attn_version\": 3}'\n", "vLLM",
         "what vLLM chooses for the GPU and the model", 0),
        ("a.yaml", INNER, "vLLM", "FLASHINFER", 4),
        ("a.sh", ('CMD="vllm serve a"\nCMD+=" --port 1"\nCMD+=" --attention-backend FLASHINFER"\n'
         '$CMD\n'), "vLLM", "FLASHINFER", 3),
    ],
)  # fmt: skip
def test_a_start_that_is_followed(
    name: str, content: str, title: str, backend: str, line: int, tmp_path: Path
) -> None:
    facts = replace(machine(), xformers=Package(installed=False))
    (one,) = one_of(tmp_path, name, content, facts)
    phase = one.phases[0]
    assert (one.title, phase.undecided, phase.line) == (title, "", line)
    assert backend in (phase.backend, phase.shown)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.yaml", AXOLOTL + "xformers_attention: ${X}\n", "${X} is not written in this file"),
        ("a.sh", "python a/train_sft.py --bf16\n", "train_sft.py may be a script of the user"),
        ("a.yaml", LLAMA + "use_unsloth: true\nflash_attn: fa2\n", "Unsloth replaces"),
        ("a.yaml", LLAMA + "tensor_model_parallel_size: 2\n", "attention runs with USE_MCA"),
        ("a.toml", SEVERAL, "several configurations, [SD], [flux]"),
    ],
)  # fmt: skip
def test_a_start_that_stays_open(name: str, content: str, why: str, tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, name, content)
    assert why in one.phases[0].undecided
    assert one.findings == ()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.sh", BRANCHED.format("--use-sage-attention"),
         [("native", "line 3 does not run"), ("sage", "line 3 runs")]),
        ("a.ps1", POWERSHELL, [("flash", "line 4 runs"), ("native", "line 6 runs")]),
        ("a.sh", "[ -n $X ] && export VLLM_ATTENTION_BACKEND=FLASHINFER\nvllm serve a/b\n",
         [("what vLLM chooses for the GPU and the model", "line 1 does not run"),
          ("FLASHINFER", "line 1 runs and vLLM is older than 0.15")]),
        ("a.sh", 'A="${B_ARGS:-}"\npython -m sglang.launch_server $A\n',
         [("what SGLang chooses for the GPU and the model",
           "$B_ARGS adds no option for attention")]),
        ("a.sh", 'EXTRA_ARGS="${EXTRA_ARGS:-}"\nvllm serve a $EXTRA_ARGS\n',
         [("what vLLM chooses for the GPU and the model",
           "$EXTRA_ARGS adds no option for attention")]),
        ("a.sh", 'vllm serve a --config b.yaml\n',
         [("what vLLM chooses for the GPU and the model",
           "b.yaml adds no option for attention")]),
        ("a.yaml", ENGINE,
         [("what vLLM chooses for the GPU and the model",
           "$ENGINE_ARGS adds no option for attention")]),
        ("a.sh", LONG, [("native", "neither line 2 nor line 5 runs"),
                        ("native", "line 2 runs and $MY_ARGS adds no option for attention"),
                        ("native", f"line 5 runs and line 2 does not and $@ {NOTHING}")]),
        ("a.sh", NAMED_ALIKE,
         [("sage", "line 3 runs"),
          ("native", "line 3 does not run")]),
        ("a.sh", TWICE, [("flash", "line 3 runs"), ("native", "line 3 does not run")]),
        ("a.sh", ARMS, [("native", '`[ "$A" = 1 ]` holds or the `else` in line 5 is reached'),
                        ("comfyui_sub_quad", '`[ "$B" = 1 ]` holds')]),
        ("a.sh", CHOICES, [("sage", "line 2 runs"), ("flash", "line 3 runs"),
                           ("native", "line 4 runs")]),
        ("a.sh", STARTS, [("sage", "`$1` is fast"), ("native", "`$1` is slow")]),
        ("a.bat", LABELS, [("sage", "`goto fast` leads there"),
                           ("native", "`goto slow` leads there")]),
    ],
)  # fmt: skip
def test_branches_of_a_start_are_conditions(
    name: str, content: str, expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    facts = replace(machine(), xformers=Package(installed=False))
    phases = [one.phases[0] for one in one_of(tmp_path, name, content, facts)]
    found = [(one.backend or one.shown, one.when) for one in phases]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    ("name", "content", "change"),
    [
        ("a.sh", "python ComfyUI/main.py --use-sage-attention\n",
         "--use-sage-attention → --use-pytorch-cross-attention"),
        ("a.sh", "python train_network.py --xformers\n", "--xformers → --sdpa"),
        ("a.toml", 'network_module = "a"\nmax_train_steps = 1\nxformers = true\n',
         "xformers = true → sdpa = true"),
        ("a.yaml", LLAMA + "flash_attn: fa2\n", "flash_attn: fa2 → flash_attn: sdpa"),
        ("a.sh", "trl sft --attn_implementation flash_attention_2\n",
         "--attn_implementation flash_attention_2 → --attn_implementation sdpa"),
    ],
)  # fmt: skip
def test_the_exact_change_of_a_line(name: str, content: str, change: str, tmp_path: Path) -> None:
    absent = Package(installed=False)
    facts = replace(
        machine(), xformers=absent, sageattention=absent, flash_attn=absent, kernels=absent
    )
    (one,) = one_of(tmp_path, name, content, facts)
    (found,) = one.findings
    assert any(fix.title.endswith(f": {change}") for fix in found.fixes)


@pytest.mark.parametrize(
    ("model", "more", "backend"),
    [
        ("openai/gpt-oss-20b", "flash_attn: sdpa\n", "vllm_flash_3_hub"),
        ("google/gemma-2-9b", "", "eager"),
        ("google/gemma-2-9b", "flash_attn: fa2\n", "eager"),
        ("google/gemma-2-9b", "flash_attn: sdpa\n", "native"),
        ("google/gemma-2b-it", "", "native"),
        ("google/gemma-7b", "flash_attn: fa2\n", "flash"),
    ],
)
def test_models_that_llama_factory_treats_by_themselves(
    model: str, more: str, backend: str, tmp_path: Path
) -> None:
    facts = replace(machine(), flash_attn=Package(installed=False))
    content = f"model_name_or_path: {model}\nfinetuning_type: lora\ndo_train: true\n{more}"
    (one,) = one_of(tmp_path, "a.yaml", content, facts)
    assert one.phases[0].backend == backend


def test_a_script_of_the_user_beside_its_start(tmp_path: Path) -> None:
    start = "accelerate launch train.py --attn_implementation flash_attention_2\n"
    (one,) = one_of(tmp_path, "a.sh", start)
    assert one.phases[0].when == "train.py hands it to Transformers"
    script = tmp_path / "train.py"
    script.write_text("m = A.from_pretrained(n, attn_implementation=args.attn_implementation)\n")
    (one,) = one_of(tmp_path, "a.sh", start)
    assert (one.phases[0].backend, one.phases[0].when) == ("flash", "")
    script.rename(tmp_path / "train_sft.py").write_text(
        "m = A.from_pretrained(n, attn_implementation='eager')\n"
    )
    (one,) = one_of(tmp_path, "b.sh", "python train_sft.py --bf16\n")
    assert (one.phases[0].backend, one.reading.file.endswith("train_sft.py")) == ("eager", True)


def test_a_file_that_a_start_names_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(AXOLOTL + "flash_attention: true\n")
    (one,) = one_of(tmp_path, "a.sh", "axolotl train a.yml\n")
    assert (one.phases[0].backend, one.reading.file.endswith("a.yml")) == ("flash", True)
    (tmp_path / "webui-user.sh").write_text('export COMMANDLINE_ARGS="--xformers"\n')
    (one,) = one_of(tmp_path, "b.sh", "./webui.sh\n")
    assert one.phases[0].backend == "xformers"


def test_a_program_that_is_asked_for_help_is_none(tmp_path: Path) -> None:
    content = 'if [ $# = 0 ]; then vllm serve --help; fi\nvllm serve "$@"\n'
    (one,) = one_of(tmp_path, "a.sh", content)
    assert one.phases[0].when == "$@ adds no option for attention"


def notebook(*cells: str) -> str:
    found = [
        {"cell_type": "code", "source": [f"{line}\n" for line in cell.splitlines()]}
        for cell in cells
    ]
    return json.dumps({"cells": found, "nbformat": 4}, indent=1)


@pytest.mark.parametrize(
    ("cell", "title", "backend", "place"),
    [
        (f"%%writefile a.yaml\n{AXOLOTL}flash_attention: true", "Axolotl", "flash", 7),
        (CALLED, "Axolotl", "native", 5),
        (f'text = """{AXOLOTL}flex_attention: true\n"""', "Axolotl", "flex", 6),
        (GIVEN, "LLaMA-Factory", "flash", 5),
        ("%%bash\npython wan_train_network.py --sdpa", "Musubi Tuner", "native", 2),
    ],
)  # fmt: skip
def test_settings_in_a_notebook(
    cell: str, title: str, backend: str, place: int, tmp_path: Path
) -> None:
    (one,) = one_of(tmp_path, "a.ipynb", notebook("import x", cell))
    assert (one.title, one.phases[0].backend) == (title, backend)
    assert one.phases[0].why.startswith(f"cell 2, line {place}: ")


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("whole", [True, False])
def test_a_notebook_whose_cells_are_one_line_each(
    indent: int | None, whole: bool, tmp_path: Path
) -> None:
    data = json.loads(notebook("import os\nimport sys\nx = 1", "import os\n" + GIVEN, "x = 2"))
    for cell in data["cells"] if whole else data["cells"][:1]:
        cell["source"] = "".join(cell["source"])
    (one,) = one_of(tmp_path, "a.ipynb", json.dumps(data, indent=indent))
    assert (one.title, one.phases[0].backend) == ("LLaMA-Factory", "flash")
    assert one.phases[0].why.startswith("cell 2, line 6: ")


def test_options_that_the_compose_file_beside_a_script_holds(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        "services:\n  ui:\n    build: .\n    environment:\n      - UI_ARGS=--use-sage-attention\n"
    )
    (one,) = one_of(tmp_path, "start.sh", "python ComfyUI/main.py --listen ${UI_ARGS}\n")
    assert one.phases[0].backend == "sage"
    assert any("UI_ARGS of" in note and "compose.yaml" in note for note in one.notes)


def test_the_text_of_a_file_that_a_script_writes_has_no_branches(tmp_path: Path) -> None:
    content = "python3 <<'END'\nfor x in y:\n  if x:\n    pass\nEND\n" + LISTED
    (one,) = one_of(tmp_path, "a.sh", content)
    assert (one.phases[0].backend, one.phases[0].line) == ("native", 8)


CHOSEN = """$mode = "Flash"
$list = @()
if ($mode -eq "sdpa") {
  $list += "--sdpa"
}
elseif ($mode -ieq "flash") {
  $list += "--flash_attn"
}
else { $list += "--xformers" }
python wan_train_network.py $list
"""


def test_a_branch_of_powershell_that_a_variable_decides(tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, "a.ps1", CHOSEN)
    assert (one.phases[0].backend, one.phases[0].line) == ("flash", 7)
    (one,) = one_of(tmp_path, "a.ps1", CHOSEN.replace('"Flash"', '"other"'))
    assert (one.phases[0].backend, one.phases[0].line) == ("xformers", 9)
    (one,) = one_of(tmp_path, "a.ps1", CHOSEN.replace('-eq "sdpa"', '-ine "flash"'))
    assert (one.phases[0].backend, one.phases[0].line) == ("flash", 7)
    found = one_of(tmp_path, "a.ps1", CHOSEN.replace('"Flash"', "$args[0]"))
    assert {(one.phases[0].backend, one.phases[0].when) for one in found} == {
        ("native", "line 4 runs"),
        ("flash", "line 7 runs"),
        ("xformers", "line 9 runs"),
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.sh", "python run.py --backend vllm --model a/b\n"),
        ("a.sh", 'IP=$(kubectl get service vllm \\\n  -o jsonpath="{.a}")\n'),
        (
            "a.sh",
            "docker run --entrypoint bash vllm/vllm-openai:v1 -c 'vllm bench serve --port 1'\n",
        ),
        ("a.sh", "docker run me/bench:1 --engine sglang --concurrency 3\n"),
        ("a.sh", "cat > a.yaml <<EOF\ncomfyui:\n  base_path: x\nEOF\n"),
        ("a.ps1", '$line = if ($tag) { "  ComfyUI:  $tag" }\n'),
        ("a.yaml", "services:\n  a:\n    image: me/vllm-warden:1\n"),
        ("a.bat", "uv run webui.py\n"),
        ("a.sh", "find /var/log/vllm -name x -delete\n"),
        ("a.txt", "llamafactory\n"),
        ("a.sh", "podman run -d --replace --name comfyui me/comfyui:1 sleep infinity\n"),
        (
            "a.yaml",
            "services:\n  a:\n    image: vllm/vllm-openai:v1\n    entrypoint: python api.py\n",
        ),
        ("a.yaml", POD.split("      env")[0] + "      command: [sleep, infinity]\n"),
    ],
)
def test_a_name_that_starts_nothing(name: str, content: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing in it is known"):
        one_of(tmp_path, name, content)


def test_a_label_of_a_case_is_no_command(tmp_path: Path) -> None:
    content = 'case "$1" in\n  sglang)\n    A=1 ;;\n  "vllm"|b) exec vllm serve a/b ;;\nesac\n'
    (one,) = one_of(tmp_path, "a.sh", content)
    assert one.title == "vLLM"


def test_the_arguments_of_a_batch_script_may_choose(tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, "a.bat", "%PYTHON% launch.py %*\n")
    assert "%* adds no option for attention" in one.phases[0].when


def test_many_keys_take_no_long_time(tmp_path: Path) -> None:
    keys = {f"a.{n}": {f"b.{m}": [1, 2] for m in range(10)} for n in range(2000)}
    (tmp_path / "a.json").write_text(json.dumps(keys, indent=1))
    with at_most(10), pytest.raises(ConfigError, match="nothing in it is known"):
        read_all(tmp_path / "a.json")


@pytest.mark.parametrize(
    "content",
    [
        'run_matrix "sglang" "http://127.0.0.1"\n',
        "if [ -f ComfyUI/main.py ]; then\n  echo found\nfi\n",
    ],
)
def test_a_name_among_other_words_starts_nothing(content: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing in it is known"):
        one_of(tmp_path, "a.sh", content)


def test_the_entrypoint_of_an_image_as_a_line_of_a_shell(tmp_path: Path) -> None:
    content = "FROM a\nENTRYPOINT [ -e ./webui.sh ] && ./webui.sh --use-cuda --use-xformers\n"
    (one,) = one_of(tmp_path, "Dockerfile", content)
    assert (one.title, one.phases[0].backend, one.phases[0].line) == ("SD.Next", "xformers", 2)


def test_settings_below_another_key_are_those_of_another_program(tmp_path: Path) -> None:
    own = "model:\n  base_model: a/b\n  attn_impl: sdpa\ndatasets:\n  - path: x\n"
    with pytest.raises(ConfigError):
        one_of(tmp_path, "a.yaml", own)


def test_a_task_that_runs_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        one_of(tmp_path, "a.sh", "llamafactory-cli version\n")
    assert one_of(tmp_path, "a.sh", "llamafactory-cli $TASK\n")


def test_settings_of_vllm_that_speak_of_attention(tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, "a.sh", "vllm serve a/b --disable-cascade-attn\n")
    assert not one.phases[0].undecided
    (one,) = one_of(tmp_path, "a.sh", 'vllm serve a/b --attention-config "{$X}"\n')
    assert one.phases[0].undecided == "the value of --attention-config in line 1 may choose"


def test_a_setting_of_another_program(tmp_path: Path) -> None:
    recipe = "model_name_or_path: a/b\nlearning_rate: 1\nseed: 1\noutput_dir: x\n"
    (one,) = one_of(tmp_path, "a.yaml", recipe + "use_flash_attn: true\n")
    assert one.phases[0].undecided == "use_flash_attn in line 5 is not a setting of TRL 1.16.0"
    (one,) = one_of(tmp_path, "a.yaml", recipe + "use_flash_attn: false\n")
    assert one.phases[0].backend == "native"


def test_a_file_of_settings_of_any_program(tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, "a.yaml", "model:\n  attn_implementation: sdpa\n")
    when = "the program that reads this file hands it to Transformers"
    assert [(each.phase, each.backend, each.when) for each in one.phases] == [
        ("training", "native", f"its program trains and {when}"),
        ("inference", "native", f"its program only runs the model and {when}"),
    ]


def test_a_variable_of_a_branch_holds_in_that_branch(tmp_path: Path) -> None:
    content = (
        'for f in *; do\n  A=(sdxl_train_network.py --xformers)\n  B=("${A[@]}" --seed=1)\n'
        '  "${B[@]}"\ndone\n'
    )
    (one,) = one_of(tmp_path, "a.sh", content)
    assert (one.phases[0].backend, one.phases[0].line) == ("xformers", 2)


def test_the_labels_of_a_case_on_one_line(tmp_path: Path) -> None:
    content = (
        'case "$1" in\n  sage) A="--use-sage-attention";;\n  *) A="";;\nesac\n'
        "python ComfyUI/main.py --listen $A\n"
    )
    facts = replace(machine(), xformers=Package(installed=False))
    found = {
        one.reading.when: one.phases[0].backend for one in one_of(tmp_path, "a.sh", content, facts)
    }
    assert found == {"line 2 runs": "sage", "line 3 runs": "native"}


def test_parameters_of_a_powershell_script(tmp_path: Path) -> None:
    content = (
        'param(\n  [string]$More = "--use-sage-attention --fast",\n  [int]$Port = 1\n)\n'
        "if ($More) {\n  python ComfyUI/main.py --listen $More\n}\n"
    )
    (one,) = one_of(tmp_path, "a.ps1", content)
    assert one.phases[0].backend == "sage"


def test_options_in_values_of_a_chart(tmp_path: Path) -> None:
    content = (
        "models:\n- repository: vllm/vllm-openai\n  vllmConfig:\n"
        '    extraArgs: ["--attention-backend", "FLASHINFER"]\n'
    )
    (one,) = one_of(tmp_path, "values.yaml", content)
    assert (one.phases[0].shown, one.phases[0].line) == ("FLASHINFER", 4)


def test_a_unit_of_systemd(tmp_path: Path) -> None:
    content = (
        "[Service]\nWorkingDirectory=/opt/ComfyUI\nEnvironmentFile=-/etc/x.env\n"
        "ExecStart=/opt/venv/bin/python main.py \\\n  --use-sage-attention\n"
    )
    (one,) = one_of(tmp_path, "comfyui.service", content)
    assert (one.phases[0].backend, one.phases[0].line) == ("sage", 5)
    plain = content.replace("--use-sage-attention", "--disable-xformers")
    (one,) = one_of(tmp_path, "comfyui.service", plain)
    assert one.phases[0].when == "/etc/x.env adds no option for attention"


def test_options_in_an_env_file(tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, ".env", 'COMMANDLINE_ARGS="--xformers --listen"\n')
    assert one.phases[0].backend == "xformers"


def test_the_words_behind_a_flag_are_not_its_value(tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, "a.sh", "sdxl_train_network.py --xformers $MORE\n")
    assert one.phases[0].asked == "--xformers"


def test_settings_of_a_program_in_one_mapping_of_a_file(tmp_path: Path) -> None:
    content = json.dumps(
        {"input": {"args": {"base_model": "a/b", "datasets": [], "flash_attention": True}}}
    )
    (one,) = one_of(tmp_path, "a.json", content)
    assert (one.title, one.phases[0].backend) == ("Axolotl", "flash")


def test_a_node_that_is_not_known(tmp_path: Path) -> None:
    known = {"type": "HyVideoModelLoader", "widgets_values": ["x.safetensors", "sageattn"]}
    other = {"type": "MineModelLoader", "widgets_values": ["x", "flash_attn_2"]}
    beside = {"type": "DownloadAndLoadFlorence2Model", "widgets_values": ["x", "sdpa"]}
    nodes = {"nodes": [known, other, beside], "links": []}
    (one,) = one_of(tmp_path, "flow.json", json.dumps(nodes, indent=1))
    assert [each.undecided for each in one.phases] == [
        "sageattn is not in the table of ComfyUI workflow main, 2026-08",
        "the node MineModelLoader is not in the table",
    ]
    nodes = {"nodes": [beside, {"type": "KSampler"}], "links": []}
    (one,) = one_of(tmp_path, "flow.json", json.dumps(nodes))
    assert one.phases[0].shown == "what ComfyUI was started with"


def test_nodes_that_give_a_model_of_their_own(tmp_path: Path) -> None:
    def said(kind: str, *inputs: dict[str, str], values: tuple[str, ...] = ()) -> tuple[str, str]:
        node = {
            "type": kind,
            "inputs": [*inputs],
            "outputs": [{"type": "MODEL"}],
            "widgets_values": [*values],
        }
        nodes = {"nodes": [node, {"type": "KSampler"}], "links": []}
        (one,) = one_of(tmp_path, "flow.json", json.dumps(nodes))
        return one.phases[0].shown, one.phases[0].undecided

    values = ("a.safetensors", "nunchaku-fp16")
    assert said("NunchakuFluxDiTLoader", values=values)[0] == "Nunchaku's own attention in fp16"
    assert said("MineModelLoader")[1] == "the node MineModelLoader is not in the table"
    started = ("what ComfyUI was started with", "")
    assert said("MineModelLoader", {"type": "MODEL"}) == started
    assert said("LoaderGGUF") == started


def test_the_entrypoint_of_an_image_may_add_options(tmp_path: Path) -> None:
    content = (
        'ENTRYPOINT ["/start.sh"]\nCMD ["python", "main.py", "--listen", "--disable-xformers"]\n'
    )
    (one,) = one_of(tmp_path, "Dockerfile", content)
    assert one.phases[0].when == "/start.sh adds no option for attention"


def test_options_in_a_file_that_a_variable_takes(tmp_path: Path) -> None:
    content = 'A="--no-half $(cat /etc/flags.conf) --exit"\npython launch.py ${A}\n'
    found = one_of(tmp_path, "a.sh", content)
    assert all("$(cat)" in each.when for each in found[0].phases)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.sh", "git clone https://github.com/me/finetrainers\ncd finetrainers\n"),
        ("a.sh", "axolotl fetch examples\n"),
        ("a.sh", "trl env\n"),
        ("Makefile", "run:\n\tpython3 scripts/main.py --port 1 --listen\n"),
        ("a.sh", "python fine_tune.py --epochs 3\n"),
        ("a.toml", 'pipeline_stages = 1\noutput_dir = "x"\nmodel_dir = "y"\n'),
        ("a.yaml", "model_name_or_path: a/b\nstage: 1\n"),
        ("a.yaml", "base_model: a/b\ngradient_accumulation_steps: 4\n"),
    ],
)
def test_names_that_other_programs_have_too(name: str, content: str, tmp_path: Path) -> None:
    try:
        found = one_of(tmp_path, name, content)
    except ConfigError:
        return
    assert all(each.undecided for one in found for each in one.phases)


def test_a_folder_that_is_not_known(tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, "a.sh", "python $APP/main.py --listen --disable-xformers\n")
    assert (one.title, one.phases[0].backend) == ("ComfyUI", "native")


def test_the_folder_of_an_image(tmp_path: Path) -> None:
    content = 'WORKDIR /opt/ComfyUI\nCMD ["python", "main.py", "--disable-xformers"]\n'
    (one,) = one_of(tmp_path, "Dockerfile", content)
    assert (one.title, one.phases[0].backend) == ("ComfyUI", "native")


def test_options_of_a_container_as_a_mapping(tmp_path: Path) -> None:
    content = (
        "launch:\n  image: vllm/vllm-openai:latest\n"
        "  args:\n    --model: a/b\n    --attention-backend: FLASHINFER\n"
    )
    (one,) = one_of(tmp_path, "a.yaml", content)
    assert (one.phases[0].shown, one.phases[0].line) == ("FLASHINFER", 5)


def test_a_job_that_only_generates(tmp_path: Path) -> None:
    content = (
        "job: generate\nconfig:\n  process:\n    - type: to_folder\n"
        "      model:\n        name_or_path: x\n"
    )
    (one,) = one_of(tmp_path, "a.yaml", content)
    assert [each.phase for each in one.phases] == ["inference"]


def test_a_device_that_is_no_gpu_of_nvidia(tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, "a.bat", "python launch.py --directml 0 --opt-sub-quad-attention\n")
    assert "DirectML" in one.phases[0].undecided
    (one,) = one_of(tmp_path, "a.bat", "python ComfyUI\\main.py --directml\n")
    assert one.phases[0].backend == "comfyui_sub_quad"


def test_a_file_of_options_and_one_of_variables(tmp_path: Path) -> None:
    content = (
        "services:\n  llm:\n    image: vllm/vllm-openai:v0.21.0\n    env_file: .env\n"
        '    entrypoint: ["vllm", "serve", "a/b", "--config", "/app/config.yaml"]\n'
    )
    (one,) = one_of(tmp_path, "compose.yaml", content)
    assert one.phases[0].when == ".env or /app/config.yaml adds no option for attention"


def test_a_recipe_that_a_script_of_the_user_may_read(tmp_path: Path) -> None:
    content = "model_name_or_path: a/b\nlearning_rate: 1\nattn_implementation: sdpa\n"
    (one,) = one_of(tmp_path, "a.yaml", content)
    assert one.phases[0].when == "a script of TRL reads it, not one of the user"


def test_points_in_a_message_leave_nothing_out(tmp_path: Path) -> None:
    content = 'echo "waiting..." && vllm serve a/b --served-model-name "x..."\n'
    (one,) = one_of(tmp_path, "a.sh", content)
    assert not one.phases[0].undecided
    (one,) = one_of(tmp_path, "a.sh", "vllm serve a/b (... more options ...)\n")
    assert one.phases[0].undecided


def test_services_that_are_started_by_themselves(tmp_path: Path) -> None:
    content = (
        "services:\n  a:\n    image: vllm/vllm-openai:v0.21.0\n"
        '    command: ["--model", "a/b", "--attention-backend", "FLASHINFER"]\n'
        '  b:\n    image: vllm/vllm-openai:v0.21.0\n    command: ["--model", "a/b"]\n'
    )
    found = one_of(tmp_path, "compose.yaml", content)
    whens = [(each.when, each.shown[:10]) for one in found for each in one.phases]
    assert whens == [("the service is a", "FLASHINFER"), ("the service is b", "what vLLM ")]


def test_a_switch_that_is_neither_on_nor_off(tmp_path: Path) -> None:
    content = "base_model: a/b\nsequence_len: 1\nadapter: qlora\nmicro_batch_size: 1\n"
    (one,) = one_of(tmp_path, "a.yaml", f"{content}flash_attention: auto\n")
    assert one.phases[0].undecided == "auto is neither true nor false"


def test_a_model_family_in_words_of_another_program(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing in it"):
        one_of(tmp_path, "a.json", '{"model_family": "Wan 2.7 through an API"}')


def test_options_in_a_variable_of_an_image_that_starts_a_script(tmp_path: Path) -> None:
    content = (
        'FROM a/b\nENV COMMANDLINE_ARGS="--listen --xformers"\nENTRYPOINT ["bash", "webui.sh"]\n'
    )
    found = one_of(tmp_path, "Dockerfile", content)
    (phase,) = [each for one in found for each in one.phases]
    assert (phase.backend, phase.line) == ("xformers", 2)


def test_an_image_that_alone_says_what_starts(tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, "a.sh", "docker run --gpus all someone/comfyui:latest\n")
    when = "the image someone/comfyui:latest adds no option for attention"
    assert one.phases[0].when == when


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.yaml", LLAMA + "think_role: x\nagents: 3\n",
         "think_role in line 4 and 1 others are unknown to LLaMA-Factory"),
        ("a.json", json.dumps({"base_model": "a", "adapter": "b", "judge": "c"}),
         "judge in line 1 is unknown to Axolotl"),
        ("a.sh", "python main.py --listen --agent 3\n", "--agent in line 1 is unknown to ComfyUI"),
    ],
)  # fmt: skip
def test_settings_that_a_program_does_not_know(
    name: str, content: str, why: str, tmp_path: Path
) -> None:
    (one,) = one_of(tmp_path, name, content)
    assert [phase.undecided.partition(", so ")[0] for phase in one.phases] == [why]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.yaml", LLAMA, "line 3: finetuning_type"),
        ("a.sh", "cd x\nllamafactory-cli train a.yaml\n", "line 2: llamafactory-cli"),
        ("a.env", "VLLM_ATTENTION_BACKEND=FLASHINFER\n", "line 1: VLLM_ATTENTION_BACKEND"),
    ],
)
def test_what_says_whose_configuration_it_is(
    name: str, content: str, said: str, tmp_path: Path
) -> None:
    (one,) = one_of(tmp_path, name, content)
    assert one.notes[0].endswith(f"; {said}")


SWIFT = "swift sft --model a/b --model_author swift"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f"{SWIFT} --attn_impl flash_attn\n", [("training", "flash")]),
        (f"{SWIFT}\n", [("training", "native")]),
        ("swift infer --model a/b --infer_backend vllm\n", [("inference", "what vLLM chooses")]),
        ("swift rollout --model a/b\n", [("inference", "what vLLM chooses")]),
        ("swift rlhf --model google/gemma-3-4b-it\n", [("training", "eager")]),
        ("megatron sft --attention_backend fused\n", [("training", "cuDNN through Transformer")]),
        ("trl vllm-serve --model a/b\n", [("inference", "what vLLM chooses")]),
        ("python -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=vllm\n",
         [("training", "flash"), ("inference", "what vLLM chooses")]),
        (("python -m verl.trainer.main_ppo actor_rollout_ref.rollout.name=hf "
          "+actor_rollout_ref.model.override_config.attn_implementation=sdpa\n"),
         [("training", "native"), ("inference", "flash")]),
        ("python -m verl.trainer.main_ppo\n", [("training", "flash"), ("inference", "")]),
        ("python -m verl.trainer.fsdp_sft_trainer data.x=1\n", [("training", "flash")]),
        (("torchrun -m verl.trainer.sft_trainer engine=megatron "
          "++engine.override_transformer_config.attention_backend=auto\n"),
         [("training", "what Transformer Engine chooses")]),
        (("python -m verl.experimental.one_step_off_policy.main_ppo "
          "actor_rollout_ref.actor.strategy=megatron actor_rollout_ref.rollout.name=vllm\n"),
         [("training", "FlashAttention through"), ("training", ""),
          ("inference", "what vLLM chooses")]),
    ],
)  # fmt: skip
def test_trainers_with_their_own_names(
    content: str, expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    (one,) = one_of(tmp_path, "a.sh", content)
    found = [(each.phase, each.backend or each.shown) for each in one.phases]
    assert [
        (phase, shown.startswith(start))
        for (phase, shown), (_, start) in zip(found, expected, strict=True)
    ] == [(phase, True) for phase, _ in expected]


def test_packing_of_ms_swift_needs_flash_attention(tmp_path: Path) -> None:
    for more in ("--packing true", "--attn_impl sdpa --packing true"):
        (one,) = one_of(tmp_path, "a.sh", f"{SWIFT} {more}\n")
        assert one.phases[0].state is Readiness.NOT_READY
        assert "FlashAttention" in one.phases[0].why
    (one,) = one_of(tmp_path, "a.sh", f"{SWIFT} --attn_impl flash_attn --packing true\n")
    assert one.phases[0].backend == "flash"


def test_apple_s_swift_is_another_program(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        one_of(tmp_path, "a.sh", "swift build -c release\nswift run $TARGET\nswift test\n")


def test_text_inside_a_dockerfile_is_no_instruction(tmp_path: Path) -> None:
    content = (
        "FROM vllm/vllm-openai:v0.11.0\nRUN python3 - <<'PY'\nfrom x import y\nPY\n"
        'CMD ["--model", "/m", "--attention-backend", "FLASHINFER"]\n'
    )
    (one,) = one_of(tmp_path, "Dockerfile", content)
    assert (one.title, one.phases[0].shown) == ("vLLM", "FLASHINFER")


HYDRA = """defaults:
  - {}
  - _self_
actor_rollout_ref:
  rollout:
    name: vllm
  model:
    override_config: {{attn_implementation: eager}}
"""


def test_a_file_of_verl(tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, "a.yaml", HYDRA.format("ppo_trainer"))
    assert [(each.phase, each.backend or each.shown, each.line) for each in one.phases] == [
        ("training", "eager", 8),
        ("inference", "what vLLM chooses for the GPU and the model", 6),
    ]
    assert all(each.when == "a script of verl reads it, not one of the user" for each in one.phases)
    (one,) = one_of(tmp_path, "a.yaml", HYDRA.format("ppo_megatron_trainer"))
    assert one.phases[0].shown == "FlashAttention through Transformer Engine"
    assert one.phases[0].line == 2


@pytest.mark.parametrize(
    ("name", "when"),
    [("mine", "mine adds no option for attention"), ("ppo_megatron_trainer", ""), ("", "")],
)
def test_a_file_of_settings_that_verl_does_not_bring(name: str, when: str, tmp_path: Path) -> None:
    option = f" --config-name='{name}'" if name else ""
    content = f"python -m verl.trainer.main_ppo{option} actor_rollout_ref.rollout.name=vllm\n"
    (one,) = one_of(tmp_path, "a.sh", content)
    assert when in one.phases[0].when
    assert bool(when) is ("adds no option" in one.phases[0].when)


def test_a_file_with_further_options_of_a_server(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("model: a\nattention-config:\n  backend: FLASHINFER\n")
    (tmp_path / "c.yaml").write_text("model: a\nport: 1\n")
    (one,) = one_of(tmp_path, "a.sh", "vllm serve --config b.yaml\n")
    assert (one.reading.file, one.phases[0].shown) == (str(tmp_path / "b.yaml"), "FLASHINFER")
    assert (one.phases[0].line, one.reading.why) == (3, f"{tmp_path / 'a.sh'} names it")
    (one,) = one_of(tmp_path, "a.sh", "vllm serve --config c.yaml\n")
    assert (one.phases[0].when, one.phases[0].undecided) == ("", "")
    (one,) = one_of(tmp_path, "a.sh", "vllm serve --config d.yaml\n")
    assert one.phases[0].when == "d.yaml adds no option for attention"


@pytest.mark.parametrize(
    "start",
    [
        'SCRIPT_DIR="$(cd "$(dirname "$0")"; pwd)"\nllamafactory-cli train "$SCRIPT_DIR/b.yaml"\n',
        'C="${ROOT}/b.yaml"\nllamafactory-cli train "$C"\n',
        'llamafactory-cli train "$(dirname "$0")/b.yaml"\n',
    ],
)
def test_a_file_in_the_folder_of_the_script(start: str, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(LLAMA + "flash_attn: fa2\n")
    (one,) = one_of(tmp_path, "a.sh", start)
    assert (one.phases[0].backend, one.phases[0].line) == ("flash", 4)


def test_a_file_in_another_folder_is_not_the_one_beside(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(LLAMA + "flash_attn: fa2\n")
    (one,) = one_of(tmp_path, "a.sh", 'llamafactory-cli train "$DATA/b.yaml"\n')
    assert "$DATA/b.yaml may choose" in one.phases[0].undecided


def test_options_that_a_loop_adds(tmp_path: Path) -> None:
    start = 'CMD="vllm serve a"\nfor f in --port 1 --x; do CMD="$CMD $f"; done\n$CMD\n'
    (one, other) = one_of(tmp_path, "a.sh", start)
    assert one.reading.when == "line 2 does not run"
    assert other.phases[0].undecided == "branches set f (line 2)"


def test_options_for_a_launcher_of_another_program(tmp_path: Path) -> None:
    start = "set COMMANDLINE_ARGS={}\ncall {}\n"
    (one,) = one_of(tmp_path, "a.bat", start.format("--listen", "comfyui.bat"))
    assert "comfyui.bat in line 2 may start another program" in one.phases[0].undecided
    (one,) = one_of(tmp_path, "a.bat", start.format("--enable-triton --one --two", "run.bat"))
    assert "--enable-triton in line 1 and 2 others are unknown" in one.phases[0].undecided
    (one,) = one_of(tmp_path, "a.bat", start.format("--xformers --medvram", "webui.bat"))
    assert not one.phases[0].undecided


def test_a_variable_speaks_of_no_start_beside_one(tmp_path: Path) -> None:
    export = "export VLLM_ATTENTION_BACKEND=FLASHINFER\n"
    start = "if (( a < b )); then\n  echo $c\nfi\nvllm serve d\n"
    (one,) = one_of(tmp_path, "a.sh", export + start)
    assert one.reading.program is not None
    assert one.reading.program.line == 5
    assert [each.when for each in one.phases][:1] == ["vLLM is older than 0.15"]


def test_dapo_of_verl(tmp_path: Path) -> None:
    (one,) = one_of(tmp_path, "a.sh", "python3 -m recipe.dapo.main_dapo data.a=1\n")
    assert (one.title, one.phases[0].backend) == ("verl", "flash")


@pytest.mark.parametrize(
    ("kind", "decided"),
    [
        ("KSampler (Efficient)", True),
        ("UnetLoaderGGUF", True),
        ("CFGGuider", True),
        ("AITKSampler", False),
        ("SomeServiceImage", False),
    ],
)
def test_a_workflow_whose_models_are_not_of_comfyui(
    kind: str, decided: bool, tmp_path: Path
) -> None:
    nodes = {"1": {"class_type": kind, "inputs": {}}, "2": {"class_type": "A", "inputs": {}}}
    (one,) = one_of(tmp_path, "a.json", json.dumps(nodes))
    assert bool(one.phases[0].undecided) is not decided
    assert ("ComfyUI was started with" in one.phases[0].shown) is decided


@pytest.mark.parametrize(
    ("engine", "shown"),
    [
        ("vllm", "XFORMERS"),
        ("sglang", "fa3, of sgl-kernel"),
        ("$ENGINE", "XFORMERS"),
    ],
)
def test_vllm_s_variable_beside_the_server_of_verl(engine: str, shown: str, tmp_path: Path) -> None:
    start = (
        "export VLLM_ATTENTION_BACKEND=XFORMERS\npython3 -m examples.data.prepare\n"
        f"python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.name={engine}\n"
    )
    (one,) = one_of(tmp_path, "a.sh", start)
    found = [each for each in one.phases if each.phase == "inference"]
    assert (one.title, found[0].shown) == ("verl", shown)
    assert ("vLLM generates" in found[0].when) is (shown == "XFORMERS")


def test_a_function_that_adds_options(tmp_path: Path) -> None:
    start = (
        'CMD=(vllm serve a)\nadd() {\n  [ -n "$2" ] && CMD+=("$1" "$2")\n}\n'
        'add --attention-backend "${BACKEND:-}"\n"${CMD[@]}"\n'
    )
    (one,) = one_of(tmp_path, "a.sh", start)
    assert "add in line 5 adds no option for attention" in one.phases[0].when
