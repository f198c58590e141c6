"""Modules are changed now or when they come, under the names they had."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.worker.stub_gpu import import_hooks

SOURCE = """
def work(x):
    return x + 1

class Kind:
    def save(self):
        return "kept"
    @staticmethod
    def fixed(x):
        return x
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    meta, incompatibilities = list(sys.meta_path), list(import_hooks.incompatibilities)
    yield
    sys.meta_path[:] = meta
    import_hooks.incompatibilities[:] = incompatibilities
    import_hooks._waiting.clear()
    sys.modules.pop("awaited", None)


@pytest.fixture
def awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "awaited.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "awaited.py"


def doubled(function: Any) -> Any:
    return lambda *args: 2 * function(*args)


def test_a_module_is_changed_when_it_comes(awaited: Path) -> None:
    import_hooks.when("awaited", lambda module: import_hooks.changed(module, "work", doubled))
    assert "awaited" not in sys.modules
    module = importlib.import_module("awaited")
    assert module.work(1) == 4
    assert (module.work.__name__, module.work.__module__) == ("work", "awaited")
    # Its source is found as ever, and a second change of the same thing is none.
    assert inspect.getsource(module) == SOURCE
    import_hooks.when("awaited", lambda module: import_hooks.changed(module, "work", doubled))
    assert module.work(1) == 4


def test_a_module_that_is_there_is_changed_now(awaited: Path) -> None:
    module: Any = importlib.import_module("awaited")
    import_hooks.when("awaited", lambda module: import_hooks.changed(module.Kind, "fixed", doubled))
    assert (module.Kind.fixed(2), module.Kind().fixed(2)) == (4, 4)


def test_a_method_is_still_pickled_by_its_name(awaited: Path) -> None:
    module: Any = importlib.import_module("awaited")
    import_hooks.changed(module.Kind, "save", lambda _: lambda self: None)
    assert pickle.loads(pickle.dumps(module.Kind().save))() is None


def test_what_does_not_fit_is_kept_for_the_refusal(awaited: Path) -> None:
    import_hooks.when("awaited", lambda module: import_hooks.changed(module, "gone", doubled))
    module = importlib.import_module("awaited")
    assert module.work(1) == 2
    assert import_hooks.incompatibilities == ["awaited: AttributeError: awaited has no gone"]


def test_an_error_of_the_module_is_its_own(awaited: Path) -> None:
    awaited.write_text("raise ValueError('mine')")
    import_hooks.when("awaited", lambda module: None)
    with pytest.raises(ValueError, match="mine"):
        importlib.import_module("awaited")
    assert import_hooks.incompatibilities == []
