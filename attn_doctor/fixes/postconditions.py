"""Evaluates on other facts what steps promise, and which problems they resolve or introduce.

The facts are those after a run, or those predicted with another torch from the tables alone: only
the installer knows what it would really choose.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from msgspec.structs import replace

from attn_doctor.derived import derive
from attn_doctor.derived.releases import find, parts, series
from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding, Fix
from attn_doctor.fixes.steps import Step
from attn_doctor.rulebook import library
from attn_doctor.rulebook.evaluate import FactLookup, evaluate_rules


def unmet(fixes: Iterable[Fix], facts: Facts) -> list[str]:
    """Return the `done` conditions that do not hold or are unknown, each with the value seen."""
    faults = []
    lookup = FactLookup(facts)
    for line in (line for fix in fixes for line in fix.done):
        if line.truth(lookup):
            continue
        seen = lookup(line.fact)
        value = "unknown" if seen is None else str(seen) or "empty"
        faults.append(f"{line.fact} is {value}, wanted {line.wanted(lookup, fault=False)}")
    return [*dict.fromkeys(faults)]


def compare_problems(
    before: Iterable[Finding], after: Iterable[Finding]
) -> tuple[list[Finding], list[Finding]]:
    """Return the problems that were resolved, and those that were introduced."""
    old = {(finding.rule, finding.subject): finding for finding in before}
    new = {(finding.rule, finding.subject): finding for finding in after}
    resolved = [finding for key, finding in old.items() if key not in new]
    introduced = [finding for key, finding in new.items() if key not in old]
    return resolved, introduced


def with_torch(facts: Facts) -> Facts | None:
    """Return the facts with the CUDA build of torch that fits driver and GPUs; None if unknown."""
    tag, pin = facts.torch.index_for_driver, facts.torch.pin_for_driver
    if not tag:
        return None
    table = library.tables()["torch"]
    minor = series((pin or "").partition("==")[2].replace(".*", ".0")) or str(table["newest"])
    row = find(table, minor)
    cuda = (
        next((one for one in row["cuda"] if f"cu{one.replace('.', '')}" == tag), "") if row else ""
    )
    if row is None or not cuda:
        return None
    version = max(row["pins"], key=parts, default=f"{minor}.0")
    return with_build(facts, f"{version}+{tag}", cuda)


class Same:
    """Facts that are equal only to themselves, so that an answer about them can be kept."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def __hash__(self) -> int:
        return id(self.facts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.facts is self.facts


def with_build(facts: Facts, full: str, cuda: str) -> Facts:
    """Return the facts with a build of torch: version `full`, such as `2.10.0+cu130`, for CUDA.

    `cuda` is empty for a build for the processor; without `+…` it is the build on PyPI.
    """
    return _with_build(Same(facts), full, cuda)


@lru_cache(maxsize=128)
def _with_build(same: Same, full: str, cuda: str) -> Facts:
    """As `with_build`: each package that a report asks for is tried with the same fifty builds."""
    facts = same.facts
    version, _, local = full.partition("+")
    row = find(library.tables()["torch"], series(version)) or {"pins": {}, "triton": ""}
    wanted = row["pins"].get(version, f"=={row['triton']}.*") if cuda else ""
    torch = replace(
        facts.torch,
        installed=True,
        version=full,
        local=local,
        build="cuda" if cuda else "cpu",
        debug=False,
        cuda=cuda or None,
        path=None,
        cubins=None,
        ptx=None,
        import_error="",
        import_doubt="",
        cxx11_abi=_new_abi(facts, version, local),
        source="index",
        installation_error="",
        has_flex=parts(version) >= (2, 5),
        requires_triton=wanted if facts.system.os == "linux" else "",
        missing_nvidia_wheels=(),
        overwritten_wheel="",
        missing_libraries=(),
        foreign_library="",
    )
    exact = row["pins"].get(version, "").lstrip("=~")
    triton = facts.triton
    if cuda:
        name = "triton-windows" if facts.system.os == "windows" else "triton"
        triton = replace(
            triton, installed=True, version=exact or f"{row['triton']}.0", distribution=name
        )
    gaps = {
        name: why for name, why in facts.gaps.items() if not name.startswith(("torch", "triton"))
    }
    return derive(replace(facts, torch=torch, triton=triton, gaps=gaps), library.tables())


def _new_abi(facts: Facts, version: str, local: str) -> bool | None:
    """Whether PyTorch compiled a build with the new C++ ABI; None where it depends on the build.

    All have it from 2.7 on. Of 2.6 it is those for Linux on aarch64, and on x86-64 for CUDA 12.6,
    ROCm and XPU (https://pytorch.org/blog/pytorch2-6/). None for x86-64 had it before:
    https://github.com/pytorch/pytorch/pull/142064 begins with that for CUDA 12.6.
    """
    if parts(version) >= (2, 7):
        return True
    new = parts(version) >= (2, 6) and facts.system.os == "linux"
    if facts.system.arch != "x86_64":
        return new or None
    return new and local.startswith(("cu126", "rocm", "xpu"))


def following(diagnosis: Diagnosis, steps: list[Step]) -> tuple[Finding, ...]:
    """Return problems that a step with another torch would introduce, as an old xformers."""
    moving = [step for step in steps if "torch" in step.packages and not step.blocked_by]
    ahead = with_torch(diagnosis.facts) if moving else None
    if ahead is None:
        return ()
    planned = {rule for step in steps for rule in step.rules}
    _, introduced = compare_problems(
        diagnosis.problems, [one for one in evaluate_rules(ahead, library.load()) if _bad(one)]
    )
    return tuple(one for one in introduced if one.rule not in planned)


def _bad(one: Finding) -> bool:
    return one.verdict.value == "problem" and not one.caused_by and one.severity.rank > 0
