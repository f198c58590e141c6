"""Reduces the text of Diffusers' attention dispatcher to digests of what its backends do.

`describe` reduces the code that a backend runs to a digest of what decides how a call ends:
parameters, conditions, errors, calls, parts of tensors, imports and constants. Comments,
docstrings, annotations, messages, the order of functions and context parallelism do not count. A
release whose digest of a backend is that of a known release treats this backend in the same way.
What other files of Diffusers do is not seen.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence

from attn_doctor.facts import Dispatcher
from attn_doctor.python_source import tree_of

_ENUM = "AttentionBackendName"
_REGISTRY = "_AttentionBackendRegistry"
_HUB = "_HUB_KERNELS_REGISTRY"
_REQUIREMENTS = "_check_attention_backend_requirements"
_DOWNLOAD = "_maybe_download_kernel_for_backend"
#: What every call goes through.
_COMMON = ("dispatch_attention_fn", "attention_backend", _REGISTRY)
#: Digits of a digest that are kept: a wrong match is out of the question for some 30 names.
_DIGITS = 16
#: Fields of trees that say nothing, or that not every version of Python has.
_UNWRITTEN = ("ctx", "kind", "type_comment", "type_params")
#: How calls of functions begin; other calls with a dot are methods.
_MODULES = ("torch.", "F.", "functools.", "math.", "flex_attention.", "xops.", "dist.", "funcol.")


def describe(text: str, checksum: str = "") -> Dispatcher:
    """Describe the text of a dispatcher; of one with another form than known ones, its checksum."""
    try:
        return _described(text, checksum)
    except RecursionError:  # it parses, and is nested deeper than it can be walked
        return Dispatcher(checksum=checksum)


def _described(text: str, checksum: str) -> Dispatcher:
    tree = tree_of(text)
    if tree is None:
        return Dispatcher(checksum=checksum)
    source = _Source(tree)
    if not source.members or not source.registered or not all(map(source.has, _COMMON)):
        return Dispatcher(checksum=checksum)
    members = source.members
    return Dispatcher(
        checksum=checksum,
        names=tuple(members.values()),
        masks=tuple(map(source.mask, members)),
        hub=tuple(map(source.hub, members)),
        codes=tuple(map(source.code, members)),
        shared=source.shared(),
    )


def features(text: str, attributes: Sequence[str] = ()) -> list[str] | None:
    """Return what in a module decides how a call ends, as lines; None if it cannot be parsed.

    `attributes`: beginnings of names; then only the attributes of classes that begin so count.
    """
    try:
        return _features(text, attributes)
    except RecursionError:  # as above
        return None


def _features(text: str, attributes: Sequence[str]) -> list[str] | None:
    tree = tree_of(text)
    if tree is None:
        return None
    if not attributes:
        return [line for one in _without_docstring(tree.body) for line in _Features(one, "").lines]
    return [
        f"{owner.name}.{_text(target)} = {_text(node.value)}"
        for owner in tree.body
        if isinstance(owner, ast.ClassDef)
        for node in owner.body
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id.startswith(tuple(attributes))
    ]


def digest(lines: Iterable[str]) -> str:
    """Return the digest of lines, whatever their order."""
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:_DIGITS]


class _Source:
    """One dispatcher as a tree."""

    def __init__(self, tree: ast.Module) -> None:
        self._known: dict[tuple[ast.AST, str], _Features] = {}
        #: Name at the margin → the statements that bind it, in order.
        self._bound: dict[str, list[ast.stmt]] = {}
        for node in tree.body:
            for name in _binds(node):
                self._bound.setdefault(name, []).append(node)
        self.members = {
            target.id: node.value.value
            for enum in self._bound.get(_ENUM, ())
            if isinstance(enum, ast.ClassDef)
            for node in enum.body
            if isinstance(node, ast.Assign)
            and isinstance(target := node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }
        self.registered = {
            member: node
            for node in tree.body
            if isinstance(node, ast.FunctionDef)
            for member in map(_registers, node.decorator_list)
            if member
        }

    def has(self, name: str) -> bool:
        """Whether the module defines a name."""
        return name in self._bound

    def shared(self) -> str:
        """The digest of what every call goes through."""
        return self._digest(_COMMON, "", {_ENUM, _REQUIREMENTS, _DOWNLOAD, _HUB})

    def code(self, member: str) -> str:
        """The digest of what a backend's calls go through; empty if it has no function."""
        function = self.registered.get(member)
        if function is None:
            return ""
        starts = [_REQUIREMENTS, *([_DOWNLOAD] if self.hub(member) else [])]
        return self._digest(starts, member, {_ENUM, _REGISTRY}, function)

    def mask(self, member: str) -> str:
        """What a backend does with a mask; empty if it has no function."""
        function = self.registered.get(member)
        return _mask(function) if function is not None else ""

    def hub(self, member: str) -> str:
        """The repository of its kernel; empty if it has none."""
        for entry in self._hub_entries(member):
            for keyword in entry.keywords if isinstance(entry, ast.Call) else ():
                if keyword.arg == "repo_id" and isinstance(keyword.value, ast.Constant):
                    return str(keyword.value.value)
        return ""

    def _hub_entries(self, member: str) -> Iterator[ast.expr]:
        for node in self._bound.get(_HUB, ()):
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            if isinstance(value, ast.Dict):
                for key, entry in zip(value.keys, value.values, strict=True):
                    if key is not None and _member(key) == member:
                        yield entry

    def _digest(
        self,
        starts: Iterable[str],
        member: str,
        without: set[str],
        function: ast.FunctionDef | None = None,
    ) -> str:
        """The digest of everything that the names, or a function, lead to in this module."""
        seen: set[str] = set(without)
        read: set[ast.AST] = set()
        waiting = [*starts]
        lines: list[str] = []
        nodes: list[ast.stmt | ast.expr] = [function] if function is not None else []
        while waiting or nodes:
            while nodes:
                node = nodes.pop()
                if node not in read:
                    read.add(node)
                    features = self._features(node, member)
                    lines += features.lines
                    waiting += features.names
            name = waiting.pop() if waiting else ""
            if not name or name in seen:
                continue
            seen.add(name)
            if name == _HUB and member:
                nodes += self._hub_entries(member)
                continue
            for binding in self._bound.get(name, ()):
                if isinstance(binding, ast.ImportFrom):
                    lines.append(f"from {'.' * binding.level}{binding.module} import {name}")
                else:
                    nodes.append(binding)
        return digest(lines)

    def _features(self, node: ast.stmt | ast.expr, member: str) -> _Features:
        """The features of a statement. Only the requirements differ between backends."""
        key = (node, member if getattr(node, "name", "") == _REQUIREMENTS else "")
        if key not in self._known:
            self._known[key] = _Features(node, key[1])
        return self._known[key]


def _binds(node: ast.stmt) -> Iterator[str]:
    """The names that a statement at the margin binds, also inside of `if` and `try`."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        return
    for one in ast.walk(node):
        if isinstance(one, ast.alias):
            yield (one.asname or one.name).split(".")[0]
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            yield one.id
        elif isinstance(one, (ast.FunctionDef, ast.ClassDef)):
            yield one.name


# @_AttentionBackendRegistry.register(AttentionBackendName.FLASH, constraints=[_check_device])
def _registers(decorator: ast.expr) -> str:
    """The member that a decorator registers a function for; empty if it does not."""
    if not isinstance(decorator, ast.Call) or _dotted(decorator.func) != f"{_REGISTRY}.register":
        return ""
    given = [*decorator.args[:1], *(k.value for k in decorator.keywords if k.arg == "backend")]
    return _member(given[0]) if given else ""


def _member(node: ast.expr) -> str:
    """`AttentionBackendName.FLASH` → `FLASH`; empty for another expression."""
    head, _, member = _dotted(node).partition(".")
    return member if head == _ENUM and "." not in member else ""


def _dotted(node: ast.expr) -> str:
    """`a.b.c`; `.c` where it begins with another expression than a name."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _mask(function: ast.FunctionDef) -> str:
    """What a backend does with a mask: it `takes`, `refuses` or `drops` it."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    if all(one.arg != "attn_mask" for one in arguments):
        return "drops"
    guards = (
        node
        for node in ast.walk(function)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "attn_mask is not None"
    )
    if any(isinstance(one, ast.Raise) for node in guards for one in node.body):
        return "refuses"
    # It may have the argument and never look at it.
    used = any(isinstance(n, ast.Name) and n.id == "attn_mask" for n in ast.walk(function))
    return "takes" if used else "drops"


class _Features(ast.NodeVisitor):
    """What in a statement decides how a call without context parallelism ends, as lines.

    Parameters, conditions, errors with their conditions, calls with their keywords, parts of
    tensors, names of other modules, imports, what an import may raise, and constants.
    """

    def __init__(self, node: ast.stmt | ast.expr, member: str) -> None:
        self.lines: list[str] = []
        self.names: set[str] = set()
        self._member = member
        self._inside = 0
        self._conditions: list[str] = []
        self.visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self.names.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.lines.append(f"use {_shown(_dotted(node))}")
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        given = node.args
        for one in (*given.posonlyargs, *given.args, *given.kwonlyargs):
            self.lines.append(f"parameter {one.arg}")
        self._every(one for one in (*given.defaults, *given.kw_defaults) if one)
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and _registers(decorator):
                kept = [one.value for one in decorator.keywords if one.arg == "constraints"]
                self.lines.extend(f"constraints {_text(one)}" for one in kept)
                self._every(kept)
            else:
                self.visit(decorator)
        self._inside += 1
        self._every(_without_docstring(node.body))
        self._inside -= 1

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._every(_without_docstring(node.body))

    def visit_If(self, node: ast.If) -> None:
        self._choose(node.test, node.body, node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._choose(node.test, [node.body], [node.orelse])

    def _choose(self, test: ast.expr, body: Sequence[ast.AST], other: Sequence[ast.AST]) -> None:
        truth = self._truth(test)
        if truth is not None:
            self._every(body if truth else other)
            return
        text = _text(test)
        self.lines.append(f"if {text}")
        self.visit(test)
        for condition, nodes in ((text, body), (f"not ({text})", other)):
            self._conditions.append(condition)
            self._every(nodes)
            self._conditions.pop()

    def visit_Raise(self, node: ast.Raise) -> None:
        kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        self.lines.append(f"raise {_dotted(kind) if kind is not None else ''}{self._where()}")

    def visit_Return(self, node: ast.Return) -> None:
        self.lines.append(f"return{self._where()}")
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.lines.append(f"except {_text(node.type) if node.type is not None else ''}")
        self._every(node.body)

    def visit_Import(self, node: ast.Import) -> None:
        self.lines.append(_text(node))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.lines.append(_text(node))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._bind([node.target], node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._bind(node.targets, node.value)

    def _bind(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        if not self._inside:
            named = ", ".join(map(_text, targets))
            self.lines.append(f"{named} = {_text(value)}{self._where()}")
        self._every((*targets, value))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.lines.append(f"compute {_text(node)}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _dotted(node.func)
        if name.startswith("logger."):
            return
        given = [_constant(one) or "_" for one in node.args]
        given += sorted(f"{one.arg}={_constant(one.value)}" for one in node.keywords)
        self.lines.append(f"call {_shown(name)}({', '.join(given)})")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if any(isinstance(one, ast.Slice) for one in ast.walk(node.slice)):
            self.lines.append(f"part [{_text(node.slice)}]")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if self._truth(node) is None:
            self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        """Leave annotations out."""

    def _every(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)
            if self._ends(node):
                break

    def _ends(self, node: ast.AST) -> bool:
        """Nothing after this statement runs."""
        if isinstance(node, ast.If) and (truth := self._truth(node.test)) is not None:
            return any(map(self._ends, node.body if truth else node.orelse))
        return isinstance(node, (ast.Return, ast.Raise))

    def _where(self) -> str:
        return f" if {' and '.join(self._conditions)}" if self._conditions else ""

    def _truth(self, node: ast.expr) -> bool | None:
        """The truth that an expression has for this backend without context parallelism."""
        if isinstance(node, ast.BoolOp):
            values = [self._truth(one) for one in node.values]
            ends = isinstance(node.op, ast.Or)
            return ends if ends in values else None if None in values else not ends
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self._truth(node.operand)
            return None if inner is None else not inner
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compared(_dotted(node.left), node.ops[0], node.comparators[0])
        return None

    def _compared(self, left: str, operator: ast.cmpop, right: ast.expr) -> bool | None:
        if left == "_parallel_config" and isinstance(operator, (ast.Is, ast.IsNot)):
            return isinstance(operator, ast.Is)
        if left != "backend" or not self._member:
            return None
        if isinstance(operator, (ast.Eq, ast.Is)) and _member(right):
            return _member(right) == self._member
        if isinstance(operator, ast.In) and isinstance(right, (ast.List, ast.Tuple, ast.Set)):
            members = [*map(_member, right.elts)]
            return self._member in members if all(members) else None
        return None


def _text(node: ast.AST) -> str:
    """A tree as text, the same in each version of Python, which `ast.dump` is not."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant):
        return repr(node.value)
    parts = []
    for field, value in ast.iter_fields(node):
        if field in _UNWRITTEN or value is None or value == []:
            continue
        values = value if isinstance(value, list) else [value]
        written = (_text(one) if isinstance(one, ast.AST) else str(one) for one in values)
        parts.append(f"{field}={' '.join(written)}")
    return f"({type(node).__name__} {', '.join(parts)})"


def _shown(name: str) -> str:
    """A dotted name; of an attribute of a variable only the attribute, as variables are renamed."""
    if "." not in name or name.startswith(_MODULES) or not name[0].islower():
        return name
    return f".{name.rpartition('.')[2]}"


def _constant(node: ast.expr) -> str:
    """A constant as text, also a negative one; empty for another expression."""
    plain = isinstance(node, ast.Constant) or (
        isinstance(node, (ast.UnaryOp, ast.Tuple))
        and not any(isinstance(one, (ast.Name, ast.Call)) for one in ast.walk(node))
    )
    return _text(node) if plain else ""


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return body[1:]
    return body
