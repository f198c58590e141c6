"""Whether releases of a package can be installed on the examined Python, from tables.

pip ends in "No matching distribution found" where no release of a package fits Python, and compiles
an older one where only that fits. `rules/tables/pythons.toml` has the Pythons of each release.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_doctor.derived.releases import parts, series
from attn_doctor.facts import Facts
from attn_doctor.fixes.pip_arguments import PipCall
from attn_doctor.requirement import AnyVersion, parsed, written_clauses
from attn_doctor.rulebook import library

_MANY = 10**6
#: Later than all releases.
_LAST = parsed(str(_MANY))
#: Packages whose repository needs the Python of their newest release on PyPI.
_SAME_IN_REPOSITORY = ("flash-attention", "sageattention")


def obstacle(call: PipCall, facts: Facts) -> str:
    """Return why no release that the command accepts fits this Python; empty if one may."""
    return next(_obstacles(call, facts), "") if call.verb == "install" else ""


def _obstacles(call: PipCall, facts: Facts) -> Iterator[str]:
    python = series(facts.python.version)
    if python is None:
        return
    on_linux = facts.system.os in ("linux", None)
    rows = (row for row in library.tables()["pythons"]["package"] if on_linux or row.get("pure"))
    tables = {row["name"]: row["since"] for row in rows}
    for one in call.wanted:
        name = "flash-attn" if one.name == "flash-attention" else one.name
        since = tables.get(name, ())
        if one.url:
            since = since[-1:] if one.name in _SAME_IN_REPOSITORY else ()
        spans = _accepted(one.specifier, since)
        if not spans or any(_fits(python, *span) for span in spans):
            continue
        oldest = min((span[0] for span in spans), key=parts)
        newest = max((span[1] for span in spans), key=parts)
        limit = f"{oldest} or newer" if parts(python) < parts(oldest) else f"{newest} or older"
        yield f"{name}{one.specifier} needs Python {limit}, and this is Python {python}"


def _accepted(specifier: str, since: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """The oldest and the newest Python of each row with releases that the specifier accepts."""
    lowest, highest, excluded = _bounds(specifier)
    starts = [parsed(row[0]) for row in since]
    ends = [*starts[1:], _LAST][: len(starts)]
    return [
        (oldest, newest)
        for (_, oldest, newest), start, end in zip(since, starts, ends, strict=True)
        if lowest < end and (start < highest if excluded else start <= highest)
    ]


def _bounds(specifier: str) -> tuple[AnyVersion, AnyVersion, bool]:
    """The oldest and the newest release that it accepts; whether the latter is excluded."""
    lowest, highest, excluded = parsed("0"), _LAST, False
    for operator, version in written_clauses(specifier):
        text = version.removesuffix(".*")
        if operator in ("==", "===", ">=", ">", "~="):
            lowest = max(lowest, parsed(text))
        if operator == "~=":
            text = text.rpartition(".")[0]
        top = operator == "~=" or version.endswith(".*")
        until = parsed(f"{text}.{_MANY}" if top else text)
        if operator in ("==", "===", "<=", "<", "~=") and until <= highest:
            highest, excluded = until, operator == "<"
    return lowest, highest, excluded


def _fits(python: str, oldest: str, newest: str) -> bool:
    return parts(oldest) <= parts(python) and (not newest or parts(python) <= parts(newest))
