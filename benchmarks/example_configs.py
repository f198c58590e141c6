"""Asks `check --config` about the examples of the programs' own repositories.

    python benchmarks/example_configs.py FOLDER [-v]

FOLDER has checkouts under the names of `PROGRAMS`: LLaMA-Factory, axolotl, ms-swift, verl,
OneTrainer, diffusion-pipe, ai-toolkit, diffusers; those that are missing are left out. What is
right is found by rules that were read in each program's source and that use none of attn-doctor's
code, and for the code blocks of Diffusers' documentation by a person (`diffusers_blocks.tsv`). A
table is printed: files, and how many answers are right, wrong, undecided, or missing. Exit code 1
if one is wrong.
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


PROGRAMS: dict[str, Callable[[Path], Iterator[Case]]] = {
    "LLaMA-Factory": _llama_factory,
    "axolotl": _axolotl,
    "ms-swift": _swift,
    "verl": _verl,
    "OneTrainer": _onetrainer,
    "diffusion-pipe": _diffusion_pipe,
    "ai-toolkit": _ai_toolkit,
    "diffusers": _diffusers,
}


def answers(path: Path, facts: Facts) -> list[str] | None:
    """The backends that are said for a file, or what is shown; None for a file that is not read."""
    try:
        readings = read_all(path)
    except ConfigError:
        return None
    phases = [phase for one in readings for phase in predict(one, facts, ()).phases]
    return ["undecided" if one.undecided else one.backend or one.shown or "stops" for one in phases]


def verdict(case: Case, found: list[str] | None) -> str:
    """`right`, `wrong`, `undecided` or `not read`."""
    if not found or all("chooses no attention" in one for one in found):
        return "not read" if case.expected and case.expected != {"undecided"} else "right"
    if not case.expected:
        return "right" if set(found) == {"undecided"} else "wrong"
    for one in found:
        known = one == "undecided" or any(each in one for each in case.expected)
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

    there, absent = Package(installed=True), Package(installed=False)
    facts = replace(
        machine(), flash_attn=there, flash_attn_3=absent, sageattention=there, xformers=absent
    )
    sys.stdout.write("program\tfiles\tright\twrong\tundecided\tnot read\n")
    wrong = 0
    for name, cases in PROGRAMS.items():
        folder = options.folder / name
        if not folder.is_dir():
            continue
        counted: Counter[str] = Counter()
        for case in cases(folder):
            found = answers(case.path, facts)
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
