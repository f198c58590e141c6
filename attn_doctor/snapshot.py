"""Reads snapshots: facts in a file, which can be evaluated on another machine."""

from __future__ import annotations

import sys

import msgspec

from attn_doctor.errors import SnapshotError
from attn_doctor.facts import SCHEMA, Facts
from attn_doctor.files import DATA, read_bytes
from attn_doctor.json_files import JsonError, decode

#: A snapshot has at least one of these keys. Without any, no rule could be evaluated.
_GROUPS = {"system", "python", "driver", "gpus", "torch", "env"}


def load(path: str) -> Facts:
    """Load the facts from the snapshot at `path`, or from standard input for ``-``.

    Raises `SnapshotError` with one sentence if it cannot be read.
    """
    name = "standard input" if path == "-" else path
    try:
        text = sys.stdin.buffer.read(DATA) if path == "-" else read_bytes(path, DATA)
    except OSError as error:
        raise SnapshotError(f"{name} cannot be read: {error.strerror}") from None
    return parse(text, name)


def parse(text: bytes, name: str) -> Facts:
    """Parse the facts in a snapshot's text; error messages call it `name`."""
    advice = "write one with `attn-doctor report -o FILE`"
    try:
        data = decode(text)
    except JsonError as error:
        raise SnapshotError(f"{name} is not JSON ({error}); {advice}") from None
    if isinstance(data, dict) and isinstance(data.get("facts"), dict):
        data = data["facts"]  # the result of `check --format json` contains the facts
    if not isinstance(data, dict) or not isinstance(data.get("schema"), int):
        raise SnapshotError(f"{name} is not a snapshot of attn-doctor; {advice}")
    if data["schema"] > SCHEMA:
        raise SnapshotError(
            f"{name} is a snapshot of format {data['schema']}, written by attn-doctor"
            f" {data.get('attn_doctor') or 'of a later version'}; this attn-doctor reads up to"
            f" format {SCHEMA}: install a later one"
        )
    if _GROUPS.isdisjoint(data):
        raise SnapshotError(f"{name} is not a snapshot of attn-doctor; {advice}")
    try:
        return msgspec.convert(data, Facts)
    except msgspec.ValidationError as error:
        message = str(error).replace(" - at `$", " at `").replace("at `.", "at `")
        raise SnapshotError(
            f"{name} does not match the snapshot format: {message}; {advice}"
        ) from None
