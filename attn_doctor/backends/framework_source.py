"""The names of backends that an installed framework has, from its own source, as a tree.

The catalogue lists the names of the releases that it was compared with. Of any other release the
source decides, where its files are here. Nothing is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from attn_doctor.facts import Facts
from attn_doctor.facts.installed import Package
from attn_doctor.files import TEXT, read_text
from attn_doctor.python_source import tree_of

if TYPE_CHECKING:
    import ast  # `check` imports this module, and rarely needs it

#: ComfyUI is a folder, not a package. This file in it has its version.
_COMFYUI = "comfyui_version.py"
_VERSION = r'(?m)^__version__ = "([\w.+-]{1,50})"'


def package_of(facts: Facts, framework: str) -> Package:
    """The installed framework."""
    found: Package | None = getattr(facts, framework, None)
    if found is not None:
        return found
    # The working directory says nothing of another machine, whose facts these may be.
    here = os.getcwd() if os.path.exists(facts.python.path or "") else ""
    folder = _comfyui(facts.python.prefix or "", here)
    if folder is None:
        return Package(installed=False)
    match = re.search(_VERSION, _text(folder / _COMFYUI) or "")
    return Package(installed=True, version=match[1] if match else None, path=str(folder))


def names_in_source(facts: Facts, framework: str) -> frozenset[str] | None:
    """The names in an installed framework's source; None where it cannot be read."""
    if framework == "diffusers" and facts.dispatcher.names is not None:
        return frozenset(facts.dispatcher.names)
    folder = package_of(facts, framework).path
    return _names(folder, framework) if folder and framework in PLACES else None


@cache
def _names(folder: str, framework: str) -> frozenset[str] | None:
    path, named = PLACES[framework]
    tree = tree_of(_text(Path(folder) / path))
    return (frozenset(named(tree)) or None) if tree is not None else None


@cache
def _comfyui(prefix: str, here: str) -> Path | None:
    """ComfyUI's folder: the working directory, or one that has the environment or is beside it."""
    root = Path(prefix) if prefix else None
    near = (root, *[*root.parents][:2]) if root else ()
    for folder in (*([Path(here)] if here else []), *near):
        for one in (folder, folder / "ComfyUI"):
            if (one / _COMFYUI).is_file():
                return one
    return None


def _text(path: Path) -> str | None:
    try:
        return read_text(path, TEXT)
    except OSError:
        return None


# class AttentionBackendName(str, Enum): FLASH = "flash"
def _members(tree: ast.Module) -> Iterator[str]:
    import ast

    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name in (
            "AttentionBackendName",
            "AttentionProvider",
        ):
            yield from _texts(one.value for one in node.body if isinstance(one, ast.Assign))


# _global_mapping = {"sdpa": sdpa_attention_forward}, or in older releases
# ALL_ATTENTION_FUNCTIONS.update({…}), or `not in ["eager", "sdpa", "flash_attention_2"]`
def _interface(tree: ast.Module) -> Iterator[str]:
    import ast

    for node in ast.walk(tree):
        keys: list[str] = []
        if isinstance(node, ast.Dict):
            keys = [*_texts(one for one in node.keys if one is not None)]
        elif isinstance(node, ast.List):
            keys = [*_texts(node.elts)]
        known = "sdpa" in keys and "flash_attention_2" in keys
        if known and (isinstance(node, ast.Dict) or "eager" in keys):
            yield "eager"
            # Those of continuous batching are chosen by `generate_batch`.
            yield from (one for one in keys if "paged" not in one)


# register_attention_function("sage", attention_sage)
def _registered(tree: ast.Module) -> Iterator[str]:
    import ast

    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "register_attention_function"
        ):
            yield from _texts(node.args[:1])


# attention_mechanisms = ["diffusers", "xformers"]
def _mechanisms(tree: ast.Module) -> Iterator[str]:
    import ast

    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.List)
            and any(
                isinstance(one, ast.Name) and one.id == "attention_mechanisms"
                for one in node.targets
            )
        ):
            yield from _texts(node.value.elts)


def _texts(nodes: Iterator[ast.expr] | list[ast.expr]) -> Iterator[str]:
    import ast

    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


#: Where a framework has its names, below its folder.
PLACES: Mapping[str, tuple[str, Callable[[ast.Module], Iterator[str]]]] = {
    "diffusers": ("models/attention_dispatch.py", _members),
    "finetrainers": ("models/attention_dispatch.py", _members),
    "simpletuner": (
        "simpletuner_sdk/server/services/field_registry/sections/advanced.py",
        _mechanisms,
    ),
    "transformers": ("modeling_utils.py", _interface),
    "comfyui": ("comfy/ldm/modules/attention.py", _registered),
}
