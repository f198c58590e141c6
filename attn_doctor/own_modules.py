"""Finds attn-doctor's own modules, and Python's, faster than Python's finder does.

A check imports 160 modules of attn-doctor and 30 of Python. Python asks for the time of each folder
that may hold a module, tries six kinds of files, works out the name of the bytecode's file, and
reads it by eight calls of the system: slow where files are reached over a network. Here the folder
is listed once, and bytecode of the source's time and size is read by four calls. All else is left
to Python. Its own modules are found before others of their names.
"""

from __future__ import annotations

import os
import sys

# The names of `importlib.machinery`, which takes a millisecond to import.
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader
from _imp import is_frozen
from collections.abc import Sequence
from marshal import loads
from types import CodeType, ModuleType

_PACKAGE = f"{__package__}."
#: The end of the name of a bytecode file, as `python -O` does not have it.
_COMPILED = f".{sys.implementation.cache_tag}.pyc"
#: Where a bytecode file says that the source's time and size follow.
_BY_TIME = MAGIC_NUMBER + bytes(4)
#: The folder of Python's own modules.
_PYTHON = os.path.dirname(os.__file__)
#: Bytes that are read at once: most bytecode is shorter, and memory for more takes longer to get.
_PIECE = 32_000
#: Longer bytecode is left to Python.
_MOST = 4 * _PIECE
#: As they are before `reach.guard` puts others in their place.
_os_open, _read, _close, _stat = os.open, os.read, os.close, os.stat
_BINARY = os.O_RDONLY | getattr(os, "O_BINARY", 0)


class Finder:
    """A finder for `sys.meta_path`."""

    def __init__(self) -> None:
        self._names: dict[str, frozenset[str]] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of attn-doctor or of Python is; None for any other module."""
        del target
        folder = _folder(name, path)
        if not folder:
            return None
        leaf = name.rpartition(".")[2]
        below = f"{folder}{os.sep}{leaf}"
        if leaf in self._listed(folder) and "__init__.py" in self._listed(below):
            return _spec(name, below, "__init__")
        return _spec(name, folder, leaf) if f"{leaf}.py" in self._listed(folder) else None

    def _listed(self, folder: str) -> frozenset[str]:
        if folder not in self._names:
            try:
                self._names[folder] = frozenset(os.listdir(folder))
            except OSError:
                return frozenset()
        return self._names[folder]


def _folder(name: str, path: Sequence[str] | None) -> str:
    """The folder to search for a module; empty if Python has to."""
    if name.startswith(_PACKAGE):
        return path[0] if path else ""
    top = name.partition(".")[0]
    if top not in sys.stdlib_module_names or is_frozen(name):
        return ""
    folder = path[0] if path else _PYTHON
    return folder if folder.startswith(_PYTHON) else ""


def _spec(name: str, folder: str, stem: str) -> ModuleSpec:
    source = f"{folder}{os.sep}{stem}.py"
    loader = _Loader(name, source)
    loader.compiled = f"{folder}{os.sep}__pycache__{os.sep}{stem}{_COMPILED}"
    spec = ModuleSpec(name, loader, origin=source, is_package=stem == "__init__")
    spec.has_location = True
    spec.cached = loader.compiled
    if spec.submodule_search_locations is not None:
        spec.submodule_search_locations.append(folder)
    return spec


class _Loader(SourceFileLoader):
    """Loads a module from its bytecode, if that is of the source's time and size."""

    compiled: str

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module with the attributes that Python else asks for one by one."""
        module = ModuleType(spec.name)
        known = {"__loader__": self, "__package__": spec.parent, "__spec__": spec}
        module.__dict__.update(known, __file__=spec.origin, __cached__=spec.cached)
        if spec.submodule_search_locations is not None:
            module.__path__ = spec.submodule_search_locations
        return module

    def get_code(self, fullname: str) -> CodeType | None:
        try:
            content = _content(self.compiled)
            source = _stat(self.path)
        except OSError:
            return super().get_code(fullname)
        times = (int(source.st_mtime), source.st_size)
        expected = b"".join((one & 0xFFFFFFFF).to_bytes(4, "little") for one in times)
        if not content.startswith(_BY_TIME + expected) or len(content) == _MOST:
            return super().get_code(fullname)
        try:
            code: CodeType = loads(memoryview(content)[16:])  # noqa: S302
        except (EOFError, ValueError, TypeError):  # damaged, or not read to its end
            return super().get_code(fullname)
        return code


def _content(path: str) -> bytes:
    """The first `_MOST` bytes of a file."""
    file = _os_open(path, _BINARY)
    try:
        content = _read(file, _PIECE)
        return content if len(content) < _PIECE else content + _read(file, _MOST - _PIECE)
    finally:
        _close(file)


def install() -> None:
    """Let Python ask this finder first, where it would look for the same files."""
    spec = sys.modules[__package__].__spec__
    plain = not (sys.flags.optimize or sys.pycache_prefix)
    if plain and spec is not None and type(spec.loader) is SourceFileLoader:
        sys.meta_path.insert(0, Finder())
