"""Asks `check --config` about the examples of the programs' own repositories.

    python benchmarks/example_configs.py FOLDER [-v]

FOLDER has checkouts under the names of `PROGRAMS`, such as LLaMA-Factory and SimpleTuner-4.10.1
(the files of a wheel); those that are missing are left out. SGLang is its cookbook, ComfyUI the
files of comfyui-workflow-templates-json beside KJNodes. What is right is found by rules that were
read in each program's source and that use none of attn-doctor's code, and for the code blocks of
Diffusers' documentation by a person (`diffusers_blocks.tsv`). A table is printed: files, and how
many answers are right, wrong, undecided, or missing. Exit code 1 if one is wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import tomllib
from msgspec.structs import replace

from attn_doctor.configs.predict import predict
from attn_doctor.configs.readers.kinds import read_all
from attn_doctor.configs.readers.settings import ConfigError
from attn_doctor.facts import Facts, Package

ROOT = Path(__file__).parents[1]
#: Blocks of Diffusers' pages that choose attention, or load a model for it.
_CHOOSES = re.compile(
    r"set_attention_backend|attention_backend\(|enable_xformers|set_attn_processor|attn_processor\s*="
    r"|AttnProcessor|attention_slic|sdpa_kernel|sdp_kernel|attn_implementation|DIFFUSERS_ATTN"
    r"|use_memory_efficient_attention|context_parallel|ContextParallel|attention_kwargs"
    r"|scaled_dot_product_attention"
)
_BLOCK = re.compile(
    r"^[ \t]*```+[ ]?(py|python|bash|shell|sh|diff)?[^\n]*\n(.*?)^[ \t]*```",
    re.MULTILINE | re.DOTALL,
)
_TRANSFORMERS = {
    "flash_attention_2": "flash", "flash_attn": "flash", "flash_attention_3": "_flash_3",
    "sdpa": "native", "eager": "eager", "flex_attention": "flex", "xformers": "xformers",
    "sage": "sage",
}  # fmt: skip
#: The attention of each model of diffusion-pipe, read in `models/` of its main of 2026-08.
_PIPE = {
    "flash_varlen": ("wan", "hunyuan-video", "hunyuan_image", "lumina_2", "omnigen2"),
    "flash": ("hidream",),
}


class Case(NamedTuple):
    """A file of a program and the backends that are right; none for a file that chooses nothing."""

    path: Path
    expected: frozenset[str]
    simpletuner: str = ""
    """The release that reads it."""


def _yaml(path: Path) -> dict[str, str]:
    """The values of the outermost keys of a YAML file, as text."""
    found = re.finditer(r"^(\w+):[ \t]*([^#\n]*)", path.read_text("utf-8"), re.MULTILINE)
    return {one[1]: one[2].strip().strip("\"'") for one in found}


def _on(value: str | None) -> bool:
    return (value or "").lower() in ("true", "yes", "on")


def _cases(
    folder: Path, pattern: str, expect: Callable[[Path], str | set[str] | None]
) -> Iterator[Case]:
    for path in sorted(folder.glob(pattern)):
        found = expect(path)
        several = {found} if isinstance(found, str) else found or set()
        yield Case(path, frozenset(several))


def _llama_factory(folder: Path) -> Iterator[Case]:
    """`configure_attn_implementation`, and what `loader.py` and `parser.py` do before it."""

    def expect(path: Path) -> str | None:
        given = _yaml(path)
        model = given.get("model_name_or_path", "").lower()
        if not model or not {"template", "stage"} & {*given}:
            return None
        megatron = any("model_parallel_size" in one for one in given)
        if megatron or _on(given.get("use_unsloth")) or _on(given.get("use_kt")):
            return "undecided"
        if re.search(r"gpt[-_]oss", model):
            return "vllm_flash_3_hub"
        chosen = given.get("flash_attn", "auto")
        if re.search(r"gemma-?2(?:[-_]|$)", model) and chosen in ("auto", "fa2"):
            return "flash"
        return {"fa2": "flash", "fa3": "_flash_3", "disabled": "eager"}.get(chosen, "native")

    yield from _cases(folder, "examples/**/*.yaml", expect)


def _axolotl(folder: Path) -> Iterator[Case]:
    """`normalize_attn_implementation`: the older switches, and sdpa where nothing is given."""

    def expect(path: Path) -> str | set[str] | None:
        given = _yaml(path)
        if "base_model" not in given or not {"datasets", "pretraining_dataset"} & {*given}:
            return None
        several = {"native"} if _on(given.get("gemma4_hybrid_attn_impl")) else set[str]()
        if "attn_implementation" in given:
            named = given["attn_implementation"]
            hub = "kernels-community/vllm-flash-attn3"
            known = "vllm_flash_3_hub" if named == hub else _TRANSFORMERS.get(named, "undecided")
            return several | {known}
        for name in ("xformers", "sage", "flex", "flash", "sdp", "eager"):
            if _on(given.get(f"{name}_attention")):
                return several | {{"sdp": "native"}.get(name, name)}
        return several | {"native"}

    yield from _cases(folder, "examples/**/*.y*ml", expect)


def _swift(folder: Path) -> Iterator[Case]:
    """What each command of `swift` and `megatron` starts."""

    def expect(path: Path) -> set[str]:
        text = re.sub(r"\\\n", " ", path.read_text("utf-8"))
        text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
        found = set[str]()
        for one in re.finditer(r"\b(swift|megatron) ([\w-]+)([^\n]*)", text):
            found |= _of_swift(one[1], one[2], one[3])
        for one in re.finditer(r"swift/cli/(_megatron/)?(\w+)\.py([^\n]*)", text):
            found |= _of_swift("megatron" if one[1] else "swift", one[2], one[3])
        return found

    yield from _cases(folder, "examples/**/*.sh", expect)


def _of_swift(program: str, task: str, rest: str) -> set[str]:
    """`--attn_impl`, what the server of another program chooses, or Megatron's own."""
    trains = task in ("sft", "pt", "rlhf")
    if re.search(r"\.(?:ya?ml|json)\b(?!\S)", rest.partition(" --")[0]):
        return {"undecided"}
    if program == "megatron":
        chosen = "unfused" if "--attention_backend unfused" in rest else "FlashAttention"
        return {chosen} if trains else set()
    engine = re.search(r"--infer_backend (\w+)", rest)
    server = {"vllm": "vLLM", "sglang": "SGLang", "lmdeploy": "LMDeploy"}
    if task == "rollout" or (engine and not trains and engine[1] in server):
        return {server[engine[1]] if engine else "vLLM"}
    if not trains and task not in ("infer", "deploy", "app", "eval", "sample"):
        return set()
    return {_of_swift_itself(rest)}


def _of_swift_itself(rest: str) -> str:
    if "--tuner_backend unsloth" in rest:
        return "undecided"
    named = re.search(r"--attn_impl '?(\w+)", rest)
    eager = re.search(r"--model \S*(?:gemma-3-|HunyuanOCR)", rest)
    return _TRANSFORMERS[named[1]] if named else "eager" if eager else "native"


def _verl(folder: Path) -> Iterator[Case]:
    """FlashAttention 2 for what is trained, or Megatron's; the rollout's server beside it."""

    def expect(path: Path) -> set[str]:
        text = re.sub(r"^\s*#.*$", "", path.read_text("utf-8"), flags=re.MULTILINE)
        if not re.search(r"-m verl\.trainer\.(?:main_ppo|(?:fsdp_)?sft_trainer)", text):
            return set()
        named = re.search(r"override_config\.attn_implementation=(\w+)", text)
        megatron = re.search(r"config-name='?\S*megatron|strategy=megatron|engine=megatron", text)
        switch = re.search(r"model_engine=megatron|CONFIG_NAME|=\$backend", text)
        chosen = re.search(r"override_transformer_config\.attention_backend='?(\w+)", text)
        trained = _TRANSFORMERS[named[1]] if named else "flash"
        if megatron or switch:
            trained = {"fused": "cuDNN", "auto": "Transformer Engine"}.get(
                chosen[1] if chosen else "", "FlashAttention"
            )
        found = {trained, "undecided"} if (megatron or switch) else {trained}
        found |= {"flash", "FlashAttention"} if switch else set()
        if "main_ppo" in text:
            found |= {"vLLM", "SGLang", "fa3", "TensorRT", "undecided"}
            found |= {"FLASH_ATTN", "XFORMERS", "triton", "flash"}
        return found

    yield from _cases(folder, "examples/**/*.sh", expect)


def _onetrainer(folder: Path) -> Iterator[Case]:
    """`attention_mechanism`, which is SDP by itself."""

    def expect(path: Path) -> str:
        given = json.loads(path.read_text("utf-8")).get("attention_mechanism", "DEFAULT")
        return {"XFORMERS": "xformers", "FLASH": "flash", "CUDNN": "_native_cudnn"}.get(
            given, "native"
        )

    yield from _cases(folder, "training_presets/**/*.json", expect)


def _diffusion_pipe(folder: Path) -> Iterator[Case]:
    """The model's own code; the setting does not exist."""

    def expect(path: Path) -> str | None:
        kind = tomllib.loads(path.read_text("utf-8")).get("model", {}).get("type")
        if kind is None:
            return None
        if kind == "cosmos":
            return "Transformer Engine"
        return next((name for name, several in _PIPE.items() if kind in several), "native")

    yield from _cases(folder, "examples/*.toml", expect)


def _ai_toolkit(folder: Path) -> Iterator[Case]:
    """`attention_backend`, which Diffusers' dispatcher gets; two models have their own code."""

    def expect(path: Path) -> str | None:
        text = path.read_text("utf-8")
        if not re.search(r"^job: [\"']?(?:extension|train|generate)\b", text, re.MULTILINE):
            return None
        broken = any(one.count('"') % 2 for one in text.splitlines() if "#" not in one)
        if broken or re.search(r"^  - type: [\"']?(?:extract|rescale)", text, re.MULTILINE):
            return None
        own = re.search(r"^\s*arch:\s*[\"']?(hidream|omnigen2)\b", text, re.MULTILINE)
        if own:
            return {"hidream": "flash", "omnigen2": "flash_varlen"}[own[1]]
        named = re.search(r"^\s*attention_backend:\s*[\"']?(\w+)", text, re.MULTILINE)
        return named[1] if named else "native"

    yield from _cases(folder, "config/examples/**/*.y*ml", expect)


def _diffusers(folder: Path) -> Iterator[Case]:
    """Code blocks of the documentation, each as a file, with what a person read in it."""
    pages = folder / "docs" / "source" / "en"
    labels: dict[tuple[str, int], str] = {}
    for line in (Path(__file__).with_name("diffusers_blocks.tsv")).read_text("utf-8").splitlines():
        if not line.startswith("#"):
            page, at, backends = line.split("\t")
            labels[page, int(at)] = backends
    written = Path(tempfile.mkdtemp(prefix="blocks-"))
    for path in sorted(pages.rglob("*.md")):
        page = path.relative_to(pages).as_posix()
        for number, block in enumerate(_BLOCK.finditer(path.read_text("utf-8")), 1):
            expected = labels.get((page, number))
            if expected is None or not _CHOOSES.search(block[2]):
                continue
            body = block[2]
            if block[1] == "diff":
                body = _after(body)
            suffix = "sh" if block[1] in ("bash", "shell", "sh") else "py"
            file = written / f"{page.replace('/', '_')[:-3]}_{number}.{suffix}"
            file.write_text(body, encoding="utf-8")
            yield Case(file, frozenset({*expected.split()} - {"-"}))


def _after(diff: str) -> str:
    """The lines that a change leaves, without its signs."""
    kept = [one for one in diff.splitlines() if not one.startswith("-")]
    marked = all(one[:2] in ("", "  ", "+ ", "+") or one.startswith("#") for one in kept)
    return "\n".join(one[2:] if marked or one.startswith("+") else one for one in kept)


def _simpletuner(folder: Path) -> Iterator[Case]:
    """`attention_mechanism` by the release's own table, for families that reach the dispatcher."""
    release = folder.name.partition("-")[2]
    package = folder / "simpletuner"
    text = (package / "helpers/training/attention_backend.py").read_text("utf-8")
    table = dict(
        re.findall(r'"([\w-]+)": "(_?\w+)",', text.partition("_DIFFUSERS_BACKEND_TARGETS")[2])
    )
    held = "_TORCH_SDPA_BACKENDS" in text

    def expect(path: Path) -> str | None:
        try:
            data = json.loads(path.read_text("utf-8"))
        except ValueError:
            return None  # SimpleTuner cannot read it either
        if not isinstance(data, dict):
            return None
        given = {key.lstrip("-"): value for key, value in data.items()}
        family = given.get("model_family")
        if family is None:
            return None
        name = str(given.get("attention_mechanism", "diffusers")).lower()
        if name.startswith("metal"):
            return "metal_flash"
        target = str(table.get(name, "native"))
        if target.startswith("_native") and held:
            return target
        code = _code_of(package / "helpers/models", str(family).replace("-", "_"))
        if "dispatch_attention_fn" in code:
            return target
        return (
            "packed" if "get_packed_attention_backend" in code and target != "native" else "native"
        )

    for case in _cases(package / "examples", "**/*.json", expect):
        yield case._replace(simpletuner=release)


def _code_of(models: Path, family: str) -> str:
    """The code of a family, and of the families that it imports models from."""
    waiting, seen, found = [family], set[str](), ""
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        own = (
            one.read_text("utf-8")
            for one in sorted((models / name).rglob("*.py"))
            if not re.search("pipeline|autoencoder|vae", one.name)
        )
        text = "\n".join(own)
        found += text
        waiting += re.findall(
            r"^from simpletuner\.helpers\.models\.(\w+)\.transformer import", text, re.MULTILINE
        )
    return found


def _finetrainers(folder: Path) -> Iterator[Case]:
    """`--attn_provider_training` and `--attn_provider_inference`; native by themselves."""

    def expect(path: Path) -> set[str] | None:
        text = re.sub(r"^\s*#.*$", "", path.read_text("utf-8"), flags=re.MULTILINE)
        if not re.search(r"\b(?:train|inference)\.py\b", text):
            return None
        named = re.findall(r"--attn_provider(?:_training|_inference)? [\"']?(?:\w+:)?(\w+)", text)
        return {*named} | {"native"}

    yield from _cases(folder, "examples/**/*.sh", expect)


def _python(path: Path) -> set[str] | None:
    """Names that a script gives to Transformers, or its default where it loads a model."""
    text = path.read_text("utf-8")
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    named = {
        _TRANSFORMERS.get(one, "undecided")
        for one in re.findall(r"attn_implementation[\"']?\s*[=:]\s*[\"']([\w/-]+)", text)
    }
    asked = "args.attn_implementation" in text
    loads = re.search(r"(?:Auto\w*Model\w*|For\w+|Pipeline)\.from_pretrained\(", text)
    served = {"vLLM"} if re.search(r"\bLLM\(", text) else set[str]()
    default = {"native", "undecided"} if asked or loads else set[str]()
    return named | default | served or None


def _trl(folder: Path) -> Iterator[Case]:
    """`attn_implementation` of ModelConfig, which is sdpa by itself."""

    def recipe(path: Path) -> str | None:
        given = _yaml(path)
        if "model_name_or_path" not in given:
            return None
        return _TRANSFORMERS[given.get("attn_implementation", "sdpa")]

    yield from _cases(folder, "examples/**/*.yaml", recipe)
    yield from _cases(folder, "trl/accelerate_configs/*.yaml", recipe)
    yield from _cases(folder, "examples/**/*.py", _python)
    yield from _cases(folder, "trl/scripts/*.py", _python)


def _accelerate(folder: Path) -> Iterator[Case]:
    """Its YAML chooses no attention; scripts load models with the default of Transformers."""
    yield from _cases(folder, "examples/**/*.y*ml", lambda _: None)
    yield from _cases(folder, "tests/test_configs/*.yaml", lambda _: None)
    yield from _cases(folder, "examples/**/*.py", _python)


def _blocks(
    folder: Path, pattern: str, expect: Callable[[str], set[str] | None], starts: str
) -> Iterator[Case]:
    """Blocks of shell in the pages of a program that match `starts`, each as a file."""
    written = Path(tempfile.mkdtemp(prefix="blocks-"))
    for path in sorted(folder.glob(pattern)):
        for number, block in enumerate(_BLOCK.finditer(path.read_text("utf-8")), 1):
            if block[1] not in ("bash", "shell", "sh", None) or not re.search(starts, block[2]):
                continue
            whole = re.sub(r"\s*[\\^]\n|\n\s*(?=--\w)", " ", block[2])
            plain = "\n".join(re.sub(r"(?:^|\s)#.*", "", one) for one in whole.splitlines())
            expected = expect(plain)
            file = written / f"{path.relative_to(folder).as_posix().replace('/', '_')}_{number}.sh"
            file.write_text(block[2], encoding="utf-8")
            yield Case(file, frozenset(expected or ()))


def _sd_scripts(folder: Path) -> Iterator[Case]:
    """The flags of each script: networks with a U-Net have code of their own without one."""

    def expect(text: str) -> set[str]:
        found = set[str]()
        for line in text.splitlines():
            script = re.search(r"(\w+)\.py\b", line)
            if script is None or not re.search(r"train|gen_img|inference|fine_tune", script[1]):
                continue
            found.add(_of_sd_scripts(script[1], line))
        return found

    starts = r"(?:accelerate launch|python)[^\n]*(?:\\\n[^\n]*)*(?:train|gen_img|inference)\w*\.py"
    yield from _blocks(folder, "docs/*.md", expect, starts)


def _of_sd_scripts(script: str, line: str) -> str:
    mode = re.search(r"--attn_mode[ =][\"']?(\w+)", line)
    modes = {"torch": "native", "sdpa": "native", "flash": "flash", "xformers": "xformers"}
    if mode is not None:
        return modes.get(mode[1], mode[1])
    if "--use_flash_attn" in line:
        return "flash"
    if "--xformers" in line:
        return "xformers"
    own = re.match(r"flux|sd3|lumina|anima|hunyuan", script)
    if own or "--sdpa" in line:
        return "native"
    return "mem_eff" if "--mem_eff_attn" in line else "not fused"


def _musubi(folder: Path) -> Iterator[Case]:
    """A training stops without one of its flags; generation takes torch's own by itself."""
    flags = {"sdpa": "native", "flash_attn": "flash", "sage_attn": "stops", "flash3": "_flash_3"}
    modes = {"torch": "native", "sdpa": "native", "flash": "flash", "flash2": "flash"}
    modes |= {"flash3": "_flash_3", "sageattn": "sage", "xformers": "xformers"}

    def expect(text: str) -> set[str]:
        found = set[str]()
        for line in text.splitlines():
            if re.search(r"_generate_\w+\.py", line):
                mode = re.search(r"--attn_mode[ =](\w+)", line)
                plain = "flash" if "--flash_attn" in line else "native"
                found.add(modes.get(mode[1], mode[1]) if mode else plain)
            elif re.search(r"_train(?:_network)?\.py", line):
                given = [flags[one] for one in flags if re.search(rf"--{one}\b", line)]
                xformers = ["xformers"] if "--xformers" in line else []
                # hidream_o1_train.py alone runs without a flag.
                own = ["native"] if "hidream_o1_train.py" in line else ["stops", "undecided"]
                found |= {*(given or xformers or own)}
        return found

    starts = r"(?:_generate_(?:video|image)|_train(?:_network)?)\.py"
    yield from _blocks(folder, "docs/*.md", expect, starts)


def _servers(program: str, command: str) -> Callable[[str], set[str]]:
    """What the starts of a server name, or that it chooses by itself."""

    def expect(text: str) -> set[str]:
        named = re.findall(
            r"(?:-attention-backend|attn-backend|ATTENTION_BACKEND"
            r"|-(?:ac|attention-config)\.backend)[ =]"
            r"[\"']?(\w+)",
            text,
        )
        named += re.findall(r'"backend": ?"(\w+)"', text)
        started = re.search(command, text)
        others = {"torch_native": "native", "flex_attention": "flex"}
        return {others.get(one, one) for one in named} | ({program} if started else set())

    return expect


def _vllm(folder: Path) -> Iterator[Case]:
    """`--attention-backend` and vLLM's own choice without it."""
    command = r"vllm serve|vllm\.entrypoints|vllm/vllm-openai\S* (?:.* )?--model"
    expect = _servers("vLLM", command)

    def script(path: Path) -> set[str] | None:
        text = re.sub(r"^\s*#.*$", "", path.read_text("utf-8"), flags=re.MULTILINE)
        return expect(text) or None

    yield from _cases(folder, "examples/**/*.sh", script)
    yield from _blocks(folder, "docs/**/*.md", expect, command)


def _sglang(folder: Path) -> Iterator[Case]:
    """`--attention-backend`, those for the prompt and the answer, and SGLang's own choice."""
    command = r"sglang\.launch_server|sglang serve"
    yield from _blocks(folder, "docs/**/*.md", _servers("SGLang", command), command)


def _comfyui(folder: Path) -> Iterator[Case]:
    """Nodes that patch attention; without one the start of ComfyUI decides."""

    def expect(path: Path) -> set[str] | None:
        data = json.loads(path.read_text("utf-8"))
        if not isinstance(data, dict) or not isinstance(data.get("nodes"), list):
            return None
        names = {one["type"] for one in _nodes(data)}
        # What no model of ComfyUI passes is other nodes' own, or a service's.
        text = path.read_text("utf-8")
        models = re.search(r'"type":\s*"(?:MODEL|GUIDER)"', text)
        found = {"ComfyUI was started with" if models else "undecided"}
        if any(re.search("(?i)sage", one) for one in names):
            found |= {"sage", "undecided"}
        if any(re.search(r"(?i)attention(?!.*(?:couple|mask|slic))", one) for one in names):
            found.add("undecided")
        return found

    yield from _cases(folder, "**/*.json", expect)


def _nodes(data: object) -> Iterator[dict[str, str]]:
    """The nodes of a workflow and of the graphs inside it."""
    waiting = [data]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(one.get("type"), str) and "id" in one:
                yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


PROGRAMS: dict[str, Callable[[Path], Iterator[Case]]] = {
    "LLaMA-Factory": _llama_factory,
    "axolotl": _axolotl,
    "ms-swift": _swift,
    "verl": _verl,
    "OneTrainer": _onetrainer,
    "diffusion-pipe": _diffusion_pipe,
    "ai-toolkit": _ai_toolkit,
    "diffusers": _diffusers,
    "Finetrainers": _finetrainers,
    "TRL": _trl,
    "accelerate": _accelerate,
    "sd-scripts": _sd_scripts,
    "musubi-tuner": _musubi,
    "vllm": _vllm,
    "SGLang": _sglang,
    "ComfyUI": _comfyui,
}
#: Releases of SimpleTuner, each in a folder with its name.
PROGRAMS |= {f"SimpleTuner-{one}": _simpletuner for one in ("3.3.0", "4.3.5", "4.8.0", "4.10.1")}


def answers(path: Path, facts: Facts) -> list[str] | None:
    """The backends that are said for a file, or what is shown; None for a file that is not read."""
    try:
        readings = read_all(path)
    except ConfigError:
        return None
    phases = [phase for one in readings for phase in predict(one, facts, ()).phases]
    return [
        "undecided"
        if one.undecided
        else "stops"
        if one.shown == "unknown"
        else one.backend or one.shown or "stops"
        for one in phases
    ]


def verdict(case: Case, found: list[str] | None) -> str:
    """`right`, `wrong`, `undecided` or `not read`."""
    if not found or all("chooses no attention" in one for one in found):
        return "not read" if case.expected and case.expected != {"undecided"} else "right"
    if not case.expected:
        return "right" if set(found) == {"undecided"} else "wrong"
    for one in found:
        known = one == "undecided" or any(each.lower() in one.lower() for each in case.expected)
        if not known:
            return "wrong"
    alone = set(found) == {"undecided"}
    return "undecided" if alone and "undecided" not in case.expected else "right"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true", help="name what is not right")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.configs.machines import machine

    # An environment without the optional packages of SimpleTuner.
    empty = tempfile.mkdtemp(prefix="site-")
    there, absent = Package(installed=True), Package(installed=False)
    facts = replace(
        machine(), flash_attn=there, flash_attn_3=absent, sageattention=there, xformers=absent
    )
    facts = replace(facts, python=replace(facts.python, site_packages=(empty,)))
    sys.stdout.write("program\tfiles\tright\twrong\tundecided\tnot read\n")
    wrong = 0
    for name, cases in PROGRAMS.items():
        folder = options.folder / name
        if not folder.is_dir():
            continue
        counted: Counter[str] = Counter()
        for case in cases(folder):
            here = facts
            if case.simpletuner:
                trainer = Package(installed=True, version=case.simpletuner)
                here = replace(facts, simpletuner=trainer)
            found = answers(case.path, here)
            state = verdict(case, found)
            counted[state] += 1
            if options.verbose and state != "right":
                expected = ", ".join(sorted(case.expected)) or "nothing"
                sys.stderr.write(f"{state}: {case.path}: {expected}; said: {found}\n")
        row = [counted[one] for one in ("right", "wrong", "undecided", "not read")]
        wrong += counted["wrong"]
        sys.stdout.write("\t".join([name, str(sum(row)), *map(str, row)]) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
