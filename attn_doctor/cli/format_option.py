"""The choice that most `--format` options give. Commands with other formats name their own."""

from __future__ import annotations

from enum import Enum


class Format(str, Enum):
    """How the result is written."""

    text = "text"
    json = "json"
