"""What a person writes becomes specs, or one sentence that names the place and the remedy."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder.spec_refusals import refusal
from attn_doctor.kernels.builder.spec_requests import SpecArgs, requested_specs
from attn_doctor.kernels.builder.spec_values import MOST
from attn_doctor.record.spec import KernelSpec
from tests.effort import at_most

SIMPLE = {"heads": "24", "head_dim": "128", "seq_len": ["4608"]}


def args(*, cpu: bool = False, **given: object) -> SpecArgs:
    return SpecArgs.of({**SIMPLE, **given}, cpu=cpu)


def flags(**given: Any) -> tuple[KernelSpec, ...]:
    return requested_specs(args(**given)).specs


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "kernels.toml"
    path.write_text(text, "utf-8")
    return path


def from_file(tmp_path: Path, text: str, **given: object) -> tuple[KernelSpec, ...]:
    named = {"spec": [str(file(tmp_path, text))], **given}
    return requested_specs(SpecArgs.of(named)).specs


def test_lists_multiply_in_the_order_in_which_they_were_written() -> None:
    found = flags(head_dim="64,128", mask="none,causal", dtype="bf16,fp16")
    assert len(found) == 8
    assert [(one.head_dim, one.dtype, one.mask) for one in found[:3]] == [
        (64, "bfloat16", "none"),
        (64, "bfloat16", "causal"),
        (64, "float16", "none"),
    ]


def test_in_a_product_a_window_goes_with_sliding_windows() -> None:
    found = flags(mask="none,sliding-window,bool", window="128,256", mask_rows="true")
    assert [(one.mask, one.window, one.mask_rows) for one in found] == [
        ("none", None, False),
        ("sliding-window", 128, False),
        ("sliding-window", 256, False),
        ("bool", None, True),
    ]


def test_lengths_joined_by_a_plus_belong_to_one_process() -> None:
    assert [one.lengths for one in flags(seq_len=["1024+2048", "512,256"])] == [
        (1024, 2048),
        (512,),
        (256,),
    ]


def test_the_same_kernel_is_requested_once() -> None:
    assert len(flags(mask="causal,causal", kv_heads="24")) == 1
    assert flags(kv_heads="24") == flags()
    assert flags(value_dim="128") == flags()


def test_the_phase_follows_the_device_unless_it_is_given() -> None:
    assert flags()[0].phase == "training"
    assert flags(cpu=True)[0].phase == "inference"
    assert [one.phase for one in flags(phase="both")] == ["training", "inference"]


def test_options_and_numbers_are_read_as_what_they_are() -> None:
    (spec,) = flags(
        option=["BLOCK_M=64", "PRESCALE_QK=true", "BACKEND=TRITON"], scale="0.125", dynamic="false"
    )
    assert spec.kernel_options == {"BLOCK_M": 64, "PRESCALE_QK": True, "BACKEND": "TRITON"}
    assert (spec.scale, spec.dynamic) == (0.125, False)
    assert flags(dynamic="auto")[0].dynamic is None
    assert flags(mode="default")[0].mode is None


def test_an_option_that_torch_does_not_read_is_remarked() -> None:
    known = ["BLOCK_M=64", "fwd_num_stages=1", "bwd_BLOCK_N1=32", "BACKEND=TRITON"]
    assert requested_specs(args(option=known)).notes == ()
    (note,) = requested_specs(args(option=["BLOCKM=64"])).notes
    assert note.startswith("torch up to 2.13 reads no kernel option BLOCKM (nearest: BLOCK_M")


def test_a_mask_of_ones_own_is_looked_for_where_one_stands(tmp_path: Path) -> None:
    found = requested_specs(args(mask="my.masks:causal"))
    lost = f"the file of my.masks:causal is not in {os.getcwd()}: it must be in the environment"
    assert found.notes == (lost,)
    assert found.specs[0].mask == "my.masks:causal"
    assert found.sys_path == (os.getcwd(),)
    text = '[[kernel]]\nheads=8\nhead_dim=64\nseq_len=512\nmask="masks:mine"\n'
    path = file(tmp_path, text)
    assert requested_specs(SpecArgs(spec=[str(path)])).sys_path[0] == str(tmp_path.resolve())
    (tmp_path / "masks.py").write_text("def mine(b, h, q, k): return q >= k\n")
    assert requested_specs(SpecArgs(spec=[str(path)])).notes == ()
    assert requested_specs(args()).sys_path == ()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"heads": ""}, r"^--heads is missing; or name a model family with --preset"),
        ({"seq_len": []}, r"^--seq-len is missing"),
        ({"heads": "many"}, r"^--heads: 'many' is not a whole number"),
        ({"heads": "0"}, r"^--heads: 0 is not between 1 and 1024"),
        ({"heads": "²"}, r"^--heads: '²' is not a whole number"),
        ({"heads": "9" * 5000}, r"^--heads: '9+… is not a whole number"),
        ({"seq_len": ["4608+"]}, r"^--seq-len: '4608\+' has a \+ with no length beside it"),
        ({"seq_len": ["+".join(["8"] * 65)]}, r"65 lengths in one process; at most 64"),
        (
            {"mask": "casual"},
            r"^--mask: 'casual' is unknown \(write your own .*\); did you mean causal\?$",
        ),
        ({"mask": "a b:c"}, r"is not module:function"),
        ({"dtype": "fp8"}, r"^--dtype: 'fp8' is unknown; "),
        ({"layout": "sbhd"}, r"did you mean"),
        ({"mask": "sliding-window"}, r"^--mask sliding-window needs --window TOKENS: how far"),
        ({"window": "5"}, r"^--window has a meaning only with --mask sliding-window"),
        ({"mask_rows": "true"}, r"^--mask-rows has a meaning only with --mask bool or float"),
        ({"fused_width": "9216"}, r"only with --layout fused-qkv or fused-v"),
        ({"scale": "-1"}, r"'-1' is not a positive number"),
        ({"scale": "nan"}, r"'nan' is not a positive number"),
        ({"option": ["BLOCK_M"]}, r"'BLOCK_M' is not NAME=VALUE"),
        ({"mode": "fastest"}, r"'fastest' is unknown"),
        ({"dynamic": "maybe"}, r"neither true nor false"),
        (
            {
                "heads": ",".join(map(str, range(1, 101))),
                "head_dim": ",".join(map(str, range(1, 101))),
            },
            rf"asks for 10000 kernels; at most {MOST} at once",
        ),
    ],
)
def test_a_wrong_flag_is_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(AttnDoctorError, match=message):
        flags(**given)


def test_a_file_has_defaults_lists_and_presets(tmp_path: Path) -> None:
    found = from_file(
        tmp_path,
        """
        [defaults]
        dtype = "float16"
        for = "both"

        [[kernel]]
        heads = 24
        head_dim = [64, 128]
        seq_len = [1024, [512, 256]]
        kernel_options = { BLOCK_M = 64 }

        [[kernel]]
        preset = ["flux1@512x512", "sd35"]
        for = "inference"
        """,
    )
    assert len(found) == 2 * 2 * 2 + 2
    assert {one.dtype for one in found} == {"float16"}
    assert {one.lengths for one in found[:-2]} == {(1024,), (512, 256)}
    assert found[0].kernel_options == {"BLOCK_M": 64}
    assert [one.preset for one in found[-2:]] == ["flux1", "sd35"]
    assert found[-1].phase == "inference"


GOOD = "[[kernel]]\nheads = 8\nhead_dim = 64\nseq_len = 512\n"


def test_the_file_that_the_documentation_shows(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "kernels.md").read_text("utf-8")
    (sample,) = re.findall(r"```toml\n(.*?\[\[kernel\]\].*?)```", text, re.DOTALL)
    found = from_file(tmp_path, sample)
    own = [one for one in found if not one.preset]
    assert len(own) == 6
    assert {one.lengths for one in own} == {(4096,), (8192,), (1024, 2048)}
    assert {one.mask for one in own} == {"none", "my_masks:near"}
    assert [one.preset.partition("@")[0] for one in found if one.preset] == ["flux1"]


def test_a_preset_knows_more_than_the_defaults_of_a_file(tmp_path: Path) -> None:
    flux = requested_specs(SpecArgs(preset=["flux1@1024x1024"])).specs[0]
    defaults = '[defaults]\nheads = 3\ndtype = "fp16"\n'
    table = '[[kernel]]\npreset = "flux1@1024x1024"\n'
    found, *_ = from_file(tmp_path, defaults + table)
    assert (found.heads, found.head_dim, found.dtype) == (flux.heads, flux.head_dim, "float16")
    own, *_ = from_file(tmp_path, defaults + table + "heads = 5\n")
    assert own.heads == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"has no \[\[kernel\]\] table"),
        (
            "[[kernels]]\nheads=1\n",
            r"unknown table 'kernels' \(a file has .*\); did you mean kernel\?$",
        ),
        (
            GOOD + "[[kernel]]\nheads = 8\nhead_dims = 64\n",
            r"2: unknown field 'head_dims'; did you mean head_dim",
        ),
        (GOOD + "[[kernel]]\nheads = 8\n", r"\[\[kernel\]\] 2: head_dim is missing"),
        (GOOD.replace("8", "true"), r"\[\[kernel\]\] 1: heads: True is not a whole number"),
        (GOOD.replace("8", "8.0"), r"heads: 8\.0 is not a whole number"),
        (GOOD.replace("8", "[]"), r"heads: is empty"),
        (
            GOOD + 'mask = "casual"\n',
            r"\[\[kernel\]\] 1: mask: 'casual' is unknown .*; did you mean causal\?$",
        ),
        (GOOD + "scale = true\n", r"True is not a positive number"),
        (GOOD + "kernel_options = { A = [1] }\n", r"A: \[1\] is not a plain value"),
        ('[[kernel]]\npreset = "fluks1"\n', r"\[\[kernel\]\] 1: no preset 'fluks1'; did you mean"),
        ("[[kernel]]\npreset = 3\n", r"preset must be a name such as flux1@1024x1024"),
        (GOOD + "sizes = 3\n", r"unknown field 'sizes': the size of a block follows its preset"),
        (GOOD + "block = true\n", r"block is true or false, and needs a preset"),
        ('[[kernel]]\npreset = "flux1"\nblock = "flux1"\n', r"block is true or false"),
        ("kernel = 3\n", r"has no \[\[kernel\]\] table"),
        ("kernel = [3]\n", r"\[\[kernel\]\] 1: must be a table"),
        ("defaults = 3\n" + GOOD, r"defaults must be a table"),
        ("[[kernel]\n", r"line 1"),
        ("[[kernel]]\nheads = " + "[" * 3000, r"nested too deeply|line 2"),
    ],
)
def test_a_wrong_file_is_named_with_the_table(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(AttnDoctorError, match=message) as shown:
        from_file(tmp_path, text)
    assert "kernels.toml" in str(shown.value)
    assert len(str(shown.value)) < 400
    assert "\n" not in str(shown.value)


def test_hostile_files_are_refused_at_once(tmp_path: Path) -> None:
    large = tmp_path / "large.toml"
    with large.open("wb") as stream:
        stream.truncate(100 << 20)
    pipe = tmp_path / "pipe.toml"
    if hasattr(os, "mkfifo"):
        os.mkfifo(pipe)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    wide = file(
        tmp_path,
        f"[[kernel]]\nheads = {list(range(1, 1025))}\n"
        f"head_dim = {list(range(1, 4097))}\nseq_len = {list(range(1, 5000))}\n",
    )
    with at_most(2):
        for path, message in (
            (large, "it has 100 MiB, and at most 2 MiB are read"),
            (pipe, "a pipe, not a regular file" if pipe.exists() else "cannot be read"),
            (tmp_path, "Is a directory"),
            (tmp_path / "absent.toml", "cannot be read: No such file"),
            (binary, "cannot be read"),
            (wide, "kernels; at most"),
            (Path("nul\0.toml"), "cannot be read"),
        ):
            with pytest.raises(AttnDoctorError, match=message):
                requested_specs(SpecArgs(spec=[str(path)]))


def test_flags_do_not_silently_miss_a_file(tmp_path: Path) -> None:
    with pytest.raises(AttnDoctorError, match="--dtype has no meaning with --spec alone"):
        from_file(tmp_path, GOOD, dtype="fp16")


def spec(**fields: object) -> KernelSpec:
    return KernelSpec(**{"heads": 24, "head_dim": 128, "lengths": (512,), **fields})  # type: ignore[arg-type]


WIDE: dict[str, object] = {"mask": "bool", "mask_rows": True}


@pytest.mark.parametrize(
    ("fields", "torch", "device", "sm", "message"),
    [
        ({}, "2.11.0+cu130", "cuda:0", 90, ""),
        ({}, "2.4.1", "cuda:0", 90, "torch 2.4 has no FlexAttention, which came with torch 2.5"),
        ({"head_dim": 80}, "2.7.1", "cuda:0", 90, "only powers of two as head size; 80 needs"),
        ({"head_dim": 80}, "2.8.0", "cuda:0", 90, ""),
        ({"head_dim": 8}, "2.7.0", "cuda:0", 90, "head size 8 is below 16"),
        ({"head_dim": 8, "phase": "inference"}, "2.13.0", "cpu", None, ""),
        ({"value_dim": 256}, "2.5.1", "cuda:0", 90, "value heads (256) larger than"),
        ({"value_dim": 256}, "2.6.0", "cuda:0", 90, ""),
        ({"kv_heads": 7}, "2.11.0", "cuda:0", 90, "24 query heads are not a multiple of 7"),
        ({"kv_heads": 8}, "2.11.0", "cuda:0", 90, ""),
        ({}, "2.11.0", "cuda:0", 75, "has no bfloat16"),
        ({"dtype": "float16"}, "2.11.0", "cuda:0", 75, ""),
        ({"dtype": "float16"}, "2.11.0", "cuda:0", 61, "needs compute capability 7.0"),
        ({}, "2.11.0", "cuda:0", None, ""),
        ({}, "2.13.0+cpu", "cpu", None, "no backward on CPUs"),
        ({}, "2.7.0", "cpu", None, "no backward on CPUs"),
        ({"phase": "inference"}, "2.5.1", "cpu", None, "no FlexAttention kernel for CPUs"),
        ({"phase": "inference", "dtype": "float16"}, "2.6.0", "cpu", None, "no float16"),
        ({"phase": "inference", "dtype": "float16"}, "2.7.0", "cpu", None, ""),
        ({}, "unknown", "cuda:0", 90, ""),
        ({**WIDE, "lengths": (51275,)}, "2.11.0", "cuda:0", 90, "2,629,125,625 elements"),
        ({**WIDE, "lengths": (51275,)}, "2.13.0", "cuda:0", 90, "2,629,125,625 elements"),
        ({**WIDE, "lengths": (51275,)}, "2.14.0", "cuda:0", 90, ""),
        ({**WIDE, "lengths": (46340,)}, "2.11.0", "cuda:0", 90, ""),
        ({**WIDE, "lengths": (51275,), "mask_rows": False}, "2.11.0", "cuda:0", 90, ""),
        ({**WIDE, "lengths": (10000,), "mask": "float"}, "2.11.0", "cuda:0", 90, "float mask has"),
    ],
)
def test_what_flex_refuses_is_refused_before_compiling(
    fields: dict[str, object], torch: str, device: str, sm: int | None, message: str
) -> None:
    shown = refusal(spec(**fields), torch, device, sm)
    assert message in shown
    assert bool(shown) == bool(message)
