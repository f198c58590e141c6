"""Logs of any bytes are read at 20 MB of a second of processor time, after two seconds."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from attn_doctor.explain.engine import explain
from attn_doctor.explain.symptom_match import all_symptoms
from attn_doctor.rulebook import library
from tests.effort import at_most

_LETTERS = bytes(97 + byte % 7 for byte in range(256))


@cache
def _texts() -> list[bytes]:
    """The plain text of every symptom."""
    ways = [way for symptom in all_symptoms(library.load()) for way in symptom.ways]
    return [text.encode() for way in ways for texts in way.needs for text in texts]


def _escapes(chance: random.Random) -> bytes:
    return b"\x1b[%dm%s\x1b[0m\n" % (chance.randrange(99), chance.randbytes(9).hex().encode())


def _record(chance: random.Random) -> bytes:
    text = "".join(chr(chance.randint(1, 9999)) for _ in range(30))
    return json.dumps({"log": text}).encode() + b"\n"


def _traceback(chance: random.Random) -> bytes:
    first, second = chance.choice(_texts()), chance.choice(_texts())
    head = b'Traceback (most recent call last):\n  File "/a/b.py", line 3\n    x\n'
    return head + first.title().replace(b" ", b"")[:9] + b"Error: CUDA " + second + b"\n"


#: Parts of logs that make much work.
_PARTS: dict[str, Callable[[random.Random], bytes]] = {
    "noise": lambda chance: chance.randbytes(4096),
    "base64": lambda chance: base64.b64encode(chance.randbytes(3000)),
    "lines of base64": lambda chance: base64.encodebytes(chance.randbytes(3000)),
    "words": lambda chance: chance.randbytes(8).translate(_LETTERS) + b" ",
    "escapes": _escapes,
    "records": _record,
    "tracebacks": _traceback,
    "one letter": lambda _: b"a" * 4096,
    "empty lines": lambda _: b"\n" * 4096,
    "returns": lambda _: b"a\r" * 2048,
    "escaped lines": lambda _: b"\\n  " * 1024,
    "ranks": lambda chance: b"[rank%d]: %s\n" % (chance.randrange(9999), chance.choice(_texts())),
    "texts": lambda chance: chance.choice(_texts()) + b"\n",
    "versions": lambda chance: b"torch==%d.1 flash-attn-2.8.3\n" % chance.randrange(9999),
}


def _log(kind: str, size: int) -> bytes:
    chance = random.Random(kind)
    data = bytearray()
    while len(data) < min(size, 4 << 20):
        data += _PARTS[kind](chance)
    return (bytes(data) * (1 + size // len(data)))[:size]


def test_a_short_log_with_every_symptom_is_read_quickly(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(_log("texts", 1 << 18))
    with at_most(4):
        found = explain([str(path)], library.load())
    assert found.matches
    assert 0 < found.logs[0].skipped <= 1 << 18


@pytest.mark.attack
@pytest.mark.parametrize("kind", _PARTS)
def test_any_log_is_read_quickly(kind: str, tmp_path: Path) -> None:
    size, path, rules = 32 << 20, tmp_path / "x.log", library.load()
    path.write_bytes(b"RuntimeError: CUDA error: no kernel image is available\n")
    explain([str(path)], rules)  # imports
    # What begins with noise is refused.
    path.write_bytes(b"step 1\n" * 10_000 + _log(kind, size))
    with at_most(2 + size / 20e6):
        explain([str(path)], rules)
