"""Cross-check: a rule of one package does not explain a log of another package.

Logs of a rule that a second rule recognises as well are explained as a user would do it. The winner
must not be about a package that the log never names. Commands that install a package are given
only where the log names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from attn_doctor.explain.engine import explain
from attn_doctor.explain.explanation import Explanation
from attn_doctor.explain.symptom_match import Symptom, all_symptoms, holds
from attn_doctor.findings import Safety
from attn_doctor.rulebook.packages import is_named, package_of, packages_installed
from attn_doctor.rulebook.rule import Rule
from tests.command import whole_rules


@cache
def symptoms() -> tuple[Symptom, ...]:
    """The symptoms of all rules. They are compiled when a test needs them, and once."""
    return all_symptoms(whole_rules())


def recognised_by(log: str) -> set[str]:
    """The rules with a symptom in the log."""
    lowered = log.lower()
    return {
        symptom.rule.id
        for symptom in symptoms()
        if any(holds(lowered, way) and re.search(way.pattern, log) for way in symptom.ways)
    }


def contested() -> list[tuple[str, str]]:
    """Logs of rules about a package that a rule about another package recognises too."""
    return [
        (rule.id, log)
        for rule in whole_rules()
        for symptom in rule.symptoms
        for log in symptom.logs
        if {package_of(id) for id in recognised_by(log)} - {package_of(rule.id), ""}
    ]


def explained_by_all(log: str, folder: Path) -> Explanation:
    file = folder / "failure.log"
    file.write_text(log, encoding="utf-8")
    return explain([str(file)], whole_rules())


def printed_by(rule: Rule, log: str) -> set[str]:
    return {one.printed_by for one in rule.symptoms if re.search(one.pattern, log)}


@pytest.mark.thorough
def test_the_winner_is_about_a_package_that_the_log_names(tmp_path: Path) -> None:
    logs, wrong = contested(), []
    rules = {rule.id: rule for rule in whole_rules()}
    for id, log in logs:
        winner = explained_by_all(log, tmp_path).matches[0].rule
        package = package_of(winner)
        if winner == id or not package:
            continue
        if not is_named(package, log) and package not in printed_by(rules[winner], log):
            wrong.append(f"{id}: {winner}")
    assert not wrong
    assert len(logs) >= 10


#: Logs that look like the failure of an attention package, and rules that must not be named first.
LOOK_ALIKE = {
    "ImportError: libcudart.so.11.0: cannot open shared object file\n"
    "  import torch_scatter._version_cuda": "flash/",
    '  File "/venv/lib/python3.10/site-packages/huggingface_hub/utils/_fixes.py", line 1\n'
    '  File "/venv/lib/python3.10/site-packages/filelock/_unix.py", line 2, in _acquire\n'
    "OSError: [Errno 37] No locks available": "caches/",
    "Collecting detectron2\n  Getting requirements to build wheel ... error\n"
    "ModuleNotFoundError: No module named 'torch'": "sage/",
    "#9 3.5   Preparing metadata (pyproject.toml): finished with status 'done'\n"
    "#9 12.1 Successfully installed einops-0.8.1 mytool-1.0\n"
    '  File "/app/train.py", line 3, in <module>\n    import torch\n'
    "ModuleNotFoundError: No module named 'torch'": "flash/",
    "cupy.cuda.compiler.CompileException: nvrtc: error: invalid value for --gpu-architecture "
    "(-arch)": "torch/",
    '  File "/app/kernels/linear.py", line 9, in forward\n'
    "AssertionError: All inputs must be on CUDA device for Triton kernels.": "flash/",
    "ModuleNotFoundError: No module named 'yunchang'": "flash/",
    "TypeError: _flash_attn_forward() missing 1 required positional argument: 'softcap'\n"
    '  File "/app/xfuser/core/long_ctx_attention/ring.py", line 1': "finetrainers/",
}


@pytest.mark.parametrize(("log", "area"), LOOK_ALIKE.items(), ids=range(len(LOOK_ALIKE)))
def test_a_log_that_looks_alike(log: str, area: str, tmp_path: Path) -> None:
    first = [match.rule for match in explained_by_all(log, tmp_path).matches[:1]]
    assert not [rule for rule in first if rule.startswith(area)]


LINE = "RuntimeError: the build of the package stopped"
FIX = """
[[fix]]
title = "Build it again"
safety = "ask"
run = [["pip", "install", "flash-attn"]]
"""
Explain = Callable[..., Explanation]
WriteRule = Callable[..., None]


def test_a_command_installs_what_the_log_names(rule: WriteRule, explained: Explain) -> None:
    rule("a/b", "build-oom", LINE, tail=FIX)
    (fix,) = explained(f"Collecting flash_attn\n{LINE}").matches[0].fixes
    assert fix.run == (("pip", "install", "flash-attn"),)


def test_a_command_for_a_package_that_the_log_does_not_name_is_for_a_person(
    rule: WriteRule, explained: Explain
) -> None:
    rule("a/b", "build-oom", LINE, tail=FIX)
    (fix,) = explained(f"Collecting detectron2\n{LINE}").matches[0].fixes
    assert (fix.safety, fix.run) == (Safety.MANUAL, (("pip", "install", "flash-attn"),))
    assert fix.manual == "The log does not name the package. Do this only if it is flash-attn."


@pytest.mark.parametrize(
    ("command", "packages"),
    [
        ("pip install --no-build-isolation flash-attn==2.8.3", ["flash-attn"]),
        ("MAX_JOBS=4 pip install flash_attn", ["flash-attn"]),
        ("pip install git+https://github.com/thu-ml/SageAttention@d1a57a5", ["sageattention"]),
        ("pip install --upgrade diffusers>=0.37 kernels", ["diffusers", "kernels"]),
        ("pip install torch==2.11.0 --index-url https://x.org/whl/cu128", []),
        ("attn-doctor install sage --community", ["sageattention"]),
        ("pip uninstall flash-attn", []),
    ],
)
def test_packages_of_a_command(command: str, packages: list[str]) -> None:
    assert list(packages_installed(command.split())) == packages
