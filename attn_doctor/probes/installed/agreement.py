"""Finds for an unmet requirement what the other installed packages want of the same distribution.

A command that only meets the one can break the other: transformers 4.57 wants huggingface-hub<1.0,
and Diffusers 0.42 wants huggingface-hub>=1.32. So what is asked for fits all of them. Where nothing
does, the package that wants the older release has to be renewed beside the other one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.facts import UnmetRequirement
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Distribution, Site
from attn_doctor.probes.installed.requirements import required
from attn_doctor.requirement import combined, normal_name, satisfiable, wants_older

#: Facts of a requirement whose package is renewed, or stays beside another.
_OF_A_PAIR = ("renewed", "beside", "lowered", "unchanged", "along")


class _Demand(Struct, frozen=True):
    """What one installed distribution requires of another one."""

    by: Distribution
    specifier: str


class _Pair(Struct, frozen=True):
    """Two packages that exclude each other; the first wants the older release."""

    older: Distribution
    newer: Distribution
    third: str = ""
    """The package whose release they exclude, and what the second wants of it."""
    held: tuple[Distribution, ...] = ()
    """What has to be newer beside the first, because the one holds back the other."""


#: What releases require that are not installed: a package, its releases, the requirement.
_BRINGS = (("transformers", "<5", "huggingface-hub<1.0"),)
_HUB = "huggingface-hub"
#: Packages that are not renewed along with others, since builds of theirs belong together.
_BUILDS = ("torch", "torchvision", "torchaudio", "xformers", "triton")


def agreed(
    host: Host,
    site: Site,
    unmet: Iterable[UnmetRequirement],
    bounds: Iterable[tuple[str, str]] = (),
) -> tuple[UnmetRequirement, ...]:
    """Return the requirements with what fits all installed packages, or what excludes them.

    `bounds`: packages, each with a requirement that its metadata do not have.
    """
    found = tuple(unmet)
    others = _Others(host, site, found, bounds)
    pairs: list[_Pair | None] = []
    made: list[UnmetRequirement] = []
    for one in found:
        rival = others.rival(one)
        pair = others.pair(one, rival) if rival is not None else others.brought(one)
        pairs.append(pair)
        said = "" if rival is None else _said(_split(one)[0], rival)
        facts = others.fit(one) if pair is None else others.chosen(pair)
        made.append(replace(one, rival=said, **facts))
    # A package that is renewed brings other requirements, so those that it has now do not count.
    renewed = {pair.older.name: pair for pair in pairs if pair is not None}
    made = [
        replace(each, **others.chosen(renewed[each.package]))
        if each.package in renewed and not each.renewed
        else each
        for each in made
    ]
    return tuple(_replacing(each, made) for each in made)


def _replacing(one: UnmetRequirement, all_: Iterable[UnmetRequirement]) -> UnmetRequirement:
    """Return the requirement of a package that has to be replaced itself, with that command."""
    for other in all_:
        replaced = other.installed and other.together and not other.rival
        if replaced and _split(other)[0] == one.package != other.package:
            facts = dict.fromkeys(("rival", *_OF_A_PAIR), "")
            return replace(one, **{**facts, "together": other.together, "along": other.along})
    return one


class _Others:
    """What the installed packages require of those that are asked for."""

    def __init__(
        self,
        host: Host,
        site: Site,
        found: tuple[UnmetRequirement, ...],
        bounds: Iterable[tuple[str, str]],
    ) -> None:
        self._site = site
        self._host = host
        self._demands: dict[str, list[_Demand]] = {}
        self._bounds = [(package, *_name_and_specifier(needs)) for package, needs in bounds]
        self._read({_split(one)[0] for one in found})

    def _read(self, names: set[str]) -> None:
        """Read what all installed distributions require of those in `names`."""
        names -= self._demands.keys()
        self._demands |= {name: [] for name in names}
        known = self._site.distributions
        for one in known if names else ():
            lines = known.headers(one).get("Requires-Dist", [])
            for each in required(self._host, self._site, lines, names.__contains__):
                self._demands[normal_name(each.name)].append(_Demand(one, each.specifier))
        for package, name, specifier in self._bounds:
            by = known.get(package)
            if name in names and by is not None:
                self._demands[name].append(_Demand(by, specifier))

    def of(self, name: str) -> list[_Demand]:
        """Return the demands on one distribution."""
        self._read({name})
        return self._demands[name]

    def fit(self, one: UnmetRequirement) -> dict[str, str]:
        """Return the facts of a requirement that the others do not exclude."""
        name, specifier = _split(one)
        fit = _agreeing(specifier, self.of(name))
        facts = dict.fromkeys(_OF_A_PAIR, "")
        return {"together": f"{name}{fit}", **facts, "along": self._shared(name)}

    def _shared(self, name: str) -> str:
        """Return what the others want of huggingface-hub, which a newer `name` may replace."""
        demands = self.of(_HUB) if self._site.distributions.get(name) else []
        if not any(each.by.name == name for each in demands):
            return ""
        fit = combined(each.specifier for each in demands if each.by.name != name)
        return f"{_HUB}{fit}" if "<" in fit and _both(fit, "") else ""

    def rival(self, one: UnmetRequirement) -> _Demand | None:
        """Return a demand that excludes this one: of a package that no other one holds back."""
        name, specifier = _split(one)
        excluding = [
            each
            for each in sorted(self.of(name), key=lambda each: each.by.name)
            if each.by.name != one.package and not _both(specifier, each.specifier, unknown=True)
        ]
        free = (each for each in excluding if self._top(each.by, one.package or "") is each.by)
        return next(free, next(iter(excluding), None))

    def pair(self, one: UnmetRequirement, rival: _Demand) -> _Pair | None:
        """Return the two packages of which one has to change."""
        asking = self._site.distributions.get(one.package or "")
        if asking is None:
            return None
        name, specifier = _split(one)
        if wants_older(rival.specifier, specifier):
            return self._paired(rival.by, asking, name + specifier)
        return self._paired(asking, rival.by, name + rival.specifier)

    def brought(self, one: UnmetRequirement) -> _Pair | None:
        """Return the pair where what is required brings a release that another one excludes."""
        name, specifier = _split(one)
        asking = self._site.distributions.get(one.package or "")
        for package, releases, brings in _BRINGS:
            if asking is None or package != name or _outside(specifier, releases):
                continue
            third, older = _name_and_specifier(brings)
            for each in sorted(self.of(third), key=lambda each: each.by.name):
                free = each.by.name not in (package, asking.name)
                if free and not _both(older, each.specifier, unknown=True):
                    return self._paired(asking, each.by, third + each.specifier)
        return None

    def _paired(self, older: Distribution, newer: Distribution, third: str) -> _Pair:
        held = [older]
        for one in held:  # grows
            held += [
                each.by
                for each in (self.of(one.name) if one.name not in _BUILDS else ())
                if each.by.name not in {newer.name, *(other.name for other in held)}
                and _holds(each.specifier, one.version)
            ]
        known = {one.name for one in held}
        top = self._top(older, newer.name)
        rest = () if known & {*_BUILDS} else tuple(one for one in held if one is not top)
        return _Pair(top, newer, third if rest or known <= {top.name} else "", rest)

    def _top(self, one: Distribution, beside: str) -> Distribution:
        """Return the package that holds `one` back by an upper bound; `one` itself if none does.

        transformers 4.49 requires tokenizers<0.22: with a newer tokenizers it must be newer too.
        """
        seen = {one.name, beside}
        while one.name != "torch":  # that of its companions is chosen for it
            holding = (
                each.by
                for each in self.of(one.name)
                if each.by.name not in seen and _holds(each.specifier, one.version)
            )
            by = next(holding, None)
            if by is None:
                break
            seen.add(by.name)
            one = by
        return one

    def chosen(self, pair: _Pair) -> dict[str, str]:
        """Return the facts of a requirement whose package is renewed, or stays beside another."""
        older, old = pair.older.name, pair.older.version.partition("+")[0]
        newer, new = pair.newer.name, pair.newer.version.partition("+")[0]
        return {
            "together": "",
            "renewed": f"{older}{_agreeing(f'>{old}', self.of(older))}",
            "beside": f"{newer}=={new}",
            "lowered": f"{newer}{_agreeing(f'<{new}', self.of(newer))}",
            "unchanged": f"{older}=={old}",
            "along": " ".join(self._along(pair)),
        }

    def _along(self, pair: _Pair) -> Iterator[str]:
        """Yield what the command has to name too, so that it leaves nothing unmet that is known."""
        renewed = {one.name for one in (pair.older, *pair.held)}

        def staying(name: str) -> Iterable[_Demand]:
            return (each for each in self.of(name) if each.by.name not in renewed)

        for one in pair.held:
            yield one.name + _agreeing(f">{one.version.partition('+')[0]}", staying(one.name))
        name, specifier = _name_and_specifier(pair.third)
        if name and name not in (*renewed, *_BUILDS):
            fit = combined((specifier, *(each.specifier for each in staying(name))))
            if _both(fit, ""):
                yield f"{name}{fit}"


def brought_fits(wanted: Mapping[str, str]) -> bool:
    """Whether what the wanted releases bring fits the others: names, each with its specifier.

    Raises `ValueError` for a version that cannot be read.
    """
    for package, releases, brings in _BRINGS:
        name, specifier = _name_and_specifier(brings)
        brought = package in wanted and not _outside(wanted[package], releases)
        if brought and not satisfiable(wanted.get(name, ""), specifier):
            return False
    return True


def _agreeing(specifier: str, demands: Iterable[_Demand]) -> str:
    """Return the specifier with all demands; without them if they exclude it."""
    fit = combined((specifier, *(each.specifier for each in demands)))
    return fit if _both(fit, "") else specifier


def _holds(specifier: str, version: str) -> bool:
    """Whether a bound excludes all but the next patch releases: `<0.22` does so for 0.21.4."""
    here = [int(one) for one in re.findall(r"\d+", version.partition("+")[0])[:2]]
    for sign, text in re.findall(r"(<=?|==|~=)\s*([\d.]+)", specifier):
        end = [int(one) for one in text.split(".") if one]
        while end and not end[-1]:
            end.pop()
        next_minor = [here[0], here[1] + 1] if len(here) > 1 else here
        if sign in ("==", "~=") or end <= next_minor or end == [here[0] + 1]:
            return True
    return False


def _outside(specifier: str, releases: str) -> bool:
    """Whether a specifier also accepts other releases than these."""
    return _both(specifier, releases.replace("<", ">="), unknown=True)


def _both(one: str, other: str, unknown: bool = False) -> bool:
    """Whether a version fits both; `unknown` if one of them cannot be read."""
    try:
        return satisfiable(one, other)
    except ValueError:
        return unknown


def _split(one: UnmetRequirement) -> tuple[str, str]:
    """Return the name and the specifier of what is required."""
    return _name_and_specifier(one.needs or "")


def _name_and_specifier(text: str) -> tuple[str, str]:
    end = next((at for at, sign in enumerate(text) if sign in "=<>!~"), len(text))
    return normal_name(text[:end]), text[end:]


def _said(name: str, rival: _Demand) -> str:
    return f"{name}{rival.specifier} for {rival.by.name} {rival.by.version}"
