"""Answers for a machine that is not here: `--pretend gpu=rtx4090,torch=2.9.1+cu128`.

Each word replaces a group of facts, and what contradicts it goes with it: another torch is no
longer the files that were read. What then has to be assumed (a driver that is new enough, a Triton
that comes with torch, packages built for this torch and GPU) is said in `Facts.simulated`; what
cannot be known stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from attn_doctor.env_vars import VARIABLES
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.pretend import gpus, machine, torch
from attn_doctor.pretend.common import Tables
from attn_doctor.pretend.packages import PACKAGES, package
from attn_doctor.suggest import did_you_mean

__all__ = ["KEYS", "PACKAGES", "STEPS", "pretend"]

#: What else than a package may be written before the `=`, in the order in which it is applied.
STEPS: dict[str, Callable[[Facts, str, Tables, list[str]], Facts]] = {
    "os": machine.operating_system,
    "python": machine.python,
    "gpu": gpus.gpu,
    "sm": gpus.capability,
    "memory": gpus.memory,
    "driver": gpus.driver,
    "torch": torch.torch,
    "triton": torch.triton,
    "cc": machine.c_compiler,
}
KEYS = tuple(STEPS)
_EXAMPLE = "for example `--pretend gpu=rtx4090,torch=2.9.1+cu128,flash-attn=absent`"


def pretend(facts: Facts, given: Iterable[str], tables: Tables) -> Facts:
    """`facts` with what `given` says in their place, to be derived anew.

    Each of `given` is a list such as `gpu=h100,driver=570`. Raises `AttnDoctorError` for a word
    that is not understood.
    """
    words = _words(given)
    if not words:
        return facts
    told: list[str] = []
    for key, step in STEPS.items():
        if key in words:
            facts = step(facts, words[key], tables, told)
    if "gpu" in words or "sm" in words:
        facts = gpus.with_driver(facts, words, tables, told)
    if "torch" in words and "triton" not in words:
        facts = torch.with_triton(facts, tables, told)
    for key, value in words.items():
        if key.startswith("env."):
            name = key.removeprefix("env.")
            facts = replace(facts, env={**facts.env, name: value})
            told.append(f"{name}={value}" if value else f"{name} unset")
        elif key in PACKAGES:
            facts = package(facts, key, value, told)
    return replace(facts, simulated=(*facts.simulated, *told))


def _words(given: Iterable[str]) -> dict[str, str]:
    """The words by their key."""
    words: dict[str, str] = {}
    for part in (part.strip() for text in given for part in text.split(",")):
        if not part:
            continue
        name, equals, value = part.partition("=")
        key = _key(name.strip())
        if not equals or (not value and not key.startswith("env.")):
            raise AttnDoctorError(f"--pretend {part}: write key=value, {_EXAMPLE}")
        words[key] = value.strip()
    return words


def _key(name: str) -> str:
    if name.startswith("env."):
        if name.removeprefix("env.") not in VARIABLES:
            raise AttnDoctorError(f"--pretend {name}: no variable that attn-doctor looks at")
        return name
    key = name.lower().replace("-", "_")
    if key in KEYS or key in PACKAGES:
        return key
    known = [known.replace("_", "-") for known in (*KEYS, *PACKAGES)]
    hint = did_you_mean(name.lower(), known, _EXAMPLE, 1)
    raise AttnDoctorError(f"--pretend {name}: not known; {hint}")
