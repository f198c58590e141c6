"""Finds the CUDA toolkit that torch and NVIDIA's tools see in the examined interpreter.

As a program of `launch.py` it prints one line of JSON; an import that fails is part of the answer.
Nothing is built and no GPU is touched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

Answer = dict[str, Any]


def _torch() -> Answer:
    torch = import_module("torch")
    cpp_extension = import_module("torch.utils.cpp_extension")

    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda or "",
        "home": cpp_extension.CUDA_HOME or "",
    }


def _triton() -> Answer:
    triton = import_module("triton")
    try:
        ptxas = import_module("triton.knobs").nvidia.ptxas.path
    except (ImportError, AttributeError):  # before 3.4
        compiler = import_module("triton.backends.nvidia.compiler")
        ptxas = compiler._path_to_binary("ptxas")[0]
    return {"version": str(triton.__version__), "ptxas": str(ptxas)}


def _pathfinder() -> Answer:
    pathfinder = import_module("cuda.pathfinder")

    found = {"version": str(pathfinder.__version__)}
    if hasattr(pathfinder, "find_nvidia_binary_utility"):
        found["nvcc"] = pathfinder.find_nvidia_binary_utility("nvcc") or ""
    if hasattr(pathfinder, "get_cuda_path_or_home"):
        found["home"] = pathfinder.get_cuda_path_or_home() or ""
    return found


def _asked(question: Callable[[], Answer]) -> Answer:
    try:
        return question()
    except ModuleNotFoundError as error:
        if error.name in ("torch", "triton", "cuda", "cuda.pathfinder"):
            return {"missing": True}
        return {"error": str(error)}
    except BaseException as error:  # whatever an import does, the others are still asked
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def main(_: list[str]) -> int:
    """Ask all three and print their answers as one line of JSON."""
    answer = os.dup(1)
    os.dup2(2, 1)  # what an import prints is not the answer
    found = {"torch": _asked(_torch), "triton": _asked(_triton), "pathfinder": _asked(_pathfinder)}
    with os.fdopen(answer, "w") as file:
        file.write(json.dumps(found) + "\n")
    return 0
