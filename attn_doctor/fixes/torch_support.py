"""Releases of a package that work with the installed torch, from tables, and with other packages.

Diffusers and Transformers require no torch in their metadata, so pip installs a release that then
cannot be imported, or whose attention fails.
"""

from __future__ import annotations

from msgspec.structs import replace

from attn_doctor.facts import Facts
from attn_doctor.fixes.pip_arguments import PipCall, Wanted
from attn_doctor.requirement import combined, satisfiable

#: How a specifier begins.
_OPERATORS = ("<", ">", "=", "!", "~")


def bounded(call: PipCall, facts: Facts) -> PipCall:
    """Return the command with the releases that work with the installed torch.

    What other packages require of the same package is added, so that one command serves all.
    """
    return replace(call, wanted=tuple(_fitting(one, call, facts) for one in call.wanted))


def obstacle(call: PipCall, facts: Facts) -> str:
    """Return why no release that the command accepts works; empty if one may."""
    for one in call.wanted:
        limit = _limit(one, call, facts)
        if limit and not satisfiable(one.specifier, limit):
            return f"torch {facts.torch.version} works with {one.name}{limit} only"
    return ""


def _limit(one: Wanted, call: PipCall, facts: Facts) -> str:
    """The specifier of these releases; empty where there is no limit, or torch changes too."""
    if call.verb != "install" or "torch" in call.names or not facts.torch.installed:
        return ""
    if one.name not in ("diffusers", "transformers") or one.url:
        return ""
    return getattr(facts, one.name).expected or ""


def _fitting(one: Wanted, call: PipCall, facts: Facts) -> Wanted:
    limit = _limit(one, call, facts)
    one = _within(one, limit)
    for unmet in facts.unmet_requirements or () if limit else ():
        others = (unmet.together or "").removeprefix(one.name)
        if others[:1] in _OPERATORS and satisfiable(one.specifier, others):
            return _within(one, others)
    return one


def _within(one: Wanted, limit: str) -> Wanted:
    if not limit:
        return one
    return replace(one, specifier=combined((one.specifier, limit)))
