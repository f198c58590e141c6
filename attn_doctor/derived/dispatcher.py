"""Compares the installed Diffusers' attention dispatcher with those of known releases."""

from __future__ import annotations

from attn_doctor.derived.releases import Row, Tables, parts
from attn_doctor.facts import Facts


def release(facts: Facts, tables: Tables) -> str | None:
    """Return the known release whose dispatcher is the same file; empty if there is none."""
    checksum = facts.dispatcher.checksum
    if not checksum:
        return checksum
    rows = tables["dispatcher"]["release"]
    return next((str(row["version"]) for row in rows if row["checksum"] == checksum), "")


def reference(facts: Facts, tables: Tables) -> str | None:
    """Return the newest known release up to the installed one; empty if the file is known."""
    row = _reference(facts, tables)
    if row is not None:
        return str(row["version"])
    return None if facts.dispatcher.checksum is None else ""


def changed(facts: Facts, tables: Tables) -> tuple[str, ...] | None:
    """Return the names whose code differs from the reference, or that it does not have."""
    found, row = facts.dispatcher, _reference(facts, tables)
    if row is None:
        return None if found.checksum is None else ()
    if found.names is None or found.codes is None:
        return None
    pairs = zip(found.names, found.codes, strict=True)
    return tuple(name for name, code in pairs if row["code"].get(name) != code)


def shared_changed(facts: Facts, tables: Tables) -> bool | None:
    """Return whether what every call goes through differs from the reference."""
    found, row = facts.dispatcher, _reference(facts, tables)
    if row is None:
        return None if found.checksum is None else False
    return None if found.shared is None else bool(found.shared != row["shared"])


def _reference(facts: Facts, tables: Tables) -> Row | None:
    """The release to compare with; None where the file is known, or older than all dispatchers."""
    if facts.dispatcher.checksum is None or facts.diffusers.version is None:
        return None
    if release(facts, tables):
        return None
    this = parts(facts.diffusers.version)
    rows = [row for row in tables["dispatcher"]["release"] if parts(row["version"]) <= this]
    return rows[-1] if rows else None
