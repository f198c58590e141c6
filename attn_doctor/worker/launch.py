"""Runs a program of `attn_doctor.worker` in the examined interpreter: `launch.py NAME [ARGUMENT…]`.

attn-doctor is not installed there. The package is loaded from where this file is, and the folder of
this file leaves `sys.path`, so that no other package beside it becomes importable.
"""

import importlib
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def make_importable() -> None:
    """Load the package `attn_doctor` from its place, unless it is loaded already."""
    root = os.path.dirname(_HERE)
    if "attn_doctor" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        "attn_doctor", os.path.join(root, "__init__.py"), submodule_search_locations=[root]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{root} is not a package")
    sys.modules["attn_doctor"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["attn_doctor"])


if __name__ == "__main__":
    # Up to Python 3.10, the folder of the script cannot be kept off the path from outside.
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or os.curdir) != _HERE]
    make_importable()
    program = importlib.import_module(f"attn_doctor.worker.{sys.argv[1]}")
    sys.exit(program.main(sys.argv[2:]))
