"""A GPU's description: what it may say, what it lacks, and its way through a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.gpus import known
from attn_doctor.kernels.gpus.descriptor import (
    ATTRIBUTES,
    NEEDED,
    Descriptor,
    identifier,
)
from attn_doctor.render.build_kernels.gpu_descriptors import (
    descriptor_json,
    descriptor_toml,
    written_text,
)
from attn_doctor.render.terminal import Terminal

PROPERTIES: dict[str, Any] = {
    "multi_processor_count": 66,
    "total_memory": 16_852_516_864,
    "L2_cache_size": 50_331_648,
    "regs_per_multiprocessor": 65536,
    "max_threads_per_multi_processor": 1536,
    "max_threads_per_block": 1024,
    "warp_size": 32,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 101376,
    "shared_memory_per_multiprocessor": 102400,
}


def card(**fields: Any) -> Descriptor:
    return Descriptor(name="NVIDIA GeForce RTX 4070 Ti SUPER", major=8, minor=9, **fields)


def whole(**fields: Any) -> Descriptor:
    return card(
        **{
            **PROPERTIES,
            "clock_rate": 2_610_000,
            "memory_clock_rate": 10_501_000,
            "memory_bus_width": 256,
            "attributes": {"16": 66, "97": 101376, "120": 0},
            "driver": "580.159.04",
            "driver_cuda": 13000,
            "environment": {"CXX": "/opt/my gcc/bin/g++", "TRITON_X": 'a "b" \\ c\td\x7f'},
            "settings": {"inductor": "22bf"},
            "software": {"torch": "2.11.0+cu130", "abi": "cp312", "cxx": ""},
            "source": "attn-doctor describe-gpu",
            "probed": "2026-11-21",
            **fields,
        }
    )


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_a_file_gives_back_what_was_written(tmp_path: Path, ending: str) -> None:
    before = whole()
    if ending == "json":  # results in JSON hold no control character
        before = msgspec.structs.replace(before, environment={"CXX": "/opt/my gcc/bin/g++"})
    path = tmp_path / f"gpu.{ending}"
    path.write_text(descriptor_toml(before) if ending == "toml" else descriptor_json(before))
    assert known.read(path) == before
    assert known.find(str(path)) == before


@pytest.mark.posix
def test_the_file_tells_a_person_what_to_do_with_it() -> None:
    text = descriptor_toml(whole(), "/tmp/my gpu.toml")
    assert text.startswith("# NVIDIA GeForce RTX 4070 Ti SUPER, compute capability 8.9.\n")
    assert text.rstrip().endswith("--target 'my gpu.toml' --cache-dir DIR --preset NAME")
    assert "--target rtx4070-ti-super.toml" in descriptor_toml(whole())
    assert "# L2_cache_size: unknown" in descriptor_toml(card())
    assert "L2_cache_size is unknown" in written_text(card(), "a.toml", Terminal())


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-blackwell-server-edition"),
        ("Tesla T4", "t4"),
    ],
)
def test_the_word_for_a_gpu(name: str, word: str) -> None:
    assert identifier(name) == word


def test_the_compute_capability_as_a_number() -> None:
    assert card().sm == 89
    assert Descriptor(name="NVIDIA GB300", major=10, minor=3).sm == 103


def test_what_the_generated_code_depends_on_may_not_be_missing() -> None:
    assert set(card().missing) == set(NEEDED)
    assert whole().complete
    for name in NEEDED:
        lacking = whole(**{name: None, "attributes": {}})
        assert lacking.missing == (name,)
        with pytest.raises(AttnDoctorError, match=rf"{name}.*describe-gpu"):
            known.buildable(lacking)
    # Clocks drive estimates of time alone, and CUDA 13 does not tell them of every GPU.
    assert known.buildable(whole(clock_rate=None, memory_clock_rate=0)).complete


def test_the_drivers_attributes_replace_what_torch_does_not_name() -> None:
    found = card(attributes={str(number): 7 for number in ATTRIBUTES.values()}).completed()
    assert found.L2_cache_size == 7
    assert found.missing == ("total_memory",)
    assert whole().completed() == whole()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 2}, "schema is 2"),
        ({"name": " "}, "name is empty"),
        ({"major": 89, "minor": 0}, "89.0 is not a compute capability"),
        ({"warp_size": 0}, "warp_size is 0"),
        ({"memory_bus_width": -1}, "memory_bus_width is -1"),
        ({"attributes": {"16": 132}}, "multi_processor_count is 66, but attribute 16"),
        ({"attributes": {"SM": 132}}, "SM is not a number"),
    ],
)
def test_what_no_gpu_can_be(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    wrong = msgspec.structs.replace(whole(), **change)
    assert any(words in fault for fault in wrong.faults())
    path = tmp_path / "gpu.toml"
    path.write_text(descriptor_toml(wrong))
    with pytest.raises(AttnDoctorError) as raised:
        known.read(path)
    assert str(path) in str(raised.value)
    assert words in str(raised.value)
    assert whole().faults() == []


def test_a_machine_of_its_own() -> None:
    assert whole().own
    assert not card().own
    assert not whole().alone().own
    assert whole().alone().environment == {}
    assert whole().alone().values() == whole().values()
    assert whole().values()["total_memory"] == PROPERTIES["total_memory"]
    assert "clock_rate" not in card().values()
