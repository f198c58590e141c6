"""Reads which folders code puts on the import path, from its syntax tree.

The code is a line of a `.pth` file, or `sitecustomize.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from attn_doctor.host import Host
from attn_doctor.probes.added_folder import END, Added
from attn_doctor.python_source import tree_of

#: Functions of `os.path` that give a path for paths, and what they do with one.
_SAME = ("os.fspath", "os.path.abspath", "os.path.normpath", "os.path.realpath", "str")


def changes(host: Host, code: str, folder: str, prefix: str, file: str = "") -> list[Added] | None:
    """Return the folders that `code` adds; None if it is not understood.

    `folder` is that of the file, and `prefix` is `sys.prefix`. `file` is `__file__`, which a line
    of a `.pth` file does not have.
    """
    tree = tree_of(code)
    if tree is None:
        return None
    known = _Code(host, folder, prefix, file)
    try:
        return _in_order(known.statement(one) for one in tree.body)
    except RecursionError:  # it parses, and is nested deeper than it can be walked
        return None


def _in_order(parts: Iterable[list[Added] | None]) -> list[Added] | None:
    """All parts as one; None as soon as one of them is not understood."""
    added: list[Added] = []
    for part in parts:
        if part is None:
            return None
        added += part
    return added


class _Code:
    """The names that code has bound so far."""

    def __init__(self, host: Host, folder: str, prefix: str, file: str) -> None:
        self._host = host
        #: Local name → what it was imported as.
        self._imported: dict[str, str] = {}
        #: Names with a known text; Python runs the line where `sitedir` is the folder.
        own = {"__file__": file} if file else {"sitedir": folder}
        self._texts = {**own, "sys.prefix": prefix, "sys.exec_prefix": prefix}

    def statement(self, node: ast.stmt) -> list[Added] | None:
        """Return the folders that a statement adds; None if it is not understood."""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in node.names:
                self._imported[name.asname or name.name] = module + name.name
            return []
        if isinstance(node, ast.Expr):
            return self._expression(node.value)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            return self._assignment(node.targets[0], node.value)
        if isinstance(node, ast.AugAssign) and self._dotted(node.target) == "sys.path":
            return self._all(node.value, END) if isinstance(node.op, ast.Add) else None
        return None if self._concerns_path(node) else []

    def _expression(self, node: ast.expr) -> list[Added] | None:
        if isinstance(node, ast.BoolOp) and isinstance(node.values[0], ast.Compare):
            # `folder in sys.path or sys.path.insert(0, folder)`
            asks = self._dotted(node.values[0].comparators[0]) == "sys.path"
            return self._expression(node.values[-1]) if asks and len(node.values) == 2 else None
        called = self._dotted(node.func) if isinstance(node, ast.Call) else ""
        arguments = node.args if isinstance(node, ast.Call) else []
        if called == "sys.path.insert" and len(arguments) == 2:
            at = _whole(arguments[0])
            return None if at is None else self._one(arguments[1], at)
        if called == "sys.path.append" and len(arguments) == 1:
            return self._one(arguments[0], END)
        if called == "sys.path.extend" and len(arguments) == 1:
            return self._all(arguments[0], END)
        if called == "site.addsitedir" and arguments:
            return self._one(arguments[0], END, is_site=True)
        return None if self._concerns_path(node) else []

    def _assignment(self, target: ast.expr, value: ast.expr) -> list[Added] | None:
        if isinstance(target, ast.Subscript) and self._dotted(target.value) == "sys.path":
            bounds = target.slice
            front = isinstance(bounds, ast.Slice) and bounds.step is None
            if not front or _whole(bounds.upper) != 0 or _whole(bounds.lower) not in (0, None):  # type: ignore[attr-defined]
                return None
            return self._all(value, 0)
        if self._dotted(target) == "sys.path":
            if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
                return None
            if self._dotted(value.right) == "sys.path":
                return self._all(value.left, 0)
            return self._all(value.right, END) if self._dotted(value.left) == "sys.path" else None
        text = self._text(value)
        if isinstance(target, ast.Name):
            self._texts.pop(target.id, None)
            if text is not None:
                self._texts[target.id] = text
        return None if self._concerns_path(value) else []

    def _one(self, node: ast.expr, at: int, *, is_site: bool = False) -> list[Added] | None:
        text = self._text(node)
        # What is relative depends on where Python starts.
        if text is None or self._host.join("x", text) != text:
            return None
        return [Added(folder=self._host.normal(text), at=at, code=True, is_site=is_site)]

    def _all(self, node: ast.expr, at: int) -> list[Added] | None:
        if not isinstance(node, (ast.List, ast.Tuple)):
            return None
        places = (at if at == END else at + index for index in range(len(node.elts)))
        return _in_order(map(self._one, node.elts, places))

    def _text(self, node: ast.expr) -> str | None:
        """Return the text that an expression gives; None if it is not known."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.FormattedValue) and not node.format_spec and node.conversion < 0:
            return self._text(node.value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return _joined(self._text(node.left), self._text(node.right))
        if isinstance(node, ast.JoinedStr):
            return _joined(*map(self._text, node.values))
        if not isinstance(node, ast.Call):
            return self._texts.get(self._dotted(node))
        called = self._dotted(node.func)
        parts = [one for one in map(self._text, node.args) if one is not None]
        if not parts or len(parts) < len(node.args):
            return None
        if called == "os.path.join":
            return self._host.join(*parts)
        if called == "os.path.dirname":
            return self._host.parent(parts[0])
        return parts[0] if called in _SAME else None

    def _dotted(self, node: ast.expr) -> str:
        """Return the dotted name of an expression, as it was imported; empty if it has none."""
        if isinstance(node, ast.Name):
            return self._imported.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            owner = self._dotted(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        if isinstance(node, ast.Call) and self._dotted(node.func) == "__import__" and node.args:
            return self._text(node.args[0]) or ""
        return ""

    def _concerns_path(self, node: ast.AST) -> bool:
        return any(map(self._names_path, ast.walk(node)))

    def _names_path(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return "sys.path" in node.value or "addsitedir" in node.value
        return isinstance(node, ast.expr) and self._dotted(node) in ("sys.path", "site.addsitedir")


def _whole(node: ast.expr | None) -> int | None:
    """Return the whole number that an expression is; None if it is something else."""
    sign = -1 if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else 1
    value = node.operand if isinstance(node, ast.UnaryOp) and sign < 0 else node
    if isinstance(value, ast.Constant) and type(value.value) is int:
        return sign * value.value
    return None


def _joined(*parts: str | None) -> str | None:
    return None if None in parts else "".join(filter(None, parts))
