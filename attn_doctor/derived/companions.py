"""Releases of torchaudio, torchao, NATTEN, Diffusers and Transformers for the installed torch."""

from __future__ import annotations

from attn_doctor.derived.releases import Row, Tables, parts, series
from attn_doctor.facts import Facts


def torchaudio_expected(facts: Facts, tables: Tables) -> str | None:
    """Return torch's own release, or the last one, which fits all later torch."""
    if facts.torch.version is None:
        return None
    release = facts.torch.version.partition("+")[0]
    last = str(tables["companions"]["torchaudio"]["pypi" if facts.torch.from_pypi else "last"])
    return f"=={release if parts(release) < parts(last) else last}"


# natten==0.21.7+torch2130cu130
def natten_wheel(facts: Facts, tables: Tables) -> tuple[str, ...] | None:
    """Return pip's arguments for NATTEN's newest wheel for this torch on Linux and x86_64."""
    torch = facts.torch
    if torch.version is None or torch.local is None:
        return None
    table = tables["companions"]["natten"]
    minor = series(torch.version) or ""
    row = next((one for one in table["release"] if one["torch"] == minor), None)
    if row is None or torch.local not in row["local"]:
        return ()
    built = f"torch{minor.replace('.', '')}0{torch.local}"
    return (f"natten=={row['version']}+{built}", "-f", table["wheels"])


def torchao_expected(facts: Facts, tables: Tables) -> str | None:
    """Return the releases that were built for this minor release of torch."""
    minor = series(facts.torch.version)
    rows = tables["companions"]["torchao"]["release"]
    return next((str(row["version"]) for row in rows if row["torch"] == minor), None)


def diffusers_expected(facts: Facts, tables: Tables) -> str | None:
    """Return the releases that work with this torch; empty if none is known to fail."""
    return _before("diffusers", facts, tables)


def transformers_expected(facts: Facts, tables: Tables) -> str | None:
    """Return the releases that this torch can import; empty if none is known to fail."""
    return _before("transformers", facts, tables)


def torch_breaks(field: str, facts: Facts, tables: Tables) -> str:
    """Return why Diffusers or Transformers cannot be imported with this torch; empty if unknown."""
    installed = parts(getattr(facts, field).version or "")
    rows = _breaking(field, facts, tables) if installed else None
    # Some fail only when attention is called.
    imported = (row for row in rows or () if not row.get("attention"))
    return next((row["by"] for row in imported if _broken(row, installed)), "")


def _before(field: str, facts: Facts, tables: Tables) -> str | None:
    rows = _breaking(field, facts, tables)
    if rows is None:
        return None
    installed = parts(getattr(facts, field).version or "")
    # Releases that are older than the installed one can work again.
    rows = [row for row in rows if "until" not in row or _broken(row, installed)]
    return f"<{min((row['since'] for row in rows), key=parts)}" if rows else ""


def _broken(row: Row, installed: tuple[int, ...]) -> bool:
    """Whether an installed release is one of those of a row."""
    ended = "until" in row and installed >= parts(row["until"])
    return installed >= parts(row["since"]) and not ended


def _breaking(field: str, facts: Facts, tables: Tables) -> list[Row] | None:
    """The rows of the installed torch; None if its version is unknown."""
    minor = parts(facts.torch.version or "")[:2]
    if not minor:
        return None
    rows = tables["companions"][field]["breaks"]
    return [row for row in rows if parts(row["from"]) <= minor <= parts(row["to"])]
