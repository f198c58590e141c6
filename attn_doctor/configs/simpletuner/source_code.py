"""What a release of SimpleTuner does for its model families, from its own source, as a tree.

A family is routed if the code of its model (`MODEL_CLASS`), or code that it imports from other
families, calls Diffusers' dispatcher, or if it takes a class of Diffusers that does. Autoencoders
and pipelines are not followed. `tools/families.py` reads wheels in the same way.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from attn_doctor.configs.diffusers.pipelines import CALL, Files
from attn_doctor.configs.diffusers.pipelines import Source as Diffusers
from attn_doctor.facts import Facts
from attn_doctor.files import TEXT, read_text
from attn_doctor.python_source import tree_of

MODELS = "simpletuner/helpers/models/"
BACKEND = "simpletuner/helpers/training/attention_backend.py"
#: The Python files of a folder, by their path below it.
Names = Callable[[str], Sequence[str]]
_DEFAULT = re.compile(r'getattr\(config, "attention_mechanism", "([\w-]{1,50})"\)')
_PACKS = re.compile(
    r"get_packed_attention_backend|FusedFlashAttnProcessor|packed_attention_processors"
)
#: Modules that are followed for one family.
_MOST = 500


class Source:
    """The source of one release, and of the Diffusers beside it."""

    def __init__(self, files: Files, names: Names, diffusers: Diffusers | None) -> None:
        self._files, self._names, self._diffusers = files, names, diffusers
        self.routed = cache(self._routed)
        backend = files(BACKEND) or ""
        self.holds_sdpa = "_TORCH_SDPA_BACKENDS" in backend
        """native-* and cudnn restrict torch's own attention."""
        self.kohaku = "_enable_kohaku_fa" in backend
        """kohaku-fa replaces torch's own attention."""
        match = _DEFAULT.search(backend)
        self.default = match[1] if match else ""
        """The mechanism without a setting; empty if the source does not say."""

    def way(self, family: str) -> str | None:
        """`own` code or a class of `diffusers` reaches the dispatcher; empty if nothing does.

        None if the source does not have the family, or a part of it cannot be read.
        """
        entry = f"{MODELS}{family}/model.py"
        tree = self._tree(entry)
        if tree is None:
            return None
        wanted = _model_class(tree)
        waiting = [each for each in _imported(entry, tree) if each[1] == wanted]
        seen: set[str] = set()
        while waiting and len(seen) < _MOST:
            module, name = waiting.pop()
            if module.startswith("diffusers"):
                if self._diffusers is None:
                    return None
                if self._diffusers.reaches(module, name):
                    return "diffusers"
                continue
            path = self._file(module) or self._file(f"{module}.{name}")
            if not path.startswith(MODELS) or path in seen:
                continue
            seen.add(path)
            found = self._tree(path)
            if found is None:
                return None
            if _calls(found):
                return "own"
            waiting += [each for each in _imported(path, found) if _follows(each[0])]
        return ""

    def _routed(self, family: str) -> bool | None:
        way = self.way(family)
        return None if way is None else bool(way)

    def packs(self, family: str) -> bool:
        """The family has packed FlashAttention for `fuse_qkv_projections`."""
        folder = f"{MODELS}{family}"
        texts = (self._files(f"{folder}/{name}") or "" for name in self._names(folder))
        return any(_PACKS.search(text) for text in texts)

    def _tree(self, path: str) -> ast.Module | None:
        return tree_of(self._files(path))

    def _file(self, module: str) -> str:
        base = module.replace(".", "/")
        both = (f"{base}.py", f"{base}/__init__.py")
        return next((one for one in both if self._files(one) is not None), "")


def installed(facts: Facts) -> Source | None:
    """The source of the installed SimpleTuner; None if its files are not here."""
    path = facts.simpletuner.path
    if not facts.simpletuner.installed or not path:
        return None
    parent = Path(path).parent

    @cache
    def text(name: str) -> str | None:
        try:
            return read_text(parent / name, TEXT)
        except OSError:
            return None

    def names(folder: str) -> Sequence[str]:
        try:
            below = parent / folder
            return sorted(one.relative_to(below).as_posix() for one in below.rglob("*.py"))
        except OSError:
            return ()

    if text(BACKEND) is None:
        return None
    return Source(text, names, _diffusers(facts))


def _diffusers(facts: Facts) -> Diffusers | None:
    from attn_doctor.configs.diffusers.pipelines import folder_of

    return Diffusers(folder_of(facts.diffusers.path)) if facts.diffusers.path else None


def _calls(node: ast.AST) -> bool:
    """The dispatcher is called somewhere below `node`."""
    return any(
        isinstance(one, ast.Call) and ast.unparse(one.func).rpartition(".")[2] == CALL
        for one in ast.walk(node)
    )


def _follows(module: str) -> bool:
    own = module.startswith(MODELS.replace("/", ".")) and "pipeline" not in module
    return own or module.startswith("diffusers.models.transformers.transformer_")


def _imported(path: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Module and name of every `from … import …`, relative ones written out."""
    package = path.removesuffix(".py").split("/")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *filter(None, [node.module])])
            yield from ((module, alias.name) for alias in node.names)


def _model_class(tree: ast.Module) -> str:
    """The name of the class that is trained, as `MODEL_CLASS` says."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "MODEL_CLASS"
        ):
            return ast.unparse(node.value).rpartition(".")[2]
    return ""
