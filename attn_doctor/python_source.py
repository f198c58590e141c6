"""Reads Python of others as a syntax tree. Nothing of it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast  # `check` imports this module, and rarely needs it


def tree_of(text: str | None) -> ast.Module | None:
    """The syntax tree; None for no text, and for one that this Python cannot parse.

    That is any text of others: one with NUL, nested by the thousand, or in a newer syntax.
    """
    import ast
    import warnings

    if text is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes such as "C:\Users" are not ours
            return ast.parse(text)
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return None
