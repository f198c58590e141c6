"""What a file in `rules/tables/backends/` may say; an unknown key is an error.

`rules/tables/backends/README.md` describes each key. `entry.py` holds the same, parsed.
"""

from __future__ import annotations

from datetime import date
from typing import Literal

from msgspec import Struct

from attn_doctor.backends.catalogue_entries import (
    Example,
    Framework,
    Link,
    Name,
    Order,
    Otherwise,
    Preference,
    Text,
)


class RequirementFile(Struct, frozen=True, forbid_unknown_fields=True):
    """One demand, as written."""

    id: Text
    text: Text
    source: Link
    when: tuple[Text, ...] = ()
    needs: tuple[Text, ...] = ()
    any: tuple[Text, ...] = ()
    problem: str = ""
    never: bool = False
    otherwise: Otherwise = "not ready"
    silent: bool = False
    by: Literal["library", "framework", "package"] = "library"
    rule: str = ""
    remedy: str = ""
    code: str = ""
    example: tuple[Example, ...] = ()


class BackendFile(Struct, frozen=True, forbid_unknown_fields=True):
    """One backend, as written."""

    name: Text
    title: Text
    requires: tuple[Text, ...]
    source: Link
    tags: tuple[Text, ...] = ()
    package: str = ""
    module: str = ""
    function: str = ""
    layout: Literal["", "bshd", "bhsd"] = ""
    approximate: bool = False
    hardware: str = ""
    compiled: tuple[Text, ...] = ()
    declares: dict[str, str] = {}
    truth: str = ""
    note: str = ""


class SetFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Requirements that several backends share."""

    name: Text
    requires: tuple[Text, ...]


class File(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of `rules/tables/backends/`."""

    schema: Literal[1]
    checked: date
    framework: tuple[Framework, ...] = ()
    name: tuple[Name, ...] = ()
    set: tuple[SetFile, ...] = ()
    requirement: tuple[RequirementFile, ...] = ()
    backend: tuple[BackendFile, ...] = ()
    order: tuple[Order, ...] = ()
    preference: Preference | None = None
    ignore: tuple[Text, ...] = ()
    """Rules whose problems say nothing about readiness."""
