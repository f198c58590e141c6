"""Reads cache lookups from torch's structured trace (`TORCH_TRACE`), of any program.

Each process writes one file. A lookup is a line that names an artifact such as
`fx_graph_cache_miss`, followed by its payload, indented by a tab, as JSON with the key and, for FX
graphs, the components that the key is made of. torch 2.5 and newer; the trace is part of no key.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from attn_doctor.files import open_binary
from attn_doctor.json_files import JsonError, decode

# V1121 15:00:44.013000 27064 torch/_inductor/compile_fx.py:1149] {"artifact": {"name": …}, …}
_LOOKUP = re.compile(
    r'^V\d.*?\] \{"artifact": \{"name": "'
    r'(?P<kind>fx_graph|aotautograd)(_bundled)?_cache_(?P<what>hit|miss|bypass)"'
)
# [4s7voeeazqklzc76dzhfujwqguqd4zrigkv25iv46w3bnvwz6hj] gm: <lambda>(
_COMPONENT = re.compile(r"\[(?P<digest>\w+)\] (?P<name>[^:]+): ?(?P<value>.*)", re.DOTALL)
#: In the code of a graph that calls FlexAttention.
_SAVES = "'OUTPUT_LOGSUMEXP': "
_KINDS = {"fx_graph": "fxgraph", "aotautograd": "aotautograd"}
#: Characters of a component's value that are shown.
_SHOWN = 60


class Lookup(Struct, frozen=True, kw_only=True):
    """One search in a cache."""

    kind: str
    """`fxgraph` or `aotautograd`"""
    what: str
    """`hit`, `miss` or `bypass`"""
    key: str
    components: tuple[str, ...] = ()
    reason: str = ""
    """Why the cache was not used at all."""


def lookups(folder: Path) -> list[Lookup]:
    """Every lookup that the processes which wrote to `folder` made."""
    return [one for path in sorted(folder.glob("*.log")) for one in _read(path)]


def _read(path: Path) -> Iterator[Lookup]:
    pending: re.Match[str] | None = None
    payload: list[str] = []
    with io.TextIOWrapper(open_binary(path), "utf-8", "replace") as file:
        for line in file:
            if line.startswith("\t") and pending is not None:
                payload.append(line[1:])
                continue
            if pending is not None:
                yield _lookup(pending, "".join(payload))
            pending, payload = _LOOKUP.match(line), []
    if pending is not None:
        yield _lookup(pending, "".join(payload))


def _lookup(found: re.Match[str], payload: str) -> Lookup:
    try:
        fields: dict[str, Any] = decode(payload, dict)
    except JsonError:
        fields = {}
    return Lookup(
        kind=_KINDS[found["kind"]],
        what=found["what"],
        key=str(fields.get("key") or ""),
        components=tuple(map(str, fields.get("components") or ())),
        reason=str(fields.get("cache_bypass_reason") or ""),
    )


def counted(found: list[Lookup]) -> dict[str, int]:
    """Number of lookups by kind and result, such as `fxgraph.hit`."""
    numbers: dict[str, int] = {}
    for one in found:
        name = f"{one.kind}.{one.what}"
        numbers[name] = numbers.get(name, 0) + 1
    return numbers


def without_gradients(found: Iterable[Lookup]) -> bool:
    """Attention was compiled, and none of it so that a backward pass could follow.

    On a GPU the kernel's option OUTPUT_LOGSUMEXP follows `torch.is_grad_enabled()`; on the CPU it
    is always off.
    """
    texts = [text for one in found for text in one.components if _SAVES in text]
    return bool(texts) and not any(f"{_SAVES}True" in text for text in texts)


def differing(missed: Lookup, known: list[Lookup]) -> list[str]:
    """Components of a missed graph that no known graph has alike, the nearest one taken."""
    now = _components(missed)
    others = [_components(one) for one in known if one.kind == missed.kind and one.components]
    if not now or not others:
        return []
    distances = [sorted(name for name in now if now[name] != other.get(name)) for other in others]
    names = min(distances, key=len)
    nearest = others[distances.index(names)]
    return [_difference(name, nearest.get(name), now[name]) for name in names]


def _components(one: Lookup) -> dict[str, tuple[str, str]]:
    found = {}
    for text in one.components:
        match = _COMPONENT.match(text)
        if match:
            found[match["name"]] = (match["digest"], match["value"])
    return found


def _difference(name: str, was: tuple[str, str] | None, now: tuple[str, str]) -> str:
    # A graph or a list of tensors is too long to be shown; a setting is not.
    if was is None or max(len(was[1]), len(now[1])) > _SHOWN:
        return name
    return f"{name}: {was[1]} → {now[1]}"
