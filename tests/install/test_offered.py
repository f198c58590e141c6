"""Fixes that can work here, and the command that comes next."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from attn_doctor.diagnosis import diagnosis_of
from attn_doctor.examination import derive
from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding, Fix, Safety, Severity, Verdict
from attn_doctor.fixes.next_command import next_commands, without_index
from attn_doctor.fixes.plan import plan
from attn_doctor.install.offered import offered, offered_for_log
from attn_doctor.pretend import pretend
from attn_doctor.rulebook import library
from attn_doctor.shell.commands import shell_lines
from attn_doctor.snapshot import load
from tests.install.machines import machine as assumed

MACHINES = sorted((Path(__file__).parents[1] / "machines").iterdir())
SAGE = ("pip", "install", "--no-build-isolation", "git+https://github.com/thu-ml/SageAttention")
FLASH = ("MAX_JOBS=2", "pip", "install", "--no-build-isolation", "flash-attn")


def machine(name: str, *pretended: str) -> Facts:
    folder = next(one for one in MACHINES if one.name == name)
    facts = load(str(folder / "facts.json"))
    return derive(pretend(facts, pretended, library.tables())) if pretended else facts


def with_fixes(facts: Facts, *runs: tuple[str, ...]) -> Diagnosis:
    fixes = tuple(
        Fix(title=f"Fix {number}", safety=Safety.ASK, run=(argv,), rule="a/b", remedy=number)
        for number, argv in enumerate(runs, 1)
    )
    finding = Finding(
        rule="a/b",
        verdict=Verdict.PROBLEM,
        severity=Severity.ERROR,
        cause="c",
        title="t",
        fixes=fixes,
    )
    return Diagnosis(facts=facts, findings=(finding,), rules=1)


def test_a_build_without_a_toolkit_is_offered_last_and_without_its_command() -> None:
    facts = machine("debian-torch-2.11-cu130-no-gpu")
    (finding,) = offered(with_fixes(facts, SAGE, ("pip", "uninstall", "-y", "x"))).findings
    assert finding.fixes[0].run == (("pip", "uninstall", "-y", "x"),)
    assert finding.fixes[1].title == "Not possible yet: fix 2".replace("2", "1")
    assert (finding.fixes[1].run, finding.fixes[1].safety) == ((), Safety.MANUAL)
    assert "toolkit" in finding.fixes[1].manual


def test_a_build_gets_the_variables_that_fit_the_machine() -> None:
    facts = machine("h200-torch-2.11-cu130")
    again = (*SAGE[:2], "--force-reinstall", *SAGE[2:])
    (finding,) = offered(with_fixes(facts, ("MAX_JOBS=2", *again))).findings
    variables = [word for word in finding.fixes[0].run[0] if word[0].isupper() and "=" in word]
    assert "TORCH_CUDA_ARCH_LIST=9.0" in variables
    assert finding.fixes[0].run[0][-len(again) :] == again


def test_a_ready_wheel_precedes_a_build() -> None:
    facts = machine("h200-torch-2.11-cu130", "gpu=rtx4090,torch=2.8.0+cu128")
    (finding,) = offered(with_fixes(facts, FLASH)).findings
    # nvcc is of CUDA 13: pip would stop where setup.py does not reach GitHub.
    (argv,) = finding.fixes[0].run
    assert any("/flash_attn-2.8.3" in word and word.endswith(".whl") for word in argv)
    assert finding.fixes[0].needs == ""


@pytest.mark.parametrize(
    ("title", "before", "after"),
    [
        ("Build it, if that copy failed", "", ", if that copy failed"),
        ("If a program needs it, build it", "If a program needs it, ", ""),
        ("If the copy failed: build it", "If the copy failed: ", ""),
        ("Build it", "", ""),
    ],
)
def test_a_fix_that_install_decides_keeps_its_condition(
    title: str, before: str, after: str
) -> None:
    facts = machine("h200-torch-2.11-cu130")
    given = with_fixes(facts, ("pip", "install", "flash-attn"))
    (plain,) = offered(given).findings[0].fixes
    assert plain.run[0][:2] == ("attn-doctor", "install")
    fix = replace(given.findings[0].fixes[0], title=title)
    finding = replace(given.findings[0], fixes=(fix,))
    (decided,) = offered(replace(given, findings=(finding,))).findings[0].fixes
    install = plain.title if not before else plain.title[0].lower() + plain.title[1:]
    assert decided.title == before + install + after


def test_diffusers_is_bounded_to_what_the_installed_torch_imports() -> None:
    facts = machine("h200-torch-2.11-cu130", "torch=2.4.1+cu121")
    update = ("pip", "install", "--upgrade", "diffusers")
    (finding,) = offered(with_fixes(facts, update, (*update[:3], "diffusers>=0.39"))).findings
    assert [fix.run for fix in finding.fixes] == [((*update[:3], "diffusers<0.35"),), ()]
    assert finding.fixes[1].title == "Not possible here: fix 2"
    assert finding.fixes[1].manual == "Torch 2.4.1+cu121 works with diffusers<0.35 only."
    facts = machine("h200-torch-2.11-cu130")
    assert offered(with_fixes(facts, update)).findings[0].fixes[0].run == (update,)


def test_a_pure_package_needs_its_python_on_every_system() -> None:
    facts = machine("h200-torch-2.11-cu130", "os=macos,python=3.9.6,torch=2.8.0")
    wanted = ("pip", "install", "--pre", "flash-attn-4"), ("pip", "install", "diffusers>=0.37")
    (finding,) = offered(with_fixes(facts, *wanted)).findings
    assert [fix.run for fix in finding.fixes] == [(), ()]
    assert all("needs Python 3.10 or newer" in fix.manual for fix in finding.fixes)


@pytest.mark.parametrize("folder", MACHINES, ids=lambda folder: folder.name)
@pytest.mark.parametrize("without", ["", "no Triton"])
def test_the_next_command_is_one_that_fix_carries_out(folder: Path, without: str) -> None:
    facts = load(str(folder / "facts.json"))
    if without:
        facts = derive(replace(facts, triton=replace(facts.triton, installed=False, version="")))
    diagnosis = diagnosis_of(facts)
    commands = next_commands(diagnosis)
    if commands and commands[0].startswith("attn-doctor fix") and "--cuda-home" not in commands[0]:
        assert plan(diagnosis).ready
    else:
        every = [shell_lines(fix, facts) for one in diagnosis.problems for fix in one.fixes]
        assert commands == [] or commands in every


def test_what_comes_next_names_the_environment_and_is_never_a_guess() -> None:
    facts = machine("h200-torch-2.11-cu130")
    install = ("pip", "install", "x")
    assert next_commands(with_fixes(facts, install)) == [
        "attn-doctor fix --python /srv/venv/bin/python3"
    ]
    assumed = replace(facts, simulated=("torch 2.9",))
    assert next_commands(with_fixes(assumed, install)) == ["/srv/venv/bin/python3 -m pip install x"]
    assert next_commands(with_fixes(facts)) == []


def test_all_lines_of_a_fix_come_next() -> None:
    facts = replace(machine("h200-torch-2.11-cu130"), simulated=("torch 2.9",))
    diagnosis = with_fixes(facts, ("pip", "uninstall", "-y", "x"))
    (finding,) = diagnosis.findings
    both = replace(finding.fixes[0], run=(*finding.fixes[0].run, ("pip", "install", "x")))
    diagnosis = replace(diagnosis, findings=(replace(finding, fixes=(both,)),))
    python = "/srv/venv/bin/python3 -m pip"
    assert next_commands(diagnosis) == [f"{python} uninstall -y x", f"{python} install x"]


@pytest.mark.parametrize(
    ("env", "named"),
    [({"UV_OFFLINE": "1"}, "UV_FIND_LINKS"), ({"PIP_NO_INDEX": "0"}, ""), ({}, "")],
)
def test_an_index_that_is_switched_off_comes_before(env: dict[str, str], named: str) -> None:
    facts = replace(machine("h200-torch-2.11-cu130"), env=env)
    diagnosis = with_fixes(facts, ("pip", "install", "x"))
    said = without_index(diagnosis, next_commands(diagnosis))
    assert named in said
    assert bool(named) == bool(said)


def test_a_log_of_another_machine_decides_what_is_possible() -> None:
    """What the log does not state, such as the GPU and the compilers, excludes nothing."""
    from attn_doctor.explain.engine import explain
    from attn_doctor.rulebook import library

    def first(*lines: str) -> Fix:
        text = "\n".join((*lines, "ModuleNotFoundError: No module named 'sageattention'"))
        found = offered_for_log(explain((), library.load(), None, texts=[text]))
        return next(fix for fix in found.matches[0].fixes if "SageAttention 2" in fix.title)

    old = first("Python 3.8.18", "torch 2.4.1+cu121")
    assert (old.run, old.title.startswith("Not possible with this Python")) == ((), True)
    assert first("Python 3.12.4", "torch 2.9.1+cu128").run


def test_a_log_of_windows_gets_the_wheel_of_the_fork() -> None:
    from attn_doctor.explain.engine import explain
    from attn_doctor.rulebook import library

    lines = (
        "Platform: Windows", "Python version: 3.12.10", "pytorch version: 2.9.1+cu128",
        "ModuleNotFoundError: No module named 'sageattention'",
    )  # fmt: skip
    found = offered_for_log(explain((), library.load(), None, texts=["\n".join(lines)]))
    fix = next(fix for fix in found.matches[0].fixes if fix.run)
    assert fix.run == (("attn-doctor", "install", "sage", "--community", "--reinstall"),)
    assert "torch 2.1" not in fix.title  # the torch of the log stays


FLASH_AGAIN = ("attn-doctor", "install", "flash", "--reinstall")
_ADA = ("gpu=rtx4090", "driver=580", "python=3.12.3")


@pytest.mark.parametrize(
    ("pretended", "run", "title"),
    [
        ((*_ADA, "os=linux", "torch=2.9.1+cu128"), "pip", "Fix 1"),
        ((*_ADA, "os=linux", "torch=2.14.1+cu130"), "install", "with torch 2."),
        ((*_ADA, "os=windows", "torch=2.9.1+cu128"), "--community", "a wheel by "),
    ],
)
def test_install_decides_for_a_rule_that_names_it(
    pretended: tuple[str, ...], run: str, title: str
) -> None:
    facts = assumed(*pretended)
    (finding,) = offered(with_fixes(facts, FLASH_AGAIN)).findings
    (fix,) = finding.fixes
    ((*words,),) = fix.run
    assert run in words
    assert title in fix.title
    if run == "pip":
        assert words[:5] == ["pip", "install", "--force-reinstall", "--no-deps", "--no-cache-dir"]
        assert "torch2.9" in words[5]
        assert words[5].endswith(".whl")


def test_what_the_gpu_excludes_is_left_out_beside_other_fixes() -> None:
    facts = assumed("gpu=t4", "driver=580", "os=linux", "torch=2.9.1+cu128")
    other = ("pip", "uninstall", "-y", "flash-attn")
    (finding,) = offered(with_fixes(facts, FLASH_AGAIN, other)).findings
    assert [fix.run for fix in finding.fixes] == [(other,)]
    (finding,) = offered(with_fixes(facts, FLASH_AGAIN)).findings
    (fix,) = finding.fixes
    assert (fix.title, fix.run) == ("Not possible on this GPU: fix 1", ())
    assert "compute capability 8.0" in fix.manual


def test_a_wheel_without_code_for_the_gpu_is_not_chosen() -> None:
    """Thor is 11.0, for which no release of flash-attn is compiled."""
    facts = assumed("sm=110", "arch=aarch64", "driver=580", "torch=2.9.1+cu130")
    (finding,) = offered(with_fixes(facts, FLASH_AGAIN)).findings
    (fix,) = finding.fixes
    assert fix.run == ()
    assert "no kernels for compute capability 11.0" in fix.manual


def test_sources_that_are_too_new_for_torch_take_another_one() -> None:
    again = ("attn-doctor", "install", "sage", "--reinstall")
    facts = assumed(*_ADA, "os=linux", "torch=2.3.1+cu121")
    (finding,) = offered(with_fixes(facts, again)).findings
    (fix,) = finding.fixes
    assert fix.run == (again,)
    assert "with torch 2." in fix.title
