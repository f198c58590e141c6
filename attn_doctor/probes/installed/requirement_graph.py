"""The requirements of an environment's packages on each other: met, absent and unfit ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from attn_doctor.facts import UnmetRequirement
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Distribution, Site
from attn_doctor.probes.installed.requirements import required
from attn_doctor.requirement import normal_name, satisfies

#: Modules whose name differs from that of their distribution.
_MODULES = {
    "antlr4-python3-runtime": "antlr4", "opencv-python": "cv2", "opencv-python-headless": "cv2",
    "pillow": "PIL", "protobuf": "google.protobuf", "pyyaml": "yaml", "scikit-learn": "sklearn",
    "flash-attn": "flash_attn", "python-dateutil": "dateutil",
}  # fmt: skip


def _elsewhere(name: str) -> bool:
    """Whether a rule of its own reports that this package is missing."""
    return name.startswith(("nvidia-", "cuda-")) or _paired(name)


def _paired(name: str) -> bool:
    """Whether a rule of its own reports a wrong version of this package."""
    return name in ("triton", "torch")


class Requirements:
    """The requirements of an environment's packages, as far as known packages lead to them."""

    def __init__(self, host: Host, site: Site) -> None:
        self._host, self._site = host, site
        self._absent: dict[str, tuple[str, ...]] = {}
        self._named: dict[str, tuple[str, ...]] = {}

    def absent(self, one: Distribution) -> tuple[str, ...]:
        """Return the requirements of `one` that apply here and are not installed."""
        if one.name not in self._absent:
            known = self._site.distributions
            lines = known.headers(one).get("Requires-Dist", [])
            found = required(
                self._host,
                self._site,
                lines,
                lambda name: known.get(name) is None and not _elsewhere(name),
            )
            self._absent[one.name] = tuple(
                f"{normal_name(each.name)}{each.specifier}" for each in found
            )
        return self._absent[one.name]

    def unfit(self, one: Distribution) -> Iterator[tuple[str, str]]:
        """Yield the requirements of `one` that are installed in another version, with that."""
        known = self._site.distributions
        lines = known.headers(one).get("Requires-Dist", [])
        for each in required(self._host, self._site, lines, lambda name: not _paired(name)):
            found = known.get(each.name)
            # Of several copies in one folder, which `duplicates` reports, one is the real one.
            copies = [] if found is None else known.copies(each.name)
            here = {one.version for one in copies if found and one.site == found.site}
            try:
                fits = not here or any(satisfies(version, each.specifier) for version in here)
            except ValueError:
                continue
            if found is not None and not fits:
                yield f"{normal_name(each.name)}{each.specifier}", found.version

    def other_triton(self) -> str:
        """Return the installed Triton if torch requires another version; empty otherwise."""
        known = self._site.distributions
        torch, triton = known.get("torch"), known.get("triton")
        if torch is None or triton is None:
            return ""
        lines = known.headers(torch).get("Requires-Dist", [])
        wanted = required(self._host, self._site, lines, lambda name: name == "triton")
        try:
            fits = all(satisfies(triton.version, one.specifier) for one in wanted)
        except ValueError:  # a version cannot be read
            return ""
        return "" if fits else triton.version

    def ambiguous(self, one: Distribution) -> str:
        """Return a requirement of `one` that one of two copies in a folder meets; empty if none."""
        known = self._site.distributions
        lines = known.headers(one).get("Requires-Dist", [])
        for each in required(
            self._host, self._site, lines, lambda name: len(known.copies(name)) > 1
        ):
            try:
                fit = {satisfies(copy.version, each.specifier) for copy in known.copies(each.name)}
            except ValueError:
                continue
            if len(fit) > 1:
                return f"{normal_name(each.name)}{each.specifier}"
        return ""

    def closure(self, one: Distribution) -> dict[str, Distribution]:
        """Return `one` and the installed packages that it requires, and those that they require."""
        found = {one.name: one}
        pending = [one]
        while pending:
            for name in self._names(pending.pop()):
                other = self._site.distributions.get(name)
                if other is not None and other.name not in found:
                    found[other.name] = other
                    pending.append(other)
        return found

    def _names(self, one: Distribution) -> tuple[str, ...]:
        if one.name not in self._named:
            lines = self._site.distributions.headers(one).get("Requires-Dist", [])
            names = (re.match(r"[\w.-]+", line) for line in lines if "extra ==" not in line)
            self._named[one.name] = tuple(normal_name(name[0]) for name in names if name)
        return self._named[one.name]


def unmet(
    requirements: Requirements, roots: Iterable[Distribution]
) -> tuple[UnmetRequirement, ...]:
    """Return the requirements of `roots`, and of what they require, that are not met.

    A wrong version is reported for the roots only.
    """
    found: dict[tuple[str, str], UnmetRequirement] = {}
    for root in roots:
        for wanted, version in requirements.unfit(root):
            found[root.name, wanted] = UnmetRequirement(
                package=root.name, needs=wanted, installed=version
            )
        for one in requirements.closure(root).values():
            for wanted in requirements.absent(one):
                found[one.name, wanted] = UnmetRequirement(
                    package=one.name, needs=wanted, installed=""
                )
    return tuple(found.values())


def name_of(requirement: str) -> str:
    """Return the name of the package in a requirement."""
    found = re.match(r"[\w.-]*\w", requirement)
    return found[0] if found is not None else ""


def module_of(distribution: str) -> str:
    """Return the module that a distribution contains."""
    return _MODULES.get(distribution, distribution.replace("-", "_"))
