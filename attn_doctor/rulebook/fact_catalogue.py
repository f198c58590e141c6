"""Every fact by the name that rules write, with its kind and its sentence.

All of it is read from the package `facts`: names and kinds from the type hints, sentences from the
text under each field. Condition lines are checked by it, and `docs/facts.md` is generated from it;
`check` never needs it.
"""

from __future__ import annotations

import types
import typing
from functools import cache
from pathlib import Path

from msgspec import Meta, Struct

from attn_doctor import facts
from attn_doctor.env_vars import VARIABLES
from attn_doctor.files import TEXT, read_text

KINDS = ("version", "text", "number", "boolean", "list")
_SCALARS: dict[object, str] = {str: "text", int: "number", float: "number", bool: "boolean"}


class Fact(Struct, frozen=True):
    """One fact that a rule may name."""

    name: str
    """As rules write it: `torch.version`; `gpu.sm` inside `for_each = "gpus"`."""
    kind: str
    """One of `KINDS`."""
    doc: str
    """Its sentence."""
    element_of: str = ""
    """The list of facts whose element it belongs to, such as `gpus`; empty for all others."""
    items: str = ""
    """Kind of a list's items; empty for other kinds, and for lists of facts such as `gpus`."""


@cache
def catalogue() -> dict[str, Fact]:
    """All facts by name, in the order of `Facts`; environment variables last."""
    docs = sentences()
    found: list[Fact] = []
    for name, hint in _hints(facts.Facts).items():
        if name not in ("env", "gaps"):
            found += _facts(name, hint, docs["Facts"].get(name, ""), docs)
    found += [Fact(f"env.{name}", "text", doc) for name, doc in VARIABLES.items()]
    return {fact.name: fact for fact in found}


def _facts(
    name: str, hint: object, doc: str, docs: dict[str, dict[str, str]], element_of: str = ""
) -> list[Fact]:
    """Give the facts behind one field: itself, a list with its elements, or a group."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _group(name, hint, docs, element_of)
    if typing.get_origin(hint) is not tuple:
        return [Fact(name, _kind(hint), doc, element_of)]
    inner = typing.get_args(hint)[0]
    count = Fact(f"{name}.count", "number", f"Number of entries in `{name}`.", element_of)
    if isinstance(inner, type) and issubclass(inner, Struct):
        elements = _group(facts.ELEMENTS[name], inner, docs, name)
        return [Fact(name, "list", doc, element_of), count, *elements]
    return [Fact(name, "list", doc, element_of, _kind(inner)), count]


def _group(
    name: str, struct: type[Struct], docs: dict[str, dict[str, str]], element_of: str
) -> list[Fact]:
    sentences = docs[struct.__name__]
    return [
        fact
        for field, hint in _hints(struct).items()
        for fact in _facts(f"{name}.{field}", hint, sentences.get(field, ""), docs, element_of)
    ]


def _kind(hint: object) -> str:
    for meta in getattr(hint, "__metadata__", ()):
        if isinstance(meta, Meta) and meta.extra and "kind" in meta.extra:
            return str(meta.extra["kind"])
    if typing.get_origin(hint) is typing.Literal:
        return "text"
    return _SCALARS[hint]


def _hints(struct: type[Struct]) -> dict[str, object]:
    """Fields and their types; ``| None``, which every fact may be, is dropped."""
    hints = typing.get_type_hints(struct, include_extras=True)
    return {name: _without_none(hint) for name, hint in hints.items()}


def _without_none(hint: object) -> object:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(one for one in typing.get_args(hint) if one is not type(None))
    return hint


def sentences() -> dict[str, dict[str, str]]:
    """For each class in the modules of `facts`, the text under each of its fields."""
    import ast  # `check` imports this module, and never comes here

    modules = sorted(Path(facts.__file__).parent.glob("*.py"))
    return {
        one.name: {
            field.target.id: " ".join(text.value.value.split())
            for field, text in zip(one.body, one.body[1:], strict=False)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for module in modules
        for one in ast.parse(read_text(module, TEXT)).body
        if isinstance(one, ast.ClassDef)
    }
