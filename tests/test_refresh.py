"""`tools/refresh.py`: what releases say becomes rows, and what they do not say is named."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import zipfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.rulebook import library
from attn_doctor.toml_files import parse_toml

ROOT = Path(__file__).parents[1]
TOOL = runpy.run_path(str(ROOT / "tools" / "refresh.py"))
TABLES = library.folder() / "tables"
DAY = date(2026, 12, 1)
NAMES = ("torch", "triton", "xformers", "flash-attn")
KEYS = {"torch": "minor", "triton": "minor", "xformers": "version", "flash-attn": "version"}
#: What pip's report says of two releases of torch, less what is not read: recorded on 23 November
#: 2026.
METADATA: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("torch", "2.14.1"): {
        "requires_dist": [
            'cuda-toolkit[cublas,cudart]==13.0.2; platform_system == "Linux"',
            'triton~=3.8.0; platform_system == "Linux" and python_version < "3.15"',
        ],
    },
    ("torch", "2.15.0"): {
        "requires_dist": [
            'cuda-toolkit[cublas,cudart]==13.2.2; platform_system == "Linux"',
            'triton~=3.9.0; platform_system == "Linux" and python_version < "3.16"',
        ],
    },
    ("xformers", "0.0.35"): {"requires_dist": ["torch>=2.10", "numpy"]},
}
VERSIONS = {
    "torch": ["2.14.1", "2.15.0", "2.16.0rc1"],
    "triton": ["3.8.0", "3.9.0"],
    "xformers": ["0.0.34", "0.0.35"],
    "flash-attn": ["2.8.3.post1", "2.8.3.post2"],
}
NEWEST = {
    row["index"]: row["newest"]
    for row in parse_toml((TABLES / "releases.toml").read_text("utf-8"), "releases")["release"]
    if "index" in row
}


def cut(text: str, key: str, last: str) -> str:
    """A table without its releases after `last`."""
    head, *blocks = re.split(r"(?m)^(?=\[\[release\]\])", text)
    rest = re.search(r"(?m)^(#[^\n]*\n)*(?=\[\[(?!release)|\[newest)", blocks[-1])
    tail = blocks[-1][rest.start() :] if rest else ""
    kept = []
    for block in blocks:
        kept.append(block)
        if f'{key.ljust(7)} = "{last}"' in block:
            break
    head = re.sub(r'(?m)^newest( *)= "[^"]*"', rf'newest\1= "{last}"', head)
    return head + "".join(kept).rstrip("\n") + ("\n\n" + tail if tail else "\n")


def table(name: str) -> str:
    return (TABLES / f"{name}.toml").read_text("utf-8")


@pytest.fixture
def index(tmp_path: Path) -> Any:
    """An index with the recorded metadata, and wheels that hold what is read of them."""

    def wheel(package: str, version: str) -> Path:
        if package == "triton":
            path = tmp_path / "triton-3.9.0-cp312-abi3-manylinux_2_28_x86_64.whl"
            with zipfile.ZipFile(path, "w") as archive:
                for name, built in (("ptxas", "12.9.86"), ("ptxas-blackwell", "13.4.59")):
                    words = f"\0Cuda compilation tools, release {built[:4]}, V{built}\0"
                    archive.writestr(f"triton/backends/nvidia/bin/{name}", words)
            return path
        path = tmp_path / f"xformers-{version}-py39-none-manylinux_2_28_x86_64.whl"
        with zipfile.ZipFile(path, "w") as archive:
            said = 'FLASH_VER_MIN = parse_version("2.7.1")\nFLASH_VER_LAST = parse_version("2.8.4")'
            archive.writestr("xformers/ops/fmha/flash.py", said)
            archive.writestr("xformers/cpp_lib.json", json.dumps({"version": {"cuda": 1208}}))
        return path

    return TOOL["Index"](
        lambda package: VERSIONS.get(package) or [NEWEST[package]],
        lambda package, version: METADATA[package, version],
        wheel,
        lambda _, version: {"2.14.1": ["3.10", "3.14"], "2.15.0": ["3.11", "3.15"]}[version],
    )


@pytest.mark.parametrize(
    ("name", "last", "same"),
    [
        ("torch", "2.14", ("minor", "triton", "pins", "pypi", "pypi_aarch64", "python")),
        ("triton", "3.8", ("minor", "ptxas", "blackwell")),
        ("xformers", "0.0.34", ("version", "torch", "pypi", "python", "flash")),
        ("flash-attn", "2.8.3.post1", ("version",)),
    ],
)
def test_a_row_that_was_cut_comes_back(
    name: str, last: str, same: tuple[str, ...], index: Any
) -> None:
    texts = {one: table(one) for one in NAMES}
    texts[name] = cut(texts[name], KEYS[name], last)
    (change,) = TOOL["changes"](texts, index)
    text = TOOL["written"](texts[name], change.rows, DAY)
    before, after = (parse_toml(one, name) for one in (table(name), text))
    assert after["newest"] == before["newest"]
    assert after["checked"] == DAY
    assert len(after["release"]) == len(before["release"])
    assert after["release"][:-1] == before["release"][:-1]
    for key in same:
        assert after["release"][-1][key] == before["release"][-1][key], key
    missing = {*before["release"][-1]} - {*after["release"][-1]}
    named = {sentence.split("`")[1] for sentence in change.open}
    # Those with the key beside them.
    implied = {"abi", "machine", "without", "later", "nvcc_by_arch"} | {
        "oldest_torch",
        "refused_by_torch",
    }
    assert missing - implied <= named
    others = {key: before[key] for key in before if key not in ("release", "checked")}
    assert {key: after[key] for key in others} == others


#: The lines of setup.py that say it, in the two forms that releases have.
SETUPS = {
    "one by one": """
def cuda_archs():
    return os.getenv("FLASH_ATTN_CUDA_ARCHS", "80;90;100;120").split(";")
if CUDA_HOME is not None:
    if bare_metal_version < Version("11.7"):
        raise RuntimeError("too old")
    if bare_metal_version >= Version("11.8") and "90" in cuda_archs():
        flags.append("sm_90")
    if bare_metal_version >= Version("12.8") and "100" in cuda_archs():
        flags.append("sm_100")
    if bare_metal_version >= Version("12.8") and "120" in cuda_archs():
        flags.append("sm_120")
""",
    "nested": """
ARCHS = "80;90;100;120"
if bare_metal_version < Version("11.7"):
    raise RuntimeError("too old")
if bare_metal_version >= Version("11.8") and "90" in archs:
    flags += ["sm_90"]
if bare_metal_version >= Version("12.8"):
    if "100" in archs:
        if bare_metal_version >= Version("12.9"):
            flags += ["100f"]
        else:
            flags += ["100"]
    if "120" in archs:
        flags += ["120"]
""",
    "by capability": """
HAS_SM80 = HAS_SM90 = False
HAS_SM80 = False
HAS_SM90 = False
HAS_SM100 = False
HAS_SM120 = False
if nvcc_cuda_version < Version("11.7"):
    raise RuntimeError("too old")
if nvcc_cuda_version < Version("11.8") and any(cc.startswith("9.0") for cc in found):
    raise RuntimeError("too old")
if nvcc_cuda_version < Version("12.8") and any(cc.startswith("10.0") for cc in found):
    raise RuntimeError("too old")
if nvcc_cuda_version < Version("12.8") and any(cc.startswith("12.0") for cc in found):
    raise RuntimeError("too old")
""",
}
PUBLISH = """
          python-version: ['3.9', '3.10', '3.11', '3.12', '3.13']
          torch-version: ['2.4.0', '2.5.1', '2.6.0', '2.7.1', '2.8.0', '2.9.0.dev20250904']
          cuda-version: ['12.9.1']
          cxx11_abi: ['FALSE', 'TRUE']
          exclude:
            - torch-version: '2.4.0'
              python-version: '3.13'
            maxv = {'2.4': 124, '2.5': 124, '2.6': 126, '2.7': 128, '2.8': 129}[env['X']]; \\
"""


@pytest.mark.parametrize("form", SETUPS)
def test_a_checkout_completes_the_row_of_flash_attn(form: str, index: Any, tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(SETUPS[form])
    workflow = tmp_path / ".github" / "workflows" / "publish.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(PUBLISH)
    before = parse_toml(table("flash-attn"), "flash-attn")["release"]
    texts = {one: table(one) for one in NAMES}
    texts["flash-attn"] = cut(texts["flash-attn"], "version", "2.8.3")
    (change,) = TOOL["changes"](texts, index, {"flash-attn": tmp_path})
    # 2.8.3 has the same matrix and limits, and wheels that were added later.
    same = {key: value for key, value in before[-3].items() if key not in ("later", "machine")}
    own = ("version", "source", "checked")
    assert {k: v for k, v in change.rows[-1].items() if k not in own} == {
        k: v for k, v in same.items() if k not in own
    }
    assert not [sentence for sentence in change.open if "2.8.3.post2" in sentence]


def test_nothing_is_new(index: Any) -> None:
    assert TOOL["changes"]({one: table(one) for one in NAMES}, index) == []


def test_releases_are_dated_and_described(index: Any) -> None:
    text = table("releases").replace('"0.0.35"', '"0.0.34"').replace('"2.15"', '"2.14"')
    found = TOOL["newest"](text, index)
    assert found == {"torch": "2.15", "xformers": "0.0.35"}
    written = parse_toml(TOOL["releases"](text, found, DAY), "releases")
    rows = {row["name"]: row for row in written["release"]}
    assert (rows["torch"]["newest"], rows["torch"]["checked"]) == ("2.15", DAY)
    assert rows["diffusers"]["checked"] != DAY
    assert "- torch 2.15\n" in TOOL["body"]([], found)


@pytest.mark.sources
def test_tables_cut_by_two_releases_are_written_from_real_wheels(tmp_path: Path) -> None:
    """The package index answers. Triton's wheels alone are 0.5 GB."""
    for path in TABLES.glob("*.toml"):
        shutil.copy(path, tmp_path / path.name)
    older = {"torch": "2.13", "triton": "3.7", "xformers": "0.0.33.post2", "flash-attn": "2.8.3"}
    releases = table("releases")
    for name, last in older.items():
        newest = parse_toml(table(name), name)["newest"]
        (tmp_path / f"{name}.toml").write_text(cut(table(name), KEYS[name], last))
        releases = releases.replace(f'newest  = "{newest}"', f'newest  = "{last}"')
    releases = releases.replace('newest  = "0.42.1"', 'newest  = "0.40.0"')
    (tmp_path / "releases.toml").write_text(releases)
    (tmp_path / "dispatcher.toml").write_text(cut(table("dispatcher"), "version", "0.40.0"))
    assert TOOL["main"](["--check", "--tables", str(tmp_path)]) == 1
    assert TOOL["main"](["--write", "--tables", str(tmp_path)]) == 0
    for name in (*NAMES, "dispatcher", "releases"):
        before = parse_toml(table(name), name)
        after = parse_toml((tmp_path / f"{name}.toml").read_text(), name)
        assert len(after["release"]) == len(before["release"])
        for old, new in zip(before["release"], after["release"], strict=True):
            for key in {*new} - {"source", "checked", "also"}:
                assert new[key] == old[key], (name, key)
    assert TOOL["main"](["--check", "--tables", str(tmp_path)]) == 0
