"""Masks with a row for each query: what flex says of them on both sides of 2^31 elements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor.backends.readiness import Readiness
from attn_doctor.configs.attention_size import (
    Sized,
    elements,
    most_samples,
    most_tokens,
)
from attn_doctor.configs.prediction import Prediction
from attn_doctor.examination import derive
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding, Severity, SourceLocation
from attn_doctor.kernels.builder.spec_refusals import REACH, refusal
from attn_doctor.record.spec import KernelSpec
from tests.configs.machines import (
    machine,
    phase,
    predicted,
    rules,
    written,
)

RULE = "flex/mask-beyond-32-bits"
COMPILED = """import torch
from diffusers import {pipeline}
import torch.nn.attention.flex_attention as fa
fa.flex_attention = torch.compile(fa.flex_attention)
pipe = {pipeline}.from_pretrained("someone/a-model", torch_dtype=torch.bfloat16)
pipe.transformer.set_attention_backend("flex")
"""


def mask_findings(one: Prediction) -> list[Finding]:
    return [each for each in one.findings if each.rule == RULE]


def trained(folder: Path, **settings: Any) -> Path:
    return written(folder, attention_mechanism="flex", dynamo_backend="inductor", **settings)


def video(folder: Path, frames: int, size: str = "848x480", **settings: object) -> Path:
    """HunyuanVideo 1.5 in validation: 1590 tokens a latent frame, and 1985 of conditions."""
    return trained(
        folder,
        model_family="hunyuanvideo",
        validation_resolution=size,
        validation_num_video_frames=frames,
        **settings,
    )


def script(folder: Path, call: str, pipeline: str = "HunyuanVideo15Pipeline") -> Path:
    path = folder / "run.py"
    path.write_text(COMPILED.format(pipeline=pipeline) + call + "\n", encoding="utf-8")
    return path


def with_torch(version: str, simpletuner: str = "4.5.2") -> Facts:
    facts = machine(simpletuner)
    return derive(replace(facts, torch=replace(facts.torch, version=version)))


@pytest.mark.parametrize(("frames", "wrong"), [(105, False), (109, True), (121, True)])
def test_both_sides_of_the_limit(frames: int, wrong: bool, tmp_path: Path) -> None:
    one = predicted(video(tmp_path, frames), machine("4.5.2"))
    tokens = phase(one, "validation").tokens
    assert tokens == 1590 * ((frames - 1) // 4 + 1) + 1985
    assert (tokens * tokens > REACH) is wrong
    assert rules(one) == ([RULE] if wrong else [])


def test_what_is_said(tmp_path: Path) -> None:
    path = video(tmp_path, 121)
    one = predicted(path, machine("4.5.2"))
    (finding,) = mask_findings(one)
    assert finding.severity is Severity.ERROR
    assert finding.title == (
        "flex computes wrong results in validation, without an error: the mask of HunyuanVideo is"
        " too large at 848x480, 121 frames"
    )
    assert finding.location == SourceLocation(str(path), 8)
    (because,) = finding.because
    assert because.fact == "config.validation_resolution"
    assert "51,275 tokens, a mask of 2,629,125,625 elements" in because.seen
    assert because.wanted == "at most 2,147,483,648 elements, 46,340 tokens"
    update, other, native, smaller = finding.fixes
    assert update.run == (("pip", "install", "--upgrade", "simpletuner>=4.6.0"),)
    assert "attention_mechanism: flex → flash-attn" in other.title
    assert native.title.endswith("flex → diffusers: torch's own attention is right at this size")
    assert "line 6: validation_resolution: take up to 105 frames of 848x480" in smaller.title
    # The largest such video is fine.
    assert not mask_findings(predicted(video(tmp_path, 105), machine("4.5.2")))
    assert phase(one, "validation").state is Readiness.NOT_READY


@pytest.mark.parametrize(
    ("version", "wrong"), [("3.3.0", True), ("4.5.2", True), ("4.6.0", False), ("4.10.1", False)]
)
def test_since_4_6_the_mask_is_over_the_keys(version: str, wrong: bool, tmp_path: Path) -> None:
    assert bool(mask_findings(predicted(video(tmp_path, 121), machine(version)))) is wrong


@pytest.mark.parametrize(
    ("version", "wrong"), [("2.6.0", False), ("2.7.0", True), ("2.13.1", True), ("2.14.0", False)]
)
def test_releases_of_torch_that_were_read(version: str, wrong: bool, tmp_path: Path) -> None:
    assert bool(mask_findings(predicted(video(tmp_path, 121), with_torch(version)))) is wrong


@pytest.mark.parametrize(
    "settings",
    [
        {"dynamo_backend": "no"},  # unfused flex counts in 64 bits, and says its own
        {"attention_mechanism": "diffusers"},
        {"attention_mechanism": "flash-attn-2"},
        {"model_family": "wan"},
        {"model_family": "flux2", "validation_resolution": "8192x8192"},
    ],
)
def test_others_have_no_such_mask(settings: dict[str, object], tmp_path: Path) -> None:
    path = video(tmp_path, 121)
    written_ = {**json.loads(path.read_text("utf-8")), **settings}
    path.write_text(json.dumps(written_), encoding="utf-8")
    assert not mask_findings(predicted(path, machine("4.5.2")))


@pytest.mark.parametrize("size", ["", "big", "848", "0x0"])
def test_nothing_is_claimed_of_an_unknown_size(size: str, tmp_path: Path) -> None:
    frames = 121 if size != "848" else 0
    assert not mask_findings(predicted(video(tmp_path, frames, size), machine("4.5.2")))


def test_the_largest_validation_counts(tmp_path: Path) -> None:
    path = video(tmp_path, 105, "480x480,848x480,1280x720")
    (finding,) = mask_findings(predicted(path, machine("4.5.2")))
    assert "1280x720" in finding.title


def test_datasets_and_batches(tmp_path: Path) -> None:
    sets = [{"dataset_type": "video", "resolution": 720, "video": {"num_frames": 121}}]
    (tmp_path / "sets.json").write_text(json.dumps(sets), encoding="utf-8")
    path = trained(tmp_path, model_family="hunyuanvideo", data_backend_config="sets.json")
    (finding,) = mask_findings(predicted(path, machine("4.5.2")))
    assert "in training" in finding.title
    assert finding.because[0].fact == "config.data_backend_config"


@pytest.mark.parametrize(("batch", "wrong"), [(7, False), (8, True)])
def test_samples_count_together(batch: int, wrong: bool, tmp_path: Path) -> None:
    """Chroma at 2048 pixels: 16,896 tokens."""
    path = trained(tmp_path, model_family="chroma", resolution=2048, train_batch_size=batch)
    found = mask_findings(predicted(path))
    assert bool(found) is wrong
    if found:
        assert "16,896 tokens × 8 samples" in found[0].because[0].seen
        assert any("train_batch_size: 8 → 7" in fix.title for fix in found[0].fixes)


def test_a_script(tmp_path: Path) -> None:
    body = 'FRAMES = 121\npipe("a cat", height=480, width=848, num_frames=FRAMES)'
    path = script(tmp_path, body)
    (finding,) = mask_findings(predicted(path))
    assert finding.location == SourceLocation(str(path), 6)
    assert "HunyuanVideo15Pipeline is too large at 848x480, 121 frames" in finding.title
    first, native, second = finding.fixes
    assert "line 6: flex → flash_varlen_hub: takes this mask as lengths" in first.title
    assert "line 6: flex → native: torch's own attention is right" in native.title
    assert "line 8: size: take up to 105 frames of 848x480" in second.title


@pytest.mark.parametrize(
    ("call", "pipeline"),
    [
        ("pipe(height=480, width=848, num_frames=105)", "HunyuanVideo15Pipeline"),
        ("pipe(height=480, width=848)", "HunyuanVideo15Pipeline"),
        ("pipe(height=480, width=848, num_frames=args.frames)", "HunyuanVideo15Pipeline"),
        ("pipe(height=h, width=848, num_frames=121)", "HunyuanVideo15Pipeline"),
        ("resize(height=480, width=848, num_frames=121)", "HunyuanVideo15Pipeline"),
        # Its mask is one over the keys.
        ("pipe(height=720, width=1280, num_frames=129)", "HunyuanVideoPipeline"),
        ("pipe(height=480, width=848, num_frames=121)", "DiffusionPipeline"),
        ("pipe(height=2048, width=2048)", "ChromaPipeline"),
        (
            "p = WanPipeline.from_pretrained('x')\npipe(height=480, width=848, num_frames=121)",
            "HunyuanVideo15Pipeline",
        ),
    ],
)
def test_scripts_of_which_nothing_is_claimed(call: str, pipeline: str, tmp_path: Path) -> None:
    assert not mask_findings(predicted(script(tmp_path, call, pipeline)))


def test_a_float_mask_is_no_length(tmp_path: Path) -> None:
    path = script(tmp_path, "pipe(height=4096, width=4096)", "ChromaPipeline")
    (finding,) = mask_findings(predicted(path))
    native, smaller = finding.fixes
    assert "flex → native" in native.title
    assert "take a smaller size" in smaller.title


def test_unfused_flex_in_a_script_is_not_meant(tmp_path: Path) -> None:
    path = script(tmp_path, "pipe(height=480, width=848, num_frames=121)")
    text = path.read_text("utf-8").replace("torch.compile(fa.flex_attention)", "None")
    path.write_text(text, encoding="utf-8")
    assert rules(predicted(path)) == ["flex/unfused"]


@pytest.mark.parametrize("tokens", [46340, 46341])
def test_the_builder_draws_the_same_line(tokens: int, tmp_path: Path) -> None:
    wide = KernelSpec(heads=16, head_dim=128, lengths=(tokens,), mask="bool", mask_rows=True)
    refused = bool(refusal(wide, "2.11.0", "cuda:0", 90))
    assert refused is (elements(tokens) > REACH) is (tokens > most_tokens())
    assert (most_samples(tokens) == 0) is refused


def test_frames_within() -> None:
    size = Sized(preset="hunyuanvideo15", resolution="848x480", frames=121)
    assert size.frames_within(46340) == 105
    assert size.frames_within(1985 + 1590) == 1
    assert size.frames_within(1985 + 1589) == 0
    assert Sized(preset="chroma", resolution="4096x4096").frames_within(46340) == 0
