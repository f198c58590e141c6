"""What names in a Python script hold: texts, numbers, dtypes, and defaults of options."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeVar

from attn_doctor.configs.readers.script_tree import (
    Node,
    Way,
    dotted,
    is_option,
    last_name,
    member,
    otherwise,
)

_T = TypeVar("_T", str, int)
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Assignments of one name that are followed, and names that lead to others.
_MOST, _DEEPEST = 8, 4
_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}
_PRECISIONS |= {"float": "fp32", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}


class Names:
    """The names of a script that are given a value once."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = [one.tree for one in nodes]
        self._assigned = _assignments(nodes)
        self._calls = _calls_by_name(nodes)
        self._texts = self._constants(str)
        self._numbers = self._constants(int)
        self._values = self._given_once()
        self._added, self._changed = _additions(self._nodes)
        self.defaults = self._option_defaults()
        """Options whose default is written; empty for None."""
        self._parsed = {
            name
            for name, value in self._values.items()
            if isinstance(value, ast.Call) and last_name(value.func) == "parse_args"
        }

    def is_option(self, node: ast.expr) -> bool:
        """`args.name`, or that of another name for what `parse_args` gave."""
        parsed = isinstance(node, ast.Attribute) and dotted(node.value) in self._parsed
        return parsed or is_option(node)

    def value(self, name: str) -> ast.expr | None:
        """The value of a name or a dotted name that is assigned once."""
        return self._values.get(name)

    # attn = "flash_attention_2" if fast else "sdpa"
    def values(
        self, node: ast.expr, scope: ast.AST | None, depth: int = 0
    ) -> Iterator[tuple[ast.expr, Way]]:
        """What a name may hold where it is used in `scope`, each with the branches that set it.

        Anything else than a name that is set in the script stands for itself.
        """
        name = dotted(node)
        found = self._assigned.get((scope, name)) or self._assigned.get((None, name), [])
        if not name or depth > _DEEPEST or len(found) > _MOST:
            yield node, ()
        elif found:
            for value, when in _in_force(found):
                for each, further in self.values(value, scope, depth + 1):
                    yield each, (*when, *further)
        elif isinstance(scope, _Function) and name in _parameters(scope):
            yield from self._handed(node, scope, depth)
        else:
            yield node, ()

    # options = {"torch_dtype": dtype}; options["revision"] = "a"; load(**options)
    def keys(self, node: ast.expr) -> set[str] | None:
        """The keys of a dictionary that the script writes; None if they are not all known."""
        name = dotted(node)
        if isinstance(node, ast.Dict):
            return _keys([one for one in node.keys if one is not None], len(node.keys))
        if isinstance(node, ast.Call) and last_name(node.func) == "dict" and not node.args:
            given = [one.arg for one in node.keywords if one.arg]
            return {*given} if len(given) == len(node.keywords) else None
        values = [
            value for (_, own), each in self._assigned.items() if own == name for value, _ in each
        ]
        if not name or not values or name in self._changed:
            return None
        found = set[str]()
        for value in values:
            several = self.keys(value) if isinstance(value, (ast.Dict, ast.Call)) else None
            if several is None:
                return None
            found |= several
        return found | self._added.get(name, set())

    def _handed(
        self, node: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef, depth: int
    ) -> Iterator[tuple[ast.expr, Way]]:
        """What the calls of a function in this script give for a parameter."""
        name = dotted(node)
        default = _parameters(function)[name]
        calls = self._calls.get(function.name, [])
        for call in calls[:_MOST]:
            given = (
                _argument(call.tree, function, name) if isinstance(call.tree, ast.Call) else None
            )
            value = given or default
            if value is None:
                yield node, ()
            else:
                for each, when in self.values(value, call.scope, depth + 1):
                    yield each, (*call.when, *when)
        if not calls:
            yield default or node, ()

    def _constants(self, kind: type[_T]) -> dict[str, _T]:
        """Names that are given one value, and only once, where it is of this kind."""
        found: dict[str, list[_T | None]] = {}
        for node in self._nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        value = node.value.value if isinstance(node.value, ast.Constant) else None
                        found.setdefault(target.id, []).append(
                            value if isinstance(value, kind) else None
                        )
        return {name: one[0] for name, one in found.items() if len(one) == 1 and one[0]}

    def _given_once(self) -> dict[str, ast.expr]:
        """Names and dotted names that are assigned once, with their values."""
        found: dict[str, list[ast.expr]] = {}
        for node in self._nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, (ast.Name, ast.Attribute)):
                        found.setdefault(dotted(target), []).append(node.value)
        return {name: values[0] for name, values in found.items() if name and len(values) == 1}

    # parser.add_argument("--attn", type=str, default="sdpa")
    # attn: str | None = field(default=None)
    def _option_defaults(self) -> dict[str, str]:
        """Options of argparse and of dataclasses with their default; empty for None."""
        found: dict[str, str | None] = {}
        for node in self._nodes:
            if isinstance(node, ast.Call) and last_name(node.func) == "add_argument":
                names = [one.value for one in node.args if isinstance(one, ast.Constant)]
                default = _text_or_none(_keyword(node, "default"))
                for name in names:
                    key = str(name).lstrip("-").replace("-", "_")
                    found[key] = default if key not in found else None
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                value = node.value
                if isinstance(value, ast.Call):
                    value = _keyword(value, "default") if _is_field(value) else value
                if value is not None:
                    key = node.target.id
                    found[key] = _text_or_none(value) if key not in found else None
        return {name: one for name, one in found.items() if one is not None}

    def moved(self, node: ast.Call) -> str:
        """The dtype that a call such as `.to(torch.float16)` or `.half()` gives."""
        name = last_name(node.func)
        if name != "to":
            return _PRECISIONS.get(name, "")
        given = [*node.args, *(one.value for one in node.keywords if one.arg == "dtype")]
        return next(filter(None, map(self.precision, given)), "")

    def precision(self, node: ast.expr | None) -> str:
        """A dtype as `bf16`, from `torch.bfloat16`, "bfloat16", or a name; empty if unknown."""
        if isinstance(node, ast.Name):
            node = self.value(node.id)
        if isinstance(node, ast.Constant):
            return _PRECISIONS.get(str(node.value), "")
        return _PRECISIONS.get(last_name(node), "") if node is not None else ""

    # pipe(prompt="a cat", height=480, width=848, num_frames=121)
    def size(self, node: ast.Call) -> str:
        """Width, height and frames that a pipeline is called with; empty if they are not given."""
        given = {one.arg: self.number(one.value) for one in node.keywords}
        if not given.get("width") or not given.get("height"):
            return ""
        if "num_frames" in given and not given["num_frames"]:
            return ""
        parts = (given["width"], given["height"], given.get("num_frames"))
        return "x".join(str(one) for one in parts if one)

    def number(self, node: ast.expr) -> int:
        """A positive number that is written; 0 for anything else."""
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Name):
            value = self._numbers.get(node.id)
        return value if isinstance(value, int) and 0 < value < 1 << 20 else 0

    def text(self, node: ast.expr | None) -> str:
        """A text that is written, or that a name is given once; empty if it is not known."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name):
            return self._texts.get(node.id, "")
        if isinstance(node, ast.Attribute) and dotted(node.value).endswith(
            ("AttentionBackendName", "AttentionProvider")
        ):
            return member(node.attr)
        return ""


def _keys(written: Sequence[ast.expr], count: int) -> set[str] | None:
    found = {str(one.value) for one in written if isinstance(one, ast.Constant)}
    return found if len(found) == count else None


def _additions(nodes: Sequence[ast.AST]) -> tuple[dict[str, set[str]], set[str]]:
    """The keys that are set in dictionaries one by one, and those that are changed otherwise."""
    added: dict[str, set[str]] = {}
    changed = set[str]()
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    name, key = dotted(target.value), target.slice
                    if isinstance(key, ast.Constant):
                        added.setdefault(name, set()).add(str(key.value))
                    else:
                        changed.add(name)
        elif isinstance(node, ast.AugAssign):
            changed.add(dotted(node.target))
        elif isinstance(node, ast.Call) and last_name(node.func) in ("update", "setdefault"):
            changed.add(dotted(node.func).rpartition(".")[0])
    return added, changed


def _assignments(
    nodes: Sequence[Node],
) -> dict[tuple[ast.AST | None, str], list[tuple[ast.expr, Way]]]:
    """What each name of each function is set to, with the branches, in their order."""
    found: dict[tuple[ast.AST | None, str], list[tuple[int, ast.expr, Way]]] = {}
    for tree, when, scope in nodes:
        targets: Sequence[ast.expr] = ()
        if isinstance(tree, ast.Assign):
            targets = tree.targets
        elif isinstance(tree, ast.AnnAssign) and tree.value is not None:
            targets = [tree.target]
        value = tree.value if isinstance(tree, (ast.Assign, ast.AnnAssign)) else None
        for target in targets:
            name = dotted(target)
            # An attribute of an object is set for all functions.
            place = scope if isinstance(target, ast.Name) else None
            if name and value is not None:
                found.setdefault((place, name), []).append((target.lineno, value, when))
    return {
        key: [(value, when) for _, value, when in sorted(each, key=lambda one: one[0])]
        for key, each in found.items()
    }


def _in_force(found: Sequence[tuple[ast.expr, Way]]) -> Iterator[tuple[ast.expr, Way]]:
    """The values that no later one replaces, each with the branches that leave it."""
    for at, (value, when) in enumerate(found):
        replaced = False
        for _, later in found[at + 1 :]:
            further = tuple(one for one in later if one not in when)
            replaced = replaced or not further
            if not any(one.opposite() in when for one in later):
                when = (*when, *otherwise(further))
        if not replaced:
            yield value, when


def _calls_by_name(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """The calls of a script by the last part of what they call."""
    found: dict[str, list[Node]] = {}
    for one in nodes:
        if isinstance(one.tree, ast.Call):
            found.setdefault(last_name(one.tree.func), []).append(one)
    return found


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr | None]:
    """The parameters of a function with their defaults."""
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args)]
    found: dict[str, ast.expr | None] = dict.fromkeys(names)
    if given.defaults:
        found |= dict(zip(names[-len(given.defaults) :], given.defaults, strict=True))
    return found | {
        one.arg: value for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    }


def _argument(
    call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str
) -> ast.expr | None:
    """What a call gives for a parameter; None if it gives nothing."""
    named = next((one.value for one in call.keywords if one.arg == name), None)
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    at = names.index(name) if name in names else len(call.args)
    return named or (call.args[at] if at < len(call.args) else None)


def _is_field(node: ast.Call) -> bool:
    return last_name(node.func) in ("field", "Field")


def _keyword(node: ast.Call, name: str) -> ast.expr:
    """A keyword of a call; None of Python where it is not given."""
    return next((one.value for one in node.keywords if one.arg == name), ast.Constant(None))


def _text_or_none(node: ast.expr) -> str | None:
    """A text that is written, empty for None of Python; None for anything else."""
    if not isinstance(node, ast.Constant):
        return None
    return node.value if isinstance(node.value, str) else "" if node.value is None else None
