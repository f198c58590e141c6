"""Small shared libraries for tests, compiled here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["compiler", "library"]

#: What was compiled, by source and options.
_made: dict[tuple[str, tuple[str, ...]], bytes] = {}


def compiler(name: str = "g++") -> str:
    """Path of the compiler; the test is left out where there is none, and on other systems."""
    found = shutil.which(name) if sys.platform == "linux" else None
    if found is None:
        pytest.skip(f"needs Linux and {name}")
    return found


def library(path: Path, source: str, *options: str) -> Path:
    """Compile C++ `source` into the shared library `path`; the same is compiled only once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = _made.get((source, options))
    if kept is None:
        file = path.with_suffix(".cpp")
        file.write_text(source)
        argv = [compiler(), "-shared", "-fPIC", "-O0", "-w", str(file), "-o", str(path), *options]
        subprocess.run(argv, check=True)
        _made[source, options] = path.read_bytes()
    else:
        path.write_bytes(kept)
    return path
