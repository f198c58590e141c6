"""What the installed Diffusers' own source says of a name, where it is not a known release.

`derived.dispatcher` compares the attention dispatcher with the newest known release up to it. A
name whose code is the same is evaluated as that release. One with other code is unknown, whatever
else holds, since its requirements may be others. So is an xformers whose operators state other
constraints than those of the newest known release.
"""

from __future__ import annotations

from attn_doctor.backends.catalogue_entries import Requirement
from attn_doctor.facts import Facts

_CALLS = ("diffusers", "simpletuner")
_ID = "dispatcher-known"


def requirement(facts: Facts, framework: str, backend: str, source: str) -> Requirement | None:
    """What the source says against the catalogue's answer for a backend; None if nothing."""
    if backend == "xformers" and (changed := _xformers(facts, source)):
        return changed
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


def _xformers(facts: Facts, source: str) -> Requirement | None:
    """What a newer xformers says against the answer: operators with other constraints."""
    for one in facts.newer_releases or ():
        if one.package == "xformers" and one.changed:
            text = f"the operators of xformers {one.version} have other constraints"
            names = ", ".join(one.changed)
            return _unknown(f"{text} ({names}) than those of {one.known}", source)
    return None


def _unknown(text: str, source: str) -> Requirement:
    return Requirement(
        id=_ID, text=text, source=source, never=True, otherwise="unknown", by="framework"
    )
