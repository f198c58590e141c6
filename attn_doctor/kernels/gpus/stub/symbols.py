"""The functions that a CUDA library offers, and those that a header declares."""

from __future__ import annotations

import re
import struct
from contextlib import closing

from attn_doctor.binaries.elf import Elf
from attn_doctor.binaries.window import DamagedError, Window
from attn_doctor.errors import AttnDoctorError

_SYMBOL = struct.Struct("<IBBHQQ")
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_DECLARED = re.compile(r"^CUresult\s+CUDAAPI\s+(cu[A-Z]\w*)\s*\(", re.MULTILINE)
#: `#define cuMemAlloc cuMemAlloc_v2`, `#define cuMemcpy __CUDA_API_PTDS(cuMemcpy)`
_VERSION = re.compile(
    r"^\s*#\s*define\s+(cu[A-Z]\w*)\s+(?:__CUDA_API_PT[DS][SZ]\()?(cu[A-Z]\w*)\)?\s*$",
    re.MULTILINE,
)


def defined(path: str) -> set[str]:
    """Names of the functions that the library at `path` defines.

    Raises `AttnDoctorError` if it cannot be read.
    """
    try:
        with closing(Window(path)) as window:
            elf = Elf(window)
            names = set()
            for start, length in elf.sections((".dynsym",)):
                block = window.take(start, length)
                for name, info, _, section, _, _ in _SYMBOL.iter_unpack(block):
                    if section and info & 15 in _FUNCTIONS:
                        names.add(elf.raw(name).decode("ascii", "replace"))
            return names
    except OSError as error:
        raise AttnDoctorError(f"{path} cannot be read: {error.strerror}") from error
    except DamagedError as error:
        raise AttnDoctorError(
            f"{path} is damaged ({error}); install its wheel again, or `attn-doctor check`"
        ) from error


def declared(header: str) -> set[str]:
    """Names of the driver's functions in the text of cuda.h."""
    return {*_DECLARED.findall(header), *versions(header).values()}


def versions(header: str) -> dict[str, str]:
    """The name under which the driver has a function today, by the name that programs use."""
    return {name: real for name, real in _VERSION.findall(header) if real.startswith(name)}
