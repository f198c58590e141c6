"""Puts off modules that others import and that most commands do not use.

`pathlib` imports `urllib.parse`, msgspec imports `decimal`, `uuid` and a module that describes
types, `subprocess` imports `locale` and `signal`: 1 to 2 ms each. While these are imported, `Later`
stands for such a module, and imports it when something in it is first used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

#: Modules of Windows for which Python searches every folder elsewhere too.
_ELSEWHERE = () if os.name == "nt" else ("_winapi", "msvcrt", "nt")
_LATER = (
    "decimal",
    "locale",
    "msgspec.inspect",
    "platform",
    "signal",
    "textwrap",
    "urllib.parse",
    "uuid",
)
#: Types that msgspec asks for at once. attn-doctor encodes and decodes none of them.
_TYPES = (("decimal", "Decimal"), ("uuid", "UUID"), ("uuid", "SafeUUID"))


class Later(ModuleType):
    """A module of Python that is imported when something in it is first used."""

    def __getattr__(self, name: str) -> Any:
        from importlib import import_module

        if name.startswith("__"):
            raise AttributeError(name)  # what the import system itself asks for
        return getattr(import_module(self.__name__), name)


def _quote(text: bytes) -> str:
    from urllib.parse import quote_from_bytes

    return quote_from_bytes(text)


@contextmanager
def put_off() -> Iterator[None]:
    """Let imports in the `with` block get a `Later` for modules that were not imported before."""
    made = {name: Later(name) for name in _LATER if name not in sys.modules}
    for name, kind in _TYPES:
        if name in made:
            setattr(made[name], kind, type(kind, (), {"unknown": None}))
    if "urllib.parse" in made:
        # `pathlib` asks for it at once too, and uses it for `Path.as_uri` alone.
        made["urllib.parse"].quote_from_bytes = _quote  # type: ignore[attr-defined]
    placed: dict[str, ModuleType | None] = {**made}
    placed |= {name: None for name in _ELSEWHERE if name not in sys.modules}
    sys.modules.update(placed)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name, module in placed.items():
            if sys.modules.get(name, name) is module:
                del sys.modules[name]


@contextmanager
def without_marks() -> Iterator[None]:
    """Let imports in the `with` block mark nothing as deprecated.

    From Python 3.13 on, packaging does so, for which Python imports inspect: 6 ms.
    """
    import warnings

    marks = getattr(warnings, "deprecated", None)
    if marks is None:
        yield
        return
    warnings.deprecated = lambda _: lambda function: function  # type: ignore[attr-defined]
    try:
        yield
    finally:
        warnings.deprecated = marks  # type: ignore[attr-defined]
