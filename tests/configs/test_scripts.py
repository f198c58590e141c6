"""Python scripts and variables: what is chosen on which line, without running anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.configs.predict import predict
from attn_doctor.configs.readers.kinds import read
from attn_doctor.facts import Package
from tests.configs.machines import evaluated, machine, phase, predicted, rules

LOAD = """import torch
from diffusers import {pipeline}
pipe = {pipeline}.from_pretrained("someone/a-model", torch_dtype=torch.bfloat16)
"""


def script(
    folder: Path, body: str, pipeline: str = "FluxPipeline", run: str = "pipe(prompt='a')\n"
) -> Path:
    path = folder / "run.py"
    path.write_text(LOAD.format(pipeline=pipeline) + body + run, encoding="utf-8")
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
    assert [each.backend for each in one.phases] == ["native"]
    assert any("after Diffusers was imported" in note for note in one.notes)


def test_a_file_of_variables(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_text("DIFFUSERS_ATTN_BACKEND=flex\n", encoding="utf-8")
    one = predicted(path)
    assert phase(one, "inference").backend == "flex"
    assert rules(one) == ["flex/unfused"]


@pytest.mark.parametrize(
    ("body", "backend"),
    [
        ("F.scaled_dot_product_attention = sageattn\n", "sage"),
        ("setattr(F, 'scaled_dot_product_attention', sageattn)\n", "sage"),
        ("F.scaled_dot_product_attention = mine\n", ""),
        ('with attention_provider("flash_varlen"):\n    pass\n', "flash_varlen"),
        ("with sdpa_kernel(SDPBackend.MATH):\n    pass\n", "_native_math"),
        ("with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):\n    pass\n", "native"),
        ("with sdp_kernel(False, True, False, False):\n    pass\n", "_native_math"),
        ("with sdp_kernel(False, True, False):\n    pass\n", "native"),
        ("with sdp_kernel(enable_flash=fast):\n    pass\n", ""),
        ("torch.backends.cuda.enable_flash_sdp(False)\n", "native"),
        ("pipe.unet.set_attn_processor(XFormersAttnProcessor())\n", "xformers"),
        ("pipe.unet.set_attn_processor(Mine())\n", ""),
        ("pipe.enable_xformers_memory_efficient_attention()\n", "xformers"),
        ('m.set_attn_implementation("flash_attention_2")\n', "flash"),
        ('m.config._attn_implementation = "eager"\n', "eager"),
        ('m = AutoModel.from_pretrained("x", use_flash_attention_2=True)\n', "flash"),
        ('k = {"attn_implementation": "flash_attention_2"}\n', "flash"),
        ('k["attn_implementation"] = "sdpa"\n', "native"),
        (
            'A.from_pretrained("x", attn_implementation="kernels-community/flash-attn2")\n',
            "transformers_flash_hub",
        ),
        ('A.from_pretrained("x", attn_implementation="someone/other")\n', ""),
        ('A.from_pretrained("x", attn_implementation=args.attn)\n', ""),
        ('os.environ["VLLM_ATTENTION_BACKEND"] = "FLASHINFER"\n', ""),
        ('os.environ.update({"FINETRAINERS_ATTN_PROVIDER": "flex"})\n', "flex"),
    ],
)
def test_every_way_of_choosing(body: str, backend: str, tmp_path: Path) -> None:
    one = predicted(script(tmp_path, body))
    chosen = one.phases[0]
    assert chosen.backend == backend
    assert chosen.line == 4
    assert "line 4" in chosen.why
    assert not any("no line of this file chooses" in note for note in one.notes)


def test_a_model_of_another_package_is_undecided(tmp_path: Path) -> None:
    body = (
        "from nunchaku import NunchakuFluxTransformer2dModel\n"
        'own = NunchakuFluxTransformer2dModel.from_pretrained("x")\n'
        'pipe = FluxPipeline.from_pretrained("y", transformer=own)\n'
    )
    (only,) = predicted(script(tmp_path, body)).phases
    assert only.backend == ""
    assert only.undecided == ("NunchakuFluxTransformer2dModel is of nunchaku, whose code decides")


def test_a_pipeline_of_another_package_is_not_taken_for_diffusers(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "from diffsynth.pipelines.qwen_image import QwenImagePipeline\n"
        'pipe = QwenImagePipeline.from_pretrained(device="cuda")\n',
        encoding="utf-8",
    )
    assert predicted(path).phases == ()


def test_no_known_way(tmp_path: Path) -> None:
    one = predicted(script(tmp_path, 'pipe("a cat")\n'))
    assert [each.backend for each in one.phases] == ["native"]
    assert any("no line of this file chooses" in note for note in one.notes)


@pytest.mark.parametrize(
    ("body", "when"),
    [
        ("if args.enable_xformers:\n    pipe.enable_xformers_memory_efficient_attention()\n",
         "--enable_xformers is given"),
        ("if fast and sm > 80:\n    pipe.enable_xformers_memory_efficient_attention()\n",
         "`fast` holds and `sm > 80` holds"),
        ("if not slow:\n    pipe.enable_xformers_memory_efficient_attention()\n",
         "`slow` is false"),
        ("try:\n    pipe.enable_xformers_memory_efficient_attention()\nexcept OSError:\n    pass\n",
         "what is tried at line 4 works"),
    ],
)  # fmt: skip
def test_branches(body: str, when: str, tmp_path: Path) -> None:
    one = predicted(script(tmp_path, body))
    assert [(each.backend, each.when) for each in one.phases] == [
        ("xformers", when),
        ("native", ""),
    ]


def test_a_branch_that_is_not_reached_here(tmp_path: Path) -> None:
    body = (
        'if is_torch_npu_available():\n    pipe.transformer.set_attention_backend("_native_npu")\n'
    )
    one = predicted(script(tmp_path, body))
    assert [each.backend for each in one.phases] == ["native"]
    assert "line 5: _native_npu is not reached here" in one.notes


def test_one_of_two_names(tmp_path: Path) -> None:
    body = 'pipe.transformer.set_attention_backend("flash" if fast else "native")\n'
    one = predicted(script(tmp_path, body))
    assert [(each.backend, each.when) for each in one.phases] == [
        ("flash", "`fast` holds"),
        ("native", "`fast` is false"),
    ]


def test_the_default_of_an_option(tmp_path: Path) -> None:
    body = (
        'parser.add_argument("--attn", default="sdpa")\n'
        'A.from_pretrained("x", attn_implementation=args.attn)\n'
    )
    one = predicted(script(tmp_path, body))
    assert (one.phases[0].backend, one.phases[0].when) == ("native", "--attn is not given")


@pytest.mark.parametrize(
    ("default", "shown"),
    [
        ('field(default="eager", metadata={})', "eager of Transformers"),
        ('"flash_attention_2"', "flash_attention_2 of Transformers"),
        ("field(default=None)", "sdpa of Transformers, or eager if the model has no sdpa"),
    ],
)
def test_the_default_of_a_field(default: str, shown: str, tmp_path: Path) -> None:
    body = (
        f"@dataclass\nclass Arguments:\n    attn_implementation: str | None = {default}\n"
        'A.from_pretrained("x", attn_implementation=model_args.attn_implementation)\n'
    )
    one = predicted(script(tmp_path, body))
    when = "--attn_implementation is not given"
    assert (one.phases[0].shown, one.phases[0].when) == (shown, when)


def test_unsloth_decides_by_itself(tmp_path: Path) -> None:
    body = 'FastLanguageModel.from_pretrained("x", attn_implementation="flash_attention_2")\n'
    one = predicted(script(tmp_path, body))
    assert "Unsloth replaces" in one.phases[0].undecided


@pytest.mark.parametrize(("sm", "backend"), [(90, "flash"), (75, "eager")])
def test_a_condition_on_the_gpu(sm: int, backend: str, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "if torch.cuda.get_device_capability()[0] >= 8:\n"
        "    attn_implementation = 'flash_attention_2'\nelse:\n    attn_implementation = 'eager'\n"
        "m = A.from_pretrained('a', attn_implementation=attn_implementation)\nm.generate(x)\n"
    )
    facts = replace(machine(sm=sm), flash_attn=Package(installed=True))
    (one,) = predict(read(path), facts, evaluated(facts)).phases
    assert (one.backend, one.when) == (backend, "")


def test_an_attribute_that_transformers_does_not_read(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "from transformers import AutoModelForCausalLM\n"
        "m = AutoModelForCausalLM.from_pretrained('a')\n"
        "m.config.attn_implementation = 'flash_attention_2'\nm.generate(x)\n"
    )
    one = predicted(path)
    assert [each.backend for each in one.phases] == ["native"]
    assert any("line 3: m.config.attn_implementation has no effect" in note for note in one.notes)


def test_unsloth_without_a_choice(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "from unsloth import FastLanguageModel\nFastLanguageModel.from_pretrained('a')\n"
        "trainer = SFTTrainer()\n"
    )
    (one,) = predicted(path).phases
    assert (one.phase, "Unsloth replaces" in one.undecided) == ("training", True)


def test_the_precision_of_the_autoencoder(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        'vae = AutoencoderKLWan.from_pretrained("x", torch_dtype=torch.float32)\n'
        'pipe = WanPipeline.from_pretrained("x", vae=vae, torch_dtype=torch.bfloat16).to("cuda")\n'
        'pipe.transformer.set_attention_backend("_native_flash")\n',
        encoding="utf-8",
    )
    one = predicted(path)
    assert one.phases[0].dtype == "bf16"
    assert rules(one) == []


def test_a_compiled_autoencoder_compiles_no_transformer(tmp_path: Path) -> None:
    body = (
        "pipe.vae.decode = torch.compile(pipe.vae.decode)\n"
        'pipe.transformer.set_attention_backend("flex")\n'
    )
    assert rules(predicted(script(tmp_path, body))) == ["flex/unfused"]


@pytest.mark.parametrize(
    "pipeline", ["LTXPipeline", "HunyuanVideoPipeline", "HunyuanVideo15Pipeline"]
)
def test_models_with_masks(pipeline: str, tmp_path: Path) -> None:
    body = 'pipe.transformer.set_attention_backend("flash_hub")\n'
    assert "diffusers/mask-rejected" in rules(predicted(script(tmp_path, body, pipeline)))


@pytest.mark.parametrize("pipeline", ["MochiPipeline", "SanaPipeline", "AllegroPipeline"])
def test_pipelines_that_never_reach_the_dispatcher(pipeline: str, tmp_path: Path) -> None:
    body = 'pipe.transformer.set_attention_backend("flash")\n'
    one = predicted(script(tmp_path, body, pipeline))
    assert [each.backend for each in one.phases] == ["native"]
    assert rules(one) == ["simpletuner/backend-not-routed"]


def test_parallel_over_tokens(tmp_path: Path) -> None:
    body = (
        "pipe.transformer.enable_parallelism(config=ContextParallelConfig(ring_degree=2))\n"
        'pipe.transformer.set_attention_backend("flex")\n'
        "pipe.transformer = torch.compile(pipe.transformer)\n"
    )
    assert rules(predicted(script(tmp_path, body))) == ["diffusers/context-parallel"]


def test_syntax_of_a_later_python(tmp_path: Path) -> None:
    body = (
        'pipe.transformer.set_attention_backend("_native_cudnn")\n'
        "lazy from x import ?\n"
        "def f() -> ?:\n    pipe.transformer.set_attention_backend(name)\n"
    )
    one = predicted(script(tmp_path, body))
    assert [each.backend for each in one.phases] == ["_native_cudnn", ""]
    assert one.phases[1].undecided == "this part of the script cannot be parsed"
    assert any("line 5 cannot be parsed" in note for note in one.notes)


def test_a_package_that_may_replace_attention(tmp_path: Path) -> None:
    one = predicted(script(tmp_path, "from para_attn.x import apply\napply(pipe)\n"))
    assert [each.undecided for each in one.phases] == [
        "para_attn, which the script imports, may replace the model's attention"
    ]


def test_the_default_of_an_option_under_another_name(tmp_path: Path) -> None:
    body = (
        "p = argparse.ArgumentParser()\n"
        'p.add_argument("--attn", default="sdpa")\n'
        "a = p.parse_args()\n"
        "m = AutoModel.from_pretrained('a/b', attn_implementation=a.attn)\n"
    )
    (path,) = [tmp_path / "run.py"]
    path.write_text(body, encoding="utf-8")
    both = predicted(path).phases
    assert [(one.phase, one.backend, one.when) for one in both] == [
        ("training", "native", "code elsewhere trains the model and --attn is not given"),
        ("inference", "native", "code elsewhere only runs the model and --attn is not given"),
    ]


def test_the_provider_of_finetrainers_is_not_diffusers_own(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text('with attention_provider("sage"):\n    pass\n', encoding="utf-8")
    one = predicted(path).phases[1]
    assert "Finetrainers 0.2.0 drops the mask" in one.reason


@pytest.mark.parametrize(
    ("pipeline", "shown", "when"),
    [
        ("StableDiffusionPipeline", "sliced attention of Diffusers, not fused", ""),
        ("FluxPipeline", "native (torch's own)", ""),
        (
            "DiffusionPipeline",
            "sliced attention of Diffusers, not fused",
            "the model is a U-Net of Stable Diffusion",
        ),
    ],
)
def test_attention_in_slices(pipeline: str, shown: str, when: str, tmp_path: Path) -> None:
    one = predicted(script(tmp_path, "pipe.enable_attention_slicing()\n", pipeline))
    assert (one.phases[0].shown, one.phases[0].when) == (shown, when)


def test_the_last_call_that_sets_all_processors_counts(tmp_path: Path) -> None:
    body = "pipe.enable_attention_slicing()\npipe.enable_xformers_memory_efficient_attention()\n"
    one = predicted(script(tmp_path, body, "StableDiffusionPipeline"))
    assert [each.backend for each in one.phases] == ["xformers"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "from mine import patch\npatch(pipe.transformer)\n",
            "patch of mine gets the model in line 5, and may change it",
        ),
        ("pipe.transformer.forward = mine\n", "a new forward in line 4 brings code of its own"),
    ],
)
def test_code_that_may_change_the_model(body: str, why: str, tmp_path: Path) -> None:
    one = predicted(script(tmp_path, body))
    assert [each.undecided for each in one.phases] == [why]


def test_a_model_that_is_handed_to_what_leaves_its_attention(tmp_path: Path) -> None:
    body = "from torchao.quantization import quantize_\nquantize_(pipe.transformer, x)\n"
    assert predicted(script(tmp_path, body)).phases[0].backend == "native"


def test_vllm_s_variable_is_for_older_releases(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text('os.environ["VLLM_ATTENTION_BACKEND"] = "FLASHINFER"\n', encoding="utf-8")
    (one,) = predicted(path).phases
    assert one.when == "vLLM is older than 0.15, which reads the variable"


def test_a_script_that_trains(tmp_path: Path) -> None:
    body = "pipe.transformer.enable_gradient_checkpointing()\n"
    one = predicted(script(tmp_path, body, run=""))
    assert [(each.phase, each.when) for each in one.phases] == [("training", _TRAINS)]


def test_a_pipeline_beside_the_model_that_is_trained(tmp_path: Path) -> None:
    body = "accelerator.backward(loss)\npipe.enable_xformers_memory_efficient_attention()\n"
    first, other = predicted(script(tmp_path, body, run="")).phases
    assert (first.when, other.backend) == ("what is trained is the model of `pipe`", "native")


def test_a_script_whose_name_says_that_it_trains(tmp_path: Path) -> None:
    path = script(tmp_path, "train_dreambooth.main()\n", run="")
    (one,) = predicted(path.rename(path.with_name("train_lora.py"))).phases
    assert (one.phase, one.backend, one.when) == ("training", "", _TRAINS)
    path.parent.joinpath("train_lora.py").rename(path)
    (one,) = predicted(path).phases
    assert (one.phase, one.backend) == ("inference", "native")


IMPORTED = """from transformers import AutoModelForCausalLM
try:
    import flash_attn
    attn = "flash_attention_2"
except ImportError:
    attn = "sdpa"
"""
LOADED = "m = AutoModelForCausalLM.from_pretrained('a', attn_implementation=attn)\nm.generate(x)\n"


@pytest.mark.parametrize(("installed", "backend"), [(True, "flash"), (False, "native")])
def test_a_name_that_an_import_decides(installed: bool, backend: str, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(IMPORTED + LOADED, encoding="utf-8")
    facts = replace(machine(), flash_attn=Package(installed=installed))
    (one,) = predict(read(path), facts, evaluated(facts)).phases
    assert (one.backend, one.when, one.line) == (backend, "", 4 if installed else 6)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("attn = 'sdpa'\nif fast:\n    attn = 'eager'\n",
         [("native", "`fast` is false"), ("eager", "`fast` holds")]),
        (("if a == 1:\n    attn = 'eager'\nelif b or c:\n    attn = 'sdpa'\n"
          "else:\n    attn = 'flex_attention'\n"),
         [("eager", "`a == 1` holds"),
          ("native", "`a == 1` is false and (`b` holds or `c` holds)"),
          ("flex", "`a == 1` is false and `b` is false and `c` is false")]),
        ("attn = 'eager' if find_spec('flash_attn') is None else 'sdpa'\n", [("native", "")]),
        (("match name:\n    case 'x':\n        attn = 'eager'\n    case _:\n"
          "        attn = 'sdpa'\n"),
         [("eager", "`name is 'x'` holds"), ("native", "`name is 'x'` is false")]),
    ],
)  # fmt: skip
def test_a_name_that_branches_set(
    body: str, expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    path = tmp_path / "run.py"
    path.write_text(f"from transformers import AutoModelForCausalLM\n{body}{LOADED}")
    facts = replace(machine(), flash_attn=Package(installed=True))
    phases = predict(read(path), facts, evaluated(facts)).phases
    assert [(one.backend, one.when) for one in phases] == expected


def test_conditions_that_contradict_or_say_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "from transformers import AutoModelForCausalLM as A\n"
        "attn = 'flash_attention_2' if fast else 'sdpa'\n"
        "try:\n"
        "    m = A.from_pretrained(name, attn_implementation=attn)\n"
        "except Exception:\n"
        "    attn = 'eager'\n"
        "    m = A.from_pretrained(name, attn_implementation=attn)\n"
        "m.generate(x)\n"
    )
    assert [(one.shown, one.when) for one in predicted(path).phases] == [
        ("flash_attention_2 of Transformers", "what is tried at line 3 works and `fast` holds"),
        ("sdpa of Transformers", "what is tried at line 3 works and `fast` is false"),
        ("eager of Transformers", "what is tried at line 3 fails"),
    ]


def test_a_parameter_holds_what_the_calls_of_its_function_give(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "def load(name, impl='eager'):\n"
        "    return A.from_pretrained(name, attn_implementation=impl)\n"
        "if __name__ == '__main__':\n"
        "    load('a', 'sdpa').generate(x)\n"
    )
    (one,) = predicted(path).phases
    assert (one.backend, one.when) == ("native", "")


def test_a_function_that_nothing_calls(tmp_path: Path) -> None:
    body = "def fast(p):\n    p.enable_xformers_memory_efficient_attention()\npipe('a')\n"
    first, other = predicted(script(tmp_path, body)).phases
    assert (first.backend, first.when) == ("xformers", "`fast` is called")
    assert (other.backend, other.when) == ("native", "")


def test_every_way_through_nested_branches_chooses(tmp_path: Path) -> None:
    body = (
        "if a and b:\n    if c:\n        pipe.transformer.set_attention_backend('flash')\n"
        "    else:\n        pipe.transformer.set_attention_backend('sage')\n"
        "else:\n    pipe.transformer.set_attention_backend('native')\n"
    )
    phases = predicted(script(tmp_path, body)).phases
    assert [one.backend for one in phases] == ["flash", "sage", "native"]
    assert phases[2].when == "`a` is false or `b` is false"
    # Without its last branch there is a way on which no line chooses.
    phases = predicted(script(tmp_path, "".join(body.splitlines(True)[:5]))).phases
    assert [(one.backend, one.why) for one in phases][2:] == [("native", "otherwise")]


def test_a_branch_that_returns_leaves_the_rest_to_the_other(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "def load(fast):\n    if fast:\n"
        "        return A.from_pretrained('a', attn_implementation='eager')\n"
        "    return A.from_pretrained('a', attn_implementation='sdpa').eval()\n"
        "load(x).generate(y)\n"
    )
    found = [(one.backend, one.when) for one in predicted(path).phases]
    assert found == [("eager", "`fast` holds"), ("native", "`fast` is false")]


_TRAINS, _RUNS = "code elsewhere trains the model", "code elsewhere runs the model"


@pytest.mark.parametrize(
    ("more", "phases"),
    [
        ("m.generate(x)\n", {"inference": ""}),
        ("with torch.no_grad():\n    m(**x)\n", {"inference": ""}),
        ("m(**x)\n",
         {"training": _TRAINS, "inference": "code elsewhere only runs the model"}),
        ("t = AutoTokenizer.from_pretrained(m['id'])\nt('a')\nm.eval()\n", {"inference": _RUNS}),
        ("loss.backward()\n", {"training": ""}),
        ("m(**x)\noptimizer.step()\n", {"training": ""}),
        ("optimizer.step()\nm.generate(x)\n", {"training": "", "inference": ""}),
        (("trainer.train()\nif __name__ == '__main__':\n    pass\n"
         "def show():\n    m.generate(x)\n"), {"training": "", "inference": "`show` is called"}),
        ("", {"training": _TRAINS, "inference": "code elsewhere only runs the model"}),
        ("a = Accelerator()\nm.generate(x)\n", {"training": _TRAINS, "inference": ""}),
        ("get_peft_model(m)\nm.eval()\n", {"training": _TRAINS, "inference": _RUNS}),
        ("m.eval()\n", {"inference": _RUNS}),
        ("client.models.generate(x)\n",
         {"training": _TRAINS, "inference": "code elsewhere only runs the model"}),
    ],
)  # fmt: skip
def test_what_says_the_phase_of_a_script(more: str, phases: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "from transformers import AutoModelForCausalLM\n"
        f"m = AutoModelForCausalLM.from_pretrained('a')\n{more}"
    )
    found = predicted(path).phases
    assert {one.phase: one.when for one in found} == phases
    assert {one.backend for one in found} == {"native"}


@pytest.mark.parametrize(
    ("body", "phases"),
    [
        ("pipe.save_pretrained('x')\n", {"inference": _RUNS}),
        ("pipe.enable_model_cpu_offload()\n", {"inference": _RUNS}),
        ("pipe.encode_prompt('a')\n", {"inference": _RUNS}),
        ("t = pipe.transformer\n",
         {"training": _TRAINS, "inference": "code elsewhere only runs the model"}),
        ("t = pipe.transformer\nt(x)\nloss.backward()\n", {"training": ""}),
        ("with torch.no_grad():\n    pipe.transformer(x, y)\n", {"inference": ""}),
        ("pipe.transformer(x, y)\n",
         {"training": _TRAINS, "inference": "code elsewhere only runs the model"}),
        ("other = Pipe(pipe)\n", {"inference": _RUNS}),
        ("def draw(p):\n    return p('a')\ndraw(pipe)\n", {"inference": ""}),
        ("all = {}\nall['a'] = pipe\nall['a']('b')\n", {"inference": ""}),
        ("def load():\n    return pipe, 1\np, n = load()\np('a')\n", {"inference": ""}),
        ("self.flux_pipe(prompt='a')\n", {"inference": ""}),
        ("frame.pipe(clean)\n", {"inference": _RUNS}),
    ],
)  # fmt: skip
def test_a_pipeline_runs_where_a_line_calls_it(
    body: str, phases: dict[str, str], tmp_path: Path
) -> None:
    one = predicted(script(tmp_path, body, run=""))
    assert {each.phase: each.when for each in one.phases} == phases
    assert {each.backend for each in one.phases} == {"native"}
    certain = any(not when for when in phases.values())
    assert certain is not any("is certain to train or to run" in note for note in one.notes)


def test_samples_of_a_training(tmp_path: Path) -> None:
    body = (
        "unet = UNet2DConditionModel.from_pretrained('a')\n"
        "unet.enable_xformers_memory_efficient_attention()\naccelerator.backward(loss)\n"
    )
    one = predicted(script(tmp_path, body, "StableDiffusionPipeline"))
    assert [(each.phase, each.backend, each.when) for each in one.phases] == [
        ("training", "xformers", ""),
        ("inference", "xformers", "the model of `unet` is run"),
        ("inference", "native", ""),
    ]


def test_two_models_of_a_script_that_trains_and_generates(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "from transformers import AutoModelForCausalLM as A\n"
        "m = A.from_pretrained('a', attn_implementation='eager')\ntrainer.train()\n"
        "from transformers import AutoModelForCausalLM\n"
        "n = AutoModelForCausalLM.from_pretrained('a')\nn.generate(x)\n"
    )
    assert [(one.phase, one.backend, one.when) for one in predicted(path).phases] == [
        ("training", "eager", "the model of line 2 is trained"),
        ("training", "native", "the model of line 5 is trained"),
        ("inference", "eager", "the model of line 2 is run"),
        ("inference", "native", "the model of line 5 is run"),
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("trust_remote_code=True", "the model's repository has no code of its own"),
        ("**options", "arguments that are not written in the call choose nothing"),
    ],
)
def test_a_default_of_transformers_that_is_not_certain(
    arguments: str, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "from transformers import AutoModelForCausalLM\n"
        f"AutoModelForCausalLM.from_pretrained('a', {arguments}).generate(x)\n"
    )
    (one,) = predicted(path).phases
    assert (one.backend, one.when) == ("native", why)


def test_a_choice_for_a_language_model_is_none_for_a_pipeline(tmp_path: Path) -> None:
    body = "m = A.from_pretrained('x', attn_implementation='flash_attention_2')\npipe('a cat')\n"
    first, other = predicted(script(tmp_path, body)).phases
    assert (first.backend, other.backend) == ("flash", "native")
    assert other.why == "no line chooses for FluxPipeline"


def test_functions_that_are_only_handed_on(tmp_path: Path) -> None:
    body = (
        "def choose(unet):\n    def a():\n        unet.set_attn_processor(AttnProcessor2_0())\n"
        "    def b():\n        unet.set_attn_processor(XFormersAttnProcessor())\n"
        "    for each in (a, b):\n        each()\npipe('x')\n"
    )
    phases = predicted(script(tmp_path, body, "StableDiffusionXLPipeline")).phases
    assert [(one.backend, one.when) for one in phases][:2] == [
        ("native", "`a` is called"),
        ("xformers", "`b` is called"),
    ]


def test_a_model_alone_that_is_trained(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "from diffusers import UNet2DConditionModel\n"
        "unet = UNet2DConditionModel.from_pretrained('a')\n"
        "if args.enable_xformers:\n    unet.enable_xformers_memory_efficient_attention()\n"
        "accelerator.backward(loss)\n"
    )
    found = [(one.phase, one.backend, one.when) for one in predicted(path).phases]
    assert found == [
        ("training", "xformers", "--enable_xformers is given"),
        ("training", "native", ""),
    ]


@pytest.mark.parametrize(
    ("arguments", "shown", "undecided"),
    [
        ("", "what vLLM chooses for the GPU and the model", False),
        (", attention_backend='FLASHINFER'", "FLASHINFER of vLLM or SGLang", False),
        (", attention_config={'backend': 'TRITON_ATTN'}", "TRITON_ATTN of vLLM or SGLang", False),
        (", attention_config=AttentionConfig(backend=B.FLASH_ATTN)",
         "FLASH_ATTN of vLLM or SGLang", False),
        (", attention_config={'flash_attn_version': 3}",
         "what vLLM chooses for the GPU and the model", False),
        (", attention_config=config", "unknown", True),
    ],
)  # fmt: skip
def test_a_server_in_a_script(arguments: str, shown: str, undecided: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(f"from vllm import LLM\nm = LLM('a'{arguments})\nm.generate(x)\n")
    (one,) = predicted(path).phases
    assert (one.phase, one.shown, bool(one.undecided)) == ("inference", shown, undecided)


def test_a_server_beside_a_model_that_is_trained(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "from vllm import LLM\nfrom transformers import AutoModelForCausalLM\n"
        "os.environ['VLLM_ATTENTION_BACKEND'] = 'XFORMERS'\n"
        "m = AutoModelForCausalLM.from_pretrained('a', attn_implementation='eager')\n"
        "LLM('a', **options).generate(x)\nloss.backward()\n"
    )
    found = [(one.phase, one.asked, one.line) for one in predicted(path).phases]
    assert found == [("training", "eager", 4), ("inference", "XFORMERS", 3)]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("from llama_patch import replace_attn_with_flash_attn\nreplace_attn_with_flash_attn()\n",
         "replace_attn_with_flash_attn in line 3 brings code of its own"),
        ("from models import LlamaAttention\nLlamaAttention.forward = mine\n",
         "a new forward in line 3 brings code of its own"),
        ("from mine import convert_attention_mask\nconvert_attention_mask(x)\n", ""),
        (("if torch.cuda.get_device_capability()[0] < 8:\n"
         "    from a import patch_attention\n    patch_attention()\n"), ""),
    ],
)  # fmt: skip
def test_code_of_the_user_that_replaces_attention(body: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        f"from transformers import AutoModelForCausalLM\n{body}"
        "AutoModelForCausalLM.from_pretrained('a').generate(x)\n"
    )
    (one,) = predicted(path).phases
    assert one.undecided == why
    assert one.backend == ("" if why else "native")


@pytest.mark.parametrize(
    ("options", "open_"),
    [
        ("options = {'torch_dtype': x}\noptions['revision'] = 'a'\n", False),
        ("options = dict(torch_dtype=x)\n", False),
        ("options = {'custom_pipeline': x}\n", True),
        ("options = {'torch_dtype': x}\noptions['custom_pipeline'] = 'a'\n", True),
        ("options = {'torch_dtype': x}\noptions.update(y)\n", True),
        ("options = {'torch_dtype': x}\noptions[key] = 'a'\n", True),
        ("options = given\n", True),
        ("options = {**given}\n", True),
        ("", True),
    ],
)
def test_arguments_that_are_not_in_the_call(options: str, open_: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        f"from diffusers import DiffusionPipeline\n{options}"
        "pipe = DiffusionPipeline.from_pretrained('a', **options)\npipe('b')\n"
    )
    (one,) = predicted(path).phases
    when = "arguments that are not written in the call choose nothing"
    assert (one.backend, one.when) == ("native", when if open_ else "")


def test_a_test_that_leaves_before_the_choice(tmp_path: Path) -> None:
    body = (
        "def speed(p):\n    if not p.enable_xformers:\n        return\n"
        "    p.enable_xformers_memory_efficient_attention()\nspeed(pipe)\n"
    )
    first, other = predicted(script(tmp_path, body)).phases
    assert (first.backend, first.when) == ("xformers", "`p.enable_xformers` holds")
    assert (other.backend, other.when) == ("native", "")


def test_a_pipeline_that_is_put_together(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "from diffusers import FluxTransformer2DModel, FluxPipeline as Flux\n"
        "t = FluxTransformer2DModel.from_pretrained('a')\nself.flow = Flux(t)\nself.flow(**x)\n"
    )
    (one,) = predicted(path).phases
    assert (one.phase, one.backend, one.when) == ("inference", "native", "")


def test_a_server_that_an_attribute_holds(tmp_path: Path) -> None:
    path = tmp_path / "run.py"
    path.write_text(
        "from vllm import LLM\napp.state.engine = LLM('a')\n"
        "engine = app.state.engine\nengine.generate(x)\n"
    )
    (one,) = predicted(path).phases
    assert (one.phase, one.shown) == ("inference", "what vLLM chooses for the GPU and the model")


_TRIES = (
    "try:\n    pipe.enable_xformers_memory_efficient_attention()\nexcept OSError:\n    pass\n"
    "try:\n    pipe.enable_attention_slicing()\nexcept OSError:\n    pass\n"
)


def test_a_later_call_that_sets_all_processors_leaves_the_rest(tmp_path: Path) -> None:
    one = predicted(script(tmp_path, _TRIES, "StableDiffusionPipeline"))
    assert [(each.backend, each.when) for each in one.phases] == [
        ("xformers", "what is tried at line 4 works and what is tried at line 8 fails"),
        ("_native_math", "what is tried at line 8 works"),
        ("native", ""),
    ]
    # FLUX has no attention in slices.
    body = "pipe.enable_xformers_memory_efficient_attention()\npipe.enable_attention_slicing()\n"
    one = predicted(script(tmp_path, body))
    assert [(each.backend, each.when) for each in one.phases] == [("xformers", "")]
    one = predicted(script(tmp_path, body, "DiffusionPipeline"))
    assert [(each.backend, each.when) for each in one.phases][:2] == [
        ("xformers", "`the model is a U-Net` is false"),
        ("_native_math", "the model is a U-Net of Stable Diffusion"),
    ]
