"""Finds for an unmet requirement what the other installed packages want of the same distribution.

A command that only meets the one can break the other: transformers 4.57 wants huggingface-hub<1.0,
and Diffusers 0.42 wants huggingface-hub>=1.32. So what is asked for fits all of them. Where nothing
does, the package that wants the older release has to be renewed beside the other one.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.facts import UnmetRequirement
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Distribution, Site
from attn_doctor.probes.installed.requirements import required
from attn_doctor.requirement import combined, normal_name, satisfiable, wants_older


class _Demand(Struct, frozen=True):
    """What one installed distribution requires of another one."""

    by: Distribution
    specifier: str


class _Pair(Struct, frozen=True):
    """Two packages that exclude each other; the first wants the older release."""

    older: Distribution
    newer: Distribution


def agreed(
    host: Host, site: Site, unmet: Iterable[UnmetRequirement]
) -> tuple[UnmetRequirement, ...]:
    """Return the requirements with what fits all installed packages, or what excludes them."""
    found = tuple(unmet)
    demands = _demands(host, site, {_split(one)[0] for one in found})
    rivals = [_rival(one, demands[_split(one)[0]]) for one in found]
    pairs = [
        _pair(site, one, rival) if rival is not None else None
        for one, rival in zip(found, rivals, strict=True)
    ]
    # A package that is renewed brings other requirements, so those that it has now do not count.
    renewed = {pair.older.name: pair for pair in pairs if pair is not None}
    made = []
    for one, rival, pair in zip(found, rivals, pairs, strict=True):
        chosen = pair or renewed.get(one.package or "")
        name, _ = _split(one)
        made.append(
            replace(
                one,
                rival="" if rival is None else _said(name, rival),
                **(_fit(one, demands[name]) if chosen is None else _chosen(chosen)),
            )
        )
    return tuple(made)


def _fit(one: UnmetRequirement, demands: Iterable[_Demand]) -> dict[str, str]:
    """Return the facts of a requirement that the others do not exclude."""
    name, specifier = _split(one)
    fit = combined((specifier, *(each.specifier for each in demands)))
    try:
        agrees = satisfiable(fit, "")
    except ValueError:
        agrees = False
    facts = dict.fromkeys(("renewed", "beside", "lowered", "unchanged"), "")
    return {"together": f"{name}{fit if agrees else specifier}", **facts}


def _chosen(pair: _Pair) -> dict[str, str]:
    """Return the facts of a requirement whose package is renewed, or stays beside an older one."""
    older, old = pair.older.name, pair.older.version.partition("+")[0]
    newer, new = pair.newer.name, pair.newer.version.partition("+")[0]
    return {
        "together": "",
        "renewed": f"{older}>{old}",
        "beside": f"{newer}=={new}",
        "lowered": f"{newer}<{new}",
        "unchanged": f"{older}=={old}",
    }


def _demands(host: Host, site: Site, names: set[str]) -> dict[str, list[_Demand]]:
    """Return what all installed distributions require of those in `names`."""
    found: dict[str, list[_Demand]] = {name: [] for name in names}
    for one in site.distributions if names else ():
        lines = site.distributions.headers(one).get("Requires-Dist", [])
        for each in required(host, site, lines, names.__contains__):
            found[normal_name(each.name)].append(_Demand(one, each.specifier))
    return found


def _split(one: UnmetRequirement) -> tuple[str, str]:
    """Return the name and the specifier of what is required."""
    text = one.needs or ""
    end = next((at for at, sign in enumerate(text) if sign in "=<>!~"), len(text))
    return normal_name(text[:end]), text[end:]


def _rival(one: UnmetRequirement, demands: Iterable[_Demand]) -> _Demand | None:
    """Return the first demand that excludes this one."""
    _, specifier = _split(one)
    others = sorted(
        (each for each in demands if each.by.name != one.package), key=lambda each: each.by.name
    )
    for each in others:
        try:
            if not satisfiable(specifier, each.specifier):
                return each
        except ValueError:
            continue
    return None


def _pair(site: Site, one: UnmetRequirement, rival: _Demand) -> _Pair | None:
    asking = site.distributions.get(one.package or "")
    if asking is None:
        return None
    mine_is_newer = wants_older(rival.specifier, _split(one)[1])
    return _Pair(rival.by, asking) if mine_is_newer else _Pair(asking, rival.by)


def _said(name: str, rival: _Demand) -> str:
    return f"{name}{rival.specifier} for {rival.by.name} {rival.by.version}"
