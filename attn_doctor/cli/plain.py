"""Reads plain command lines of `check` without typer, whose import takes a third of a check.

Plain are flags, and options with a text, in full and in order: `-q --python ComfyUI/venv`. All else
is left to typer: `--help`, a mistake, a number, an abbreviation. The types and names come from the
declarations that typer reads, and a test compares the values that the two find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from attn_doctor.cli.option import Option

#: Set where a shell asks typer to complete words.
COMPLETION = "_ATTN_DOCTOR_COMPLETE"


def arguments(command: Callable[..., None], words: Sequence[str]) -> dict[str, Any] | None:
    """The arguments of `command` for `words`; None if typer has to read them.

    A parameter is an option, or a struct whose fields are options.
    """
    groups: dict[str, type[Struct]] = {}
    options: dict[str, _Declared] = {}
    hints = _hints(command, looked_at=bool(words))
    for name, hint in hints.items():
        if isinstance(hint, type) and issubclass(hint, Struct):
            groups[name] = hint
            for field, kind in get_type_hints(hint, include_extras=True).items() if words else ():
                options |= _declared(name, field, kind)
        elif words:
            options |= _declared("", name, hint)
    found = _read(options, words)
    if found is None:
        return None
    fields = {name: found.pop(name, {}) for name in groups}
    return {**found.pop("", {}), **{name: groups[name](**fields[name]) for name in groups}}


def _hints(command: Callable[..., None], *, looked_at: bool) -> dict[str, Any]:
    """The types of the parameters. Without words only those of groups are looked at."""
    if looked_at:
        return get_type_hints(command, include_extras=True)
    known = command.__globals__
    return {name: known.get(hint) for name, hint in command.__annotations__.items()}


class _Declared(Struct, frozen=True):
    group: str
    """The parameter whose struct has the field; empty for a parameter itself."""
    field: str
    kind: Any
    many: bool
    """It may be repeated."""


def _declared(group: str, field: str, hint: Any) -> dict[str, _Declared]:
    """The names of one option."""
    if not hasattr(hint, "__metadata__"):
        return {}
    kind, option = get_args(hint)
    if not isinstance(option, Option):
        return {}
    given = [one for one in get_args(kind) if one is not type(None)]
    if get_origin(kind) in (Union, UnionType) and len(given) == 1:
        kind = given[0]
    many = get_origin(kind) is list
    kind = get_args(kind)[0] if many else kind
    names = option.names or (f"--{field.replace('_', '-')}",)
    # A callback has an effect beside the value.
    if kind is int and option.settings.get("count") and not many:
        kind = bool
    return {name: _Declared(group, field, kind, many) for name in names}


def _read(options: dict[str, _Declared], words: Sequence[str]) -> dict[str, dict[str, Any]] | None:
    """The values of each group; None if a word is not plain."""
    found: dict[str, dict[str, Any]] = {}
    left = iter(words)
    for word in left:
        # After one dash, all of the word belongs to the value.
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = options.get(name)
        if option is None:
            return None
        if option.kind is bool:
            values: Any = None if equals else True
        else:
            values = _value(option.kind, value if equals else next(left, ""))
        group = found.setdefault(option.group, {})
        if values is None or (option.field in group and not option.many):
            return None
        group[option.field] = [*group.get(option.field, ()), values] if option.many else values
    return found


def _value(kind: Any, text: str) -> Any:
    """A value; None if it is not plain."""
    if not text or (text.startswith("-") and text != "-"):
        return None
    if kind is str or kind is Path:
        return kind(text)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next((one for one in kind if one.value == text), None)
    return None
