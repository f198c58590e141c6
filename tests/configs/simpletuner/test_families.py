"""SimpleTuner's table of families against what the real wheels say.

`families.json` was derived from 17 releases by `tools/families.py record`. Where
ATTN_DOCTOR_WHEELS names a folder of wheels, they are read anew.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from attn_doctor.configs.simpletuner.families import (
    families,
    family,
    newest,
    release,
)
from tests.configs.machines import (
    machine,
    phase,
    predicted,
    rules,
    written,
)

RECORD: dict[str, Any] = json.loads(
    Path(__file__).with_name("families.json").read_text(encoding="utf-8")
)
VERSIONS = sorted(RECORD, key=lambda one: [int(part) for part in one.split(".")])
WHEELS = os.environ.get("ATTN_DOCTOR_WHEELS", "")


def tool() -> ModuleType:
    path = Path(__file__).parents[3] / "tools" / "families.py"
    spec = importlib.util.spec_from_file_location("families_tool", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "version", "chosen", "preset", "heads"),
    [
        ("flux2", "4.0.0", "", "flux2", 48),
        ("flux2", "4.10.1", "", "flux2-klein-9b", 0),
        ("flux2", "4.10.1", "dev", "flux2", 48),
        ("qwen_image", "4.9.0", "", "qwen-image", 24),
        ("qwen_image", "4.10.1", "", "", 32),
        ("qwen_image", "4.10.1", "v1.0", "qwen-image", 24),
        ("wan", "4.10.1", "animegen-t2v-low", "wan22", 0),
        ("wan", "4.10.1", "vace-14b-2.1", "wan21-vace-14b", 0),
        ("wan", "4.10.1", "flf2v-14b-2.1", "wan21-i2v", 0),
        ("wan", "4.10.1", "t2v-480p-14b-2.1", "wan21-14b", 0),
        ("ltxvideo2", "4.10.1", "2.3-distilled", "ltx2.3", 0),
    ],
)
def test_the_size_of_a_flavour(
    name: str, version: str, chosen: str, preset: str, heads: int
) -> None:
    """By the DEFAULT_MODEL_FLAVOUR and HUGGINGFACE_PATHS of the wheels."""
    size = families()[name].flavour_in(version, chosen)
    assert (size.preset, size.heads) == (preset, heads)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_table_agrees_with_the_wheels(version: str) -> None:
    """44 families in 17 releases."""
    seen = RECORD[version]
    routed = {name for name, one in families().items() if one.routed_in(version)}
    assert routed & {*seen["routed"], *seen["others"]} == {*seen["routed"]}
    assert {*seen["routed"], *seen["others"]} <= {*families()}
    packs = {name for name, one in families().items() if one.packed_in(version)}
    assert packs & {*seen["routed"], *seen["others"]} == {*seen["packed"]}
    this = release(version)
    assert (this.known, this.holds_sdpa, this.kohaku) == (True, seen["holds_sdpa"], seen["kohaku"])


def test_enough_was_looked_at() -> None:
    assert len(VERSIONS) >= 3
    assert newest() == VERSIONS[-1]
    assert all(len(one["routed"]) + len(one["others"]) >= 12 for one in RECORD.values())


def test_a_wrong_table_is_noticed() -> None:
    wrong = json.loads(json.dumps(RECORD))
    wrong["4.8.0"]["routed"]["flux"] = "own"
    wrong["4.8.0"]["others"].remove("flux")
    wrong["4.8.0"]["holds_sdpa"] = True
    wrong["4.8.0"]["others"].append("nothing_of_the_kind")
    assert tool().compare(RECORD) == []
    assert [line.split(": ")[1] for line in tool().compare(wrong)] == [
        "flux",
        "the table has no nothing_of_the_kind",
        "holds_sdpa",
    ]


@pytest.mark.skipif(not WHEELS, reason="ATTN_DOCTOR_WHEELS names no folder of wheels")
def test_the_record_agrees_with_real_wheels() -> None:
    found = tool().record(Path(WHEELS))
    assert found
    # Which Diffusers stood beside them may differ from folder to folder.
    for version, seen in found.items():
        if version in RECORD:
            assert {**seen, "diffusers": ""} == {**RECORD[version], "diffusers": ""}, version
    assert tool().compare(found) == []


@pytest.mark.parametrize("version", ["3.1.1", "4.0.6", "4.1.0", "4.8.0", "4.10.1"])
def test_the_verdict_agrees_with_the_wheels(version: str, tmp_path: Path) -> None:
    """`flex` on every family: it runs where the wheel's code reaches the dispatcher alone."""
    seen = RECORD[version]
    facts = machine(version)
    for name in (*seen["routed"], *seen["others"]):
        path = written(
            tmp_path, model_family=name, attention_mechanism="flex", dynamo_backend="inductor"
        )
        one = predicted(path, facts)
        backends = {each.backend for each in one.phases}
        if name in seen["routed"]:
            assert backends == {"flex"}, (name, version)
        elif name != "mageflow":
            assert backends == {"native"}, (name, version)
            assert rules(one) == ["simpletuner/backend-not-routed"], (name, version)


def test_a_newer_release_is_unknown(tmp_path: Path) -> None:
    path = written(tmp_path, model_family="wan", attention_mechanism="flex")
    one = predicted(path, machine("4.99.0"))
    for each in one.phases:
        assert each.backend == ""
        assert each.shown == "unknown"
        assert "newer than 4.10.1" in each.why
        assert each.last == "flex in 4.10.1"
    assert one.findings == ()


def test_an_unknown_family_is_unknown(tmp_path: Path) -> None:
    one = predicted(written(tmp_path, model_family="sora", attention_mechanism="flex"))
    assert phase(one, "training").backend == ""
    assert "sora is not in the table" in phase(one, "training").why
    assert family("sd2x") is family("sd1x")
