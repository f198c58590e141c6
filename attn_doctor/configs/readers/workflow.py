"""A workflow of ComfyUI: the inputs of nodes that choose attention, as `NODE.input`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attn_doctor.configs.readers.settings import Setting

#: Values that name a way to compute attention.
_NAMES = re.compile(
    r"(?i)(?:torch|fused|radial)?[-_ ]?"
    r"(?:sdpa|(?:sage|sparge|flash|flex)[-_ ]?att(?:n|ention)[\w.+-]*|xformers)"
)
#: Nodes that are named after one.
_PATCHES = re.compile(r"(?i)(?:sage|sparge|flash|radial)_?att|xformers")
#: Nodes with a model of their own beside the one that draws: captions, prompts, depth.
_ASIDE = re.compile(
    r"(?i)florence|caption|llava|llm|vlm|vl\b|vl[-_A-Z]|moondream|janus|phi|depth|sam\d"
)
#: Nodes that load or sample a model through ComfyUI, its own or those of packages around them.
_CORE = re.compile(
    r"(?i)(?:^|[^a-z])KSampler|SamplerCustom|Checkpoint_?Loader|UNET_?Loader|Guider$"
    r"|DiffusersLoader|Efficient Loader|easy \w*(?:Loader|Sampler)|DiffusionModelLoader"
    r"|ModelSampling|ModelPatch|LoraLoader|GGUF"
)
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
    """The inputs of `wanted`, as `NODE.input` with the values that they may have, or as `NODE`.

    A further node of the same kind with another value has its number behind: `NODE.input 2`.
    A node that is none of them and names attention is `other NODE`.
    """
    found: dict[str, Setting] = {}
    known = {key.partition(".")[0] for key in wanted}
    for node in _nodes(data):
        if node.get("mode") in _OFF:
            continue
        kind = str(node.get("class_type") or node.get("type") or "")
        named = "" if kind in known or _ASIDE.search(kind) else _named(node, kind)
        if named:
            found[f"{OTHER}{kind}"] = Setting(kind, named, _line(text, kind), kind)
        for key, values in wanted.items():
            name, _, setting = key.partition(".")
            if name != kind:
                continue
            value = _value(node, setting, set(values)) if setting else "true"
            if value and all(one.text != value for one in _same(found, key)):
                number = len(_same(found, key)) + 1
                own = key if number == 1 else f"{key} {number}"
                found[own] = Setting(own, value, _line(text, kind), own)
    return found


def without_models(data: Mapping[str, Any]) -> bool:
    """No node loads or samples a model through ComfyUI: what other nodes run is their own."""
    kinds = [str(one.get("class_type") or one.get("type") or "") for one in _nodes(data)]
    return bool(kinds) and not any(map(_CORE.search, kinds))


def _named(node: Mapping[str, Any], kind: str) -> str:
    """What a node of another kind says of attention; empty if it says nothing."""
    inputs, widgets = node.get("inputs"), node.get("widgets_values")
    values = [one for one in (inputs, widgets) if isinstance(one, dict)]
    texts = [one for each in values for one in each.values()]
    texts += widgets if isinstance(widgets, list) else []
    named = (one for one in texts if isinstance(one, str) and _NAMES.fullmatch(one))
    own = _PATCHES.search(kind) or _loads_own_model(node, kind)
    return next(named, kind if own else "")


def _loads_own_model(node: Mapping[str, Any], kind: str) -> bool:
    """A node that gives a model without getting one, and that is not known to be ComfyUI's.

    Nunchaku's give a model that brings its attention. Only the editor's files have types.
    """
    if "load" not in kind.lower() or _CORE.search(kind):
        return False
    types = [
        [one.get("type") for one in given if isinstance(one, dict)]
        if isinstance(given, list)
        else []
        for given in (node.get("outputs"), node.get("inputs"))
    ]
    return "MODEL" in types[0] and "MODEL" not in types[1]


def _same(found: Mapping[str, Setting], key: str) -> list[Setting]:
    return [one for name, one in found.items() if name == key or name.startswith(f"{key} ")]


def _nodes(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All nodes, also those of subgraphs."""
    nodes = data.get("nodes")
    every = [*nodes] if isinstance(nodes, list) else [*data.values()]
    below = data.get("definitions")
    graphs = below.get("subgraphs") if isinstance(below, dict) else None
    for graph in graphs if isinstance(graphs, list) else ():
        if isinstance(graph, dict) and isinstance(graph.get("nodes"), list):
            every += graph["nodes"]
    yield from (one for one in every if isinstance(one, dict))


#: Before the kind of a node that is not known.
OTHER = "other "
#: What stands for a value that another node gives.
LINKED = "$(the node before)"


def _value(node: Mapping[str, Any], setting: str, known: set[str]) -> str:
    inputs = node.get("inputs")
    if isinstance(inputs, dict):
        given = inputs.get(setting)
        return given if isinstance(given, str) else LINKED if isinstance(given, list) else ""
    for one in inputs if isinstance(inputs, list) else ():
        if isinstance(one, dict) and one.get("name") == setting and one.get("link") is not None:
            return LINKED
    widgets = node.get("widgets_values")
    if isinstance(widgets, dict):
        return str(widgets.get(setting, ""))
    # The editor saves the values alone, in the order of the node's inputs.
    values = [one for one in widgets if isinstance(one, str)] if isinstance(widgets, list) else []
    named = (one for one in values if _NAMES.fullmatch(one))
    return next((one for one in values if one in known), next(named, ""))


def _line(text: str, kind: str) -> int:
    at = text.find(f'"{kind}"')
    return text.count("\n", 0, at) + 1 if at >= 0 else 1
