"""Decode JSON that others may have written: every fault is one kind of error."""

from __future__ import annotations

from typing import Any, TypeVar, overload

import msgspec

_T = TypeVar("_T")


class JsonError(ValueError):
    """A text that is not JSON, or not of the type asked for. One sentence."""


@overload
def decode(data: bytes | str, type: type[_T]) -> _T: ...
@overload
def decode(data: bytes | str) -> Any: ...
def decode(data: bytes | str, type: Any = Any) -> Any:
    """Return the value of a JSON text as `type`. Raises `JsonError` and nothing else.

    Numbers beyond 64 bits, halves of surrogate pairs and bytes that are not UTF-8 are faults too:
    what holds them could not be written again.
    """
    try:
        return msgspec.json.decode(data, type=type)
    except RecursionError:
        raise JsonError("lists and objects are nested too deeply to be read") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise JsonError(str(error)) from None
