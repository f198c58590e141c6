"""What names in a Python script hold: texts, numbers, dtypes, and defaults of options."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TypeVar

from attn_doctor.configs.readers.script_tree import dotted, is_option, last_name, member

_T = TypeVar("_T", str, int)
_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}
_PRECISIONS |= {"float": "fp32", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}


class Names:
    """The names of a script that are given a value once."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self._nodes = [*nodes]
        self._texts = self._constants(str)
        self._numbers = self._constants(int)
        self._values = self._given_once()
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
