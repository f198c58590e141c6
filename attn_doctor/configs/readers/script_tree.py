"""The tree of a Python script: its nodes with the branches that lead to them, and names in it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from attn_doctor.configs.readers.settings import Branch

#: Objects with options of the command line.
OPTIONS = ("args", "opt", "opts", "options", "script_args", "training_args", "cli_args")
#: Nodes of a tree that are read. A larger file is generated.
_MOST = 1 << 20


_Found = Iterator[tuple[ast.AST, tuple[Branch, ...]]]


def walked(trees: list[ast.Module], test: Callable[[ast.expr], tuple[Branch, ...]]) -> _Found:
    """Every node with the branches that lead to it, without recursion."""
    stack: list[tuple[ast.AST, tuple[Branch, ...]]] = [(one, ()) for one in reversed(trees)]
    count = 0
    while stack and count < _MOST:
        node, when = stack.pop()
        count += 1
        yield node, when
        if isinstance(node, ast.If):
            branches = test(node.test)
            stack += [(one, (*when, *_otherwise(branches))) for one in reversed(node.orelse)]
            stack += [(one, (*when, *branches)) for one in reversed(node.body)]
            stack.append((node.test, when))
        elif isinstance(node, ast.Try):
            tried = Branch("try", "", node.lineno)
            inside = (*when, tried) if node.handlers else when
            stack += [(one, when) for one in reversed((*node.orelse, *node.finalbody))]
            stack += [(one, (*when, tried.opposite())) for one in reversed(node.handlers)]
            stack += [(one, inside) for one in reversed(node.body)]
        else:
            stack += [(one, when) for one in reversed([*ast.iter_child_nodes(node)])]


def _otherwise(branches: tuple[Branch, ...]) -> tuple[Branch, ...]:
    """What holds where one of `branches` does not."""
    if len(branches) == 1:
        return (branches[0].opposite(),)
    if not branches:
        return ()
    text = " and ".join(one.text for one in branches)
    return (Branch("other", text, branches[0].line, negated=True),)


def tested(node: ast.expr, lines: Sequence[str]) -> tuple[Branch, ...]:
    """The conditions of a test that all have to hold."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return tuple(one for value in node.values for one in tested(value, lines))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = tested(node.operand, lines)
        return (inner[0].opposite(),) if len(inner) == 1 else (_other(node, lines),)
    if isinstance(node, ast.Call):
        branch = _other(node, lines)
        return (Branch("call", branch.text, node.lineno, dotted(node.func)),)
    if is_option(node):
        return (Branch("option", f"--{last_name(node)}", node.lineno, last_name(node)),)
    if isinstance(node, ast.Compare) and last_name(node.left) == "__name__":
        return ()
    return (_other(node, lines),)


def _other(node: ast.expr, lines: Sequence[str]) -> Branch:
    line, text = node.lineno, ""
    if node.end_lineno == line and line <= len(lines):
        # Columns count bytes of UTF-8.
        text = (
            lines[line - 1].encode()[node.col_offset : node.end_col_offset].decode(errors="replace")
        )
    return Branch("other", text if 0 < len(text) < 80 else f"the condition in line {line}", line)


def is_option(node: ast.expr) -> bool:
    """`args.name`."""
    return isinstance(node, ast.Attribute) and last_name(node.value) in OPTIONS


def is_true(node: ast.expr | None) -> bool:
    """`True`."""
    return isinstance(node, ast.Constant) and node.value is True


def member(name: str) -> str:
    """`AttentionBackendName._NATIVE_CUDNN` is the name `_native_cudnn`."""
    return name.lower()


def last_name(node: ast.expr | None) -> str:
    """The last part of a dotted name; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.expr) -> str:
    """A dotted name as written; empty for anything else and for absurdly long names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        if len(parts) > 20:
            return ""
        node = node.value
    if not isinstance(node, ast.Name):
        return ".".join(reversed(parts))
    return ".".join([node.id, *reversed(parts)])
