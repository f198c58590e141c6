"""The tree of a Python script: its nodes with the branches that lead to them, and names in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from attn_doctor.configs.readers.settings import Branch

#: Objects with options of the command line.
OPTIONS = ("args", "opt", "opts", "options", "script_args", "training_args", "cli_args")
#: Nodes of a tree that are read. A larger file is generated.
_MOST = 1 << 20
#: Names of code that chooses attention: a branch that returns from it leaves the rest to the other.
_MATTERS = re.compile(r"attn|attention|xformers|from_pretrained|sdpa")
#: What is raised where an import fails.
_NO_IMPORT = ("ImportError", "ModuleNotFoundError", "Exception", "BaseException", "")

Way = tuple[Branch, ...]


class Node(NamedTuple):
    """A node of a tree."""

    tree: ast.AST
    when: Way
    """The branches that lead to it."""
    scope: ast.AST | None
    """The function around it; None at the level of the module."""


def walked(trees: list[ast.Module], lines: Sequence[str]) -> Iterator[Node]:
    """Every node with the branches that lead to it, without recursion."""
    stack = [Node(one, (), None) for one in reversed(trees)]
    count = 0
    while stack and count < _MOST:
        one = stack.pop()
        count += 1
        yield one
        stack += reversed([*_below(one, lines)])


def _below(one: Node, lines: Sequence[str]) -> Iterator[Node]:
    """What is below a node, each under its further branches."""
    tree, when, scope = one
    if isinstance(tree, (ast.If, ast.IfExp)):
        branches = tested(tree.test, lines)
        yield Node(tree.test, when, scope)
        yield from _under(tree.body, (*when, *branches), scope, lines)
        yield from _under(tree.orelse, (*when, *otherwise(branches)), scope, lines)
    elif isinstance(tree, ast.BoolOp):
        yield from _one_by_one(tree, one, lines)
    elif isinstance(tree, ast.Try):
        tried = (_tried(tree),) if tree.handlers else ()
        yield from _under(tree.body, (*when, *tried), scope, lines)
        yield from _under(tree.handlers, (*when, *otherwise(tried)), scope, lines)
        yield from _under(tree.orelse, (*when, *tried), scope, lines)
        yield from _under(tree.finalbody, when, scope, lines)
    elif isinstance(tree, ast.Match):
        yield from _cases(tree, one, lines)
    else:
        function = isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        inner = tree if function else scope
        for _, value in ast.iter_fields(tree):
            if isinstance(value, (ast.AST, list)):
                yield from _under(value, when, inner, lines)


def _one_by_one(tree: ast.BoolOp, one: Node, lines: Sequence[str]) -> Iterator[Node]:
    """The parts of `a and b`, of which the second is reached where the first holds."""
    when = one.when
    for each in tree.values:
        yield Node(each, when, one.scope)
        test = tested(each, lines)
        when = (*when, *(test if isinstance(tree.op, ast.And) else otherwise(test)))


def _cases(tree: ast.Match, one: Node, lines: Sequence[str]) -> Iterator[Node]:
    """The cases of a `match`, each where those before it do not hold."""
    yield Node(tree.subject, one.when, one.scope)
    when = one.when
    for case in tree.cases:
        branches = _case(tree.subject, case, lines)
        yield from _under(case.body, (*when, *branches), one.scope, lines)
        when = (*when, *otherwise(branches))


def _under(
    found: ast.AST | Sequence[ast.AST], when: Way, scope: ast.AST | None, lines: Sequence[str]
) -> Iterator[Node]:
    """Statements one after another; behind a branch that returns they are under its opposite."""
    for each in [found] if isinstance(found, ast.AST) else found:
        if not isinstance(each, ast.AST):
            continue
        yield Node(each, when, scope)
        if isinstance(each, ast.If) and not each.orelse and _leaves(each):
            when = (*when, *otherwise(tested(each.test, lines)))


def _leaves(branch: ast.If) -> bool:
    """A branch returns, so that what follows it is for the other one.

    Only where it chooses attention, or where its test speaks of that.
    """
    body = branch.body
    if not body or not isinstance(body[-1], (ast.Return, ast.Raise)):
        return False
    for statement in (branch.test, *body):
        for one in ast.walk(statement):
            name = one.arg if isinstance(one, ast.keyword) else last_name(one)
            if name and _MATTERS.search(name):
                return True
    return False


def _tried(tree: ast.Try) -> Branch:
    """What is tried: an import of packages, or anything else."""
    caught = {
        last_name(each)
        for one in tree.handlers
        for each in (one.type.elts if isinstance(one.type, ast.Tuple) else [one.type])
    }
    imports = [one for one in tree.body if isinstance(one, (ast.Import, ast.ImportFrom))]
    plain = all(
        isinstance(one, (ast.Import, ast.ImportFrom, ast.Pass))
        or (isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant))
        for one in tree.body
    )
    if imports and plain and caught <= {*_NO_IMPORT}:
        names = [
            name.partition(".")[0]
            for one in imports
            for name in (
                [one.module or ""]
                if isinstance(one, ast.ImportFrom)
                else [each.name for each in one.names]
            )
        ]
        return Branch("import", ", ".join(dict.fromkeys(names)), tree.lineno)
    return Branch("try", "", tree.lineno)


def _case(subject: ast.expr, case: ast.match_case, lines: Sequence[str]) -> Way:
    """The condition of a case; none for `case _`."""
    guard = tested(case.guard, lines) if case.guard is not None else ()
    if isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
        return guard
    text = f"{_written(subject, lines)} is {_written(case.pattern, lines)}"
    return (Branch("other", text, case.pattern.lineno), *guard)


def otherwise(branches: Way) -> Way:
    """What holds where one of `branches` does not."""
    if len(branches) <= 1:
        return tuple(one.opposite() for one in branches)
    parts = tuple(one.opposite() for one in branches)
    return (Branch("any", "", branches[0].line, parts=parts),)


def tested(node: ast.expr, lines: Sequence[str]) -> Way:
    """The conditions of a test that all have to hold."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return tuple(one for value in node.values for one in tested(value, lines))
    if isinstance(node, ast.BoolOp):
        each = [tested(value, lines) for value in node.values]
        return (Branch("any", "", node.lineno, parts=tuple(map(_whole, each))),)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return otherwise(tested(node.operand, lines))
    if isinstance(node, ast.Call):
        named = " ".join(str(one.value) for one in node.args if isinstance(one, ast.Constant))
        name = f"{dotted(node.func)} {named}".strip()
        return (Branch("call", _written(node, lines), node.lineno, name),)
    if is_option(node):
        return (Branch("option", f"--{last_name(node)}", node.lineno, last_name(node)),)
    if isinstance(node, ast.Compare):
        return _compared(node, lines)
    return (_other(node, lines),)


def _compared(node: ast.Compare, lines: Sequence[str]) -> Way:
    if last_name(node.left) == "__name__":
        return ()
    # importlib.util.find_spec("flash_attn") is not None
    nothing = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
    asks = isinstance(node.left, ast.Call) and last_name(node.left.func) == "find_spec"
    if nothing and asks and len(node.ops) == 1:
        found = tested(node.left, lines)
        return found if isinstance(node.ops[0], (ast.IsNot, ast.NotEq)) else otherwise(found)
    return (_other(node, lines),)


def _whole(branches: Way) -> Branch:
    """Several conditions as one."""
    if len(branches) == 1:
        return branches[0]
    return Branch("all", "", branches[0].line if branches else 1, parts=branches)


def _other(node: ast.expr, lines: Sequence[str]) -> Branch:
    return Branch("other", _written(node, lines), node.lineno)


def _written(node: ast.expr | ast.pattern, lines: Sequence[str]) -> str:
    """A condition as the script has it, or its line where it is long."""
    line, text = node.lineno, ""
    if node.end_lineno == line and line <= len(lines):
        # Columns count bytes of UTF-8.
        text = (
            lines[line - 1].encode()[node.col_offset : node.end_col_offset].decode(errors="replace")
        )
    return text if 0 < len(text) < 80 else f"the condition in line {line}"


def is_option(node: ast.expr) -> bool:
    """`args.name`."""
    return isinstance(node, ast.Attribute) and last_name(node.value) in OPTIONS


def is_true(node: ast.expr | None) -> bool:
    """`True`."""
    return isinstance(node, ast.Constant) and node.value is True


def member(name: str) -> str:
    """`AttentionBackendName._NATIVE_CUDNN` is the name `_native_cudnn`."""
    return name.lower()


def last_name(node: ast.AST | None) -> str:
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
