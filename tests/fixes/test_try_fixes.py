"""Every fix works on the machines that it is offered on, as far as indexes and tables tell.

`python -m tools.try_fixes` asks the index again and writes the answers that are kept here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_doctor.facts import Facts
from attn_doctor.findings import Fix, Safety
from attn_doctor.rulebook.rule import Rule
from tests.command import whole_rules
from tools.try_fixes.__main__ import ANSWERS, failures
from tools.try_fixes.checks import Tried, faults
from tools.try_fixes.index import Answers
from tools.try_fixes.machines import grid

KEPT = Answers(ANSWERS, ask=False)
#: The machine of the quick test: it has neither sudo nor a Triton for its torch.
WINDOWS = "os=windows,python=3.13.1,gpu=rtx4090,driver=581.57,torch=2.15.0"


def machine(words: str) -> Facts:
    return dict(grid())[words]


def wrong(
    facts: Facts, run: tuple[str, ...] = (), rule: Rule | None = None, manual: str = ""
) -> list[str]:
    """What is said against a fix with one command."""
    fix = Fix(title="Fix it", safety=Safety.ASK, run=(run,) if run else (), manual=manual)
    return [*faults(Tried(rule or whole_rules()[0], fix, facts), KEPT)]


@pytest.mark.thorough
def test_every_fix_on_windows() -> None:
    chosen = [(WINDOWS, machine(WINDOWS))]
    found = [(rule.id, *one) for rule in whole_rules() for one in failures(rule, KEPT, chosen)]
    assert found == []


@pytest.mark.sources
def test_every_fix_on_every_machine(tmp_path: Path) -> None:
    answers = Answers(tmp_path / "index.json")
    assert [(rule.id, *one) for rule in whole_rules() for one in failures(rule, answers)] == []


LINUX = "python=3.12.3,gpu=rtx4090,driver=570,torch=2.8.0+cu128"
ARM = "arch=aarch64,python=3.12.3,gpu=gb10,driver=580,torch=2.11.0+cu130"
T4 = "python=3.11.9,gpu=t4,driver=580,torch=2.9.1+cu128"
B200 = "python=3.12.3,gpu=b200,driver=580,torch=2.9.1+cu130"
WHL = "https://download.pytorch.org/whl/"
SAGE = "git+https://github.com/thu-ml/SageAttention"


@pytest.mark.parametrize(
    ("words", "run", "said"),
    [
        (LINUX, "pip install triton==3.4.0", ""),
        (LINUX, "pip install triton==3.99", "no triton==3.99 for Python 3.12.3 on linux x86_64"),
        (ARM, "pip install triton==3.4.0", "no triton==3.4.0 for Python 3.12.3 on linux aarch64"),
        (LINUX, "pip install --no-deps xformers==0.0.33.post1", "0.0.33.post1 needs torch==2.9.0"),
        (LINUX, f"pip install torch>=2.9 --index-url {WHL}cu129", "index cu129 has no such"),
        (LINUX, f"pip install torch --index-url {WHL}nv25.08", "PyTorch has no index nv25.08"),
        (LINUX, f"pip install torch>=2.10 --index-url {WHL}cu130", "a driver for CUDA 13"),
        (LINUX, f"pip install --upgrade torch --index-url {WHL}cu126", ""),
        (LINUX, "attn-doctor cache clear --stale", ""),
        (LINUX, "attn-doctor cache clear --stael", "No such option: --stael"),
        (LINUX, "pip install --no-build-isolation flash-attn", ""),
        (T4, "pip install --no-build-isolation flash-attn", "flash/gpu-too-old"),
        (T4, "pip install flash-attn<2", ""),
        (LINUX, f"pip install --no-build-isolation {SAGE}", ""),
        (B200, f"pip install --no-build-isolation {SAGE}", "sage/unsupported-gpu"),
        (WINDOWS, "sudo reboot", "Windows has no sudo"),
        (WINDOWS, "pip install triton", "no triton for Python 3.13.1 on windows x86_64"),
    ],
)
def test_a_fault_of_a_command_is_found(words: str, run: str, said: str) -> None:
    found = wrong(machine(words), tuple(run.split()))
    assert any(said in one for one in found) if said else not found, found


def test_a_fault_of_a_text_is_found() -> None:
    assert wrong(machine(WINDOWS), manual="Run `sudo ldconfig`.") == ["it says `sudo on windows"]
    assert wrong(machine(WINDOWS), manual="On Linux run `sudo ldconfig`.") == []
    assert wrong(machine(LINUX), manual=r"Make C:\t.") == [r"it says C:\ on linux"]


def test_a_fix_that_leaves_the_problem_is_found() -> None:
    rule = next(one for one in whole_rules() if one.id == "torch/lacks-gpu-arch")
    facts = machine("python=3.12.3,gpu=gtx1080,driver=580,torch=2.9.1+cu128")
    to = ("pip", "install", "torch==2.9.1", "--index-url", f"{WHL}cu130")
    assert any("has no code for" in one for one in wrong(facts, to, rule))
    assert wrong(facts, (*to[:4], f"{WHL}cu126"), rule) == []
