"""Filling facts into the texts and commands of a rule."""

from __future__ import annotations

import re

from attn_doctor.rulebook.conditions import Lookup, show

#: `{torch.version}` in a rule's text or command.
PLACEHOLDER = re.compile(r"\{([a-z_]\w*(?:\.\w+)+)\}")


def fill(text: str, lookup: Lookup) -> str:
    """`text` with each `{fact}` replaced by its value, or by `unknown`."""
    return PLACEHOLDER.sub(lambda match: show(lookup(match[1])), text)


def unknown_in(text: str, lookup: Lookup) -> str:
    """The first fact in `text` that is unknown or empty, so that a command cannot use it."""
    for name in PLACEHOLDER.findall(text):
        if lookup(name) in (None, ""):
            return str(name)
    return ""
