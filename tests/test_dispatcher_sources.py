"""The dispatchers of real releases of Diffusers: derived, declared, and changed in forty ways.

Each wheel is fetched from the package index and read, never installed: `pytest -m sources`.
`ATTN_DOCTOR_WHEELS` names a folder that keeps them.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor import derived
from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.matrix import matrix
from attn_doctor.backends.readiness import Matrix, Readiness
from attn_doctor.facts import Dispatcher, Facts, Package
from attn_doctor.pretend import pretend
from attn_doctor.probes.installed.dispatcher_source import describe
from tests.command import whole_tables

pytestmark = pytest.mark.sources

ROOT = Path(__file__).parents[1]
TABLES: Mapping[str, Any] = whole_tables()
RELEASES = TABLES["dispatcher"]["release"]
VERSIONS = [one for row in RELEASES for one in (row["version"], *row.get("also", ()))]
NEWEST = VERSIONS[-1]
FILE = "diffusers/models/attention_dispatch.py"
CALLS = tuple(
    AttentionCall(phase=phase, mask=mask)
    for phase in ("inference", "training")
    for mask in ("none", "bool")
)


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of each listed release."""
    kept = os.environ.get("ATTN_DOCTOR_WHEELS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("wheels")
    for version in VERSIONS:
        if not [*folder.glob(f"diffusers-{version}-*.whl")]:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            given = [*command, "--dest", str(folder), f"diffusers=={version}"]
            subprocess.run(given, check=True, timeout=300)
    return folder


@pytest.fixture(scope="session")
def texts(wheels: Path) -> dict[str, str]:
    """The dispatcher of each release."""
    found = {}
    for version in VERSIONS:
        (wheel,) = wheels.glob(f"diffusers-{version}-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            found[version] = archive.read(FILE).decode()
    return found


def test_the_table_is_what_the_wheels_say(wheels: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "dispatchers.py"))
    assert tool["main"]([str(wheels), "--check"]) == 0


def test_names_and_masks_derived_are_those_declared(wheels: Path) -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "backends_table.py"))
    paths = [next(wheels.glob(f"diffusers-{one}-*.whl")) for one in VERSIONS]
    assert tool["compare"](tool["read"](paths)) == []
    assert tool["compare_masks"](paths) == []


def machine(version: str, found: Dispatcher, tables: Mapping[str, Any] = TABLES) -> Facts:
    """An H100 with all packages, and this Diffusers."""
    words = ["os=linux,python=3.12,gpu=h100,torch=2.11.0+cu130,flash-attn=2.8.3,xformers=0.0.35"]
    words += ["sageattention=2.2.0,kernels=0.17.2", f"diffusers={version}"]
    facts = replace(pretend(Facts(), words, tables), dispatcher=found)
    return derived.derive(facts, tables)


def table(facts: Facts) -> Matrix:
    return matrix(facts, (), CALLS, "diffusers")


def states(found: Matrix) -> dict[str, tuple[bool, tuple[Readiness, ...]]]:
    return {row.name: (row.known, tuple(one.state for one in row.answers)) for row in found.rows}


@pytest.mark.parametrize("number", range(1, len(RELEASES)))
def test_each_release_as_if_it_were_not_known(number: int, texts: dict[str, str]) -> None:
    """What is not unknown is what the table says of that release; else the release is marked."""
    version = RELEASES[number]["version"]
    before = {**TABLES, "dispatcher": {"release": RELEASES[:number]}}
    facts = machine(version, describe(texts[version], "1" * 64), before)
    unmarked = states(table(facts))
    truth = states(table(machine(version, Dispatcher(checksum=RELEASES[number]["checksum"]))))
    changed = {*(facts.dispatcher.changed or ())}
    for name, (known, answers) in unmarked.items():
        if name in changed:
            assert set(answers) == {Readiness.UNKNOWN}
        else:
            assert (known, answers) == truth[name]
    print(f"{version}: {len(changed)} of {len(truth)} changed", facts.dispatcher.shared_changed)


GUARD = """\
    if attn_mask is not None:
        raise ValueError("`attn_mask` is not supported for flash-attn 2.")
"""
PASSED = """\
            causal=is_causal,
            window_size=window_size,
            return_attn_probs=return_lse,
        )
        if return_lse:
            out, lse, *_ = out
    else:
        forward_op = functools.partial(_flash_attention_forward_op"""
PARALLEL = "_parallel_config.context_parallel_config.ring_degree > 1"
#: Each is (old, new, what changes): names of backends, `shared` code, `form`, nothing, or `some`
#: backends at least.
MUTATIONS = (
    # Names.
    ('FLEX = "flex"', 'FLEX = "flex"\n    FLASH_5 = "flash_5"', "flash_5"),
    ('FLEX = "flex"', 'FLEX = "flex_attention"', "flex_attention"),
    ('XFORMERS = "xformers"', 'XF = "xformers"', "xformers"),
    ('SAGE_HUB = "sage_hub"', 'SAGE_HUB = "sage2_hub"', "sage2_hub"),
    ("    AttentionBackendName.FLASH,\n    con", "    AttentionBackendName.X,\n    con", "flash"),
    ("class AttentionBackendName(str, Enum)", "class Backend(str, Enum)", "form"),
    ("class AttentionBackendName(str, Enum)", "class AttentionBackendName(StrEnum)", ""),
    # Packages and their versions.
    ('_FLASH_VERSION = "2.6.3"', '_FLASH_VERSION = "2.9.0"', "flash flash_varlen"),
    ('_SAGE_VERSION = "2.1.1"', '_SAGE_VERSION = "2.3.0"', "some"),
    ('_FLEX_VERSION = "2.5.0"', '_FLEX_VERSION = "2.9.0"', "shared"),
    ('_XFORMERS_VERSION = "0.0.29"', '_XFORMERS_VERSION = "0.0.36"', "xformers"),
    ('is_kernels_version(">=", "0.12")', 'is_kernels_version(">=", "0.18")', "some"),
    ('is_kernels_version(">=", "0.12.3")', 'is_kernels_version(">=", "0.18")', "flash_4_hub"),
    ("        if not is_kernels_available():", "        if False:", "some"),
    ("if not _CAN_USE_XFORMERS_ATTN:", "if _CAN_USE_XFORMERS_ATTN:", "xformers"),
    ("is_flash_attn_3_available()", "is_flash_attn_available()", "_flash_3 _flash_varlen_3"),
    # Imports.
    ("from flash_attn import flash_", "from flash_attn.new import flash_", "flash flash_varlen"),
    (
        "    except (ImportError, OSError, RuntimeError) as e:\n        # Handle",
        "    except ImportError as e:\n        # Handle",
        "flash flash_varlen",
    ),
    ("import xformers.ops as xops", "import xformers.attention as xops", "xformers"),
    # Masks.
    (GUARD, "", "flash flash_hub"),
    (GUARD, GUARD.replace("flash-attn 2", "flash"), ""),
    (GUARD, GUARD.replace("not None", "not None and is_causal"), "flash flash_hub"),
    ("if attn_mask.dtype != torch.bool:", "if attn_mask.dtype == torch.bool:", "some"),
    ("attn_mask.flatten().nonzero", "attn_mask.any().nonzero", "some"),
    ("key_valid.append(key[b, :valid_len])", "key_valid.append(key[b, valid_len:])", "some"),
    # Types and heads.
    ("not in (torch.bfloat16, torch.float16):", "not in (torch.bfloat16,):", "some"),
    ("query.shape[-1] not in (64, 128):", "query.shape[-1] not in (64,):", "sage_blackwell_hub"),
    ("    if query.shape[-1] != key.shape[-1]:", "    if query.shape[-1] > 128:", "some"),
    (
        "    if enable_gqa:\n        raise ValueError",
        "    if not enable_gqa:\n        raise ValueError",
        "some",
    ),
    # Kernels of the Hub.
    ('="SageAttention/sage-attention"', '="kernels-community/sage"', "sage_hub"),
    ('_attr="sageattn3_blackwell"', '_attr="sageattn"', "sage_blackwell_hub"),
    ('if not getattr(org_info, "trustedKernelPublisher", False):', "if True:", "some"),
    # What every call goes through.
    ("    return backend_fn(**kwargs)", "    return backend_fn(query, key, value)", "shared"),
    ("    if _AttentionBackendRegistry._checks_enabled:", "    if True:", "shared"),
    ("    _maybe_download_kernel_for_backend(backend)\n\n    old", "    old", "shared"),
    ("def dispatch_attention_fn(", "def dispatch_attention(", "form"),
    # What the libraries are given.
    ("    out = flash_attn_varlen_func(", "    out = flash_attn_func(", "flash_varlen"),
    ("SDPBackend.CUDNN_ATTENTION", "SDPBackend.MATH", "_native_cudnn"),
    (PASSED, PASSED.replace("is_causal", "False", 1), "flash"),
    # Context parallelism: two backends look at it in a form that is not recognised.
    (PARALLEL, PARALLEL.replace("1", "2"), "some"),
    ("        forward_op=forward_op,", "        forward_op=new_op,", ""),
)


def mutations(text: str) -> Iterator[tuple[str, str, str]]:
    """Name, changed text, and what changes."""
    for number, (old, new, what) in enumerate(MUTATIONS):
        assert old in text, old
        yield f"{number}: {old[:50]}", text.replace(old, new), what
    yield "cut short", text[: len(text) // 2] + "\n(", "form"
    yield "empty", "", "form"
    yield "moved", "from ..attention.dispatch import *\n", "form"
    yield "comments and blanks", "\n# new\n" + text.replace("\n\n\n", "\n\n"), ""


def test_forty_changes_give_no_wrong_answer(texts: dict[str, str]) -> None:
    text = texts[NEWEST]
    truth = states(table(machine(NEWEST, Dispatcher(checksum=RELEASES[-1]["checksum"]))))
    count = 0
    for name, changed_text, expected in mutations(text):
        count += 1
        facts = machine("0.43.0", describe(changed_text, "1" * 64))
        (newer,) = [one for one in facts.newer_releases or () if one.package == "diffusers"]
        found, changed = facts.dispatcher, {*(facts.dispatcher.changed or ())}
        if expected == "form":
            assert newer.basis == "unknown", name
        elif expected == "shared":
            assert newer.basis == "known", name
        elif expected == "some":
            assert changed, name
        else:
            assert changed == {*expected.split()}, name
            assert newer.basis == "source", name
        for row, (known, answers) in states(table(facts)).items():
            if expected == "form" or row in changed:
                assert set(answers) == {Readiness.UNKNOWN}, (name, row)
            elif found.names is not None and row not in found.names:
                assert not known, (name, row)
            else:
                assert answers == truth[row][1], (name, row)
        assert newer.text, name
    print(f"{count} changes")
    assert count >= 40


def test_an_installed_wheel_is_examined(texts: dict[str, str], tmp_path: Path) -> None:
    """A future release in a made-up environment, from its files to the answer."""
    from attn_doctor.examination import examine
    from attn_doctor.host.local import LocalHost

    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")],
        check=True,
        timeout=120,
    )
    (packages,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    folder = packages / "diffusers" / "models"
    folder.mkdir(parents=True)
    (packages / "diffusers" / "__init__.py").write_text('__version__ = "0.43.0"\n')
    (folder / "attention_dispatch.py").write_text(
        texts[NEWEST].replace('_REQUIRED_FLASH_VERSION = "2.6.3"', '_REQUIRED_FLASH_VERSION = "3"')
    )
    info = packages / "diffusers-0.43.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: diffusers\nVersion: 0.43.0\n")
    (info / "RECORD").write_text(
        "diffusers/__init__.py,,\ndiffusers/models/attention_dispatch.py,,\n"
    )
    facts = examine(LocalHost(), str(tmp_path / "venv" / "bin" / "python"), limit=60)
    assert facts.diffusers == replace(facts.diffusers, version="0.43.0", installed=True)
    assert isinstance(facts.diffusers, Package)
    assert facts.dispatcher.changed == ("flash", "flash_varlen")
    (newer,) = facts.newer_releases or ()
    assert newer.basis == "source"
