"""What the installed Diffusers' own source says of a name, where it is not a known release.

`derived.dispatcher` compares the attention dispatcher with the newest known release up to it. A
name whose code is the same is evaluated as that release. One with other code is unknown, whatever
else holds, since its requirements may be others.
"""

from __future__ import annotations

from attn_doctor.backends.catalogue_entries import Requirement
from attn_doctor.facts import Facts

_CALLS = ("diffusers", "simpletuner")
_ID = "dispatcher-known"


def requirement(facts: Facts, framework: str, backend: str, source: str) -> Requirement | None:
    """What the source says against the catalogue's answer for a backend; None if nothing."""
    found = facts.dispatcher
    if framework not in _CALLS or not found.reference:
        return None
    version, known = facts.diffusers.version, found.reference
    if found.names is None:
        text = f"the attention dispatcher of Diffusers {version} is missing or has another form"
        return _unknown(f"{text} than that of {known}", source)
    if backend in (found.changed or ()):
        text = f"Diffusers {version} has other code for {backend} than {known}"
        return _unknown(f"{text}, the newest release that these rules know", source)
    return None


def _unknown(text: str, source: str) -> Requirement:
    return Requirement(
        id=_ID, text=text, source=source, never=True, otherwise="unknown", by="framework"
    )
