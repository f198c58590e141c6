"""Python imports this at its start: the guard waits for torch, and the user's own file follows."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


def _make_importable() -> None:
    """Make attn-doctor's package importable, if it is not."""
    name = "attn_doctor"
    root = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, os.path.join(root, "__init__.py"), submodule_search_locations=[root]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{root} is not a package")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


def _guard() -> None:
    """Let the guard wait for torch."""
    _make_importable()
    from attn_doctor.worker.stub_gpu import import_hooks

    import_hooks.when("torch", _install)


def _install(_torch: Any) -> None:
    from attn_doctor.worker.stub_gpu import install

    install.install()


def _outputs() -> None:
    """Let the recorder of graph outputs wait for torch."""
    _make_importable()
    from attn_doctor.worker.kernels import graph_outputs

    graph_outputs.install()


def _next() -> None:
    """Execute the `sitecustomize` that would have been imported without this one."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None and spec.origin != os.path.abspath(__file__):
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.path[:] = [one for one in sys.path if os.path.abspath(one or os.curdir) != _HERE]
if os.environ.get("ATTN_DOCTOR_STUB_GPU"):
    _guard()
if os.environ.get("ATTN_DOCTOR_OUTPUTS"):
    _outputs()
_next()
