"""Results as JSON for programs. Every result goes through here."""

from __future__ import annotations

from typing import Any

import msgspec

from attn_doctor._version import __version__

#: Version of the form of results; it increases when a key is renamed or changes its meaning.
SCHEMA = 1


def result(**data: object) -> str:
    """A result with its schema and attn-doctor's version in front."""
    return json_text({"schema": SCHEMA, "attn_doctor": __version__, **data})


def json_text(data: object) -> str:
    """Structs, dictionaries and lists as indented JSON with a final line break."""
    try:
        encoded = msgspec.json.encode(data)
    except UnicodeEncodeError:  # a file name on Linux may have bytes that are not text
        encoded = msgspec.json.encode(_printable(msgspec.to_builtins(data)))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def _printable(value: Any) -> Any:
    """Replace undecodable bytes."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(each) for key, each in value.items()}
    return [_printable(each) for each in value] if isinstance(value, (list, tuple)) else value
