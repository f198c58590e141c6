"""Kinds of facts that a type of Python alone does not tell."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

#: A version as text, compared by PEP 440. Text survives JSON; `2.10` does not become 2.1.
Version = Annotated[str, Meta(extra={"kind": "version"})]
