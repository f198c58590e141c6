"""SimpleTuner's configurations: what will run, what is wrong, and the change that helps."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.backends.readiness import Readiness
from attn_doctor.configs.readers.kinds import read
from attn_doctor.facts import Facts, Package
from attn_doctor.findings import Severity, SourceLocation
from tests.configs.machines import (
    machine,
    phase,
    predicted,
    rules,
    written,
)


@pytest.mark.parametrize("version", ["3.1.1", "4.0.6", "4.8.0", "4.10.1"])
def test_flex_on_flux_has_no_effect(version: str, tmp_path: Path) -> None:
    path = written(tmp_path, model_family="flux", attention_mechanism="flex")
    one = predicted(path, machine(version))
    assert {each.backend for each in one.phases} == {"native"}
    finding = one.findings[0]
    assert finding.rule == "simpletuner/backend-not-routed"
    assert "no effect on Flux.1" in finding.title
    assert version in finding.title
    assert finding.location == SourceLocation(str(path), 9)
    assert path.read_text("utf-8").splitlines()[8].strip() == '"attention_mechanism": "flex"'
    assert finding.fixes[0].title.startswith(
        f"{path}, line 9: attention_mechanism: flex → diffusers"
    )
    # Since 4.9.3 torch's own kernels can be held for every family.
    assert any("cudnn" in fix.title for fix in finding.fixes) is (version == "4.10.1")
    assert one.ignored == ("attention_mechanism = flex",)


def test_flex_on_wan_acts_since_4_1(tmp_path: Path) -> None:
    path = written(tmp_path, model_family="wan", attention_mechanism="flex")
    before, after = (predicted(path, machine(version)) for version in ("4.0.6", "4.1.0"))
    assert {each.backend for each in before.phases} == {"native"}
    assert before.findings[0].fixes[0].run == (
        ("pip", "install", "--upgrade", "simpletuner>=4.1.0"),
    )
    assert {each.backend for each in after.phases} == {"flex"}
    assert rules(after) == ["flex/unfused"]


def test_a_validation_that_is_disabled_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, model_family="flux", validation_disable="true")
    assert [each.phase for each in predicted(path).phases] == ["training"]


def test_flex_on_sdxl_has_no_effect(tmp_path: Path) -> None:
    path = written(tmp_path, model_family="sdxl", attention_mechanism="flex")
    assert rules(predicted(path)) == ["simpletuner/backend-not-routed"]


@pytest.mark.parametrize("dynamo", ["", "no", "eager", "inductor"])
def test_flex_is_fused_only_by_inductor(dynamo: str, tmp_path: Path) -> None:
    settings = {"dynamo_backend": dynamo} if dynamo else {}
    path = written(
        tmp_path, model_family="flux2", model_flavour="dev", attention_mechanism="flex", **settings
    )
    one = predicted(path)
    fused = dynamo == "inductor"
    assert {each.fused for each in one.phases} == {fused}
    assert rules(one) == ([] if fused else ["flex/unfused"])
    # 48 heads of 128 over 4608 tokens: unfused twice what 24 heads took on an H200.
    assert phase(one, "training").mib == (840 if fused else 26624)
    if not fused:
        found = one.findings[0].fixes[0].title
        assert "inductor" in found
        assert (f"dynamo_backend: {dynamo} → inductor" in found) is bool(dynamo)
        assert ('add "dynamo_backend": "inductor"' in found) is not bool(dynamo)


@pytest.mark.parametrize(
    ("mechanism", "wrong"),
    [("flash-attn", True), ("cudnn", True), ("native-flash", True), ("flex", False)],
)
def test_mixed_precision_no_gives_fp32(mechanism: str, wrong: bool, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        model_family="wan",
        attention_mechanism=mechanism,
        mixed_precision="no",
        dynamo_backend="inductor",
    )
    one = predicted(path)
    assert {each.dtype for each in one.phases} == {"fp32"}
    found = [each for each in one.findings if "mixed_precision" in each.title]
    assert bool(found) is wrong
    if wrong:
        assert found[0].location == SourceLocation(str(path), 3)
        assert "mixed_precision: no → bf16" in found[0].fixes[0].title


def test_precision_below_ampere_is_fp16(tmp_path: Path) -> None:
    path = written(tmp_path, model_family="wan", attention_mechanism="cudnn", mixed_precision="no")
    found = predicted(path, machine(sm=75)).findings
    fixes = [fix.title for one in found for fix in one.fixes if "mixed_precision" in fix.title]
    assert fixes
    assert all("→ fp16" in one for one in fixes)


@pytest.mark.parametrize(
    ("family", "mechanism", "diffusers", "rule"),
    [
        ("qwen_image", "flash-attn", "0.40.0", "diffusers/mask-rejected"),
        ("qwen_image", "flash-attn", "0.36.0", "diffusers/mask-dropped"),
        ("qwen_image", "flash-attn-2", "0.40.0", "diffusers/varlen-mask"),
        ("qwen_image", "flex", "0.40.0", "flex/mask-two-dimensions"),
        ("chroma", "flash-attn-2", "0.40.0", "diffusers/varlen-mask"),
        ("z_image", "flash-attn-hub", "0.40.0", "diffusers/mask-rejected"),
        ("ernie", "flash-attn-3", "0.40.0", "diffusers/mask-rejected"),
        ("ltxvideo", "flash-attn-2", "0.40.0", "diffusers/varlen-mask"),
        ("cosmos3", "flex", "0.40.0", "flex/causal-flag"),
    ],
)
def test_masks_that_a_backend_does_not_take(
    family: str, mechanism: str, diffusers: str, rule: str, tmp_path: Path
) -> None:
    path = written(
        tmp_path, model_family=family, attention_mechanism=mechanism, dynamo_backend="inductor"
    )
    one = predicted(path, machine(diffusers=diffusers))
    assert rule in rules(one)


@pytest.mark.parametrize(
    ("family", "mechanism"),
    [("flux2", "flash-attn"), ("wan", "flash-attn-hub"), ("z_image", "flash-attn-2")],
)
def test_masks_that_a_backend_takes(family: str, mechanism: str, tmp_path: Path) -> None:
    one = predicted(written(tmp_path, model_family=family, attention_mechanism=mechanism))
    assert not [each for each in rules(one) if "mask" in each]


def test_sage_serves_validation_alone(tmp_path: Path) -> None:
    path = written(tmp_path, model_family="flux", attention_mechanism="sageattention")
    one = predicted(path)
    assert (phase(one, "training").backend, phase(one, "validation").backend) == (
        "native",
        "st_sage",
    )
    first = one.findings[0]
    assert (first.rule, first.severity) == ("simpletuner/sage-validation-only", Severity.INFO)


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"sageattention_usage": "training+inference"}, "sage/no-gradients"),
        ({"sageattention_usage": "both"}, "simpletuner/mechanism-unknown"),
        ({"base_model_precision": "nf4-bnb"}, "simpletuner/sage-with-nf4"),
    ],
)
def test_sage_misused(settings: dict[str, str], rule: str, tmp_path: Path) -> None:
    path = written(tmp_path, model_family="flux", attention_mechanism="sageattention", **settings)
    found = next(one for one in predicted(path).findings if one.rule == rule)
    assert found.location is not None
    assert found.location.line == 9 + list(settings).index(next(iter(settings))) + 1


@pytest.mark.parametrize(
    ("version", "mechanism", "near"),
    [
        ("4.8.0", "flash", "flash-attn"),
        ("4.8.0", "sage", "sageattention"),
        ("4.0.6", "flash-attn-hub", "flash-attn"),
        ("3.1.1", "native", "diffusers"),
    ],
)
def test_mechanisms_that_a_release_does_not_have(
    version: str, mechanism: str, near: str, tmp_path: Path
) -> None:
    path = written(tmp_path, model_family="wan", attention_mechanism=mechanism)
    one = predicted(path, machine(version))
    assert {each.backend for each in one.phases} == {""}
    assert rules(one) == ["simpletuner/mechanism-unknown"]
    assert f"attention_mechanism: {mechanism} → {near}:" in one.findings[0].fixes[0].title


def test_a_backend_that_diffusers_lacks_is_left_out_in_silence(tmp_path: Path) -> None:
    path = written(tmp_path, model_family="wan", attention_mechanism="flash-attn-4-hub")
    one = predicted(path, machine(diffusers="0.36.0"))
    assert {each.backend for each in one.phases} == {"native"}
    assert rules(one) == ["simpletuner/mechanism-ignored"]
    assert "0.38" in phase(one, "training").why


def with_packages(folder: Path, *names: str) -> Facts:
    """SimpleTuner 4.10.1 on an H100, in an environment with these distributions."""
    for name in names:
        (folder / f"{name}.dist-info").mkdir()
    facts = machine("4.10.1")
    return replace(facts, python=replace(facts.python, site_packages=(str(folder),)))


KOHAKU = ("nvidia_cutlass_dsl-4.8.1", "apache_tvm_ffi-0.1.14", "ninja-1.13.0")


def test_the_default_of_4_10(tmp_path: Path) -> None:
    path = written(tmp_path, model_family="flux")
    old, other = predicted(path, machine("4.8.0")), predicted(path, machine("4.10.1", sm=80))
    assert [each.backend for each in old.phases] == ["native", "native"]
    assert [each.backend for each in other.phases] == ["native", "native"]
    unseen = phase(predicted(path, machine("4.10.1")), "training")
    assert "nvidia-cutlass-dsl and apache-tvm-ffi and ninja are installed" in unseen.undecided
    bare = with_packages(tmp_path)
    assert "nvidia-cutlass-dsl is not installed" in phase(predicted(path, bare), "training").why
    full = with_packages(tmp_path, *KOHAKU)
    assert [each.backend for each in predicted(path, full).phases] == ["kohaku_fa_auto", "native"]


def test_the_default_of_4_10_is_left_out(tmp_path: Path) -> None:
    facts = with_packages(tmp_path, *KOHAKU)
    for settings in ({"context_parallel_size": 2}, {"minimax_h3_sparse_attention": "sparse"}):
        path = written(tmp_path, model_family="wan", **settings)
        assert [each.backend for each in predicted(path, facts).phases] == ["native", "native"]
    variable = replace(facts, env={"DIFFUSERS_ATTN_BACKEND": "_native_cudnn"})
    path = written(tmp_path, model_family="wan")
    assert phase(predicted(path, variable), "validation").backend == "_native_cudnn"


def test_the_mechanism_alone_decides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"attention_mechanism": "flex"}', encoding="utf-8")
    reason = "model_family is not set here, and it decides whether flex acts"
    assert {each.undecided for each in predicted(path).phases} == {reason}


def test_parallel_over_tokens(tmp_path: Path) -> None:
    for mechanism in ("kohaku-fa", "flex"):
        path = written(
            tmp_path,
            model_family="wan",
            attention_mechanism=mechanism,
            context_parallel_size=2,
            dynamo_backend="inductor",
        )
        assert "diffusers/context-parallel" in rules(predicted(path, machine("4.10.1")))


def test_the_newer_qwen_image_takes_flex(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        model_family="qwen_image",
        model_flavour="v2.1",
        attention_mechanism="flex",
        dynamo_backend="inductor",
    )
    assert rules(predicted(path, machine("4.10.1"))) == []


@pytest.mark.parametrize("family", ["pixart_sigma", "kandinsky5-image", "z-image", "cosmos2image"])
def test_names_of_release_3(family: str, tmp_path: Path) -> None:
    one = predicted(written(tmp_path, model_family=family), machine("3.3.4"))
    assert [each.backend for each in one.phases] == ["native", "native"]
    assert one.subject != family


def test_packed_attention_needs_its_kernel(tmp_path: Path) -> None:
    path = written(tmp_path, model_family="mageflow", attention_mechanism="flash-attn-2")
    facts = replace(machine("4.10.1"), kernels=Package(installed=False))
    one = predicted(path, facts)
    assert {each.backend for each in one.phases} == {"packed"}
    assert {each.state for each in one.phases} == {Readiness.NOT_READY}
    assert any("packed attention needs flash_varlen_hub" in each.title for each in one.findings)


def test_torchs_kernels_are_held_for_every_family_since_4_9_3(tmp_path: Path) -> None:
    path = written(tmp_path, model_family="flux", attention_mechanism="cudnn")
    assert {one.backend for one in predicted(path, machine("4.9.3")).phases} == {"_native_cudnn"}
    assert {one.backend for one in predicted(path, machine("4.9.0")).phases} == {"native"}


def test_packed_attention_of_flux(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        model_family="flux",
        attention_mechanism="flash-attn-3",
        fuse_qkv_projections=True,
    )
    one = predicted(path)
    assert {each.backend for each in one.phases} == {"packed"}
    assert one.ignored == ()
    assert one.findings == ()


def test_xformers_is_known_in_unets_alone(tmp_path: Path) -> None:
    for family, backend in (("sdxl", "st_xformers"), ("flux", "")):
        path = written(tmp_path, model_family=family, attention_mechanism="xformers")
        assert {one.backend for one in predicted(path, machine(sm=89)).phases} == {backend}


def test_fp8_with_a_quantised_model(tmp_path: Path) -> None:
    path = written(
        tmp_path, model_family="flux", mixed_precision="fp8", base_model_precision="int8-quanto"
    )
    assert "simpletuner/fp8-precision" in rules(predicted(path))


def test_toml_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '# ours\nmodel_family = "wan"\n"--attention_mechanism" = "flex"\n\n[other]\nx = 1\n',
        encoding="utf-8",
    )
    one = predicted(path)
    assert rules(one) == ["flex/unfused"]
    assert one.findings[0].location == SourceLocation(str(path), 3)


def test_config_env_ignores_the_mechanism(tmp_path: Path) -> None:
    path = tmp_path / "config.env"
    path.write_text(
        "export MODEL_FAMILY='wan'\nATTENTION_MECHANISM=flex\nMIXED_PRECISION=bf16\n",
        encoding="utf-8",
    )
    one = predicted(path)
    assert {each.backend for each in one.phases} == {"native"}
    assert one.findings[0].rule == "simpletuner/mechanism-ignored"
    assert "TRAINER_EXTRA_ARGS" in one.findings[0].fixes[0].title


def test_config_env_passes_extra_arguments_on(tmp_path: Path) -> None:
    path = tmp_path / "config.env"
    path.write_text(
        'MODEL_FAMILY=wan\nTRAINER_EXTRA_ARGS="--report_to=none"\n'
        'TRAINER_EXTRA_ARGS+=" --attention_mechanism=flex"\nTRAINING_DYNAMO_BACKEND=inductor\n',
        encoding="utf-8",
    )
    one = predicted(path)
    assert {each.backend for each in one.phases} == {"flex"}
    assert one.findings == ()
    assert {each.fused for each in one.phases} == {True}


def test_nested_keys_and_empty_values_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{"model_family": "wan",\n "x": {"attention_mechanism": "flash"},\n'
        ' "attention_mechanism": ""}',
        encoding="utf-8",
    )
    assert read(path).line("attention_mechanism") == 3
    assert {one.backend for one in predicted(path).phases} == {"native"}


def test_sizes_of_datasets_count_first(tmp_path: Path) -> None:
    backends = tmp_path / "data.json"
    backends.write_text(
        """[{"id": "a", "dataset_type": "video", "resolution": 480, "video": {"num_frames": 81}},
        {"id": "b", "dataset_type": "text_embeds", "resolution": 4096},
        {"id": "c", "dataset_type": "video", "resolution": 2048, "disabled": true}]""",
        encoding="utf-8",
    )
    settings = {"model_family": "wan", "data_backend_config": "data.json"}
    one = predicted(written(tmp_path, **settings))
    # 480² pixels are 30 × 30 tokens, 81 frames are 21.
    assert phase(one, "training").tokens == 18900
    backends.write_text("[[[", encoding="utf-8")
    assert phase(predicted(written(tmp_path, **settings)), "training").tokens == 0


def test_tokens_and_memory_of_images(tmp_path: Path) -> None:
    for resolution, kind, tokens in (
        (1024, "pixel", 4608),
        (512, "pixel", 1536),
        (1, "area", 4608),
    ):
        path = written(tmp_path, model_family="flux", resolution=resolution, resolution_type=kind)
        assert phase(predicted(path), "training").tokens == tokens
