"""Generates C code for every function of CUDA that is not written by hand.

A function that only sets something succeeds. A function that computes counts as a launch. All
others are refused, and the error names them: none returns an invented value. Each is a weak symbol,
which a function written by hand replaces.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
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
_RUNTIME = re.compile(r"(__)?cuda[A-Z]\w*")
_DRIVER = re.compile(r"cu[A-Z]\w*")
_BLAS = re.compile(r"cublas(Lt|Xt)?[A-Z]\w*")
_SETS = re.compile(r"cublas(Lt)?(Set|Destroy|Logger|\w+(SetAttribute|Init_internal)$)\w*")
_ASKS = re.compile(
    r"cublas(Lt)?(Get|Create|Xt|Migrate|\w*(Get|Heuristic|Algo|Check)|Alloc|Init)\w*"
)
#: Functions that return a number to the host, if the caller asked for that.
_RETURNS = re.compile(r"cublas\w*(dot|nrm2|asum|amax|amin|rotg|rotmg)\w*", re.IGNORECASE)

_HEAD = """\
#include "stub_gpu.h"
#include <stdlib.h>
#include <string.h>
#define WEAK __attribute__((visibility("default"), weak))
int stub_runtime_refused(const char *function);
int stub_blas_refused(const char *function);
int stub_blas_refused_result(const char *function);
"""
_TABLE = """\
static const struct { const char *name; void *function; } table[] = {
%s};
static int order(const void *name, const void *row) {
  return strcmp(name, *(const char *const *)row);
}
void *stub_entry(const char *name) {
  const void *row = bsearch(name, table, sizeof table / sizeof *table, sizeof *table, order);
  return row ? ((void *const *)row)[1] : 0;
}
"""


def text(libraries: Iterable[str], driver: Iterable[str], names: Mapping[str, str]) -> str:
    """The source file.

    `libraries`: functions of the runtime and of cuBLAS; `driver`: of the driver; `names`: the
    names under which the driver is asked for its functions.
    """
    driver = sorted({name for name in driver if _DRIVER.fullmatch(name)})
    lines = [_HEAD]
    lines += [_stub(name, f'return stub_refused("{name}")') for name in driver]
    for name in sorted(set(libraries)):
        if _BLAS.fullmatch(name):
            lines.append(_stub(name, _blas(name)))
        elif _RUNTIME.fullmatch(name):
            lines.append(_stub(name, f'return stub_runtime_refused("{name}")'))
    asked = {name: name for name in driver}
    asked |= {name: real for name, real in names.items() if real in asked}
    rows = (f'  {{"{name}", (void *){real}}},\n' for name, real in sorted(asked.items()))
    lines.append(_TABLE % "".join(rows))
    return "".join(lines)


def _stub(name: str, body: str) -> str:
    return f"WEAK int {name}(void) {{ {body}; }}\n"


def _blas(name: str) -> str:
    if _SETS.fullmatch(name):
        return "return 0"
    if _RETURNS.fullmatch(name):
        return f'return stub_blas_refused_result("{name}")'
    if _ASKS.fullmatch(name):
        return f'return stub_blas_refused("{name}")'
    return "stub_launched(); return 0"


# The functions that a CUDA library offers, and those that a header declares


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
