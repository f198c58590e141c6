"""Results as JSON for programs. Every result goes through here.

Values are cleaned and redacted before they are escaped: afterwards a quote in a password would end
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from attn_doctor._version import __version__
from attn_doctor.clean import clean_lines
from attn_doctor.redact import Redacted, redact, redact_all

#: Version of the form of results; it increases when a key is renamed or changes its meaning.
SCHEMA = 1


def result(**data: object) -> str:
    """A result with its schema and attn-doctor's version in front."""
    return json_text({"schema": SCHEMA, "attn_doctor": __version__, **data})


def json_text(data: object) -> str:
    """Structs, dictionaries and lists as indented JSON with a final line break."""
    plain = msgspec.to_builtins(data)
    texts = "\n".join(_texts(plain))
    # One search of everything is quick; only data with something to hide is rewritten.
    if clean_lines(texts) != texts or redact(texts) != texts or not _is_text(texts):
        plain = redact_all(_each(plain, lambda text: _decoded(clean_lines(text))))
    written = msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
    # `##[error]` and `##vso[…]` are commands in a log; `\u0023` is the same letter to a program.
    return Redacted(written.replace("##", "#\\u0023") + "\n")


def _texts(value: Any, name: str = "") -> Iterator[str]:
    """Every text with its name, and the words of a list in a line, so that names tell."""
    if isinstance(value, str):
        yield f"{name}={value}" if name else value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(one, str(key))
    elif isinstance(value, (list, tuple)):
        if value and all(isinstance(one, str) for one in value):
            yield " ".join(value)
        else:
            for one in value:
                yield from _texts(one)


def _each(value: Any, changed: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return changed(value)
    if isinstance(value, dict):
        return {_each(key, changed): _each(one, changed) for key, one in value.items()}
    return [_each(one, changed) for one in value] if isinstance(value, (list, tuple)) else value


def _is_text(text: str) -> bool:
    """Whether `text` has no undecodable bytes, which a file name on Linux may have."""
    return text.isascii() or not any("\udc80" <= char <= "\udcff" for char in text)


def _decoded(text: str) -> str:
    """Replace undecodable bytes."""
    return text.encode("utf-8", "replace").decode()
