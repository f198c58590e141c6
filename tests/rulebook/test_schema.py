"""The JSON Schema of a rule file is up to date, and every rule keeps to it."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from attn_doctor.rulebook.library import folder
from attn_doctor.rulebook.rule_files import rule_paths
from attn_doctor.rulebook.rule_shape import schema
from attn_doctor.toml_files import read_toml

ROOT = Path(__file__).parents[2]
SCHEMA = schema()
FILES = rule_paths(folder())
_TYPES = {"string": str, "array": list, "object": dict, "boolean": bool, "null": type(None)}


def faults(value: Any, shape: dict[str, Any], place: str = "") -> Iterator[str]:
    """Where `value` breaks `shape`, for the part of JSON Schema that the schema uses."""
    if "$ref" in shape:
        yield from faults(value, SCHEMA["$defs"][shape["$ref"].rpartition("/")[2]], place)
    if "anyOf" in shape and all(list(faults(value, one, place)) for one in shape["anyOf"]):
        yield f"{place}: fits none of its shapes"
    if "enum" in shape and value not in shape["enum"]:
        yield f"{place}: {value!r} is none of {shape['enum']}"
    kind = _TYPES.get(shape.get("type", ""))
    if kind and not isinstance(value, kind):
        yield f"{place}: no {shape['type']}"
        return
    if isinstance(value, str):
        if not re.search(shape.get("pattern", ""), value) or len(value) < shape.get("minLength", 0):
            yield f"{place}: {value!r} does not match"
    elif isinstance(value, list):
        yield from _in_list(value, shape, place)
    elif isinstance(value, dict):
        yield from _in_object(value, shape, place)


def _in_list(value: list[Any], shape: dict[str, Any], place: str) -> Iterator[str]:
    if len(value) < shape.get("minItems", 0):
        yield f"{place}: too few"
    for index, one in enumerate(value):
        yield from faults(one, shape.get("items", {}), f"{place}[{index}]")


def _in_object(value: dict[str, Any], shape: dict[str, Any], place: str) -> Iterator[str]:
    yield from (f"{place}: needs {key}" for key in shape.get("required", ()) if key not in value)
    known = shape.get("properties", {})
    other = shape.get("additionalProperties", {})
    for key, one in value.items():
        if key not in known and other is False:
            yield f"{place}: has {key}"
        yield from faults(one, known.get(key, other or {}), f"{place}.{key}")


def plain(value: Any) -> Any:
    """TOML data as JSON has it: a day is text."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.isoformat() if isinstance(value, date) else value


def test_the_file_is_up_to_date() -> None:
    composed = runpy.run_path(str(ROOT / "tools" / "rule_schema.py"))["text"]()
    written = (ROOT / "rules" / "rule.schema.json").read_text("utf-8")
    assert written == composed, "run `python tools/rule_schema.py`"
    assert json.loads(written)["$schema"].startswith("https://json-schema.org/")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_rule_keeps_to_it(path: Path) -> None:
    assert list(faults(plain(read_toml(path)), SCHEMA)) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", 2),
        ("severity", "bad"),
        ("cause", ""),
        ("evidence", ["http://x"]),
        ("evidence", []),
        ("checked", 3),
        ("platforms", ["beos"]),
        ("when", {"al": []}),
        ("fix", [{"title": "x", "safety": "never"}]),
        ("sevverity", "error"),
    ],
)
def test_it_refuses_what_the_loader_refuses(key: str, value: Any) -> None:
    good = plain(read_toml(FILES[0]))
    assert list(faults({**good, key: value}, SCHEMA)) != []
    del good["text"]
    assert list(faults(good, SCHEMA)) == [": needs text"]
