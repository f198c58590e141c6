"""Settings of programs that a notebook holds in its code: dictionaries, calls and YAML in text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from attn_doctor.configs.readers import flat, yaml_lines
from attn_doctor.configs.readers.settings import Setting, Value
from attn_doctor.python_source import tree_of

#: Settings that a group has at least; nodes and lines of text that are looked at.
_FEWEST, _MOST, _LINES = 3, 1 << 18, 500


def settings_in(code: str) -> Iterator[dict[str, Setting]]:
    """Each dictionary, call with keywords and text of YAML, by key, as far as it can be parsed."""
    tree = tree_of(code)
    if tree is None:
        return
    for count, node in enumerate(ast.walk(tree)):
        found: dict[str, Setting] = {}
        if count > _MOST:
            return
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found = dict(
                _setting(key.value, value)
                for key, value in pairs
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            )
        elif isinstance(node, ast.Call):
            found = dict(_setting(one.arg, one.value) for one in node.keywords if one.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = _of_text(node.value, node.lineno)
        if len(found) >= _FEWEST:
            yield found


def _setting(key: str, node: ast.expr) -> tuple[str, Setting]:
    value: Value = None
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float, bool)):
        value = node.value
    elif not isinstance(node, (ast.Constant, ast.List, ast.Dict, ast.Tuple)):
        value = "$(code)"  # an expression, whose value is not known
    name = key.replace("-", "_")
    return name, Setting(name, value, node.lineno, key)


def _of_text(text: str, start: int) -> dict[str, Setting]:
    """The settings of a text of YAML. `start`: the line of its first line."""
    if not _FEWEST <= text.count("\n") <= _LINES:
        return {}
    try:
        found = flat.of_yaml(yaml_lines.entries(text))
    except yaml_lines.YamlError:
        return {}
    return {
        key: Setting(key, one.value, start + one.line - 1, one.written)
        for key, one in found.items()
    }
