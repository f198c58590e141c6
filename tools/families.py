"""Finds the model families of SimpleTuner that call Diffusers' dispatcher, from its wheels.

    python tools/families.py record FOLDER     write tests/configs/simpletuner/families.json
    python tools/families.py compare FOLDER    compare it with rules/tables/families.toml; exit 1

FOLDER contains wheels of SimpleTuner and Diffusers (`pip download --no-deps simpletuner==4.8.0`).
They are read, never installed. A family is routed if the code of its model (`MODEL_CLASS`), or
code that it imports from other families, calls `dispatch_attention_fn`, or if it takes a class of
Diffusers that does. Autoencoders and pipelines are not followed.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "preflight" / "families.json"
MODELS = "simpletuner/helpers/models/"
BACKEND = "simpletuner/helpers/training/attention_backend.py"
CALL = "dispatch_attention_fn"


class Wheel:
    """The Python files of one wheel, parsed when asked for."""

    def __init__(self, path: Path) -> None:
        self.name, self.version = path.name.split("-")[:2]
        self._archive = zipfile.ZipFile(path)
        self.files = frozenset(self._archive.namelist())
        self.tree = cache(self._tree)

    def _tree(self, path: str) -> ast.Module:
        return ast.parse(self._archive.read(path))

    def text(self, path: str) -> str:
        """A file as text."""
        return self._archive.read(path).decode()


def calls(node: ast.AST) -> bool:
    """The dispatcher is called somewhere below `node`."""
    return any(
        isinstance(one, ast.Call) and ast.unparse(one.func).rpartition(".")[2] == CALL
        for one in ast.walk(node)
    )


def module_file(wheel: Wheel, module: str) -> str:
    """The file of a module; "" if the wheel has none."""
    base = module.replace(".", "/")
    return next((one for one in (f"{base}.py", f"{base}/__init__.py") if one in wheel.files), "")


def imported(path: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Module and name of every `from … import …`, relative ones written out."""
    package = path.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *filter(None, [node.module])])
            yield from ((module, alias.name) for alias in node.names)


def model_class(tree: ast.Module) -> str:
    """The name of the class that is trained, as `MODEL_CLASS` says."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "MODEL_CLASS"
        ):
            return ast.unparse(node.value).rpartition(".")[2]
    return ""


def routed(wheel: Wheel, diffusers: Wheel, family: str) -> str:
    """`own` code or a class of `diffusers` reaches the dispatcher; "" if nothing does."""
    entry = f"{MODELS}{family}/model.py"
    wanted = model_class(wheel.tree(entry))
    waiting = [
        (module, name) for module, name in imported(entry, wheel.tree(entry)) if name == wanted
    ]
    seen: set[str] = set()
    while waiting:
        module, name = waiting.pop()
        if module.startswith("diffusers"):
            if _diffusers_class(diffusers, name):
                return "diffusers"
            continue
        path = module_file(wheel, module) or module_file(wheel, f"{module}.{name}")
        if not path.startswith(MODELS) or path in seen:
            continue
        seen.add(path)
        tree = wheel.tree(path)
        if calls(tree):
            return "own"
        for other, one in imported(path, tree):
            if other.startswith("diffusers.models.transformers.transformer_") or (
                other.startswith(MODELS.replace("/", ".")) and "pipeline" not in other
            ):
                waiting.append((other, one))
    return ""


@cache
def _classes(wheel: Wheel) -> dict[str, bool]:
    """Classes of the transformers and U-Nets in Diffusers: whether they reach the dispatcher.

    They do if their own code calls it, or that of a class beside them which they name.
    """
    found: dict[str, bool] = {}
    for path in wheel.files:
        if not re.match(r"diffusers/models/(transformers|unets)/\w+\.py$", path):
            continue
        beside = {one.name: one for one in wheel.tree(path).body if isinstance(one, ast.ClassDef)}
        named = {
            name: {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} & {*beside}
            for name, node in beside.items()
        }
        reach = {name for name, node in beside.items() if calls(node)}
        while more := {name for name in beside if name not in reach and named[name] & reach}:
            reach |= more
        found |= {name: name in reach for name in beside}
    return found


def _diffusers_class(wheel: Wheel, name: str) -> bool:
    return _classes(wheel).get(name, False)


def packs(wheel: Wheel, family: str) -> bool:
    """A family has packed FlashAttention for `fuse_qkv_projections`."""
    return any(
        path.startswith(f"{MODELS}{family}/")
        and path.endswith(".py")
        and re.search(
            r"get_packed_attention_backend|FusedFlashAttnProcessor|packed_attention_processors",
            wheel.text(path),
        )
        for path in wheel.files
    )


def floor(wheel: Wheel) -> Version:
    """The least Diffusers that a SimpleTuner asks for."""
    metadata = next(one for one in wheel.files if one.endswith(".dist-info/METADATA"))
    for line in wheel.text(metadata).splitlines():
        if line.startswith("Requires-Dist: diffusers"):
            asked = Requirement(line.partition(": ")[2])
            return max(
                (Version(one.version) for one in asked.specifier if one.operator == ">="),
                default=Version("0"),
            )
    return Version("0")


def record(folder: Path) -> dict[str, Any]:
    """What the wheels in a folder say, by SimpleTuner's version."""
    wheels = [Wheel(path) for path in sorted(folder.glob("*.whl"))]
    library = sorted(
        (one for one in wheels if one.name == "diffusers"), key=lambda one: Version(one.version)
    )
    found: dict[str, Any] = {}
    trainers = [one for one in wheels if one.name == "simpletuner"]
    for wheel in sorted(trainers, key=lambda one: Version(one.version)):
        least = floor(wheel)
        diffusers = next((one for one in library if Version(one.version) >= least), None)
        if diffusers is None:
            raise SystemExit(f"{folder}: no wheel of diffusers {least} or later")
        backend = wheel.text(BACKEND)
        families = sorted(
            path.split("/")[3]
            for path in wheel.files
            if path.startswith(MODELS) and path.endswith("/model.py") and path.count("/") == 4
        )
        ways = {one: routed(wheel, diffusers, one) for one in families}
        found[wheel.version] = {
            "diffusers": diffusers.version,
            "holds_sdpa": "_TORCH_SDPA_BACKENDS" in backend,
            "kohaku": "_enable_kohaku_fa" in backend,
            "routed": {one: way for one, way in ways.items() if way},
            "packed": [one for one in families if packs(wheel, one)],
            "others": [one for one, way in ways.items() if not way],
        }
    return found


def compare(found: dict[str, Any]) -> list[str]:
    """Differences between what wheels say and the table, one sentence each."""
    from attn_doctor.configs.simpletuner.families import families, release

    differences = []
    for version, seen in found.items():
        for name in (*seen["routed"], *seen["others"]):
            family = families().get(name)
            if family is None:
                differences.append(f"{version}: the table has no {name}")
            elif family.routed_in(version) is not (name in seen["routed"]):
                routed = family.routed_in(version)
                differences.append(
                    f"{version}: {name}: the table says {routed}, the wheel does not"
                )
            elif family.packed_in(version) is not (name in seen["packed"]):
                differences.append(f"{version}: {name}: packed is {family.packed_in(version)}")
        tabled = release(version)
        differences += [
            f"{version}: {key}: the table says {getattr(tabled, key)}"
            for key in ("holds_sdpa", "kohaku")
            if getattr(tabled, key) is not seen[key]
        ]
    return differences


def main(arguments: Sequence[str]) -> int:
    """Run one of the commands."""
    if len(arguments) != 2 or arguments[0] not in ("record", "compare"):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    found = record(Path(arguments[1]))
    if arguments[0] == "record":
        RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    differences = compare(found)
    text = "\n".join(differences) or f"{len(found)} releases agree with the table"
    sys.stdout.write(f"{text}\n")
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
