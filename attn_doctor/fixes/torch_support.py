"""Releases of a package that the installed torch can import, from tables.

Diffusers names no torch in its metadata, so pip installs a release that then cannot be imported.
"""

from __future__ import annotations

from msgspec.structs import replace

from attn_doctor.facts import Facts
from attn_doctor.fixes.pip_arguments import PipCall, Wanted
from attn_doctor.requirement import satisfiable


def bounded(call: PipCall, facts: Facts) -> PipCall:
    """Return the command with the releases that the installed torch can import."""
    limit = _limit(call, facts)
    if not limit:
        return call
    return replace(
        call, wanted=tuple(_within(one, limit) if _asks(one) else one for one in call.wanted)
    )


def obstacle(call: PipCall, facts: Facts) -> str:
    """Return why no release that the command accepts can be imported; empty if one may."""
    limit = _limit(call, facts)
    for one in filter(_asks, call.wanted):
        if limit and not satisfiable(one.specifier, limit):
            return f"torch {facts.torch.version} can import diffusers{limit} only"
    return ""


def _limit(call: PipCall, facts: Facts) -> str:
    """The specifier of these releases; empty where there is no limit, or torch changes too."""
    if call.verb != "install" or "torch" in call.names or not facts.torch.installed:
        return ""
    return facts.diffusers.expected or ""


def _asks(one: Wanted) -> bool:
    return one.name == "diffusers" and not one.url


def _within(one: Wanted, limit: str) -> Wanted:
    both = [part for part in (one.specifier, limit) if part]
    return replace(one, specifier=",".join(dict.fromkeys(both)))
