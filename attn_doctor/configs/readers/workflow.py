"""A workflow of ComfyUI: the inputs of nodes that choose attention, as `NODE.input`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attn_doctor.configs.readers.settings import Setting

#: States of a node that keep it from running: muted and bypassed.
_OFF = (2, 4)


def is_workflow(data: object) -> bool:
    """The data are a workflow, as the editor saves it or as the API takes it."""
    if not isinstance(data, dict):
        return False
    if isinstance(data.get("nodes"), list) and "links" in data:
        return True
    nodes = [one for one in data.values() if isinstance(one, dict)]
    return bool(nodes) and all("class_type" in one and "inputs" in one for one in nodes)


def choices_of(
    data: Mapping[str, Any], text: str, wanted: Mapping[str, Iterable[str]]
) -> dict[str, Setting]:
    """The inputs of `wanted`, as `NODE.input` with the values that they may have."""
    found: dict[str, Setting] = {}
    nodes = data.get("nodes")
    every = nodes if isinstance(nodes, list) else list(data.values())
    for node in every:
        if not isinstance(node, dict) or node.get("mode") in _OFF:
            continue
        kind = str(node.get("class_type") or node.get("type") or "")
        for key, values in wanted.items():
            name, _, setting = key.partition(".")
            if name != kind:
                continue
            value = _value(node, setting, set(values))
            if value:
                found.setdefault(key, Setting(key, value, _line(text, kind), key))
    return found


def _value(node: Mapping[str, Any], setting: str, known: set[str]) -> str:
    inputs = node.get("inputs")
    if isinstance(inputs, dict) and isinstance(inputs.get(setting), str):
        return str(inputs[setting])
    widgets = node.get("widgets_values")
    if isinstance(widgets, dict):
        return str(widgets.get(setting, ""))
    # The editor saves the values alone, in the order of the node's inputs.
    given = [one for one in widgets if isinstance(one, str)] if isinstance(widgets, list) else []
    return next((one for one in given if one in known), "")


def _line(text: str, kind: str) -> int:
    at = text.find(f'"{kind}"')
    return text.count("\n", 0, at) + 1 if at >= 0 else 1
