"""Finds a known GPU by its name, or a descriptor by its file.

The table is the folder `rules/tables/targets`, one file a GPU, named by its identifier. A file of
any other, as `attn-doctor describe-gpu` writes it, is found by its path.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import TEXT, read_bytes
from attn_doctor.gpu_names import find_product
from attn_doctor.json_files import JsonError, decode
from attn_doctor.kernels.gpus.descriptor import Descriptor, identifier
from attn_doctor.rulebook.library import folder, tables
from attn_doctor.suggest import nearest
from attn_doctor.toml_files import read_toml

_DESCRIBE = "run `attn-doctor describe-gpu -o gpu.toml` where the GPU is, and give that file"


def find(word: str) -> Descriptor:
    """The GPU of a word such as `h200`, or of a descriptor's file.

    Raises `AttnDoctorError` that says why there is none, and what to write.
    """
    word = word.strip()
    if _is_path(word):
        return read(Path(word))
    sm = _capability(word)
    if sm is not None:
        raise AttnDoctorError(_only_capability(word, sm))
    found = {one.id: one for one in listing()}
    wanted = _plain(word)
    for name, one in found.items():
        if wanted in (_plain(name), _plain(name).removeprefix("rtx")):
            return one
    product = find_product(word, tables())
    if product is not None and identifier(product.name) in found:
        return found[identifier(product.name)]
    raise AttnDoctorError(f"--target {word}: {_unknown(wanted, found)}")


def name_remark(word: str, descriptor: Descriptor) -> str:
    """Which GPU a name such as `h100` was taken for, if several have it; else empty."""
    wanted = _plain(word)
    others = [
        one.id for one in listing() if _plain(one.id).startswith(wanted) and one.id != descriptor.id
    ]
    if descriptor.own or wanted == _plain(descriptor.id) or not others:
        return ""
    return (
        f"--target {word}: built for {descriptor.name}, the commonest of that name; for another"
        f" one name it: {', '.join(others)}"
    )


def buildable(descriptor: Descriptor) -> Descriptor:
    """`descriptor`, if enough is known of the GPU to generate its kernels.

    Raises `AttnDoctorError` that names what is missing.
    """
    if descriptor.missing:
        limit = descriptor.shared_memory_per_block_optin is not None
        fits = "; whether kernels fit it, --dry-run --fit can tell" if limit else ""
        raise AttnDoctorError(
            f"--target {descriptor.id}: of an {descriptor.name} no one has read"
            f" {', '.join(descriptor.missing)}, which the generated code depends on:"
            f" {_DESCRIBE}{fits}"
        )
    return descriptor


@cache
def listing() -> tuple[Descriptor, ...]:
    """The table, by compute capability and name."""
    found = [read(path) for path in sorted((folder() / "tables" / "targets").glob("*.toml"))]
    return tuple(sorted(found, key=lambda one: (-one.sm, one.id)))


def read(path: Path) -> Descriptor:
    """The descriptor in a TOML or JSON file.

    Raises `AttnDoctorError` naming the file and what is wrong with it.
    """
    data = _data(path)
    try:
        found = msgspec.convert(data, Descriptor)
    except msgspec.ValidationError as error:
        raise AttnDoctorError(f"{path}: not a descriptor of a GPU: {error}; {_DESCRIBE}") from None
    faults = found.faults()
    if faults:
        raise AttnDoctorError(f"{path}: {'; '.join(faults)}; {_DESCRIBE}")
    return found.completed()


def _data(path: Path) -> Any:
    if path.suffix == ".json":
        try:
            return decode(read_bytes(path, TEXT))
        except OSError as error:
            raise AttnDoctorError(f"{path}: cannot be read: {error.strerror or error}") from None
        except JsonError as error:
            raise AttnDoctorError(f"{path}: is not JSON: {error}") from None
    return read_toml(path)


def _is_path(word: str) -> bool:
    return os.sep in word or word.endswith((".toml", ".json"))


def _capability(word: str) -> int | None:
    """90 for `sm_90a`, `90`, `9.0` or `compute_90`; None for anything else."""
    match = re.fullmatch(r"(?:sm_?|compute_?|cc)?(\d{1,2})\.?(\d)[af]?", word.lower())
    return int(match[1]) * 10 + int(match[2]) if match else None


def _only_capability(word: str, sm: int) -> str:
    same = [one.id for one in listing() if one.sm == sm]
    those = f"; known GPUs of it: {', '.join(same)}" if same else ""
    return (
        f"--target {word}: a compute capability is not enough: the keys hold the GPU's exact name,"
        " and two GPUs of one capability differ in the number of multiprocessors, which the"
        f" generated code depends on{those}. Name the GPU, or {_DESCRIBE}"
    )


def _unknown(wanted: str, found: dict[str, Descriptor]) -> str:
    several = [name for name in found if wanted and _plain(name).startswith(wanted)]
    if len(several) > 1:
        return f"several GPUs have this name, and kernels differ: name one of {', '.join(several)}"
    names = {_plain(name): name for name in found}
    near = several or [names[plain] for plain in nearest(wanted, names, 3)]
    hint = f"did you mean {', '.join(near)}? Else " if near else ""
    return f"no GPU of that name is in the table; {hint}{_DESCRIBE}"


def _plain(word: str) -> str:
    return identifier(word).replace("-", "")
