"""What a log tells of the machine that wrote it, as facts that rules can judge.

What is not told stays unknown. A statement about what is there counts more than a command that asks
for it, and a later statement more than an earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from attn_doctor.explain.extract import REPORT, Statement
from attn_doctor.facts import Facts

Tables = Callable[[], Mapping[str, Any]]


def facts_from(found: Iterable[Statement], tables: Tables) -> tuple[Facts, set[str]]:
    """What was stated as facts, and the names of those that were really stated.

    `tables` is called only if there is something to look up.
    """
    told: dict[str, Statement] = {}
    for one in found:
        known = told.get(one.fact)
        if known is None or one.strength >= known.strength:
            told[one.fact] = one
    values = {
        name: _cuda(one.value) if name.endswith(".built_cuda") else one.value
        for name, one in told.items()
    }
    _complete_torch(values)
    gpu = _gpu(values, tables)
    try:
        # Not strict: the groups of a rule's pattern give text for numbers as well.
        facts = msgspec.convert(_nested(values, gpu), Facts, strict=False)
    except msgspec.ValidationError:
        # Such a group caught something that is no value of its fact.
        own = [one for one in told.values() if one.strength <= REPORT]
        return facts_from(own, tables) if len(own) < len(told) else (Facts(), set())
    return facts, {*values, *(f"gpu.{name}" for name in gpu)}


def _nested(values: Mapping[str, Any], gpu: Mapping[str, Any]) -> dict[str, Any]:
    """The values as `Facts` nests them."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        head, _, rest = name.partition(".")
        nested.setdefault(head, {})[rest] = value
    if gpu:
        nested["gpus"] = [{"index": 0, "visible": True, **gpu}]
        nested.setdefault("driver", {}).setdefault("vendor", "nvidia")
    elif values.get("system.os") == "macos":
        # Macs with NVIDIA GPUs are older than any torch that attention kernels run on.
        nested.setdefault("driver", {}).setdefault("vendor", "apple")
        nested["gpus"] = []
    return nested


def _gpu(values: dict[str, Any], tables: Tables) -> dict[str, Any]:
    """The GPU of which the log speaks. Takes its facts out of `values`."""
    gpu: dict[str, Any] = {
        name: values.pop(f"gpu.{name}")
        for name in ("name", "sm", "compute_capability")
        if f"gpu.{name}" in values
    }
    if "sm" not in gpu and "compute_capability" in gpu:
        gpu["sm"] = gpu["compute_capability"]
    if "sm" in gpu:
        gpu["sm"] = int(re.sub(r"\D", "", str(gpu["sm"])) or 0)
    elif "name" in gpu and (sm := _capability(gpu["name"], tables())):
        gpu["sm"] = sm
    if gpu.get("sm"):
        gpu["compute_capability"] = f"{gpu['sm'] // 10}.{gpu['sm'] % 10}"
    return gpu


def _cuda(digits: str) -> str:
    """`118` of a wheel's name is 11.8, `1201` of xformers' is 12.1."""
    if len(digits) == 4 and digits.isdigit():
        return f"{digits[:2]}.{int(digits[2:])}"
    return f"{digits[:2]}.{digits[2]}" if len(digits) == 3 else digits


def _complete_torch(values: dict[str, Any]) -> None:
    """What the version of torch says of its build: `2.4.1+cu121`, `+cpu`, `+rocm6.2`."""
    version = values.get("torch.version", "")
    local = version.partition("+")[2]
    if version:
        values.setdefault("torch.installed", True)
    if local:
        values["torch.local"] = local
    if local.startswith("cu") and local[2:].isdigit():
        values.setdefault("torch.cuda", f"{local[2:-1]}.{local[-1]}")
    elif local.startswith("rocm"):
        values.setdefault("torch.hip", local.removeprefix("rocm"))
    elif local == "cpu":
        values["torch.build"] = "cpu"
        values.pop("torch.cuda", None)
    if "torch.hip" in values or values.get("torch.build") == "rocm":
        values["torch.build"] = "rocm"
        values.pop("torch.cuda", None)
    elif "torch.cuda" in values:
        values["torch.build"] = "cuda"


def _capability(name: str, tables: Mapping[str, Any]) -> int | None:
    """Compute capability ×10 of a GPU by its product name, if the table of devices knows it."""
    wanted = _plain(name)
    close: set[int] = set()
    for chip in tables.get("pci-nvidia", {}).get("chips", {}).values():
        for line in chip["ids"].splitlines():
            product = _plain(line[5:])
            if product and (product == wanted or f"{product} ".startswith(f"{wanted} ")):
                close.add(chip["sm"])
    return close.pop() if len(close) == 1 else None


def _plain(name: str) -> str:
    name = name.lower().replace("-", " ").removeprefix("nvidia ")
    for brand in ("geforce ", "tesla ", "quadro "):
        name = name.removeprefix(brand)
    return re.sub(r" laptop.*| gpu$", "", name).strip()
