"""A script that this Python cannot parse: the parts that it can, and words in the others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from attn_doctor.configs.readers.settings import Call

#: Words that concern attention, looked for where the text cannot be parsed.
_WORDS = re.compile(
    r"set_attention_backend|attention_backend|attention_provider|attn_implementation"
    r"|sdpa?_kernel|enable_xformers|set_attn_processor|use_flash_attention_2"
    r"|scaled_dot_product_attention\s*=|ATTN_BACKEND|ATTENTION_BACKEND|enable_parallelism"
)


def parts(text: str) -> tuple[list[ast.Module], list[tuple[int, int, str]]]:
    """The statements at the margin that can be parsed, and the lines of those that cannot."""
    lines = text.splitlines()
    if len(lines) > 20_000:
        return [], []
    starts = [
        number
        for number, line in enumerate(lines)
        if line[:1].strip()
        and not line.startswith((")", "]", "}", "else", "elif", "except"))
        and not line.startswith(("finally", "#"))
    ]
    trees: list[ast.Module] = []
    unread: list[tuple[int, int, str]] = []
    for first, last in pairwise([*starts, len(lines)]):
        try:
            # Empty lines before it keep its line numbers.
            trees.append(ast.parse("\n" * first + "\n".join(lines[first:last])))
        except SyntaxError as fault:
            unread.append((first + 1, last, fault.msg))
        except (RecursionError, MemoryError, ValueError):
            unread.append((first + 1, last, "nested too deeply"))
        if len(unread) > 20:
            return [], []
    return ([one for one in trees if one.body] if len(trees) > len(unread) else []), unread


def words(text: str, unread: list[tuple[int, int, str]]) -> Iterator[Call]:
    """Names that concern attention in lines that cannot be parsed."""
    lines = text.splitlines()
    for first, last, _ in unread:
        for number in range(first, last + 1):
            match = _WORDS.search(lines[number - 1])
            if match:
                yield Call("unparsed", "", match[0], number)
