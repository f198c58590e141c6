"""Families and sizes become specs whose tokens are those that the models see."""

from __future__ import annotations

import re

import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder import presets
from attn_doctor.kernels.builder.spec_requests import SpecArgs, requested_specs
from attn_doctor.record.spec import LAYOUTS, MASKS, KernelSpec
from attn_doctor.rulebook import library
from attn_doctor.worker.kernels.blocks.model_inputs import number

FAMILIES = presets.families()


def specs(text: str, **flags: object) -> tuple[KernelSpec, ...]:
    return requested_specs(SpecArgs.of({"preset": [text], **flags})).specs


@pytest.mark.parametrize(
    ("preset", "heads", "head_dim", "length"),
    [
        ("flux1@512x512", 24, 128, 1536),
        ("flux1@1024x1024", 24, 128, 4608),
        ("flux1", 24, 128, 4608),
        ("flux2@1024x1024", 48, 128, 4608),
        ("wan21-1.3b@832x480x81", 12, 128, 32760),
        ("wan21-14b@832x480x49", 40, 128, 20280),
        ("wan22@832x480x1", 40, 128, 1560),
        ("wan22@1280x720x81", 40, 128, 75600),
        ("wan22-5b@1280x704x121", 24, 128, 27280),
        ("ltx@768x512x49", 32, 64, 2688),
        ("ltx-13b@1216x704x121", 32, 128, 13376),
        ("ltx2@768x512x121", 32, 128, 6144),
        ("qwen-image@1024x1024:0", 24, 128, 4096),
        ("qwen-image@1328x1328:100", 24, 128, 6889 + 100),
        ("hunyuanvideo@1280x720x129", 24, 128, 118800 + 256),
        ("hunyuanvideo@960x544x129", 24, 128, 67320 + 256),
        ("hunyuanvideo15@848x480x121:0", 16, 128, 49290),
        ("z-image@1024x1024:70", 30, 128, 4096 + 96),
        ("sd35@1024x1024", 38, 64, 4429),
        ("cogvideox-2b@720x480x49", 30, 64, 17550 + 226),
        ("cosmos3@8192", 32, 128, 8192),
    ],
)
def test_tokens_are_those_of_the_model(preset: str, heads: int, head_dim: int, length: int) -> None:
    first = specs(preset)[0]
    assert (first.heads, first.head_dim, first.lengths) == (heads, head_dim, (length,))


def test_width_comes_first() -> None:
    wide = presets.tokens(FAMILIES["ltx"], 768, 512, 49)
    assert (wide.columns, wide.rows, wide.frames) == (24, 16, 7)


def test_cross_attention_is_a_spec_of_its_own() -> None:
    own, cross = specs("ltx@768x512x49")
    assert (own.kv_length, own.mask) == (None, "none")
    assert (cross.kv_length, cross.mask, cross.lengths) == (128, "float", (2688,))


def test_the_values_of_flux2_lie_in_the_projection_with_the_mlp() -> None:
    double, single = specs("flux2@1024x1024")
    assert double.layout == "bshd"
    # 3 × 6144 for queries, keys and values, and 2 × 3 × 6144 for the gated MLP.
    assert (single.layout, single.fused_width) == ("fused-v", 55296)


def test_several_sizes_of_one_process_keep_their_order() -> None:
    (spec,) = specs("flux1@1024x1024+512x512:77")
    assert spec.lengths == (4608, 1024 + 77)


def test_flags_change_a_preset() -> None:
    both = specs("flux1", dtype="fp16", phase="both", batch="2")
    assert [(one.dtype, one.batch, one.phase) for one in both] == [
        ("float16", 2, "training"),
        ("float16", 2, "inference"),
    ]


def test_a_family_that_never_arrives_is_said_to() -> None:
    for name, family in FAMILIES.items():
        size = "" if "default" in family else "@4096"
        notes = " ".join(requested_specs(SpecArgs(preset=[name + size])).notes)
        assert ("never sends" in notes) == (not family["since"])
    assert not FAMILIES["sd35"]["since"]
    assert not FAMILIES["cogvideox"]["since"]


@pytest.mark.parametrize(
    ("preset", "message"),
    [
        ("fluks1", r"no preset 'fluks1'; did you mean flux1"),
        ("flux1@1000x1024", r"1000x1024 is not a multiple of 16 pixels; use 992x1024"),
        ("flux1@1024x1024x9", r"makes images, so a size has no frames"),
        ("wan22@832x480", r"give WIDTHxHEIGHTxFRAMES, such as 832x480x81"),
        ("wan22@832x480x80", r"80 frames are not 4 × n \+ 1; use 77"),
        ("wan22@832x480x81:77", r"its text is cross-attended"),
        ("flux1@big", r"'big' is not WIDTHxHEIGHT, or a number of tokens"),
        ("flux1@0", r"0 tokens are out of range"),
        ("cosmos3", r"give the tokens of one call, as cosmos3@8192"),
        ("cosmos3@64x64", r"give the tokens of one call, as cosmos3@8192"),
        ("wan22@999999936x999999936x1", r"tokens are out of range"),
        ("flux1@" + "9" * 4000, r"is not WIDTHxHEIGHT"),
    ],
)
def test_what_cannot_be_is_said_with_the_way_out(preset: str, message: str) -> None:
    with pytest.raises(AttnDoctorError, match=message):
        specs(preset)


def test_blocks_are_built_for_one_size_in_pixels() -> None:
    (spec,) = requested_specs(SpecArgs(preset=["wan22@832x480x81"], block=True)).specs
    assert spec.block == "wan22"
    assert spec.sizes["tokens"] == 32760
    assert spec.sizes["cross"] == 512
    assert presets.recipe("wan22")["class"] == "diffusers:WanTransformer3DModel"
    for text, message in (
        ("sd35", "holds no kernel of FlexAttention"),
        ("sana-video", "names no repeated blocks of SanaVideo.*; it knows flux1, flux2"),
        ("cosmos3@8192", "its forward takes lists of packed images"),
        ("flux1@4096", "one size, in pixels"),
        ("flux1@1024x1024+512x512", "one size"),
    ):
        with pytest.raises(AttnDoctorError, match=message):
            requested_specs(SpecArgs(preset=[text], block=True))


@pytest.mark.parametrize("name", FAMILIES)
def test_rows_of_the_table_are_whole(name: str) -> None:
    family = FAMILIES[name]
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", name)
    assert family["source"].startswith("https://github.com/")
    assert family["since"] == "" or re.fullmatch(r"0\.\d+", family["since"])
    assert family["attention"]
    for attention in family["attention"]:
        assert attention["layout"] in LAYOUTS
        assert attention.get("mask", "none") in MASKS
        assert set(attention) <= {
            "of", "layout", "mask", "mask_rows", "cross", "fused", "alone", "prompt", "kv_heads"
        }  # fmt: skip
        assert "prompt" not in attention or "cross" in attention
    assert "audio" not in family or family.get("temporal")


BUILT = [name for name in FAMILIES if presets.recipe(name)]
SIZES = {"batch", "tokens", "text", "length", "cross", "frames", "rows", "columns", "audio"}


@pytest.mark.parametrize("name", BUILT)
def test_recipes_name_sizes_that_the_spec_has(name: str) -> None:
    (spec,) = requested_specs(SpecArgs(preset=[name], block=True)).specs
    given = {**spec.sizes, "batch": 1, "length": spec.lengths[0], "heads": 1, "head_dim": 1}
    given["width"] = 1
    recipe = presets.recipe(name)
    assert set(recipe) <= {
        "class", "config", "inputs", "lists", "tuples", "numbers", "shapes", "holds"
    }  # fmt: skip
    tuples = [shape for shapes in recipe.get("tuples", {}).values() for shape in shapes]
    shapes = [*recipe["inputs"].values(), *recipe.get("lists", {}).values(), *tuples]
    sizes = [one for shape in shapes for one in shape]
    for size in [*sizes, *recipe.get("numbers", {}).values()]:
        found = number(given, size)
        assert isinstance(found, int)
        assert found > 0
    inputs = {*recipe["inputs"], *recipe.get("lists", {}), *recipe.get("tuples", {})}
    assert set(recipe.get("holds", {})) <= inputs
    module, _, kind = recipe["class"].partition(":")
    assert module == "diffusers"
    assert kind.isidentifier()


def test_the_reason_for_a_missing_preset_is_shown() -> None:
    absent = library.tables()["presets"]["absent"]
    assert len({one["name"] for one in absent} | set(FAMILIES)) == len(absent) + len(FAMILIES)
    for one in absent:
        assert set(one) == {"name", "title", "why", "source"}
        with pytest.raises(AttnDoctorError, match=re.escape(one["why"])):
            requested_specs(SpecArgs(preset=[f"{one['name']}@1024x1024"], block=True))


def test_every_family_that_has_no_recipe_has_a_reason() -> None:
    for name, family in FAMILIES.items():
        reasons = ["block" in family, "unbuilt" in family, not family["since"]]
        assert reasons.count(True) == 1, name


def test_sizes_are_worked_out_from_left_to_right() -> None:
    given = {"rows": 7, "text": 1985}
    assert number(given, "rows*2") == 14
    assert number(given, "text-985") == 1000
    assert number(given, "text*3/4") == 1488
    assert number(given, "rows+1*2") == 16
    for other in ("layer_norm", "rows*", "half own", 5, [1, "rows"], True):
        assert number(given, other) == other


def test_sound_lasts_as_long_as_the_video() -> None:
    (spec,) = requested_specs(SpecArgs(preset=["ltx2@768x512x121"], block=True)).specs
    assert spec.sizes["audio"] == 126  # 121 / 24 s, 25 tokens a second
    (still,) = requested_specs(SpecArgs(preset=["wan22@832x480x1"], block=True)).specs
    assert "audio" not in still.sizes


def test_text_that_is_cross_attended_and_follows_the_prompt_can_be_given() -> None:
    own, cross = specs("kandinsky5-lite@768x512x121:77")
    assert (own.lengths, own.kv_length) == ((48 * 32 * 31,), None)
    assert cross.kv_length == 77
    assert specs("kandinsky5-lite@768x512x121")[1].kv_length == 256
    (block,) = requested_specs(
        SpecArgs(preset=["kandinsky5-lite@768x512x121:77"], block=True)
    ).specs
    assert (block.sizes["cross"], block.sizes["text"]) == (77, 0)


def test_the_image_of_flux3_is_alone_in_its_first_blocks() -> None:
    joint, alone = specs("flux3@512x512:80")
    assert (joint.lengths, alone.lengths) == ((1024 + 80,), (1024,))


def test_krea2_gives_fewer_key_heads_only_to_an_older_diffusers() -> None:
    newer, older = specs("krea2")
    assert (newer.kv_heads, older.kv_heads) == (None, 12)


def test_the_listing_names_every_family_once() -> None:
    names = [name for name, _, _ in presets.listing()]
    assert len(names) == len(set(names)) >= 20
