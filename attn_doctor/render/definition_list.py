"""Lines with a label, as under a finding or a failure in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attn_doctor.facts import Facts
from attn_doctor.findings import Fix
from attn_doctor.render.terminal import Paper, clean
from attn_doctor.shell.commands import shell_lines

#: Columns before the words, with the label in them.
INDENT = 9


def labelled(
    label: str, words: str, paper: Paper, *styles: str, indent: int = INDENT
) -> Iterator[str]:
    """`words` beside their label, and further lines below them."""
    first, *rest = paper.wrap(clean(words), indent) or [""]
    yield paper.style(f"  {label:<{indent - 2}}" + first[indent:], *styles)
    yield from (paper.style(line, *styles) for line in rest)


def titled(title: str, tail: str, paper: Paper, indent: int) -> list[str]:
    """A bold title and its tail, which gets a line of its own if it does not fit.

    The first line has no `indent`, for the mark or number in front of it.
    """
    lines = paper.wrap(clean(title), indent) or [" " * indent]
    fits = len(lines[-1]) + len(tail) + 2 <= paper.width
    first, *rest = (paper.style(line.lstrip(), "bold") for line in lines)
    shown = [first, *(" " * indent + line for line in rest)]
    dim = paper.style(tail, "dim")
    return [*shown[:-1], f"{shown[-1]}  {dim}"] if fits else [*shown, " " * indent + dim]


def fix_lines(
    fixes: Iterable[Fix], facts: Facts, paper: Paper, *, indent: int = INDENT
) -> Iterator[str]:
    """Each fix with its needs, its instructions, its code and its commands."""
    label = "fix"
    for fix in fixes:
        needs = f" (needs {fix.needs})" if fix.needs else ""
        yield from labelled(label, fix.title + needs, paper, indent=indent)
        if fix.manual:
            yield from paper.wrap(clean(fix.manual), indent)
        # Code and commands are never wrapped, so that they can be copied.
        for line in (*fix.code.splitlines(), *shell_lines(fix, facts)):
            yield " " * (indent + 2) + paper.style(clean(line), "green")
        label = "or"
