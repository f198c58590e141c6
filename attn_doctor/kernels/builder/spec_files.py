"""Specs from a TOML file: `[[kernel]]` tables, and `[defaults]` for all of them.

Errors name the file, the number of the table, and the field. A file of another kind or size is
refused before it is read.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder import presets
from attn_doctor.kernels.builder.value_products import few, product
from attn_doctor.record.spec import KernelSpec
from attn_doctor.suggest import hint

#: Bytes of a file of specs.
_LARGEST = 1 << 20


def from_file(path: Path, own_phase: str, block: bool) -> tuple[list[KernelSpec], list[str]]:
    """The specs that a file asks for, and sentences to show. Raises `AttnDoctorError`.

    `own_phase` is taken where neither file nor table names one; `block` builds presets as blocks.
    """
    defaults, tables = _tables(path)
    specs: list[KernelSpec] = []
    notes: list[str] = []
    for number, table in enumerate(tables, 1):
        where = f"{path}, [[kernel]] {number}"
        if not isinstance(table, dict):
            raise AttnDoctorError(f"{where}: must be a table, [[kernel]]")
        found, told = _kernel(defaults, table, where, own_phase, block)
        specs += found
        notes += told
        few(len(specs), where)
    return specs, notes


def _tables(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """The defaults and the kernels of a file."""
    data = _toml(path)
    for key in data:
        if key not in ("defaults", "kernel"):
            raise AttnDoctorError(
                f"{path}: no table {key!r} (a file has [defaults] and [[kernel]] tables)"
                f"{hint(key, ('defaults', 'kernel'))}"
            )
    defaults, tables = data.get("defaults", {}), data.get("kernel", [])
    if not isinstance(defaults, dict):
        raise AttnDoctorError(f"{path}: defaults must be a table: [defaults]")
    if not isinstance(tables, list) or not tables:
        raise AttnDoctorError(f"{path}: has no [[kernel]] table, so there is nothing to build")
    return defaults, tables


def _kernel(
    defaults: dict[str, Any], table: dict[str, Any], where: str, own_phase: str, block: bool
) -> tuple[list[KernelSpec], list[str]]:
    """The specs of one table, those of its presets if it names any.

    What a preset knows of its family counts more than the file's defaults, and less than what the
    table says beside it.
    """
    fields = {**defaults, **table}
    wanted, whole = fields.pop("preset", None), fields.pop("block", block)
    if not isinstance(whole, bool) or (whole and wanted is None and not block):
        raise AttnDoctorError(f"{where}: block is true or false, and needs a preset")
    if "sizes" in fields:
        raise AttnDoctorError(
            f"{where}: no field 'sizes': the size of a block follows its preset, as flux1@1024x1024"
        )
    if wanted is None:
        return product(fields, "", where, own_phase), []
    specs: list[KernelSpec] = []
    notes: list[str] = []
    for name in wanted if isinstance(wanted, list) else [wanted]:
        if not isinstance(name, str):
            raise AttnDoctorError(f"{where}: preset must be a name such as flux1@1024x1024")
        rows, told = presets.rows(name, whole, where)
        notes += told
        own = {name: value for name, value in fields.items() if name in table}
        for row in rows:
            specs += product({**fields, **row, **own}, "", where, own_phase)
        few(len(specs), where)
    return specs, notes


def _toml(path: Path) -> dict[str, Any]:
    """A TOML file of ordinary size. Raises `AttnDoctorError` naming file and place."""
    from attn_doctor.toml_files import read_toml

    try:
        told = path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AttnDoctorError(f"{path}: cannot be read: {reason}") from None
    if not stat.S_ISREG(told.st_mode):
        raise AttnDoctorError(f"{path}: is not a file; name a TOML file with [[kernel]] tables")
    if told.st_size > _LARGEST:
        raise AttnDoctorError(
            f"{path}: {told.st_size} bytes; a file of kernels has at most {_LARGEST}"
        )
    return read_toml(path)
