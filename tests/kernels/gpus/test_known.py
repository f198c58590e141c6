"""The table of GPUs, and what is said to a word that names none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.gpus import known
from attn_doctor.kernels.gpus.descriptor import NEEDED, Descriptor
from attn_doctor.render.build_kernels.gpu_descriptors import (
    CAPABILITIES,
    listing_json,
    listing_text,
)
from attn_doctor.render.terminal import Terminal
from attn_doctor.rulebook.library import folder
from attn_doctor.toml_files import read_toml

FILES = sorted((folder() / "tables" / "targets").glob("*.toml"))
#: Of these, what decides what a kernel may take follows from the compute capability.
OPTIN = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99}


def refused(word: str) -> str:
    with pytest.raises(AttnDoctorError) as raised:
        known.find(word)
    return str(raised.value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_value_of_the_table_names_where_it_was_seen(path: Path) -> None:
    found = known.read(path)
    assert path.stem == found.id, "a file is named by what --target calls it"
    assert found.probed
    if not found.seen:
        assert found.source == "attn-doctor describe-gpu"
        return
    cited = [name for names in found.seen.values() for name in names]
    assert set(cited) == {"name", *found.values()}
    for source in found.seen:
        assert source.startswith(("https://", "torch.cuda.get_device_properties", "attn-doctor"))
    if CAPABILITIES in found.seen:
        # What a GPU has by itself never comes from there.
        own = {"name", "multi_processor_count", "total_memory", "L2_cache_size", "clock_rate"}
        assert not own & set(found.seen[CAPABILITIES])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_table_does_not_contradict_the_compute_capability(path: Path) -> None:
    found = known.read(path)
    assert found.shared_memory_per_block_optin == OPTIN[found.sm] * 1024
    reserved = 0 if found.sm < 80 else 1024
    assert found.shared_memory_per_multiprocessor == OPTIN[found.sm] * 1024 + reserved
    assert found.regs_per_multiprocessor == 65536
    assert found.warp_size == 32


def test_the_table_holds_no_name_twice_and_nothing_of_a_machine() -> None:
    names = [one.name for one in known.listing()]
    assert len(set(names)) == len(names) == len(FILES)
    for one in known.listing():
        assert not one.own
        assert one == one.alone(), "variables and releases belong to the described machine"


def test_the_h200_is_the_real_one() -> None:
    found = known.find("h200")
    assert found.name == "NVIDIA H200"
    assert found.sm == 90
    assert found.multi_processor_count == 132
    assert found.total_memory == 150109880320
    assert found.L2_cache_size == 62914560
    assert found.complete


@pytest.mark.parametrize(
    ("word", "id"),
    [
        ("h200", "h200"),
        ("H200", "h200"),
        ("NVIDIA H200", "h200"),
        ("RTX 4090", "rtx4090"),
        ("4090", "rtx4090"),
        ("rtx-4090", "rtx4090"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"),
        ("a100-sxm4-80gb", "a100-sxm4-80gb"),
    ],
)
def test_a_gpu_is_found_by_any_way_of_writing_it(word: str, id: str) -> None:
    assert known.find(word).id == id


@pytest.mark.parametrize("word", ["sm_89", "SM89", "89", "8.9", "compute_89", "sm_89a"])
def test_a_compute_capability_is_refused_with_the_reason(word: str) -> None:
    message = refused(word)
    assert message.startswith(f"--target {word}: ")
    assert "exact name" in message
    assert "multiprocessors" in message
    assert "describe-gpu" in message
    those = [one.id for one in known.listing() if one.sm == 89]
    assert "rtx4090" in those
    for name in those:
        assert re.search(rf"\b{name}\b", message)


def test_a_compute_capability_that_no_known_gpu_has() -> None:
    message = refused("sm_87")
    assert "exact name" in message
    assert "known GPUs" not in message


@pytest.mark.parametrize(
    ("word", "id", "other"),
    [("h100", "h100-80gb-hbm3", "h100-pcie"), ("A100", "a100-sxm4-80gb", "a100-sxm4-40gb")],
)
def test_the_commonest_of_several_gpus_is_taken_and_named(word: str, id: str, other: str) -> None:
    found = known.find(word)
    assert found.id == id
    remark = known.name_remark(word, found)
    assert f"--target {word}: built for {found.name}" in remark
    assert other in remark


@pytest.mark.parametrize("word", ["h200", "h100-pcie", "NVIDIA H100 80GB HBM3"])
def test_an_exact_name_needs_no_remark(word: str) -> None:
    assert known.name_remark(word, known.find(word)) == ""


def test_an_unknown_name_names_the_nearest() -> None:
    assert "did you mean rtx4090" in refused("rtx4080")
    message = refused("mi300x")
    assert "did you mean" not in message
    assert "describe-gpu" in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('name = "NVIDIA H200"\nmajor = 9', "missing required field `minor`"),
        ('name = "NVIDIA H200"\nmajor = "9"\nminor = 0', r"Expected `int`, got `str`"),
        ('name = "NVIDIA H200"\nmajor = 9\nminor = 0\nSMs = 132', "unknown field `SMs`"),
        ("name == 1", "line 1, column 7"),
    ],
)
def test_a_damaged_file(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "gpu.toml"
    path.write_text(text)
    message = refused(str(path))
    assert str(path) in message
    assert words in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    absent = tmp_path / "gpu.toml"
    assert refused(str(absent)) == f"{absent}: cannot be read: No such file or directory"
    assert "No such file" in refused(str(tmp_path / "gpu.json"))
    for name, content in (("a.json", b"{"), ("b.json", b"\xff\xfe"), ("c.toml", b"\xff\xfe")):
        path = tmp_path / name
        path.write_bytes(content)
        assert str(path) in refused(str(path))
    (tmp_path / "d.json").write_text("[]")
    assert "Expected `object`" in refused(str(tmp_path / "d.json"))


def test_a_word_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h200").write_text("not a descriptor")
    assert known.find("h200").name == "NVIDIA H200"


def test_what_serves_a_fit_and_not_a_build() -> None:
    some = [one for one in known.listing() if not one.complete]
    assert some
    for one in some:
        assert set(one.missing) <= set(NEEDED)
        assert one.shared_memory_per_block_optin
        with pytest.raises(AttnDoctorError, match=r"describe-gpu.*--fit can tell"):
            known.buildable(one)


def test_the_list_shows_every_gpu_with_its_source() -> None:
    text = listing_text(known.listing(), Terminal(width=200), verbose=True)
    lines = text.splitlines()
    for one in known.listing():
        place, line = next(pair for pair in enumerate(lines) if pair[1].split(" ")[0] == one.id)
        row = lines[place + 1] if line == one.id else line
        assert one.name in row
        assert row.endswith(" *") is not one.complete
        assert len(row) <= 100
        assert any(source in text for source in (*one.seen, one.source) if source)
    assert read_toml(FILES[0])["name"] in listing_json(known.listing())
    assert "https://" not in listing_text(known.listing())
    single = [Descriptor(name="NVIDIA X", major=9, minor=0, source="mine")]
    alone = listing_text(single, verbose=True)
    assert "--fit only" in alone
    assert "mine" in alone
