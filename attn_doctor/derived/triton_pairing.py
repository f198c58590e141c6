"""Finds the Triton for the installed torch and system, and the version of its ptxas."""

from __future__ import annotations

from attn_doctor.derived.releases import (
    Row,
    Tables,
    Unknown,
    find,
    parts,
    series,
    torch_release,
)
from attn_doctor.facts import Facts

#: The first release with a wheel for aarch64 on PyPI.
_FIRST_FOR_ARM = (3, 5)


def expected(facts: Facts, tables: Tables) -> str | Unknown | None:
    """Return the Triton for this torch, by its minor release."""
    row = torch_release(facts, tables)
    if row is None or isinstance(row, Unknown):
        return row
    triton = _triton(row, facts, tables)
    return triton if isinstance(triton, Unknown) else f"=={triton}.*" if triton else None


def pin(facts: Facts, tables: Tables) -> str | Unknown | None:
    """Return what pip should install; Triton for ROCm or XPU has other distributions."""
    if facts.torch.build != "cuda":
        return None
    if facts.system.os == "linux" and facts.torch.requires_triton:
        if "+" in facts.torch.requires_triton:
            return Unknown("this torch requires a Triton that only the index of its builds has")
        return f"triton{facts.torch.requires_triton}"
    row = torch_release(facts, tables)
    if row is None or isinstance(row, Unknown):
        return row
    triton = _triton(row, facts, tables)
    if isinstance(triton, Unknown):
        return triton
    if facts.system.os == "windows":
        return f"triton-windows=={triton}.*"
    if facts.system.arch == "aarch64" and parts(triton) < _FIRST_FOR_ARM:
        return Unknown(f"triton {triton} has no wheel for aarch64")
    exact = row["pins"].get((facts.torch.version or "").partition("+")[0], f"=={triton}.*")
    return f"triton{exact}" if triton else None


def _triton(row: Row, facts: Facts, tables: Tables) -> str | Unknown:
    """Return the minor release of Triton for a release of torch; empty if there is none."""
    if facts.system.os == "windows":
        for exception in tables["triton"]["windows"]:
            if exception["torch"] == row["minor"]:
                return str(exception["triton"])
        newest = tables["triton"]["newest_windows"]["minor"]
        if parts(str(row["triton"])) > parts(newest):
            return Unknown(
                f"torch {row['minor']} needs triton-windows newer than {newest}, the newest known"
            )
    return str(row["triton"]) if facts.system.os in ("linux", "windows") else ""


def ptxas_version(facts: Facts, tables: Tables) -> str | Unknown | None:
    """Return the CUDA version of the ptxas in Triton."""
    return _bundled(facts, tables, facts.triton.ptxas, "ptxas")


def blackwell_version(facts: Facts, tables: Tables) -> str | Unknown | None:
    """Return the CUDA version of Triton's second ptxas."""
    return _bundled(facts, tables, facts.triton.ptxas_blackwell, "blackwell")


def _bundled(facts: Facts, tables: Tables, path: str | None, name: str) -> str | Unknown | None:
    version = facts.triton.version
    if not path or version is None:
        return None
    row = find(tables["triton"], series(version))
    if row is None or name not in row:
        return Unknown(f"the tables of this attn-doctor do not name the ptxas of triton {version}")
    return str(row[name])
