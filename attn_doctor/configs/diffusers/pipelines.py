"""Which models of Diffusers a pipeline has, and whether they call the attention dispatcher.

The answer is read from the release's own source, as a tree: the installed one where its files are
here, otherwise `rules/tables/pipelines.toml`, which `python tools/pipelines.py` writes from wheels
in the same way. `set_attention_backend` changes the processors of a model; it has an effect only
where a processor calls `dispatch_attention_fn`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from packaging.version import Version

from attn_doctor.facts import Facts
from attn_doctor.files import TEXT, read_text
from attn_doctor.kernels.builder import presets
from attn_doctor.python_source import tree_of
from attn_doctor.rulebook import library

#: The text of a file below the package's folder; None if there is none.
Files = Callable[[str], "str | None"]
CALL = "dispatch_attention_fn"
#: Components of a pipeline that are not the denoising model.
_OTHERS = (
    "vae", "text_encoder", "tokenizer", "scheduler", "image_encoder", "feature_extractor",
    "safety_checker", "controlnet", "processor", "vocoder", "image_processor", "connectors",
    "guider", "audio_vae", "vqvae", "watermark",
)  # fmt: skip
_OWN = re.compile(r"""backend ?= ?(?:"flex"|AttentionBackendName\.FLEX)""")
_DENOISES = re.compile(r"Transformer|UNet|DiT")
#: Folders of models whose modules are followed.
_FOLLOWED = ("transformers", "unets", "controlnets")


class Model(Struct, frozen=True, kw_only=True):
    """What is known of a pipeline's models."""

    classes: tuple[str, ...] = ()
    """The classes of its denoising models; empty if they are unknown."""
    routed: bool | None = None
    """One of them calls the dispatcher; None if unknown."""
    masks: tuple[str, ...] = ()
    """The masks that attention may get, of `AttentionCall.mask`; empty if not examined."""
    chooses: bool = False
    """A model names a backend for a part of its attention in its own code."""
    head_dim: int = 0
    """0 if unknown, or if it differs between sizes of the model."""


def model_of(name: str, facts: Facts) -> Model:
    """The models of a pipeline, or of a model's class, in the release that is examined."""
    classes, routed, chooses = _examined(name, facts)
    return Model(classes=classes, routed=routed, chooses=chooses, **_inputs(classes))


def _examined(name: str, facts: Facts) -> tuple[tuple[str, ...], bool | None, bool]:
    """The classes, whether they are routed, and whether they name a backend themselves."""
    version = facts.diffusers.version or ""
    if facts.diffusers.installed and facts.diffusers.path and not _listed(version):
        source = Source(folder_of(facts.diffusers.path))
        classes = source.classes(name)
        routed = any(map(source.routed, classes)) if classes else None
        return classes, routed, any(map(source.chooses, classes))
    table: Mapping[str, Any] = library.tables()["pipelines"]
    pipelines, models = table["pipelines"], table["models"]
    classes = tuple(pipelines.get(name, ())) or ((name,) if name in models else ())
    chooses = any(one in table["chooses"] for one in classes)
    if not classes:
        return (), None, False
    since = [models[one] for one in classes if models.get(one)]
    if not since:
        return classes, False, chooses
    try:
        this = Version(version or table["compared"][-1])
    except ValueError:  # also a number of more digits than Python converts
        return classes, None, chooses
    return classes, any(this >= Version(one) for one in since), chooses


def _listed(version: str) -> bool:
    return version in library.tables()["pipelines"]["compared"]


def folder_of(path: str) -> Files:
    """The files of an installed package."""

    def text(name: str) -> str | None:
        try:
            return read_text(Path(path) / name, TEXT)
        except OSError:
            return None

    return text


def _inputs(classes: tuple[str, ...]) -> dict[str, Any]:
    """Masks and the size of heads of the models, from the presets."""
    masks: set[str] = set()
    sizes: set[int] = set()
    for name in classes:
        known = [
            one
            for one in presets.families().values()
            if one.get("block", {}).get("class", "").rpartition(":")[2] == name
        ]
        if not known:
            return {}
        for family in known:
            sizes.add(family["head_dim"])
            own = [one.get("mask", "none") for one in family["attention"]]
            crossed = {one["of"]: one.get("mask", "none") for one in family["attention"]}
            # A model with several attentions always runs all of them: a mask of one decides.
            plain = any("no padding" in of for of in crossed)
            masks |= {one for one in own if one != "none"} or {"none"}
            masks |= {"none"} if plain else set()
    return {"masks": tuple(sorted(masks)), "head_dim": sizes.pop() if len(sizes) == 1 else 0}


class Source:
    """The source of one release."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._tree = cache(self._parsed)
        self._where = cache(self._places)

    def pipelines(self) -> tuple[str, ...]:
        """The names of all pipelines."""
        found: list[str] = []
        for place in self._where("pipelines/__init__.py").values():
            found += self._where(f"pipelines/{place}/__init__.py")
        return tuple(sorted(one for one in set(found) if one.endswith("Pipeline")))

    def classes(self, name: str) -> tuple[str, ...]:
        """The classes of a pipeline's denoising models; the class itself if it is a model."""
        if name in self._where("models/__init__.py"):
            return (name,)
        folder = self._where("pipelines/__init__.py").get(name)
        if folder is None:
            return ()
        module = self._where(f"pipelines/{folder}/__init__.py").get(name)
        found = self._definition(f"pipelines/{folder}/{module}.py", name) if module else None
        if not isinstance(found, ast.ClassDef):
            return ()
        start = next(
            (
                one
                for one in found.body
                if isinstance(one, ast.FunctionDef) and one.name == "__init__"
            ),
            None,
        )
        models = self._where("models/__init__.py")
        classes: list[str] = []
        for given in (*start.args.args, *start.args.kwonlyargs) if start is not None else ():
            if given.annotation is None or given.arg.startswith(_OTHERS):
                continue
            classes += [
                node.id
                for node in ast.walk(given.annotation)
                if isinstance(node, ast.Name) and node.id in models and _DENOISES.search(node.id)
            ]
        return tuple(dict.fromkeys(classes))

    def routed(self, name: str) -> bool:
        """A model's class, or code of a model that it uses, calls the dispatcher."""
        module = self._where("models/__init__.py").get(name)
        return module is not None and self._reaches(
            f"models/{module.replace('.', '/')}.py", name, set()
        )

    def reaches(self, module: str, name: str) -> bool:
        """A class of a module, such as `diffusers.models.transformers.x`, calls the dispatcher."""
        path = f"{module.partition('.')[2].replace('.', '/')}.py"
        return self._reaches(path, name, set()) or self.routed(name)

    def chooses(self, name: str) -> bool:
        """The file of a model's class names FlexAttention for some of its calls."""
        module = self._where("models/__init__.py").get(name)
        text = self._files(f"models/{module.replace('.', '/')}.py") if module else None
        return bool(text and _OWN.search(text))

    def _reaches(self, path: str, name: str, seen: set[tuple[str, str]]) -> bool:
        if (path, name) in seen or len(seen) > 2000:
            return False
        seen.add((path, name))
        found = self._definition(path, name)
        if isinstance(found, ast.ImportFrom):
            folder, _, module = path.rpartition("/")[0], None, found.module or ""
            for _ in range(found.level - 1):
                folder = folder.rpartition("/")[0]
            target = f"{folder}/{module.replace('.', '/')}.py"
            followed = target.startswith(tuple(f"models/{one}/" for one in _FOLLOWED))
            return bool(found.level and followed) and self._reaches(target, name, seen)
        if found is None:
            return False
        names = {node.id for node in ast.walk(found) if isinstance(node, ast.Name)}
        return CALL in names or any(self._reaches(path, one, seen) for one in names if one != name)

    def _definition(self, path: str, name: str) -> ast.AST | None:
        """What defines a name at the margin of a module."""
        found: ast.AST | None = None
        tree = self._tree(path)
        for node in tree.body if tree else ():
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
                return node
            if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names):
                found = node
            if isinstance(node, ast.Assign) and any(
                isinstance(one, ast.Name) and one.id == name for one in node.targets
            ):
                found = node
        return found

    def _parsed(self, path: str) -> ast.Module | None:
        return tree_of(self._files(path))

    # _import_structure["wan"] = ["WanPipeline", "WanVACEPipeline"]
    def _places(self, path: str) -> dict[str, str]:
        """Class → the module that has it, as a package's `_import_structure` says."""
        found: dict[str, str] = {}
        tree = self._tree(path)
        for node in ast.walk(tree) if tree else ():
            key, value = None, None
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                key, value = node.targets[0].slice, node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in ("extend", "append") and isinstance(
                    node.func.value, ast.Subscript
                ):
                    key, value = node.func.value.slice, node.args[0] if node.args else None
            elif isinstance(node, ast.Dict):
                for each, names in zip(node.keys, node.values, strict=True):
                    found |= _pairs(each, names)
            found |= _pairs(key, value)
        return found


def _pairs(key: ast.expr | None, value: ast.expr | None) -> dict[str, str]:
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or value is None:
        return {}
    return {
        one.value: key.value
        for one in ast.walk(value)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }
