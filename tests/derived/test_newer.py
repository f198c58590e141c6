"""Releases that are newer than the tables: found, and named in every output."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from attn_doctor import derived
from attn_doctor.derived.newer import age_sentence
from attn_doctor.facts import Driver, Facts, Package, Torch, Triton, to_json
from attn_doctor.fixes.steps import Plan
from attn_doctor.render.fix.json import fix_json
from attn_doctor.render.fix.text import plan_text
from attn_doctor.render.terminal import Terminal
from tests.command import run, whole_tables

TABLES: Mapping[str, Any] = whole_tables()
KNOWN = {row["name"]: str(row["newest"]) for row in TABLES["releases"]["release"]}


def facts(name: str, version: str) -> Facts:
    kind: dict[str, type[Torch | Triton | Driver | Package]] = {
        "torch": Torch,
        "triton": Triton,
        "driver": Driver,
    }
    more = {} if name == "driver" else {"installed": True}
    return Facts(**{name: kind.get(name, Package)(version=version, **more)})  # type: ignore[arg-type]


def newer(name: str, version: str) -> list[tuple[str, str]]:
    found = derived.derive(facts(name, version), TABLES).newer_releases or ()
    return [(one.package or "", one.basis or "") for one in found]


@pytest.mark.parametrize(
    ("name", "version", "basis"),
    [
        ("torch", "2.16.0+cu130", "unknown"),
        ("torch", "2.16.0.dev20261120", "unknown"),
        ("triton", "4.0.0", "unknown"),
        ("driver", "640.12", "unknown"),
        ("flash_attn", "2.9.0", "known"),
        ("flash_attn", "2.8.3.post3", "known"),
        ("sageattention", "2.3.0", "known"),
        ("xformers", "0.0.36", "unknown"),
        ("diffusers", "0.43.0.dev0", "known"),
        ("diffusers", "0.42.2", "known"),
        ("transformers", "6.0.0rc1", "known"),
        ("simpletuner", "4.10.2", "known"),
        ("finetrainers", "0.3.0", "known"),
    ],
)
def test_a_newer_release_is_named(name: str, version: str, basis: str) -> None:
    assert newer(name, version) == [(name, basis)]


@pytest.mark.parametrize("name", KNOWN)
def test_the_newest_known_release_is_not_newer(name: str) -> None:
    assert newer(name, KNOWN[name]) == []


def test_without_facts_it_is_unknown() -> None:
    assert derived.derive(Facts(), TABLES).newer_releases is None


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("torch", "2.15.3+cu130"),
        ("triton", "3.9.0.post21"),
        ("driver", "624.99"),
        ("flash_attn", "2.8.3.post1"),
        ("flash_attn", "2.8.3.post2+cu12torch2.8"),
        ("sageattention", "1.0.6"),
        ("diffusers", "0.35.0"),
    ],
)
def test_older_and_equal_releases_are_not_newer(name: str, version: str) -> None:
    assert newer(name, version) == []


def test_a_driver_that_says_its_cuda_is_evaluated() -> None:
    said = Facts(driver=Driver(version="640.12", cuda_max="14.0", vendor="nvidia"))
    (found,) = derived.derive(said, TABLES).newer_releases or ()
    assert found.basis == "known"
    amd = Facts(driver=Driver(version="6400.16.1", vendor="amd"))
    assert derived.derive(amd, TABLES).newer_releases is None


def test_a_newer_xformers_is_evaluated_from_its_metadata() -> None:
    xformers = Package(
        installed=True, version="0.0.36", requires_torch=">=2.12", flash_attn_range=">=2.7.1,<=2.9"
    )
    torch = Torch(installed=True, version="2.13.0+cu130", build="cuda", cuda="13.0")
    flash = Package(installed=True, version="2.8.3")
    machine = Facts(xformers=xformers, torch=torch, flash_attn=flash)
    found = derived.derive(machine, TABLES)
    assert found.xformers.expected == "==0.0.36"
    assert found.xformers.accepts_flash_attn is True
    (newer,) = found.newer_releases or ()
    assert (newer.basis, (newer.text or "").count("own metadata")) == ("known", 1)


def code(name: str, **other: str) -> tuple[str, ...]:
    """The digests of the newest known release, with some that differ."""
    (row,) = [one for one in TABLES["code"]["release"] if one["name"] == name]
    return tuple(f"{what} {digest}" for what, digest in {**row["code"], **other}.items())


@pytest.mark.parametrize(
    ("name", "version", "changed", "basis"),
    [
        ("transformers", "5.99.0", (), "source"),
        ("transformers", "5.99.0", ("sdpa",), "known"),
        ("transformers", "5.99.0", ("new_attention",), "known"),
        ("xformers", "0.0.99", (), "source"),
        ("xformers", "0.0.99", ("cutlass",), "unknown"),
    ],
)
def test_the_code_of_a_newer_release(
    name: str, version: str, changed: tuple[str, ...], basis: str
) -> None:
    own = code(name, **dict.fromkeys(changed, "0" * 16))
    package = Package(installed=True, version=version, path="/x", requires_torch=">=2", code=own)
    machine = replace(Facts(torch=Torch(installed=True, version="2.13.0")), **{name: package})
    (newer,) = derived.derive(machine, TABLES).newer_releases or ()
    assert (newer.basis, newer.changed) == (basis, changed)
    assert all(one in (newer.text or "") for one in changed)


def test_the_code_table_ends_at_the_same_releases() -> None:
    for row in TABLES["code"]["release"]:
        assert row["version"] == KNOWN[row["name"]]


def test_the_other_tables_end_at_the_same_releases() -> None:
    for name in ("torch", "triton", "xformers", "flash_attn", "sageattention"):
        assert TABLES[name.replace("_", "-")]["newest"] == KNOWN[name]
    assert str(TABLES["drivers"]["newest"]) == KNOWN["driver"]
    assert TABLES["formats"]["transformers"]["release"] == KNOWN["transformers"]
    from attn_doctor.backends.catalogue import load

    for framework in load().frameworks:
        # ComfyUI is not a package with facts.
        assert framework.newest == KNOWN.get(framework.name, framework.newest)


def test_the_age_of_the_tables_is_said_after_ninety_days() -> None:
    checked = TABLES["releases"]["checked"]
    assert age_sentence(TABLES, checked + timedelta(days=90)) == ""
    assert "91 days old" in age_sentence(TABLES, checked + timedelta(days=91))
    plain = {"releases": {"checked": "2026-01-01"}}  # as an index has it
    assert "(2026-01-01)" in age_sentence(plain, date(2026, 11, 23))


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Facts with a Diffusers that does not exist yet."""
    path = tmp_path / "facts.json"
    path.write_bytes(to_json(facts("diffusers", "0.99.0")))
    return path


SENTENCE = f"Diffusers 0.99.0 is newer than these rules know ({KNOWN['diffusers']})"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "arguments",
    [
        ("check",),
        ("check", "-q"),
        ("check", "--format", "markdown"),
        ("check", "--format", "github"),
        ("check", "--format", "sarif"),
        ("check", "--format", "junit"),
        ("check", "--format", "gitlab"),
        ("check", "--json"),
        ("backends",),
        ("backends", "--format", "markdown"),
        ("backends", "--json"),
        ("backends", "--why", "native"),
        ("backends", "--why", "native", "--json"),
    ],
    ids=" ".join,
)
def test_every_output_says_it(arguments: tuple[str, ...], snapshot: Path) -> None:
    ended = run(*arguments, "--facts", str(snapshot))
    assert SENTENCE in re.sub(r"\\(.)", r"\1", ended.text)


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
def test_an_explanation_says_it(form: str, snapshot: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("RuntimeError: No available kernel. Aborting execution.\n")
    ended = run("explain", str(log), "--format", form, "--facts", str(snapshot))
    assert SENTENCE in re.sub(r"\\(.)", r"\1", ended.text)


def test_a_plan_of_fixes_says_it() -> None:
    machine = derived.derive(facts("diffusers", "0.99.0"), TABLES)
    assert SENTENCE in " ".join(plan_text(Plan(steps=()), machine, Terminal(), "pip").split())
    assert SENTENCE in fix_json(Plan(steps=()), machine, 0)


def test_a_configuration_says_it(snapshot: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "from diffusers import FluxPipeline\npipe = FluxPipeline.from_pretrained('x')\n"
    )
    ended = run("check", "--config", str(script), "--facts", str(snapshot))
    assert SENTENCE in ended.text


def test_the_line_for_agents_names_it(snapshot: Path) -> None:
    data = json.loads(run("check", "--format", "agent", "--facts", str(snapshot)).stdout)
    assert data["newer"] == ["diffusers 0.99.0: newer, evaluated as the newest known"]


def test_json_has_it_as_a_field(snapshot: Path) -> None:
    data = json.loads(run("check", "--json", "--facts", str(snapshot)).stdout)
    (found,) = data["newer_releases"]
    assert (found["package"], found["version"], found["basis"]) == ("diffusers", "0.99.0", "known")
    assert data["tables"]["checked"] == str(TABLES["releases"]["checked"])


def test_strict_ends_with_4(tmp_path: Path) -> None:
    from attn_doctor.findings import Diagnosis
    from attn_doctor.render.grouping import exit_code

    def code(name: str, version: str, *, strict: bool) -> int:
        known = derived.derive(facts(name, version), TABLES)
        return exit_code(Diagnosis(facts=known, findings=(), rules=0), None, strict=strict)

    for name, version in (("flash_attn", "2.9.0"), ("torch", "2.16.0"), ("triton", "4.0.0")):
        assert code(name, version, strict=True) == 4
    assert code("flash_attn", "2.9.0", strict=False) == 0
    assert code("flash_attn", "2.8.3", strict=True) == 0
