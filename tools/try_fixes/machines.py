"""The machines that fixes are tried on: a grid, changed as far as a rule needs.

An example of a rule states only the facts that decide. Here it becomes a whole machine: what the
example leaves open, and what the rule does not need, comes from a machine of the grid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from attn_doctor.derived import STEPS, derive
from attn_doctor.derived.backend_wheels import EXPECTED
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.findings import Verdict
from attn_doctor.install.builds import fit, installed_build
from attn_doctor.pretend import pretend
from attn_doctor.rulebook import library
from attn_doctor.rulebook.evaluate import verdicts
from attn_doctor.rulebook.rule import Rule
from attn_doctor.rulebook.rule_shape import WrittenRule
from attn_doctor.snapshot import load

_BASE = Path(__file__).parents[2] / "tests" / "machines" / "h200-torch-2.11-cu130" / "facts.json"
#: Machines as `--pretend` names them: GPU generations, drivers, releases of torch and Python.
GRID = (
    "python=3.11.9,gpu=gtx1080,driver=535,torch=absent",
    "python=3.10.14,gpu=gtx1080,driver=570,torch=2.7.1+cu126",
    "python=3.12.3,gpu=gtx1080,driver=580,torch=2.9.1+cu128",
    "python=3.13.1,gpu=gtx1080,driver=580,torch=2.15.0+cu126",
    "python=3.9.19,gpu=v100,driver=535,torch=2.4.1+cu121",
    "python=3.12.3,gpu=v100,driver=580,torch=2.8.0+cu128",
    "python=3.13.1,gpu=v100,driver=580,torch=2.13.0+cu130",
    "python=3.10.14,gpu=t4,driver=535,torch=2.4.1+cu121",
    "python=3.11.9,gpu=t4,driver=580,torch=2.9.1+cu128",
    "python=3.13.1,gpu=t4,driver=595,torch=2.15.0+cu132",
    "python=3.9.19,gpu=a100,driver=525,torch=2.5.1+cu121",
    "python=3.10.14,gpu=a100,driver=550,torch=2.6.0+cu124",
    "python=3.14.0,gpu=a100,driver=580,torch=2.13.0+cu130",
    "python=3.11.9,gpu=rtx3090,driver=550,torch=2.5.1+cu124",
    "python=3.12.3,gpu=rtx3090,driver=470,torch=2.3.1+cu118",
    "python=3.13.1,gpu=rtx3090,driver=595,torch=2.15.0+cu132",
    "python=3.12.3,gpu=rtx4090,driver=570,torch=2.8.0+cu128",
    "python=3.12.3,gpu=rtx4090,driver=535,torch=absent",
    "python=3.12.3,gpu=rtx4090,driver=580,torch=2.10.0+cpu",
    "python=3.12.3,gpu=rtx4090,driver=580,torch=2.9.0",
    "python=3.11.9,gpu=h100,driver=550,torch=2.6.0+cu124",
    "python=3.14.0,gpu=h100,driver=590,torch=2.14.1+cu132",
    "python=3.12.3",
    "python=3.10.14,gpu=b200,driver=570,torch=2.7.1+cu128",
    "python=3.12.3,gpu=b200,driver=580,torch=2.9.1+cu130",
    "python=3.10.14,gpu=rtx5090,driver=570,torch=2.6.0+cu124",
    "python=3.12.3,gpu=rtx5090,driver=580,torch=2.9.1+cu128",
    "python=3.13.1,gpu=rtx5090,driver=595,torch=2.14.1+cu132",
    "arch=aarch64,python=3.12.3,gpu=gh200,driver=570,torch=2.6.0+cpu",
    "arch=aarch64,python=3.12.3,gpu=gb10,driver=580,torch=2.11.0+cu130",
    "arch=aarch64,python=3.11.9,gpu=none,torch=2.8.0+cpu",
    "python=3.9.19,gpu=none,torch=2.4.1+cpu",
    "python=3.12.3,gpu=none,torch=2.13.0+cpu",
    "python=3.13.1,gpu=none,torch=absent",
    "python=3.12.3,gpu=mi300x,torch=2.9.1+rocm6.4",
    "python=3.12.3,gpu=mi300x,torch=2.9.1",
    "python=3.12.3,gpu=a770,torch=2.9.1+xpu",
    "python=3.12.3,gpu=a770,torch=2.9.1+cpu",
    "os=windows,python=3.10.11,gpu=gtx1080,driver=572.16,torch=2.7.1+cu126",
    "os=windows,python=3.10.11,gpu=rtx2080,driver=560.94,torch=2.6.0+cu124",
    "os=windows,python=3.12.10,gpu=rtx3090,driver=581.57,torch=2.9.1+cu128",
    "os=windows,python=3.13.1,gpu=rtx4090,driver=581.57,torch=2.15.0",
    "os=windows,python=3.12.10,gpu=rtx5090,driver=581.57,torch=2.8.0+cu128",
    "os=windows,python=3.14.0,gpu=rtx4090,driver=581.57,torch=2.12.0+cu130",
    "os=windows,python=3.12.10,gpu=none,torch=2.13.0",
    "os=macos,arch=arm64,python=3.12.3,gpu=m3,torch=2.9.1",
    "os=macos,arch=arm64,python=3.9.6,gpu=m3,torch=2.8.0",
)
#: What a machine of the grid decides, unless the rule needs the example's values.
_FOLLOWS = (
    *(f"torch.{name}_for_driver" for name in ("index", "pin")),
    *("torch.newest_index", "torch.newest_release"),
)
_IDENTITY: dict[str, tuple[str, ...]] = {
    "system": ("system.os", "system.arch", "system.distribution"),
    "python": ("python.version", "python.minor", "python.abi"),
    "gpu": (
        *("gpus.sm", "gpus.name", "gpus.compute_capability", "gpus.torch_code"),
        *("driver.version", "driver.library_version", "driver.best_sm", "driver.cuda_max"),
        *_FOLLOWS,
    ),
    "torch": (
        *(f"torch.{name}" for name in ("installed", "version", "local", "build", "cuda", "source")),
        *(name for name, _ in STEPS if name.startswith(("torch.", "triton."))),
        *("triton.installed", "triton.version", "triton.distribution", "xformers.index"),
        *(f"{name}.expected" for name in EXPECTED),
    ),
}
#: Facts of packages that are installed for one torch, which is then the example's.
_TIED = {"extensions", "duplicates", "incomplete_packages", "damaged_metadata"}
_WINDOWS = (r"C:\venv\Scripts\python.exe", r"C:\venv")
Given = Mapping[str, Any]
#: Names, and facts.
Machines = Sequence[tuple[str, Facts]]


@cache
def grid() -> tuple[tuple[str, Facts], ...]:
    """The machines by name, with everything that follows from their facts."""
    tables = library.tables()
    return tuple((words, derive(_made(words, tables), tables)) for words in GRID)


def _made(words: str, tables: Mapping[str, Any]) -> Facts:
    # Those of the recorded machine belong to its torch.
    without = ("torchvision=absent", "torchaudio=absent", "diffusers=0.35.2")
    return _with_paths(pretend(load(str(_BASE)), [words, *without], tables))


def _with_paths(facts: Facts) -> Facts:
    """The facts with the interpreter's path of their system, and the place that torch is from."""
    torch = facts.torch
    if torch.installed and torch.build == "cuda":
        facts = replace(facts, torch=replace(torch, from_pypi=not torch.local))
    windows = facts.system.os == "windows"
    path, prefix = _WINDOWS if windows else ("/srv/venv/bin/python3", "/srv/venv")
    return replace(facts, python=replace(facts.python, path=path, prefix=prefix))


def machines(rule: WrittenRule, chosen: Machines) -> Iterator[tuple[str, Facts]]:
    """The machines of `chosen` on which the rule finds its problem, each with a name.

    A rule that only reads logs has a problem wherever its log may come from.
    """
    seen: set[bytes] = set()
    examples = [one for one in rule.examples if one.expect == "problem"]
    for name, machine in chosen:
        if not rule.has_conditions:
            if _is_possible(machine) and Verdict.NOT_APPLICABLE not in verdicts(rule, machine):
                yield name, machine
            continue
        for example in examples:
            facts = _with_problem(rule, machine, example.facts)
            if facts is None or not _is_possible(facts):
                continue
            key = msgspec.json.encode(facts)
            if key not in seen:
                seen.add(key)
                yield f"{name} · {example.name}", facts


def _with_problem(rule: Rule, machine: Facts, given: Given) -> Facts | None:
    """The machine with as little of the example as the rule needs; None if it finds nothing."""
    sizes = range(len(_IDENTITY) + 1)
    for needed in chain.from_iterable(combinations(_IDENTITY, size) for size in sizes):
        if _TIED & given.keys() and "torch" not in needed:
            continue
        free = {name for group in _IDENTITY.keys() - {*needed} for name in _IDENTITY[group]}
        found = _laid_over(machine, _without(given, free))
        if found is not None and has_problem(rule, found):
            return found
    # As a last resort the example's derived facts, on the usual machine.
    if (machine.system.os, machine.system.arch) != ("linux", "x86_64"):
        return None
    found = _laid_over(machine, given, forced=True)
    return found if found is not None and has_problem(rule, found) else None


def _without(given: Given, names: set[str], prefix: str = "") -> dict[str, Any]:
    """The facts but those of `names`; those of a list's elements are named as `gpus.sm`."""
    kept: dict[str, Any] = {}
    for key, value in given.items():
        name = prefix + key
        if isinstance(value, dict):
            kept[key] = _without(value, names, f"{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            kept[key] = [_without(one, names, f"{name}.") for one in value]
        elif name not in names:
            kept[key] = value
    return kept


def _simulated(machine: Facts, given: Given) -> Facts:
    """The machine with the GPU, the driver and the torch that are given, all that belongs to it."""
    torch, driver = given.get("torch", {}), given.get("driver", {})
    gpus = given.get("gpus", [{}])
    sm = driver.get("best_sm") or (gpus[0].get("sm") if gpus else None)
    words = {
        "os": given.get("system", {}).get("os"),
        "arch": given.get("system", {}).get("arch"),
        "python": given.get("python", {}).get("version"),
        "sm": sm,
        "driver": driver.get("version"),
        "torch": torch.get("version") or ("absent" if torch.get("installed") is False else None),
    }
    said = [f"{key}={value}" for key, value in words.items() if value]
    return _with_paths(pretend(machine, said, library.tables()))


def _is_possible(facts: Facts) -> bool:
    """Whether a person can have this machine: its torch is published for its system and Python."""
    system = facts.system.os
    if system == "macos" and (facts.gpus or facts.torch.index or facts.driver.vendor == "nvidia"):
        return False
    if system != "windows" and "windows" in (facts.triton.pin or ""):
        return False
    there = installed_build(facts)
    if there is None or there.cuda == "":
        return True
    found = fit(there, facts, library.tables())
    return not (found.system or found.python)


def has_problem(rule: Rule, facts: Facts) -> bool:
    """Whether the rule finds its problem in the facts."""
    return Verdict.PROBLEM in verdicts(rule, facts)


def _laid_over(machine: Facts, given: Given, *, forced: bool = False) -> Facts | None:
    """The machine with the facts that are given; None if they have no such shape together.

    `forced`: they hold even where the tables say otherwise.
    """
    torch = given.get("torch", {})
    if "version" not in torch and torch.get("build", machine.torch.build) != machine.torch.build:
        return None
    try:
        data = msgspec.to_builtins(_simulated(machine, given))
        _merge(data, given)
        facts = derive(msgspec.convert(data, Facts), library.tables())
    except (msgspec.ValidationError, AttnDoctorError):
        return None
    # What the tables could not derive is as the example says.
    data = msgspec.to_builtins(facts)
    _merge(data, given, only_unknown=not forced)
    return msgspec.convert(data, Facts)


def _merge(data: dict[str, Any], given: Given, *, only_unknown: bool = False) -> None:
    for key, value in given.items():
        there = data.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            _merge(there, value, only_unknown=only_unknown)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            if only_unknown and there:
                for old, new in zip(there, value, strict=False):
                    _merge(old, new, only_unknown=True)
            else:
                first = there[0] if there and key == "gpus" else {}
                data[key] = [{**first, **one} for one in value]
        elif not only_unknown or there is None:
            data[key] = value
