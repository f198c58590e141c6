"""The choices of most `--format` options. Commands with other formats define their own."""

from __future__ import annotations

from enum import Enum


class Format(str, Enum):
    """Formats of the result."""

    text = "text"
    json = "json"
