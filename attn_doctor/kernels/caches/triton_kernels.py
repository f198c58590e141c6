"""Recognises Triton's kernels: by what their files say, never by the length of a name alone.

A kernel has a folder named by a digest. A user's folder may have such a name too: of 43 letters,
or of 64 hexadecimal digits in a store of data. So a folder counts only if a file in it says that
Triton wrote it, and then only files with the name of that kernel belong to it.
"""

from __future__ import annotations

import json
import re
from typing import Literal

from attn_doctor.kernels.caches import groups
from attn_doctor.kernels.caches.file_tree import Node, Tree

#: A kernel's folder: base32 (Triton 3.1 and later), hexadecimal, or base64 for URLs.
KEY = re.compile(r"[A-Z2-7]{52}|[0-9a-f]{64}|[A-Za-z0-9_-]{43}")
#: The stages of one kernel.
_STAGES = (
    "ttir",
    "ttgir",
    "llir",
    "llvm",
    "ptx",
    "cubin",
    "sass",
    "hsaco",
    "amdgcn",
    "spv",
    "zebin",
)
TRITON_NAME = rf"[\w.+-]+\.(?:{'|'.join(_STAGES)}|json|source|gluon|so|pyd|dll|exp|lib|o|obj|c|cpp)"
FILE = re.compile(rf"(?:{groups.PREFIX})?{TRITON_NAME}")
#: Modules that Triton compiles for itself.
_HELPER = re.compile(r"(?P<name>\w*launcher\w*|\w+_utils)\.(?:.*\.)?(?:so|pyd|dll)")
#: Bytes of a description that are read.
_DESCRIPTION = 1 << 20


class TritonKernels:
    """The kernels of one cache."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._files: dict[str, list[str]] = {}
        for node in tree.files:
            if KEY.fullmatch(node.folder.rpartition("/")[2]) and FILE.fullmatch(node.name):
                self._files.setdefault(node.folder, []).append(node.name)
        self._names: dict[str, frozenset[str]] = {}

    def place(self, node: Node, parts: list[str]) -> tuple[Literal["triton"], str] | None:
        """The entry of a file; None if it is unrelated. `parts`: its path below Triton's folder."""
        if len(parts) != 2 or not KEY.fullmatch(parts[0]) or not FILE.fullmatch(parts[1]):
            return None
        if node.folder not in self._names:
            self._names[node.folder] = frozenset(self._kernels(node.folder))
        plain = parts[1].removeprefix(groups.PREFIX)
        known = any(plain.startswith(f"{name}.") for name in self._names[node.folder])
        return ("triton", parts[0]) if known else None

    def _kernels(self, folder: str) -> set[str]:
        """Names of the kernels, and of the helpers, whose files lie in a folder."""
        found: set[str] = set()
        stages: dict[str, int] = {}
        for name in self._files.get(folder, ()):
            stem, _, end = name.rpartition(".")
            if helper := _HELPER.fullmatch(name):
                found.add(helper["name"])
            elif end in _STAGES:
                stages[stem] = stages.get(stem, 0) + 1
            elif end == "json" and self._is_triton(f"{folder}/{name}"):
                found.add(stem.removeprefix(groups.PREFIX).removesuffix(".autotune"))
        # The description of a kernel may be truncated; two stages of one name prove a kernel.
        return found | {stem for stem, count in stages.items() if count > 1}

    def _is_triton(self, path: str) -> bool:
        """A description of a kernel, a list of its files, or timings of its configurations."""
        try:
            data = self._tree.read(path, _DESCRIPTION)
            found = json.loads(data)
        except (OSError, ValueError, RecursionError):
            return False
        if not isinstance(found, dict):
            return False
        target = found.get("target")
        described = "hash" in found and ("num_warps" in found or target is not None)
        return (
            described
            or (isinstance(target, dict) and "backend" in target)
            or "configs_timings" in found
            or bool(path.rpartition("/")[2].startswith(groups.PREFIX) and groups.children(data))
        )
