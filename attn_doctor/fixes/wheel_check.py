"""Predicts whether pip would find a prebuilt wheel, or compile for an hour.

Uses the tables in `rules/tables/`. A wheel that the project publishes and pip does not find is
named by its address; those of others are only mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.derived.backend_wheels import WHEEL
from attn_doctor.derived.releases import Unknown, major, parts, series
from attn_doctor.facts import Facts, Package
from attn_doctor.fixes.ready_wheels import ready_wheels
from attn_doctor.requirement import satisfies
from attn_doctor.rulebook import library

NAMES = ("triton", "flash-attn", "xformers", "sageattention")
_INDEX = "https://download.pytorch.org/whl/"


class Verdict(Struct, frozen=True, kw_only=True):
    """What `pip install` of one package would find."""

    name: str
    wheel: Literal["yes", "no", "unknown"]
    version: str = ""
    """The newest release with a wheel that fits, or the one that would be compiled."""
    requirement: str = ""
    """What to install, where a wheel fits."""
    index: str = ""
    """The index that has it, where that is not the default one."""
    reason: str = ""
    """Why there is none, why that is unknown, or a remark about the wheel."""


def verdicts(facts: Facts) -> tuple[Verdict, ...]:
    """Return the verdicts on all four packages."""
    return tuple(verdict(name, facts) for name in NAMES)


def verdict(name: str, facts: Facts) -> Verdict:
    """Return the verdict on one of `NAMES` for the torch, CUDA, C++ ABI, Python and system here."""
    if facts.torch.installed is False:
        return Verdict(name=name, wheel="unknown", reason="torch is not installed")
    if facts.torch.build not in (None, "cuda") and name != "sageattention":
        reason = f"this torch was built for {facts.torch.build}; {name} needs a CUDA build"
        return Verdict(name=name, wheel="no", reason=reason)
    return _CHECKS[name](facts, library.tables())


def every_flash(facts: Facts) -> Iterator[Verdict]:
    """Yield the releases of flash-attn whose setup.py fetches a wheel that fits, newest first."""
    tables = library.tables()
    for row in reversed(tables["flash-attn"]["release"]):
        asked = replace(facts, flash_attn=Package(installed=True, version=row["version"]))
        if WHEEL["flash_attn"](asked, tables) == "yes":
            yield _fetches(row)


def fetched_flash(specifier: str, facts: Facts) -> Verdict | None:
    """Return the newest release of flash-attn that is allowed and has a wheel that fits."""
    known = (verdict("flash-attn", facts), *every_flash(facts), *_by_address(facts))
    allowed = (one for one in known if one.wheel == "yes" and satisfies(one.version, specifier))
    return next(allowed, None)


def asked_for(version: str, facts: Facts) -> str:
    """Return the address that setup.py of a flash-attn asks for; empty before 2.7."""
    if parts(version) < (2, 7) or facts.torch.cxx11_abi is None:
        return ""
    python = "cp" + "".join((facts.python.version or "").split(".")[:2])
    abi = str(facts.torch.cxx11_abi).upper()
    file = (
        f"flash_attn-{version}%2Bcu{major(facts.torch.cuda)}torch{series(facts.torch.version)}"
        f"cxx11abi{abi}-{python}-{python}-linux_{facts.system.arch}.whl"
    )
    return f"https://github.com/Dao-AILab/flash-attention/releases/download/v{version}/{file}"


def every_xformers(facts: Facts) -> Iterator[Verdict]:
    """Yield the releases of xformers with a wheel that fits, the newest first."""
    tables = library.tables()
    for row in reversed(tables["xformers"]["release"]):
        only = {**tables, "xformers": {**tables["xformers"], "release": [row]}}
        if WHEEL["xformers"](facts, only) == "yes":
            yield _xformers_from(row, facts)


def _fetches(row: Mapping[str, Any], reason: str = "") -> Verdict:
    return Verdict(
        name="flash-attn",
        wheel="yes",
        version=row["version"],
        requirement=f"flash-attn=={row['version']}",
        reason=reason,
    )


def _flash(facts: Facts, tables: Mapping[str, Any]) -> Verdict:
    rows = tables["flash-attn"]["release"]
    newest = rows[-1]["version"]
    doubt = ""
    for row in reversed(rows):
        asked = replace(facts, flash_attn=Package(installed=True, version=row["version"]))
        answer = WHEEL["flash_attn"](asked, tables)
        if answer == "yes":
            unpinned = (
                f"unpinned, pip would take {newest}, whose wheels are not known" if doubt else ""
            )
            return _fetches(row, unpinned)
        if answer != "no":
            doubt = doubt or (answer.reason if isinstance(answer, Unknown) else _gap(facts))
    if named := next(_by_address(facts), None):
        return named
    listed = [row for row in rows if "torch" in row]
    reason = _incompatibility(listed[-1], facts)
    if not reason:
        return Verdict(name="flash-attn", wheel="unknown", reason=doubt or _gap(facts))
    if "torch" not in rows[-1]:
        reason += f"; pip would take {newest}, whose wheels are not known, and compile if none fits"
        reason += _of_others(facts)
        return Verdict(name="flash-attn", wheel="unknown", version=newest, reason=reason)
    return Verdict(name="flash-attn", wheel="no", version=newest, reason=reason + _of_others(facts))


def _by_address(facts: Facts) -> Iterator[Verdict]:
    """Yield the official wheels that fit and that pip does not find by their names."""
    for one in ready_wheels("flash-attn", facts):
        if one.names_torch(facts.torch.version):
            reason = "pip does not find it by name"
            if one.cuda == "13":
                reason += ", because its setup.py asks for a wheel for CUDA 12"
            yield Verdict(
                name="flash-attn",
                wheel="yes",
                version=one.version,
                requirement=f"flash-attn @ {one.url}",
                reason=reason,
            )


def _of_others(facts: Facts) -> str:
    """Return a mention of a wheel that others publish; empty if none is known."""
    found = ready_wheels("flash-attn", facts, community=True)
    fitting = (one for one in found if not one.official and one.names_torch(facts.torch.version))
    one = next(fitting, None)
    return f"; {one.publisher}, not the project, publishes {one.file}" if one else ""


def _incompatibility(row: Mapping[str, Any], facts: Facts) -> str:
    """The properties of this machine that the wheels of a release do not support."""
    seen = (
        ("torch", series(facts.torch.version), row["torch"]),
        ("CUDA", major(facts.torch.cuda), row["cuda"]),
        ("Python", series(facts.python.version), row["python"]),
        ("processor", facts.system.arch, row["machine"]),
        ("system", facts.system.os, ["linux"]),
    )
    faults = [
        f"{what} {_span(wanted)} (this is {value})"
        for what, value, wanted in seen
        if value is not None and value not in wanted
    ]
    if facts.system.musl:
        faults.append("glibc (this is musl)")
    if facts.python.free_threaded:
        faults.append("Python with the global interpreter lock")
    return f"the wheels of {row['version']} are for " + ", ".join(faults) if faults else ""


def _span(values: list[Any]) -> str:
    return f"{values[0]} to {values[-1]}" if len(values) > 1 else str(values[0])


def _xformers(facts: Facts, tables: Mapping[str, Any]) -> Verdict:
    answer = WHEEL["xformers"](facts, tables)
    if answer == "no":
        return Verdict(
            name="xformers",
            wheel="no",
            version=tables["xformers"]["newest"],
            reason=f"none of its wheels is for torch {facts.torch.version} and this Python, system"
            " and GPU",
        )
    if answer != "yes":
        reason = answer.reason if isinstance(answer, Unknown) else _gap(facts)
        return Verdict(name="xformers", wheel="unknown", reason=reason)
    unknown = Verdict(name="xformers", wheel="unknown", reason=_gap(facts))
    return next(every_xformers(facts), unknown)


def _xformers_from(row: Mapping[str, Any], facts: Facts) -> Verdict:
    """The wheel for this CUDA; one of another minor version is compatible."""
    exact = series(facts.torch.cuda) in row["cuda"]
    same = [cuda for cuda in row["cuda"] if major(cuda) == major(facts.torch.cuda)]
    cuda = str(series(facts.torch.cuda)) if exact else same[-1] if same else row["pypi"]
    tag = "cu" + str(cuda).replace(".", "")
    default = cuda == row["pypi"]
    return Verdict(
        name="xformers",
        wheel="yes",
        version=row["version"],
        requirement=f"xformers=={row['version']}",
        index="" if default else _INDEX + tag,
        reason="" if default else f"the default index has the wheel for CUDA {row['pypi']}",
    )


def _sage(facts: Facts, tables: Mapping[str, Any]) -> Verdict:
    table = tables["sageattention"]
    asked = replace(facts, sageattention=Package(installed=False))
    answer = WHEEL["sageattention"](asked, tables)
    older = next(row["version"] for row in table["release"] if not row["compiled"])
    if answer == "yes":
        return Verdict(
            name="sageattention",
            wheel="yes",
            version=table["newest"],
            reason="a port's wheel for Windows, from the releases page of woct0rdho/SageAttention",
        )
    if facts.torch.build not in (None, "cuda"):
        reason = f"this torch was built for {facts.torch.build}, not for CUDA"
        return Verdict(name="sageattention", wheel="no", version=table["newest"], reason=reason)
    if answer == "no":
        return Verdict(
            name="sageattention",
            wheel="no",
            version=table["newest"],
            reason=f"the newest release in the index is {older} (Triton kernels); compile 2.x",
        )
    reason = answer.reason if isinstance(answer, Unknown) else _gap(facts)
    return Verdict(name="sageattention", wheel="unknown", reason=reason)


def _triton(facts: Facts, tables: Mapping[str, Any]) -> Verdict:
    del tables  # the fact `triton.pin` has what they say
    pin, system = facts.triton.pin, facts.system
    if system.musl:
        return Verdict(name="triton", wheel="no", reason="its wheels are for glibc; this is musl")
    if system.os not in ("linux", "windows"):
        return Verdict(name="triton", wheel="no", reason=f"it has no wheels for {system.os}")
    if not pin:
        reason = facts.gap("triton.pin") or _gap(facts)
        return Verdict(name="triton", wheel="unknown", reason=reason)
    distribution, _, version = pin.partition("==")
    return Verdict(
        name="triton",
        wheel="yes",
        version=version,
        requirement=pin,
        reason=f"{distribution} comes with torch; this is the release it pairs with",
    )


def _gap(facts: Facts) -> str:
    for name in ("torch.version", "torch.cuda", "torch.cxx11_abi", "python.version", "system.os"):
        group, _, field = name.partition(".")
        if getattr(getattr(facts, group), field) is None:
            return facts.gap(name) or f"{name} is unknown"
    return "the tables do not say"


_CHECKS = {"flash-attn": _flash, "xformers": _xformers, "sageattention": _sage, "triton": _triton}
