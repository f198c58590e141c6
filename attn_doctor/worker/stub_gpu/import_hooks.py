"""Changes modules of other packages, now or as soon as they are imported.

Importing torch's compiler takes seconds, and most processes of a program never need it; so its
changes wait for the import. A change that fails for the imported module is recorded in
`incompatibilities`, and the guard then refuses. Modules loaded in other ways are not seen.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Change = Callable[[Any], None]

#: Sentences on what could not be changed.
incompatibilities: list[str] = []
_waiting: dict[str, list[Change]] = {}


def when(name: str, change: Change) -> None:
    """Call `change` with module `name`, at once if it is imported, else after its import."""
    module = sys.modules.get(name)
    if module is not None:
        _apply(name, module, change)
        return
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _waiting.setdefault(name, []).append(change)


def changed(owner: Any, name: str, made: Callable[[Any], Any]) -> None:
    """Replace attribute `name` by `made(its value)`, under the same name.

    Raises `AttributeError` where there is none. Python pickles a method by its name, and torch
    pickles some, so what takes the place keeps name, qualified name and module.
    """
    if not hasattr(owner, name):
        raise AttributeError(f"{owner.__name__} has no {name}")
    before = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
    bound = type(before) if isinstance(before, (staticmethod, classmethod)) else None
    function = before.__func__ if bound else before
    if getattr(function, "attn_doctor", False):
        return
    after: Any = functools.wraps(function)(made(function))
    after.attn_doctor = True
    setattr(owner, name, bound(after) if bound else after)


def unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, neither traced nor compiled by Dynamo, which sees every Python frame."""
    from torch._C._dynamo import eval_frame

    @functools.wraps(function)
    def hidden(*args: Any, **kwargs: Any) -> Any:
        before = eval_frame.set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            eval_frame.set_eval_frame(before)

    code: Any = getattr(hidden, "__code__")  # noqa: B009 - a wrapped function has one all the same
    if hasattr(eval_frame, "skip_code"):
        eval_frame.skip_code(code)
    else:  # since torch 2.8
        skip = eval_frame._FrameAction.SKIP
        both = eval_frame._FrameExecStrategy(skip, skip)
        eval_frame.set_code_exec_strategy(code, both)
    return hidden


def _apply(name: str, module: Any, change: Change) -> None:
    try:
        change(module)
    except Exception as error:
        incompatibilities.append(f"{name}: {type(error).__name__}: {error}")


class _Loader(importlib.abc.Loader):
    """Loads a module by its own loader, and then makes the changes."""

    def __init__(self, name: str, real: Any) -> None:
        self._name, self._real = name, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Create the module as the real loader does."""
        made: ModuleType | None = self._real.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, then change it."""
        spec = module.__spec__
        if spec is not None:
            # What asks a module for its loader, to find its source, gets the real one.
            spec.loader = self._real
        module.__loader__ = self._real
        self._real.exec_module(module)
        for change in _waiting.pop(self._name, ()):
            _apply(self._name, module, change)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules by the finders after it, and wraps the loader of an awaited one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of an awaited module; None for any other."""
        if name not in _waiting:
            return None
        for finder in sys.meta_path:
            if isinstance(finder, _Finder) or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(name, spec.loader)
                return spec
        return None
