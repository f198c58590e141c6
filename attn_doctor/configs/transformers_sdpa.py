"""Whether a model class of Transformers has torch's own attention, or runs eager without a setting.

Transformers takes sdpa by itself where the class says `_supports_sdpa`. That is read from the
installed release's own source, as a tree; of the newest release `rules/tables/sdpa.toml` has it,
which `python tools/sdpa.py` writes from a wheel in the same way.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from attn_doctor.facts import Facts
from attn_doctor.files import TEXT, read_text
from attn_doctor.python_source import tree_of
from attn_doctor.rulebook import library

#: The text of a file below the package's folder; None if there is none.
Files = Callable[[str], "str | None"]
#: The folders of `models/`.
Folders = Callable[[], Sequence[str]]
_ATTRIBUTE = "_supports_sdpa"
_MODEL = re.compile(r"(\w+?)(?:For\w+|Model|LMHeadModel|PreTrainedModel)$")
#: Classes from which others take what they do not say, and files that are followed.
_MOST = 40


def has_sdpa(name: str, facts: Facts) -> bool | None:
    """A class, such as `BloomForCausalLM`, has sdpa; None if that is not known."""
    installed, version = facts.transformers.installed, facts.transformers.version or ""
    table: Mapping[str, Any] = library.tables()["sdpa"]
    if installed and facts.transformers.path and version != table["release"]:
        return _source(facts.transformers.path).has_sdpa(name)
    if installed and version != table["release"]:
        return None
    folder = folder_of(name, [*table["with"], *table["without"]])
    return None if not folder else folder in table["with"]


@cache
def _source(path: str) -> Source:
    def text(name: str) -> str | None:
        try:
            return read_text(Path(path) / name, TEXT)
        except OSError:
            return None

    def folders() -> list[str]:
        try:
            return sorted(one.name for one in (Path(path) / "models").iterdir())
        except OSError:
            return []

    return Source(text, folders)


def folder_of(name: str, folders: Sequence[str]) -> str:
    """The folder of a class: `gpt_neox` of `GPTNeoXForCausalLM`; empty if it is not known."""
    match = _MODEL.fullmatch(name)
    wanted = match[1].lower() if match else ""
    # Some classes say the kind of text they read: `GemmaRotary`; only a whole name is certain.
    return next((one for one in folders if wanted and one.replace("_", "") == wanted), "")


class Source:
    """The source of one release."""

    def __init__(self, files: Files, folders: Folders) -> None:
        self._files = files
        self._tree = cache(self._parsed)
        self._folders = cache(folders)

    def has_sdpa(self, name: str) -> bool | None:
        """A class has sdpa; None if it is not found, or its code leaves that open."""
        folder = folder_of(name, self._folders())
        if not folder or not self._attends(folder):
            return None
        return self._says(f"models/{folder}/modeling_{folder}.py", name)

    def of_folder(self, folder: str) -> bool | None:
        """All models of a folder that write or read text have sdpa, or none has."""
        path = f"models/{folder}/modeling_{folder}.py"
        tree = self._tree(path)
        names = [
            one.name
            for one in (tree.body if tree else ())
            if isinstance(one, ast.ClassDef) and folder_of(one.name, [folder])
        ]
        said = {self._says(path, one) for one in names} if self._attends(folder) else set()
        return said.pop() if len(said) == 1 else None

    def _attends(self, folder: str) -> bool:
        """The code of a model has attention: that of Mamba and ResNet has none."""
        text = self._files(f"models/{folder}/modeling_{folder}.py") or ""
        return "Attention" in text and ("softmax" in text or "attention_interface" in text)

    def _says(self, path: str, name: str) -> bool | None:
        """What the first class says, of a class and those that it is derived from."""
        waiting, seen = [(path, name)], set[tuple[str, str]]()
        while waiting and len(seen) < _MOST:
            place = waiting.pop(0)
            if place in seen:
                continue
            seen.add(place)
            found = self._definition(*place)
            if isinstance(found, ast.ImportFrom):
                if place[1] == "PreTrainedModel":
                    return False  # its own default
                waiting.append((_target(place[0], found), place[1]))
            elif isinstance(found, ast.ClassDef):
                given = next(_given(found), None)
                if given is not None:
                    return given.value if isinstance(given.value, bool) else None
                waiting = [(place[0], one.id) for one in found.bases if isinstance(one, ast.Name)]
            elif found is None and not waiting:
                return None
        return None

    def _definition(self, path: str, name: str) -> ast.ClassDef | ast.ImportFrom | None:
        tree = self._tree(path)
        for node in tree.body if tree else ():
            if isinstance(node, ast.ClassDef) and node.name == name:
                return node
            if isinstance(node, ast.ImportFrom) and any(one.name == name for one in node.names):
                return node
        return None

    def _parsed(self, path: str) -> ast.Module | None:
        return tree_of(self._files(path))


def _given(found: ast.ClassDef) -> Iterator[ast.Constant]:
    """What a class sets `_supports_sdpa` to; a value that is not written becomes None."""
    for node in found.body:
        targets: Sequence[ast.expr] = ()
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if any(isinstance(one, ast.Name) and one.id == _ATTRIBUTE for one in targets):
            yield value if isinstance(value, ast.Constant) else ast.Constant(None)


def _target(path: str, node: ast.ImportFrom) -> str:
    """The file of `from ..llama.modeling_llama import LlamaForCausalLM`."""
    folder = path.rpartition("/")[0]
    for _ in range(node.level - 1):
        folder = folder.rpartition("/")[0]
    return f"{folder}/{(node.module or '').replace('.', '/')}.py".lstrip("/")
