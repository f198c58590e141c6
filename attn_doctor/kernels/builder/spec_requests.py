"""The specs that a person asks for: options, TOML files and presets become specs, each one once.

A value may be a list, and lists multiply. Lengths that one process sees after one another belong
together, `1024+2048`, since their order decides which kernels are compiled; a comma makes two
specs, each for a process of its own. A file has `[[kernel]]` tables, and `[defaults]` for all of
them; errors name the file, the number of the table, and the field.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder import presets
from attn_doctor.kernels.builder.plan import mask_folder
from attn_doctor.kernels.builder.spec_values import (
    FIELDS,
    PRESET_ONLY,
    few,
    fields_of,
    product,
    unknown_option,
    written,
)
from attn_doctor.record.spec import KernelSpec
from attn_doctor.suggest import hint
from attn_doctor.toml_files import read_toml

#: Bytes of a file of specs.


class SpecArgs(Struct, frozen=True, kw_only=True):
    """The options that say what to build, as they were written.

    `fields`: field of `KernelSpec` → text. `preset` and `spec`: names and files. `block`: presets
    stand for real transformer blocks. `cpu`: the default phase is inference.
    """

    fields: dict[str, str] = {}
    preset: Sequence[str] = ()
    spec: Sequence[str] = ()
    block: bool = False
    cpu: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any], *, cpu: bool = False) -> SpecArgs:
        """The options by the names of their parameters; other options are ignored."""
        options = {
            **options,
            "lengths": ",".join(options.get("seq_len") or ()),
            "kv_length": options.get("kv_seq_len"),
            "kernel_options": "+".join(options.get("option") or ()),
        }
        return cls(
            fields={
                name: options[name]
                for name in FIELDS
                if name not in PRESET_ONLY and options.get(name)
            },
            preset=tuple(options.get("preset") or ()),
            spec=tuple(map(str, options.get("spec") or ())),
            block=bool(options.get("block")),
            cpu=cpu,
        )


class RequestedSpecs(Struct, frozen=True, kw_only=True):
    """The specs that were asked for, each once."""

    specs: tuple[KernelSpec, ...]
    sys_path: tuple[str, ...] = ()
    """Folders in which the user's mask functions are looked for."""
    notes: tuple[str, ...] = ()
    """Sentences that the user should see, such as a family that never reaches FlexAttention."""


def requested_specs(args: SpecArgs) -> RequestedSpecs:
    """All specs that were asked for. Raises `AttnDoctorError` naming the option or file."""
    specs: list[KernelSpec] = []
    notes: list[str] = []
    folders: list[str] = []
    phase = "inference" if args.cpu else "training"
    for name in args.spec:
        in_file, remarks = _from_file(Path(name), phase, args.block)
        specs += in_file
        notes += remarks
        folders.append(str(Path(name).resolve().parent))
    for preset in filter(None, (part.strip() for text in args.preset for part in text.split(","))):
        rows, remarks = presets.rows(preset, args.block)
        notes += remarks
        for row in rows:
            specs += product({**row, **args.fields}, "", f"--preset {preset}", phase)
    if not args.spec and not args.preset:
        specs += product(args.fields, "--", "", phase)
    elif args.fields and not args.preset:
        option = written(next(iter(args.fields)), "--")
        raise AttnDoctorError(f"{option} has no meaning with --spec alone: write it in the file")
    unique = {spec.id: spec for spec in reversed(specs)}
    few(len(unique), "this call")
    options = {name for spec in unique.values() for name in spec.kernel_options}
    notes += filter(None, map(unknown_option, sorted(options)))
    if any(":" in spec.mask for spec in unique.values()):
        folders.append(os.getcwd())
    notes += _missing_masks(unique.values(), folders)
    return RequestedSpecs(
        specs=tuple(reversed(unique.values())),
        sys_path=tuple(dict.fromkeys(folders)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _missing_masks(specs: Iterable[KernelSpec], folders: Sequence[str]) -> list[str]:
    """A remark on each mask whose file is in none of these folders."""
    own = dict.fromkeys(spec.mask for spec in specs if ":" in spec.mask)
    searched = " or ".join(dict.fromkeys(folders))
    return [
        f"the file of {mask} is not in {searched}: it must be in the environment"
        for mask in own
        if not mask_folder(mask, folders)
    ]


# Files


def _from_file(path: Path, phase: str, block: bool) -> tuple[list[KernelSpec], list[str]]:
    """The specs of a file, and sentences to show.

    `phase` is used where neither file nor table names one; `block` builds presets as blocks.
    """
    defaults, tables = _tables(path)
    specs: list[KernelSpec] = []
    notes: list[str] = []
    for number, table in enumerate(tables, 1):
        where = f"{path}, [[kernel]] {number}"
        if not isinstance(table, dict):
            raise AttnDoctorError(f"{where}: must be a table, [[kernel]]")
        kernels, remarks = _kernel(defaults, table, where, phase, block)
        specs += kernels
        notes += remarks
        few(len(specs), where)
    return specs, notes


def _tables(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """The defaults and the kernels of a file."""
    data = read_toml(path)
    for key in data:
        if key not in ("defaults", "kernel"):
            raise AttnDoctorError(
                f"{path}: unknown table {key!r} (a file has [defaults] and [[kernel]] tables)"
                f"{hint(key, ('defaults', 'kernel'))}"
            )
    defaults, tables = data.get("defaults", {}), data.get("kernel", [])
    if not isinstance(defaults, dict):
        raise AttnDoctorError(f"{path}: defaults must be a table: [defaults]")
    if not isinstance(tables, list) or not tables:
        raise AttnDoctorError(f"{path}: has no [[kernel]] table, so there is nothing to build")
    return defaults, tables


def _kernel(
    defaults: dict[str, Any], table: dict[str, Any], where: str, phase: str, block: bool
) -> tuple[list[KernelSpec], list[str]]:
    """The specs of one table, those of its presets if it names any.

    What a preset knows of its family takes precedence over the file's defaults, and what the table
    says takes precedence over the preset.
    """
    merged = {**defaults, **table}
    wanted, whole = merged.pop("preset", None), merged.pop("block", block)
    if not isinstance(whole, bool) or (whole and wanted is None and not block):
        raise AttnDoctorError(f"{where}: block is true or false, and needs a preset")
    if "sizes" in merged:
        raise AttnDoctorError(
            f"{where}: unknown field 'sizes': the size of a block follows its preset, as"
            " flux1@1024x1024"
        )
    own = fields_of({name: value for name, value in merged.items() if name in table}, where)
    fields = {**fields_of(merged, where), **own}
    if wanted is None:
        return product(fields, "", where, phase), []
    specs: list[KernelSpec] = []
    notes: list[str] = []
    for name in wanted if isinstance(wanted, list) else [wanted]:
        if not isinstance(name, str):
            raise AttnDoctorError(f"{where}: preset must be a name such as flux1@1024x1024")
        rows, remarks = presets.rows(name, whole, where)
        notes += remarks
        for row in rows:
            specs += product({**fields, **row, **own}, "", where, phase)
        few(len(specs), where)
    return specs, notes
