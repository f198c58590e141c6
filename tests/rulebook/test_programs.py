"""`tables/programs.toml`: the option of the program that a log shows."""

import re

import pytest
from msgspec.structs import replace

from attn_doctor.facts import Facts
from attn_doctor.findings import Safety
from attn_doctor.rulebook.evaluate import FactLookup, fill_fix
from attn_doctor.rulebook.library import families, load, whole
from attn_doctor.rulebook.programs import (
    options,
    programs,
    with_options,
)
from attn_doctor.rulebook.rule import FixFile
from attn_doctor.rulebook.rule_files import family_faults

COMFYUI = '  File "/w/ComfyUI/comfy/ldm/modules/attention.py", line 440, in attention_sage'
WRAPPER = '  File "/w/ComfyUI/custom_nodes/ComfyUI-WanVideoWrapper/wanvideo/modules/attention.py"'
VLLM = '  File "/venv/site-packages/vllm/v1/attention/backends/flash_attn.py", line 100'
SGLANG = '  File "/venv/site-packages/sglang/srt/layers/attention/flashinfer_backend.py", line 1'
DIFFUSERS = '  File "/venv/site-packages/diffusers/models/attention_dispatch.py", line 3, in _flash'
TRANSFORMERS = '  File "C:\\v\\transformers\\models\\llama\\modeling_llama.py", line 3'


def _fix(family: str, log: str) -> FixFile:
    return with_options(FixFile(title="T", safety=Safety.MANUAL, instead_of=family), log)


@pytest.mark.parametrize(
    ("family", "log", "said"),
    [
        ("sage", COMFYUI, "ComfyUI: start without `--use-sage-attention`"),
        ("sage", f"{COMFYUI}\n{WRAPPER}", "WanVideoWrapper: set `attention_mode`"),
        ("flash", VLLM, "vLLM: start with `--attention-backend TRITON_ATTN`"),
        ("flashinfer", SGLANG, "SGLang: start with `--attention-backend triton`"),
        ("flash", TRANSFORMERS, "Transformers: load the model with `attn_implementation="),
    ],
)
def test_the_program_of_the_log_is_named_alone(family: str, log: str, said: str) -> None:
    manual = _fix(family, log).manual
    assert manual.startswith(said)
    assert not any(f" {one.name}: " in manual for one in programs())


def test_a_line_of_python_is_shown_as_code() -> None:
    fix = _fix("flash", DIFFUSERS)
    assert (fix.code, fix.manual) == (
        'pipe.transformer.set_attention_backend("native")',
        "Diffusers:",
    )


def test_without_a_program_the_common_ones_are_named() -> None:
    fix = _fix("flash", 'File "train.py", line 3')
    assert fix.manual == " ".join(options(fix))
    assert [one.partition(":")[0] for one in options(fix)] == [
        "ComfyUI",
        "Diffusers",
        "Transformers",
        "Your own code",
    ]


def test_a_program_without_this_family_is_passed_over() -> None:
    assert _fix("flex", COMFYUI).manual.startswith("Diffusers:")


def test_a_fix_of_a_rule_has_the_option_and_its_own_words() -> None:
    rule = next(one for one in load() if any(fix.instead_of and fix.manual for fix in one.fixes))
    index = next(i for i, fix in enumerate(rule.fixes) if fix.instead_of and fix.manual)
    found = fill_fix(whole(rule), index, FactLookup(Facts()), VLLM)
    assert found.manual.endswith(rule.fixes[index].manual)
    assert found.manual != rule.fixes[index].manual


def test_every_family_has_a_common_program_or_two_rows() -> None:
    for family in families():
        rows = [one for one in programs() if family in one.instead_of]
        assert any(one.common for one in rows) or len(rows) > 1, family


def test_every_program_has_signs_and_a_source() -> None:
    for one in programs():
        assert one.source.startswith("https://"), one.name
        assert one.signs or one.name == "Your own code"
        assert all(re.compile(sign) for sign in one.signs)


def test_a_family_that_no_program_replaces_is_a_fault() -> None:
    rule = next(one for one in load() if any(fix.instead_of for fix in one.fixes))
    assert not list(family_faults(rule, families()))
    wrong = replace(rule, fixes=(FixFile("T", Safety.MANUAL, instead_of="flsh"),))
    [fault] = family_faults(wrong, families())
    assert "'flsh'; did you mean flash?" in fault
