"""A Python script, read as a tree and never run: which attention it asks for, and where.

Only plain text in the script is known: a name in a variable that is set once to a
text is followed, one from the command line is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeVar

from attn_doctor.configs.readers.settings import Call, ConfigError, Setting

_T = TypeVar("_T", str, int)

#: Names of a guide that no torch has.
_HELPERS = ("build_flex_attention_kernels", "kernel_root")
#: What is called to choose a backend, and what that is called here.
_CHOICES = {
    "set_attention_backend": "set_attention_backend",
    "attention_backend": "attention_backend",
    "attention_provider": "attention_provider",
    "enable_xformers_memory_efficient_attention": "xformers",
    "compile_repeated_blocks": "compile",
}
_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}


def calls_of(text: str, name: str) -> tuple[tuple[Call, ...], dict[str, Setting]]:
    """Calls that matter, in their order, and the environment variables that the script sets.

    Raises `ConfigError` for a script that Python cannot parse.
    """
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in the user's strings is not our business
            tree = ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(
            f"{name}, line {error.lineno or 1}: no Python that can be parsed: {error.msg}"
        ) from None
    except (RecursionError, MemoryError, ValueError):
        raise ConfigError(f"{name}: expressions are nested too deeply to be read") from None
    reader = _Reader(tree)
    found = sorted(reader.calls(), key=lambda one: one.line)
    return tuple(found), reader.variables


class _Reader:
    def __init__(self, tree: ast.Module) -> None:
        self._nodes = list(ast.walk(tree))
        self._texts = self._constants(str)
        self._numbers = self._constants(int)
        self.variables: dict[str, Setting] = {}

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

    def calls(self) -> Iterator[Call]:
        for node in self._nodes:
            if isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.Attribute) and node.attr in _HELPERS:
                yield Call("helper", node.attr, _written(node.value), node.lineno)
            elif isinstance(node, ast.ImportFrom):
                yield from (
                    Call("helper", one.name, node.module or "", node.lineno)
                    for one in node.names
                    if one.name in _HELPERS
                )
                if (node.module or "").partition(".")[0] == "diffusers":
                    yield Call("import", "diffusers", "", node.lineno)
            elif isinstance(node, ast.Import):
                yield from (
                    Call("import", "diffusers", "", node.lineno)
                    for one in node.names
                    if one.name.partition(".")[0] == "diffusers"
                )
            elif isinstance(node, ast.Assign):
                yield from self._assignment(node)

    def _assignment(self, node: ast.Assign) -> Iterator[Call]:
        for target in node.targets:
            if isinstance(target, ast.Subscript) and _written(target.value).endswith("environ"):
                self._variable(target.slice, node.value, node.lineno)
            elif isinstance(target, ast.Attribute) and target.attr == "flex_attention":
                if isinstance(node.value, ast.Call) and _last(node.value.func) == "compile":
                    yield Call("flex compiled", "", _written(target), node.lineno)
            elif (
                isinstance(target, ast.Attribute) and target.attr == "scaled_dot_product_attention"
            ):
                yield Call("sdpa replaced", _written(node.value), "", node.lineno)

    def _variable(self, key: ast.expr, value: ast.expr, line: int) -> None:
        name, text = self._text(key), self._text(value)
        if name and text:
            self.variables[name] = Setting(name, text, line)

    def _call(self, node: ast.Call) -> Iterator[Call]:
        name = _last(node.func)
        on = _written(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        first = self._text(node.args[0]) if node.args else ""
        if name in _CHOICES:
            for keyword in node.keywords:
                if keyword.arg in ("backend", "provider", "attention_backend"):
                    first = self._text(keyword.value)
            yield Call(_CHOICES[name], first, on, node.lineno)
        elif name == "compile" and on not in ("re", "regex", "builtins", ""):
            what = _written(node.args[0]) if node.args else on
            yield Call("compile", "", what, node.lineno)
        elif name in _HELPERS and isinstance(node.func, ast.Name):
            yield Call("helper", name, "", node.lineno)
        elif name in ("setdefault", "putenv") and on.rpartition(".")[2] in ("environ", "os"):
            if len(node.args) == 2:
                self._variable(node.args[0], node.args[1], node.lineno)
        elif name == "from_pretrained":
            yield Call("pipeline", on.rpartition(".")[2], "", node.lineno)
        elif name in ("backward", "Accelerator", "GradScaler"):
            yield Call("training", name, on, node.lineno)
        yield from self._keywords(node)

    def _keywords(self, node: ast.Call) -> Iterator[Call]:
        size = self._size(node) if "pipe" in _last(node.func).lower() else ""
        if size:
            yield Call("size", size, _written(node.func), node.lineno)
        for keyword in node.keywords:
            if keyword.arg in ("attn_implementation", "_attn_implementation"):
                yield Call(
                    "attn_implementation", self._text(keyword.value), "", keyword.value.lineno
                )
            elif keyword.arg in ("torch_dtype", "dtype") and _last(node.func) == "from_pretrained":
                precision = _PRECISIONS.get(_written(keyword.value).rpartition(".")[2], "")
                yield Call("dtype", precision, "", keyword.value.lineno)
            elif keyword.arg == "kernel_root":
                yield Call("helper", "kernel_root", "", keyword.value.lineno)

    # pipe(prompt="a cat", height=480, width=848, num_frames=121)
    def _size(self, node: ast.Call) -> str:
        """Width, height and frames that a pipeline is called with; empty if they are not given."""
        given = {one.arg: self._number(one.value) for one in node.keywords}
        if not given.get("width") or not given.get("height"):
            return ""
        if "num_frames" in given and not given["num_frames"]:
            return ""
        parts = (given["width"], given["height"], given.get("num_frames"))
        return "x".join(str(one) for one in parts if one)

    def _number(self, node: ast.expr) -> int:
        """A positive number that is written; 0 for anything else."""
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Name):
            value = self._numbers.get(node.id)
        return value if isinstance(value, int) and 0 < value < 1 << 20 else 0

    def _text(self, node: ast.expr) -> str:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Name):
            return self._texts.get(node.id, "")
        if isinstance(node, ast.Attribute) and _written(node.value).endswith(
            ("AttentionBackendName", "AttentionProvider")
        ):
            return _member(node.attr)
        return ""


def _member(name: str) -> str:
    """`AttentionBackendName._NATIVE_CUDNN` is the name `_native_cudnn`."""
    return name.lower()


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _written(node: ast.expr) -> str:
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
