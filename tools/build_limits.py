"""What a source tree of flash-attn or SageAttention says of its builds, read and never run.

    python tools/build_limits.py FOLDER     print archs, nvcc and the matrix of wheels as TOML

FOLDER is a checkout at a release's tag. `setup.py` is parsed for the architectures that it compiles
for and the oldest toolkit that it accepts; `.github/workflows/publish.yml` of flash-attn for the
matrix of its wheels. `tools/refresh.py --source flash-attn=FOLDER` puts them into the newest row.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.version import Version

_NVCC = ("bare_metal_version", "nvcc_cuda_version")


def limits(text: str) -> dict[str, Any]:
    """The keys `archs`, `nvcc` and `nvcc_by_arch` of a `setup.py`; those that it says."""
    tree = ast.parse(text)
    least, by_arch = "", dict[str, str]()
    for test, body in _conditions(tree, ()):
        versions = [one for one in test if isinstance(one, ast.Compare) and _version(one)]
        archs = [arch for one in test for arch in _archs_in(one)]
        refuses = any(isinstance(one, ast.Raise) for one in body)
        for one in versions:
            below = isinstance(one.ops[0], ast.Lt)
            if below and refuses and not archs:
                least = _version(one)
            elif archs and (refuses if below else not refuses):
                for arch in archs:
                    known = by_arch.get(arch, _version(one))
                    by_arch[arch] = min(known, _version(one), key=Version)
    found = {"archs": sorted(map(int, _archs(tree))), "nvcc": least, "nvcc_by_arch": by_arch}
    return {key: value for key, value in found.items() if value}


def matrix(text: str) -> dict[str, Any]:
    """The keys of wheels in flash-attn's `publish.yml`: torch, cuda, python, abi, old_abi, without.

    A wheel has the C++ ABI of the torch that it is built with. In 2.6 that of CUDA 12.6 is new.
    """
    lists = dict(
        re.findall(
            r"^ +(python-version|torch-version|cuda-version|cxx11_abi): (\[.*\])",
            text,
            re.MULTILINE,
        )
    )
    found = {name: ast.literal_eval(value) for name, value in lists.items()}
    pairs = re.findall(r"- torch-version: '([\d.]+)'\s+python-version: '([\d.]+)'", text)
    torches = [_minor(one) for one in found["torch-version"] if "dev" not in one]
    newest = re.search(r"maxv = (\{.*?\})", text)
    cuda_of = ast.literal_eval(newest[1]) if newest else {}
    old = [one for one in torches if (Version(one), cuda_of.get(one, 0)) < (Version("2.6"), 126)]
    return {
        "torch": torches,
        "cuda": sorted({int(one.partition(".")[0]) for one in found["cuda-version"]}),
        "python": found["python-version"],
        "abi": [one == "TRUE" for one in reversed(found["cxx11_abi"])],
        **({"old_abi": old} if old != torches else {}),
        "without": [[_minor(torch), python] for torch, python in pairs],
    }


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _conditions(
    node: ast.AST, outer: tuple[ast.expr, ...]
) -> Iterator[tuple[tuple[ast.expr, ...], Sequence[ast.stmt]]]:
    """Every `if` with all conditions that lead to it, and its statements."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.If):
            yield from _conditions(child, outer)
            continue
        parts = child.test.values if isinstance(child.test, ast.BoolOp) else [child.test]
        test = (*outer, *parts)
        yield test, child.body
        for statement in child.body:
            yield from _conditions(ast.Module([statement], []), test)
        # What the other branch needs is not said by these conditions.
        yield from _conditions(ast.Module(child.orelse, []), outer)


def _version(node: ast.Compare) -> str:
    """`nvcc_cuda_version < Version("12.0")` → `12.0`; empty for another comparison."""
    right = node.comparators[0]
    if not isinstance(node.left, ast.Name) or node.left.id not in _NVCC:
        return ""
    named = isinstance(right, ast.Call) and isinstance(right.args[0], ast.Constant)
    return str(right.args[0].value) if named else ""  # type: ignore[attr-defined]


def _archs_in(node: ast.expr) -> Iterator[str]:
    """`"90" in cuda_archs()` and `any(cc.startswith("9.0") …)` → `90`."""
    listed = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In)
    value = getattr(node.left, "value", "") if isinstance(node, ast.Compare) and listed else ""
    if str(value).isdigit():
        yield str(value)
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and getattr(one.func, "attr", "") == "startswith":
            yield str(ast.literal_eval(one.args[0])).replace(".", "")


def _archs(tree: ast.Module) -> set[str]:
    """The architectures by default: a list in text, a set, or flags for each."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and re.fullmatch(r"\d+(;\d+)+", str(node.value)):
            found |= {*str(node.value).split(";")}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name.startswith("HAS_SM") and name[6:].isdigit():
                found.add(name[6:])
            elif name == "SUPPORTED_ARCHS" and isinstance(node.value, ast.Set):
                found |= {one.replace(".", "") for one in ast.literal_eval(node.value)}
    return found


def read(folder: Path) -> dict[str, Any]:
    """All that a source tree says."""
    found = limits((folder / "setup.py").read_text("utf-8"))
    workflow = folder / ".github" / "workflows" / "publish.yml"
    if workflow.is_file() and "torch-version" in workflow.read_text("utf-8"):
        found = {**matrix(workflow.read_text("utf-8")), **found}
    return found


def main(arguments: Sequence[str]) -> int:
    """Print what a folder says."""
    if len(arguments) != 1:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    for key, value in read(Path(arguments[0])).items():
        sys.stdout.write(f"{key.ljust(7)} = {json.dumps(value)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
