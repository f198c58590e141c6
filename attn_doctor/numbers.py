"""Numbers in foreign texts."""

from __future__ import annotations

#: Longest number that is read. It fits into 64 bits, and Python refuses more than 4,300 digits.
_DIGITS = 18


def natural(text: str | None) -> int | None:
    """Return the number that `text` states in 1 to 18 ASCII digits; None for any other text."""
    if text and len(text) <= _DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return None
