"""Reads a line as PowerShell does, by the grammar that editors use (tree-sitter-powershell).

The grammar is laxer than PowerShell (it takes `<` for a letter), so `powershell_words` of
`test_quote.py`, a reader of PowerShell's documented rules, is asked as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import tree_sitter
import tree_sitter_powershell

#: Bare words that PowerShell takes for an argument of a program, and the grammar does not.
UNKNOWN = r"-(?!-?[A-Za-z][A-Za-z_-]*(?: |$))[\w=+-]+"
_UNKNOWN_IN_LINE = re.compile(rf"'[^']*'|\"[^\"]*\"|(?<= )({UNKNOWN})(?= |$)")
_WORDS = ("command_name", "command_name_expr", "command_parameter", "generic_token")


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_powershell.language()))


def words(line: str) -> list[str]:
    """The words of the line's commands, as a program gets them. A line with a fault fails."""
    quoted = _UNKNOWN_IN_LINE.sub(lambda found: f"'{found[1]}'" if found[1] else found[0], line)
    data = quoted.encode()
    root = _parser().parse(data).root_node
    assert not root.has_error, (line, str(root))
    return [_text(data[node.start_byte : node.end_byte].decode()) for node in _nodes(root)]


def _nodes(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The outermost nodes of words."""
    if node.type in (*_WORDS, "array_literal_expression"):
        yield node
        return
    for child in node.children:
        yield from _nodes(child)


def _text(word: str) -> str:
    """A word without its quotes: two single quotes of any kind are one, the second."""
    if word[0] == "'":
        return re.sub("['‘’‚‛](['‘’‚‛])", r"\1", word[1:-1])
    return word[1:-1] if word[0] == '"' else word
