"""Reads which host compilers the examined torch accepts for each CUDA version.

torch has a table in `torch/utils/cpp_extension.py` and refuses compilers outside of it, even if
nvcc accepts them. The file is read as text; torch is not imported.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from attn_doctor.host import Host
from attn_doctor.numbers import natural
from attn_doctor.python_source import tree_of

#: For a CUDA version such as `12.4`, the lowest version accepted and the first one refused.
Bounds = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
_FILE = ("utils", "cpp_extension.py")
_NAMES = {"gcc": "CUDA_GCC_VERSIONS", "clang": "CUDA_CLANG_VERSIONS"}


def read(host: Host, torch: str, family: str) -> Bounds:
    """Return the table for a compiler family in the torch at `torch`; empty if there is none."""
    name = _NAMES.get(family, "")
    text = host.try_read(host.join(torch, *_FILE), 1 << 20) if torch and name else ""
    tree = tree_of(text)
    constants: dict[str, object] = {}
    try:
        for node in tree.body if tree is not None else ():
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and ("VERSION" in target.id):
                    constants[target.id] = _value(node.value, constants)
    except (RecursionError, TypeError):  # nested by the thousand, or a key that is a dictionary
        return {}
    found = constants.get(name)
    if not isinstance(found, dict):
        return {}
    return {
        cuda: bounds for cuda, bounds in found.items() if isinstance(cuda, str) and _is_pair(bounds)
    }


def _is_pair(bounds: object) -> bool:
    """Two versions as tuples of numbers."""
    return (
        isinstance(bounds, tuple)
        and len(bounds) == 2
        and all(isinstance(one, tuple) and all(type(n) is int for n in one) for one in bounds)
    )


def _value(node: ast.expr, constants: Mapping[str, object]) -> object:
    """Tuples, numbers, texts, dictionaries of them and names of earlier ones; None for others."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.Tuple):
        return tuple(_value(one, constants) for one in node.elts)
    if isinstance(node, ast.Dict):
        return {
            _value(name, constants): _value(value, constants)
            for name, value in zip(node.keys, node.values, strict=True)
            if name is not None
        }
    return None


def refusal(bounds: Bounds, cuda: str, compiler: str, version: str) -> str:
    """Return why torch would refuse this compiler for that CUDA, or empty text."""
    if cuda not in bounds or not version:
        return ""
    lowest, beyond = bounds[cuda]
    plain = version.partition("-")[0]  # Debian calls its 12.2.0 `12.2.0-14`
    numbers = tuple(one for part in plain.split(".") if (one := natural(part)) is not None)
    taken = ""
    if numbers >= beyond:
        taken = f"those before {_t(beyond)}"
    elif numbers < lowest:
        taken = f"{_t(lowest)} and newer"
    return (
        f"torch refuses {compiler} {version} with CUDA {cuda}: it accepts {taken}" if taken else ""
    )


def _t(parts: tuple[int, ...]) -> str:
    return ".".join(map(str, parts))
