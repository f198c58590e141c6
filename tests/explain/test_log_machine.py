"""The machine that wrote a log, compared with this one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from attn_doctor.explain.explanation import Explanation, LogFact
from attn_doctor.explain.extract import Confidence, Stated, Statement, facts_from, statements
from attn_doctor.explain.log_machine import conflicts, log_facts
from attn_doctor.facts import Facts, Gpu, Package, Python, System, Torch
from attn_doctor.shell.commands import shell_lines
from tests.explain.posted_logs import answer

Explain = Callable[..., Explanation]
WriteRule = Callable[..., None]


def stated(log: str) -> Stated:
    return facts_from(statements(log))


def differing(log: str, machine: Facts) -> dict[str, str]:
    found = log_facts(stated(log), machine)
    return {one.fact: one.this_machine for one in found if one.this_machine}


def test_facts_have_their_values_and_lines() -> None:
    found = (
        Statement("torch.version", "2.9.1", Confidence.REPORTED, line=7),
        Statement("gpu.sm", 75, Confidence.REPORTED, line=9),
    )
    shown = log_facts(facts_from(found), None)
    assert LogFact("torch.version", "2.9.1", line=7) in shown
    assert LogFact("gpu.sm", "75", line=9) in shown
    assert LogFact("gpu.compute_capability", "7.5") in shown
    assert log_facts(Stated(), None) == ()


@pytest.mark.parametrize(
    ("there", "here", "differs"),
    [
        ("2.9.1", "2.9.1", False),
        ("2.9.1", "2.9.1+cu130", False),
        ("2.9", "2.9.1", False),
        ("2.9.1", "2.8.0", True),
        ("2.9", "2.90", True),
        ("2.9.1", "", False),
        ("2.9.1", None, False),
    ],
)
def test_a_version_that_differs_here_is_named(there: str, here: str | None, differs: bool) -> None:
    machine = Facts(torch=Torch(version=here))
    expected = {"torch.version": here} if differs else {}
    assert differing(f"PyTorch version: {there}", machine) == expected


def test_the_gpu_the_system_and_reported_packages_differ() -> None:
    machine = Facts(
        system=System(os="windows"),
        python=Python(version="3.11.2"),
        gpus=(Gpu(index=0, sm=90),),
        flash_attn=Package(version="2.8.3"),
        xformers=Package(version="0.0.30"),
    )
    log = (
        "OS: Ubuntu 22.04 (x86_64)\nPython version: 3.12.3\nGPU 0 Compute Capability: 8.9\n"
        "pip install xformers==0.0.35\nSuccessfully installed flash-attn-2.7.4\n"
    )
    assert differing(log, machine) == {
        "system.os": "windows",
        "python.version": "3.11.2",
        "gpu.sm": "90",
        "flash_attn.version": "2.8.3",
    }


def test_a_program_names_its_interpreter() -> None:
    line = "** Python executable: C:\\AI\\python_embeded\\python.exe"
    there = Python(path="C:/AI/python_embeded/python.exe", prefix="c:\\AI\\python_embeded\\")
    assert differing(line, Facts(python=there)) == {}
    other = Python(path="D:\\AI\\python.exe", prefix="D:\\AI")
    assert differing(line, Facts(python=other)) == {"python.path": "D:\\AI\\python.exe"}


@pytest.mark.parametrize(
    ("path", "differs"),
    [
        ("/home/me/venv/lib/python3.11/site-packages/torch/a.py", False),
        ("/opt/python/lib/python3.11/site-packages/torch/a.py", False),
        ("/data/packages/lib/python3.11/site-packages/torch/a.py", False),
        ("/usr/lib/python3.11/site-packages/torch/a.py", False),
        ("/home/me/venv2/lib/python3.11/site-packages/torch/a.py", True),
        ("C:\\AI\\venv\\Lib\\site-packages\\torch\\a.py", True),
    ],
    ids=["its prefix", "its base", "its packages", "no environment", "a sibling", "Windows"],
)
def test_the_environment_of_the_log_is_another_one(path: str, differs: bool) -> None:
    packages = ("/data/packages/lib/python3.11/site-packages",)
    own = "/home/me/venv/bin/python"
    python = Python(
        path=own, prefix="/home/me/venv", base_prefix="/opt/python", site_packages=packages
    )
    found = differing(f'  File "{path}", line 1, in f', Facts(python=python))
    assert found.get("python.path") == (own if differs else None)


def test_the_fixes_are_for_the_machine_of_the_log(rule: WriteRule, explained: Explain) -> None:
    tail = """
[[fix]]
title = "On Linux"
safety = "ask"
run = [["sudo", "apt", "install", "x"]]
when = ['system.os == "linux"']
[[fix]]
title = "On Windows"
safety = "ask"
run = [["pip", "install", "y"]]
when = ['system.os == "windows"']
"""
    rule("a/b", "triton-missing", "Cannot find it", tail=tail)
    here = Facts(system=System(os="linux"), python=Python(path="/v/bin/python", pip="25.0"))
    log = 'File "C:\\AI\\venv\\Lib\\site-packages\\a.py", line 1\nCannot find it\n'
    found = explained(log, here)
    (fix,) = found.matches[0].fixes
    assert shell_lines(fix, found.facts) == ["C:\\AI\\venv\\Scripts\\python.exe -m pip install y"]
    assert found.matches[0].verdict == "not checked"
    log = 'File "/venv/lib/python3.12/site-packages/a.py", line 1\nCannot find it\n'
    (fix,) = explained(log).matches[0].fixes  # macOS has such paths too
    assert fix.title == "On Linux"
    same = explained("/home/me/a.py\nCannot find it\n", here)
    assert same.facts is here


@pytest.mark.parametrize(("system", "shown"), [("linux", 1), ("windows", 0), (None, 1)])
def test_a_command_of_another_system_is_not_offered(
    rule: WriteRule, explained: Explain, system: str | None, shown: int
) -> None:
    command = 'run = [["sudo", "apt-get", "install", "gcc"]]'
    tail = f'[[fix]]\ntitle = "Install gcc"\nsafety = "ask"\n{command}\n'
    rule("a/b", "c-compiler-missing", "Cannot find it", tail=tail)
    paths = {"linux": "/home/me/a.py", "windows": "C:\\a\\b.dll", None: "a.py"}
    assert len(explained(f"{paths[system]}\nCannot find it\n").matches[0].fixes) == shown


@pytest.mark.parametrize(
    ("log", "fact"),
    [
        ("Python version: 3.10.12\n** Python version: 3.12.7 (x)\n", "python.version"),
        ("PyTorch version: 2.4.0\nSuccessfully installed torch-2.6.0\n", "torch.version"),
        ("PyTorch version: 2.4.0\nPyTorch version: 2.4.0+cu121\n", ""),
        ("pip install torch==2.4.0\nPyTorch version: 2.6.0\n", ""),
        ("Python version: 3.10\nPython version: 3.10.12\n", ""),
        ("Python version: 3.1\nPython version: 3.10.12\n", "python.version"),
    ],
)
def test_two_reports_that_contradict_each_other(log: str, fact: str) -> None:
    found = stated(log).conflicts
    assert [one.fact for one in found] == [fact] * bool(fact)


def test_a_contradiction_is_shown_with_its_lines(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "triton-missing", "Cannot find it")
    log = "Python version: 3.10.12\n** Python version: 3.12.7 (x)\nCannot find it\n"
    assert explained(log).conflicts == (
        "The log reports two values of Python: 3.10.12 (line 1) and 3.12.7 (line 2).",
    )


def numbered(log: str) -> Stated:
    found = [one._replace(line=log[: one.offset].count("\n") + 1) for one in statements(log)]
    return facts_from(found)


@pytest.mark.parametrize(
    ("log", "sentences"),
    [
        (
            "PyTorch version: 2.8.0\nProcessing ./flash_attn-2.8.3+cu12torch2.6cxx11abiFALSE-x.whl",
            ("The log names flash-attn, built for torch 2.6 (line 2), and torch 2.8.0 (line 1).",),
        ),
        (
            "CUDA used to build PyTorch: 13.0\nCUDA runtime version: 12.8.93",
            ("The log names nvcc of CUDA 12.8 (line 2), and torch for CUDA 13.0 (line 1).",),
        ),
        ("CUDA used to build PyTorch: 12.6\nCUDA runtime version: 12.8.93", ()),
        ("PyTorch version: 2.8.0+cu128", ()),
        ("CUDA runtime version: 12.8.93", ()),
    ],
)
def test_facts_of_one_log_that_do_not_fit(log: str, sentences: tuple[str, ...]) -> None:
    assert conflicts(numbered(log)) == sentences


def test_a_title_has_no_values_that_deny_it() -> None:
    found = answer(
        "PyTorch version: 2.7.1+cu128\nNvidia driver version: 576.52\n"
        "Python platform: Windows-11-10.0.26100-SP0\n"
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11060)."
    )
    assert found.matches[0].rule == "driver/too-old-for-torch"
    assert found.matches[0].title == "The NVIDIA driver is too old for torch"
    assert found.matches[0].reason.startswith("the log says that ")


def test_a_command_of_attn_doctor_names_the_python_of_the_log() -> None:
    found = answer(
        'File "D:\\portable\\python_embeded\\Lib\\site-packages\\sageattention\\core.py", line 3\n'
        "ImportError: DLL load failed while importing _fused: The specified module could not be"
        " found.\n"
    )
    [line] = shell_lines(found.matches[0].fixes[0], found.facts)
    assert line.endswith(r" --python D:\portable\python_embeded\python.exe")


def test_a_log_of_windows_names_the_triton_of_windows() -> None:
    found = answer(
        'File "D:\\portable\\python_embeded\\Lib\\site-packages\\torch\\_inductor\\scheduler.py"\n'
        "torch._inductor.exc.TritonMissing: Cannot find a working triton installation.\n"
    )
    assert found.matches[0].rule == "triton/missing-on-windows"
    assert "python.selection_reason" not in {one.fact for one in found.log_facts}
