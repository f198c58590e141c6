"""Writes an installation as JSON. `SCHEMA` rises if a key changes its meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from attn_doctor._version import __version__
from attn_doctor.facts import Facts
from attn_doctor.fixes.steps import Plan
from attn_doctor.install.choice import Conflict
from attn_doctor.install.plan import Installation
from attn_doctor.install.proof import Proof
from attn_doctor.render.fix.json import plan_data
from attn_doctor.render.json_text import json_text

SCHEMA = 1


def installation_json(
    words: Sequence[str],
    found: Installation | Conflict,
    plan: Plan | None,
    facts: Facts,
    code: int,
    applied: bool | None = None,
    proofs: Sequence[Proof] = (),
    live: Mapping[str, Any] | None = None,
) -> str:
    """Return what is installed, or `conflict`.

    `applied`: None if it was not tried. `live`: what the backends did on a GPU.
    """
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "attn_doctor": __version__,
        "exit_code": code,
        "words": list(words),
        "python": facts.python.path,
    }
    if isinstance(found, Conflict):
        reasons = zip(found.names or ("",), found.reasons, strict=False)
        conflict = [{"about": name, "reason": reason} for name, reason in reasons]
        return json_text({**data, "conflict": conflict})
    choice = found.choice
    data["torch"] = {
        "version": choice.torch.version,
        "cuda": choice.torch.cuda,
        "index": choice.torch.index,
        "stays": bool(choice.torch.installed),
        "why": choice.why,
    }
    data["packages"] = [_package(one) for one in choice.picks]
    data["dropped"] = list(choice.dropped)
    data["notes"] = list(choice.notes)
    data["wheels_read"] = [
        {"source": one.source, "loads": one.verdict.loads, "reason": one.verdict.reason}
        for one in found.read
    ]
    data["plan"] = plan_data(plan, facts) if plan else None
    data["applied"] = applied
    data["proofs"] = [msgspec.to_builtins(one) for one in proofs]
    data["live"] = live
    return json_text(data)


def _package(one: Any) -> dict[str, Any]:
    return {
        "name": one.package,
        "version": one.version,
        "how": one.how,
        "requirement": one.requirement,
        "official": one.official,
        "publisher": one.wheel.publisher if one.wheel else "",
        "note": one.note,
    }
