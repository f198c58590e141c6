"""Keeps the components of torch's cache keys beside a kernel, so that a miss can be explained.

torch hashes the components of a key one by one for its debug log, and returns the lines with the
key; from 2.13 on it does so for AOTAutograd only while that log is on. They are written to a file
per spec; two such lists name the component that changed.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

from attn_doctor.worker.files import DATA, read_text, write_atomic

#: Characters kept of a component's text; its hash covers the rest.
_LONGEST = 2000
_LINE = re.compile(r"\[([^\]]*)\] ([^:]+): ?(.*)", re.DOTALL)


#: torch's names of components that a reader would not know.
_LABELS = {
    "gm": "the traced graph (mask, sizes, options)",
    "system_info": "GPU, Triton or CUDA",
    "torch_version": "torch's own code",
    "cuda_matmul_settings": "matmul precision",
}


class KeyParts:
    """Records the keys that torch computes, with their components, and the time that this takes."""

    def __init__(self) -> None:
        self.keys: dict[str, list[dict[str, Any]]] = {"aotautograd": [], "fxgraph": []}
        self.seconds = 0.0
        self._undo: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> KeyParts:  # noqa: PYI034 - Python 3.9 has no Self
        from torch._inductor import codecache

        self._keys(codecache, "compiled_fx_graph_hash", "fxgraph")
        try:
            from torch._functorch._aot_autograd import autograd_cache
        except ImportError:
            return self
        self._keys(autograd_cache, "autograd_cache_key", "aotautograd")
        self._replace(autograd_cache, "_get_debug_lines_for_cache_key", self._lines)
        return self

    def __exit__(self, *_: object) -> None:
        for place, name, before in reversed(self._undo):
            setattr(place, name, before)

    def _replace(self, place: Any, name: str, make: Any) -> None:
        before = getattr(place, name, None)
        if before is not None:
            self._undo.append((place, name, before))
            setattr(place, name, make(before))

    def _lines(self, _: Any) -> Any:
        """Replace torch's function that returns lines only for its log."""

        def lines(pickler: Any, details: Any, *_: Any, **__: Any) -> list[str]:
            start = time.perf_counter()
            try:
                return [str(line) for line in pickler.debug_lines(details)]
            except Exception:
                return []
            finally:
                self.seconds += time.perf_counter() - start

        return lines

    def _keys(self, place: Any, name: str, kind: str) -> None:
        def make(before: Any) -> Any:
            def key(*args: Any, **kwargs: Any) -> Any:
                found = before(*args, **kwargs)
                text, debug = found if isinstance(found, tuple) else (found, [])
                lines = [str(line)[:_LONGEST] for line in debug or []]
                self.keys[kind].append({"key": str(text), "lines": lines})
                return found

            return key

        self._replace(place, name, make)

    def names(self) -> dict[str, list[str]]:
        """The keys alone, by kind."""
        return {kind: [one["key"] for one in found] for kind, found in self.keys.items()}


def place(folder: str, spec: str) -> str:
    """The file with the key components of a spec in a cache folder."""
    return os.path.join(folder, "attn-doctor", "keys", f"{spec}.json")


def save(folder: str, spec: str, keys: dict[str, list[dict[str, Any]]]) -> str:
    """Write the key components; returns the path, or "" if that fails."""
    path = place(folder, spec)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_atomic(path, json.dumps({"schema": 1, "keys": keys}).encode())
    except OSError:
        return ""
    return path


def load(folder: str, spec: str) -> dict[str, list[dict[str, Any]]]:
    """The key components that were saved; empty if they cannot be read."""
    try:
        keys = json.loads(read_text(place(folder, spec), DATA))["keys"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return keys if isinstance(keys, dict) else {}


def difference(
    was: dict[str, list[dict[str, Any]]], now: dict[str, list[dict[str, Any]]]
) -> list[str]:
    """The changes between the keys of two processes: `inductor_config[max_autotune]: …`.

    Empty when all keys are the same, or when one side has no components. The keys of a kind are
    compared in the order in which they were computed.
    """
    moved: list[str] = []
    for kind in ("aotautograd", "fxgraph"):
        for before, after in zip(was.get(kind, []), now.get(kind, [])):  # noqa: B905
            if before["key"] != after["key"]:
                moved += _moved(before["lines"], after["lines"])
    return list(dict.fromkeys(moved))


def _moved(was: list[str], now: list[str]) -> list[str]:
    before, after = _parts(was), _parts(now)
    names = [name for name in dict.fromkeys([*before, *after]) if _differ(before, after, name)]
    moved = [f"{_LABELS.get(name, name)}: {_change(before, after, name)}" for name in names]
    counts = [sum(name.startswith("example_inputs[") for name in side) for side in (before, after)]
    if counts[0] != counts[1]:
        moved = [one for one in moved if not one.startswith("example_inputs[")]
        moved.append(f"inputs: {counts[0]} → {counts[1]}")
    return sorted(moved, key=_rank)


def _differ(was: dict[str, tuple[str, str]], now: dict[str, tuple[str, str]], name: str) -> bool:
    return was.get(name, ("", ""))[0] != now.get(name, ("", ""))[0]


def _change(was: dict[str, tuple[str, str]], now: dict[str, tuple[str, str]], name: str) -> str:
    if name not in was or name not in now:
        return "new" if name not in was else "gone"
    return _short(was[name][1], now[name][1])


def _rank(moved: str) -> int:
    """Settings and versions explain more than graphs, and graphs more than bookkeeping."""
    if moved.startswith("the traced graph"):
        return 2
    return 3 if moved.startswith("aot_config") else 1 if moved.startswith("inputs") else 0


def _parts(lines: list[str]) -> dict[str, tuple[str, str]]:
    found = {}
    for line in lines:
        match = _LINE.match(line)
        if match:
            found[match.group(2)] = (match.group(1), match.group(3))
    return found


def _short(was: str, now: str, width: int = 60) -> str:
    """The two texts from their first difference on, cut to `width` characters each."""
    if was == now:
        return f"{was[:width]} (same text, other content)"
    same = next((i for i, (a, b) in enumerate(zip(was, now)) if a != b), len(was))  # noqa: B905
    start = max(0, same - 20)
    shown = [f"{'…' if start else ''}{text[start : start + width]}" for text in (was, now)]
    return " → ".join(part.replace("\n", " ") for part in shown)
