"""Tests every rule: its examples, its log lines, and the statements of two public documents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from functools import cache
from itertools import groupby

import pytest
from msgspec.structs import replace

from attn_doctor.findings import Safety
from attn_doctor.rulebook import library
from attn_doctor.rulebook.lint import lint, lint_rule, outcome, symptom_fault
from attn_doctor.rulebook.rule import FixFile, Group, Symptom
from attn_doctor.rulebook.rule_shape import WrittenRule
from attn_doctor.rulebook.symptom_text import one_blank
from attn_doctor.rulebook.symptom_words import word_faults
from attn_doctor.rulebook.texts import PLACEHOLDER
from tests.command import whole_rules

RULES = whole_rules()
BY_ID = {rule.id: rule for rule in RULES}
SYMPTOMS = [(rule, symptom) for rule in RULES for symptom in rule.symptoms]
#: `re` keeps 512 compiled patterns; there are more.
compiled = cache(re.compile)


def matches(symptom: Symptom, text: str) -> bool:
    """What `symptom_text.is_in` says, with patterns that stay compiled."""
    around = one_blank(text)
    return (
        compiled(symptom.pattern).search(text) is not None
        and all(compiled(pattern).search(around) for pattern in symptom.near)
        and not any(compiled(pattern).search(around) for pattern in symptom.absent)
    )


#: The rules of each area. A test for each rule would take longer to begin and end than to run.
AREAS = {area: list(rules) for area, rules in groupby(RULES, lambda rule: rule.id.split("/")[0])}
each_area = pytest.mark.parametrize("rules", AREAS.values(), ids=AREAS)


@pytest.mark.thorough
def test_lint_has_no_complaint() -> None:
    rules, complaints = lint(library.folder())
    assert [f"{one.rule}: {one.text}" for one in complaints] == []
    assert [rule.id for rule in rules] == [rule.id for rule in RULES]


@pytest.mark.parametrize(("days", "complaints"), [(0, 0), (1, 0), (3, 1)])
def test_a_rule_is_not_checked_in_the_future(days: int, complaints: int) -> None:
    """The author's time zone may already have the next day."""
    later = replace(RULES[0], checked=date.today() + timedelta(days=days))
    assert len([one for one in lint_rule(later) if "which is in the future" in one]) == complaints


def test_a_rule_with_conditions_has_a_fix_without_a_log() -> None:
    rule = next(rule for rule in RULES if rule.has_conditions and rule.fixes)
    of_logs = tuple(replace(fix, printed=("a",)) for fix in rule.fixes)
    said = "has no fix that a check can offer"
    assert not any(said in one for one in lint_rule(rule))
    assert any(said in one for one in lint_rule(replace(rule, fixes=of_logs)))


def test_only_a_rule_with_conditions_names_backends() -> None:
    rule = next(rule for rule in RULES if rule.backends)
    assert list(lint_rule(rule)) == []
    of_logs = replace(rule, applies=Group(), when=Group(), examples=())
    assert any("has `backends` without [when]" in one for one in lint_rule(of_logs))


@pytest.mark.parametrize(("pattern", "complaint"), [("cut short", False), ("too short", True)])
def test_each_alternative_has_a_log(pattern: str, complaint: bool) -> None:
    symptom = Symptom(pattern=f"no kernel|{pattern}", logs=("no kernel", "cut short"))
    rule = replace(RULES[0], symptoms=(symptom,), alternatives=(("no kernel", pattern),))
    said = [one for one in lint_rule(rule) if "no log of its symptom shows" in one]
    assert [f"'{pattern}'" in one for one in said] == [True] * complaint


@pytest.mark.parametrize(
    ("path", "complaint"), [("triton/compiler", True), ("sageattention", False)]
)
def test_a_frame_that_only_passes_a_call_on_finds_no_failure(path: str, complaint: bool) -> None:
    log = f'  File "/env/site-packages/{path}/core.py", line 7, in run\n    raise\nno kernel'
    said = symptom_fault(Symptom(pattern="no kernel", frame=path, logs=(log,)), log)
    assert ("only pass a call on" in said) == complaint


@pytest.mark.parametrize(
    ("pattern", "printed_by", "complaint"),
    [
        ("the thing could not be started today", "", "has no word of its subject"),
        ("the thing could not be started today", "xformers", ""),
        ("the flash kernel could not be started", "", ""),
        ("Collecting click", "pip", "matches a line of a successful run: 'Collecting click'"),
        (r"COLLECTED_\w+|Collecting (?:click|torch)\b", "", "matches a line of a successful run"),
    ],
)
def test_a_symptom_is_about_a_failure_of_its_subject(
    pattern: str, printed_by: str, complaint: str
) -> None:
    symptom = Symptom(pattern=pattern, printed_by=printed_by)
    said = [*word_faults(replace(RULES[0], symptoms=(symptom,)))]
    assert [complaint in one for one in said] == [True] if complaint else said == []


@pytest.mark.parametrize(
    ("patterns", "complaint"),
    [
        (["no kernel", "cut short"], ""),
        (["no kernel"], "no fix is for the log 'cut short'"),
        (["no kernel", "cut short", "a typo"], "'a typo' of a fix matches no log of a symptom"),
    ],
)
def test_fixes_for_some_logs_leave_none_out(patterns: list[str], complaint: str) -> None:
    symptom = Symptom(pattern="no kernel|cut short", logs=("no kernel", "cut short"))
    fix = FixFile(title="x", safety=Safety.MANUAL, manual="x", printed=tuple(patterns))
    of_logs = next(rule for rule in RULES if not rule.has_conditions)
    rule = replace(of_logs, symptoms=(symptom,), fixes=(fix,), fix_when=((),), fix_done=((),))
    said = [one for one in lint_rule(rule) if "fix" in one]
    assert [complaint in one for one in said] == [True] if complaint else said == []


@each_area
def test_examples(rules: list[WrittenRule]) -> None:
    wrong = []
    for rule in rules:
        for example in rule.examples:
            verdict, commands = outcome(rule, example)
            if verdict.value != example.expect or list(example.run or commands) != commands:
                wrong.append((rule.id, example.name, verdict.value, commands))
    assert wrong == []


def test_examples_have_unique_names() -> None:
    names = Counter((rule.id, example.name) for rule in RULES for example in rule.examples)
    assert [name for name, count in names.items() if count > 1] == []


@each_area
def test_symptoms_find_their_lines(rules: list[WrittenRule]) -> None:
    """Patterns match with prefixes of launchers and loggers, and between other output."""
    missed = []
    for rule, symptom in ((one, each) for one in rules for each in one.symptoms):
        # A pattern that ends with \Z is about the end of the output.
        after = "" if symptom.pattern.endswith(r"\Z") else "Traceback (most recent call last):\n"
        for line in symptom.lines:
            for prefix in ("", "[rank0]: ", "2026-11-21 10:00:00,000 - ERROR - "):
                log = "\n".join(prefix + part for part in line.splitlines())
                amid = f"Epoch 1/10\n{log}\n{after}"
                if not (matches(symptom, log) and matches(symptom, amid)):
                    missed.append((rule.id, symptom.pattern, prefix, line))
    assert missed == []


#: Output of healthy runs; no symptom may match any of it.
HARMLESS = """\
Downloading torch-2.11.0-cp312-cp312-manylinux_2_28_x86_64.whl (893.1 MB)
Successfully installed flash-attn-2.8.3 sageattention-2.2.0 triton-3.6.0 xformers-0.0.35
Using attention backend: flash
Loading pipeline components...: 100%|██████████| 7/7 [00:03<00:00,  2.05it/s]
Attention backends are an experimental feature and the API may be subject to change.
Epoch 1/10, Steps:  12%|█▏        | 120/1000 [01:10<08:36,  1.70it/s, lr=0.0001, step_loss=0.089]
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 146.00 MiB
RuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error.
RuntimeError: operator torchvision::nms does not exist
TypeError: new_forward() got an unexpected keyword argument 'attention_mask'
safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge
OSError: [Errno 28] No space left on device
ModuleNotFoundError: No module named 'einops'
"""


def test_symptoms_match_nothing_harmless() -> None:
    harmless = (HARMLESS, *HARMLESS.splitlines())
    found = [
        (rule.id, symptom.pattern, line)
        for rule, symptom in SYMPTOMS
        for line in harmless
        if matches(symptom, line)
    ]
    assert found == []


#: Statements of two public documents, and the rules that check them or say what is true.
STATEMENTS: dict[str, tuple[str, ...]] = {
    # https://github.com/bghira/SimpleTuner/blob/main/documentation/attention/FLEX.md
    "FlexAttention requires CUDA devices": (
        "driver/no-gpu",
        "flex/not-on-this-device",
        "flex/cuda-device-message",
    ),
    "landed in PyTorch 2.5.0": ("torch/too-old-for-flex",),
    "Diffusers exposes it through its dispatcher": ("simpletuner/diffusers-too-old",),
    "recompile when you change drivers, CUDA or PyTorch": ("flex/driver-changed",),
    "Ampere+ GPU": ("triton/gpu-too-old", "triton/turing-with-3-3", "triton/bf16-below-sm80"),
    "kernels compile with nvcc; install cuda-nvcc": (
        "toolkit/nvcc-missing",
        "triton/c-compiler-missing",
        "triton/ptxas-too-old",
    ),
    "the first import builds a CUDA extension": ("flex/build-helper", "flex/patched-build"),
    "flex_attention.build_flex_attention_kernels(), kernel_root": (
        "flex/build-helper",
        "flex/patched-build",
    ),
    "AttributeError: upgrade PyTorch": ("flex/build-helper",),
    "cache lives under ~/.cache/torch/kernels": ("flex/kernel-cache-folder",),
    "only dispatch-enabled transformer blocks": ("simpletuner/backend-not-routed",),
    "supports BF16/FP16 only": ("flex/dtype-message", "flash/dtype", "sage/dtype"),
    "honours is_causal=False only": ("flex/causal-flag",),
    "masks become block masks; ragged masks are not supported": (
        "flex/mask-dimensions",
        "flex/mask-two-dimensions",
    ),
    "FlexAttention guide: checklist 1": ("torch/too-old-for-flex", "torch/cpu-build"),
    "FlexAttention guide: checklist 2": (
        "flex/could-not-compile",
        "toolkit/cuda-home-wrong",
        "toolkit/hard-coded-cuda-12-4",
        "toolkit/nvcc-torch-major-mismatch",
        "triton/c-compiler-missing",
        "triton/python-headers-missing",
    ),
    "FlexAttention guide: checklist 3": (
        "flex/cuda-device-message",
        "flex/not-on-this-device",
        "driver/amd-gpu",
        "driver/apple-gpu",
        "simpletuner/not-a-cuda-system",
    ),
    "FlexAttention guide: checklist 4": (
        "simpletuner/backend-not-routed",
        "simpletuner/sage-validation-only",
    ),
    # https://github.com/a-r-r-o-w/finetrainers/blob/main/docs/models/attention.md
    "training with masks: flash_varlen, flex, native": (
        "diffusers/mask-rejected",
        "diffusers/varlen-mask",
        "flex/mask-dimensions",
    ),
    "training without masks: flash, flex, native, xformers": (
        "diffusers/mask-dropped",
        "flex/unfused",
        "xformers/mask-layout",
    ),
    "sage for inference only": ("sage/no-gradients",),
    "providers for debugging": ("finetrainers/provider-unknown", "sage/fp8-capability-check"),
    "flash-attn>=2.6.3": (
        "finetrainers/flash-attn-too-old",
        "finetrainers/flash-attn-2-7",
        "diffusers/flash-attn-too-old",
        "diffusers/flash-attn-before-2-7",
        "diffusers/flash-attn-before-2-7-ignored",
    ),
    "sageattention>=2.1.1": (
        "finetrainers/sageattention-too-old",
        "diffusers/sageattention-too-old",
        "sage/release-1",
        "sage/release-not-on-index",
    ),
    "xformers>=0.0.29.post3": (
        "finetrainers/xformers-too-old",
        "diffusers/xformers-too-old",
        "xformers/built-for-other-torch",
    ),
    "use a clean virtual environment": (
        "python/not-a-venv",
        "python/duplicates",
        "python/externally-managed",
    ),
    "tested with CUDA higher than 12.2 and 12.6": ("flash/built-for-other-cuda",),
    "check your CUDA version with nvidia-smi or nvcc": (
        "toolkit/three-cuda-versions",
        "toolkit/nvcc-on-path-differs",
        "flash/built-for-other-cuda",
        "sage/built-for-other-cuda",
        "driver/too-old-for-torch",
    ),
    "pip install packaging ninja": (
        "flash/build-requirement-missing",
        "flash/build-without-ninja",
    ),
    "pip install flash-attn --no-build-isolation": (
        "flash/build-isolation",
        "flash/no-wheel-for-torch",
        "flash/build-out-of-memory",
        "flash/build-cuda-too-old",
        "flash/built-for-other-torch",
    ),
    "native Windows might require building from source": (
        "flash/no-wheel-for-torch",
        "flash/wheel-tags-do-not-fit",
    ),
    "FP8 needs compute capability 90, some 89": (
        "sage/no-sm89-kernels",
        "sage/no-sm90-kernels",
        "sage/fp8-capability-check",
    ),
    "FP16 needs compute capability 80": ("sage/no-sm80-kernels",),
    "other GPUs may or may not work": ("sage/unsupported-gpu", "sage/gpu-too-old"),
    "torch.cuda.get_device_capability()": ("sage/unsupported-gpu",),
    "pip install triton; triton-windows": (
        "sage/needs-triton",
        "triton/torch-mismatch",
        "triton/windows-mix",
        "triton/no-wheel-on-windows",
    ),
    "pip install git+https://github.com/thu-ml/SageAttention": (
        "sage/build-isolation",
        "sage/build-cuda-too-old",
        "sage/build-no-target-gpu",
    ),
    "pip install -U xformers --index-url …/whl/cu126": (
        "xformers/install-replaces-torch",
        "xformers/built-for-other-cuda",
        "xformers/no-wheel",
    ),
    "Flex Attention requires torch 2.5.0": ("torch/too-old-for-flex",),
    "replace scaled_dot_product_attention globally": (
        "finetrainers/global-provider",
        "finetrainers/bypassed-by-diffusers",
        "flash/head-dim",
    ),
    "with attention_provider(…)": ("finetrainers/provider-unknown",),
    "Context Parallel: TODO": ("finetrainers/torch-2-10", "diffusers/context-parallel"),
}


def test_each_statement_names_existing_rules() -> None:
    named = [(statement, id) for statement, ids in STATEMENTS.items() for id in ids]
    assert [one for one in named if one[1] not in BY_ID] == []


def test_each_rule_with_a_row_is_listed_under_a_statement() -> None:
    listed = {id for ids in STATEMENTS.values() for id in ids}
    named = {rule.id for rule in RULES if "guide: " in rule.row}
    assert sorted(named - listed) == []


#: Messages that these documents quote, and the rule that must find each in a log. The fourth
#: row of the checklist is prose, so each language has its own.
QUOTED = {
    "RuntimeError: Flex Attention backend 'flex' is not usable because of missing package": (
        "diffusers/flex-unavailable"
    ),
    "Could not compile flex_attention kernels": "flex/could-not-compile",
    "ValueError: Query, key, and value must be on a CUDA device": "flex/cuda-device-message",
    "AttributeError: flex_attention has no attribute build_flex_attention_kernels": (
        "flex/build-helper"
    ),
    "ValueError: Query, key, and value must be either bfloat16 or float16": "flex/dtype-message",
    "Training never switches to the backend": "simpletuner/backend-not-routed",
    "Training कभी backend पर स्विच नहीं होता": "simpletuner/backend-not-routed",
    "O treinamento nunca troca para o backend": "simpletuner/backend-not-routed",
    "训练始终未切换到该后端": "simpletuner/backend-not-routed",
}


def matching(log: str) -> Iterator[str]:
    return (rule.id for rule, one in SYMPTOMS if matches(one, log))


@pytest.mark.parametrize("quoted", QUOTED)
def test_quoted_messages_are_recognised(quoted: str) -> None:
    assert QUOTED[quoted] in set(matching(quoted))
    assert {BY_ID[id].cause for id in matching(quoted)} == {BY_ID[QUOTED[quoted]].cause}


def test_texts_are_short() -> None:
    """A title fits one line with its values, and `why` has a few sentences."""
    titles = {rule.id: re.sub(PLACEHOLDER, "2.10.0+cu130", rule.title) for rule in RULES}
    assert [id for id, title in titles.items() if title.endswith(".")] == []
    assert [id for id, title in titles.items() if len(title) > 120] == []
    assert [rule.id for rule in RULES if len(rule.why) > 420] == []


def test_most_cures_can_be_copied() -> None:
    """Commands or variables for the machine, or lines or an option for the user's own program."""
    cures = [rule.fixes for rule in RULES if rule.fixes]
    copied = [
        any(fix.run or fix.set or fix.unset or fix.code or fix.instead_of for fix in fixes)
        for fixes in cures
    ]
    assert sum(copied) >= 0.8 * len(cures), f"{sum(copied)} of {len(cures)}"
