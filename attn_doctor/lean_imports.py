"""Puts off modules that others import and that most commands do not use.

`pathlib` imports `urllib.parse`, msgspec imports `decimal`, `uuid` and two modules that describe
types, `subprocess` imports `locale` and `signal`: 1 to 2 ms each. While these are imported, `Later`
stands for such a module, and imports it when something in it is first used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

#: Modules of Windows for which Python searches every folder elsewhere too.
_ELSEWHERE = () if os.name == "nt" else ("_winapi", "msvcrt", "nt")
_LATER = (
    "decimal",
    "locale",
    "msgspec._json_schema",
    "msgspec.inspect",
    "platform",
    "signal",
    "textwrap",
    "urllib.parse",
    "uuid",
)
#: Types that msgspec asks for at once. attn-doctor encodes and decodes none of them.
_TYPES = (("decimal", "Decimal"), ("uuid", "UUID"), ("uuid", "SafeUUID"))
#: Functions that `pathlib` and msgspec ask for at once. `Path.as_uri` and schemas use them.
_FUNCTIONS = (
    ("urllib.parse", "quote_from_bytes"),
    ("msgspec._json_schema", "schema"),
    ("msgspec._json_schema", "schema_components"),
)


class Later(ModuleType):
    """A module of Python that is imported when something in it is first used."""

    def __getattr__(self, name: str) -> Any:
        from importlib import import_module

        if name.startswith("__"):
            raise AttributeError(name)  # what the import system itself asks for
        return getattr(import_module(self.__name__), name)


def _calling(module: str, name: str) -> Callable[..., Any]:
    """A function that imports the one it calls."""

    def call(*args: Any, **options: Any) -> Any:
        from importlib import import_module

        return getattr(import_module(module), name)(*args, **options)

    return call


@contextmanager
def put_off() -> Iterator[None]:
    """Let imports in the `with` block get a `Later` for modules that were not imported before."""
    made = {name: Later(name) for name in _LATER if name not in sys.modules}
    for name, kind in _TYPES:
        if name in made:
            setattr(made[name], kind, type(kind, (), {"unknown": None}))
    for name, function in _FUNCTIONS:
        if name in made:
            setattr(made[name], function, _calling(name, function))
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
