"""Lines with a label, as under a finding or a failure in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attn_doctor.facts import Facts
from attn_doctor.findings import Fix
from attn_doctor.render.terminal import Terminal, clean, width_of
from attn_doctor.shell.commands import shell_lines

#: Columns before the words, with the label in them.
INDENT = 9


def labelled(
    label: str, words: str, terminal: Terminal, *styles: str, indent: int = INDENT
) -> Iterator[str]:
    """`words` beside their label, and further lines below them."""
    first, *rest = terminal.beside(f"  {terminal.pad(label, indent - 2)}", words, indent)
    yield from (terminal.style(line, *styles) for line in (first, *rest))


def titled(title: str, tail: str, terminal: Terminal, indent: int, address: str = "") -> list[str]:
    """A bold title and its tail, which gets a line of its own if it does not fit.

    The first line has no `indent`, for the mark or number in front of it. `address` is where
    the tail links to.
    """
    lines = terminal.wrap(clean(title), indent) or [" " * indent]
    fits = width_of(lines[-1]) + len(tail) + 2 <= terminal.width
    first, *rest = (terminal.style(line.lstrip(), "bold") for line in lines)
    shown = [first, *(" " * indent + line for line in rest)]
    dim = terminal.link(terminal.style(tail, "dim"), address)
    return [*shown[:-1], f"{shown[-1]}  {dim}"] if fits else [*shown, " " * indent + dim]


def fix_lines(
    fixes: Iterable[Fix],
    facts: Facts,
    terminal: Terminal,
    *,
    indent: int = INDENT,
    label: str = "fix",
) -> Iterator[str]:
    """Each fix with its needs, its instructions, its code and its commands."""
    for fix in fixes:
        needs = f" (needs {fix.needs})" if fix.needs else ""
        yield from labelled(label, fix.title + needs, terminal, indent=indent)
        if fix.manual:
            yield from terminal.wrap(clean(fix.manual), indent)
        # Code and commands are never wrapped, so that they can be copied.
        for line in (*fix.code.splitlines(), *shell_lines(fix, facts)):
            yield " " * (indent + 2) + terminal.code(clean(line), "green")
        label = "or"
