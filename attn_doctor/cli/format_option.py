"""The choice that most `--format` options give. Commands with other formats name their own."""

from __future__ import annotations

from enum import Enum

__all__ = ["Format"]


class Format(str, Enum):
    """How the result is written."""

    text = "text"
    json = "json"
