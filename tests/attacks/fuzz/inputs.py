"""What targets share: their type, a recorded machine, and how an input becomes a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

#: Reads an input; the folder is empty and its own.
Target = Callable[[Path, bytes], object]
TESTS = Path(__file__).resolve().parents[2]
MACHINE = TESTS / "machines" / "h200-torch-2.11-cu130"


def put(path: Path, data: bytes) -> Path:
    """Write the input, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
