"""Releases of torchaudio and torchao for the installed torch."""

from __future__ import annotations

from attn_doctor.derived.releases import Tables, parts, series
from attn_doctor.facts import Facts


def torchaudio_expected(facts: Facts, tables: Tables) -> str | None:
    """Return torch's own release, or the last one, which fits all later torch."""
    if facts.torch.version is None:
        return None
    release = facts.torch.version.partition("+")[0]
    last = str(tables["companions"]["torchaudio"]["last"])
    return f"=={release if parts(release) < parts(last) else last}"


def torchao_expected(facts: Facts, tables: Tables) -> str | None:
    """Return the releases that were built for this minor release of torch."""
    minor = series(facts.torch.version)
    rows = tables["companions"]["torchao"]["release"]
    return next((str(row["version"]) for row in rows if row["torch"] == minor), None)
