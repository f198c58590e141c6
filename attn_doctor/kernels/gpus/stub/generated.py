"""C code for every function of CUDA that is not written by hand: what it answers without a GPU.

None of them pretends. A function that only sets something succeeds; one that computes counts as a
launch; all others are refused, and named in the error. Each is weak, so that one written by hand
takes its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_RUNTIME = re.compile(r"(__)?cuda[A-Z]\w*")
_DRIVER = re.compile(r"cu[A-Z]\w*")
_BLAS = re.compile(r"cublas(Lt|Xt)?[A-Z]\w*")
_SETS = re.compile(r"cublas(Lt)?(Set|Destroy|Logger|\w+(SetAttribute|Init_internal)$)\w*")
_ASKS = re.compile(
    r"cublas(Lt)?(Get|Create|Xt|Migrate|\w*(Get|Heuristic|Algo|Check)|Alloc|Init)\w*"
)
#: Those that give a number to the host, if the caller asked for that.
_TELLS = re.compile(r"cublas\w*(dot|nrm2|asum|amax|amin|rotg|rotmg)\w*", re.IGNORECASE)

_HEAD = """\
#include "stub_gpu.h"
#include <stdlib.h>
#include <string.h>
#define WEAK __attribute__((visibility("default"), weak))
int stub_runtime_refused(const char *function);
int stub_blas_refused(const char *function);
int stub_blas_told(const char *function);
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
    if _TELLS.fullmatch(name):
        return f'return stub_blas_told("{name}")'
    if _ASKS.fullmatch(name):
        return f'return stub_blas_refused("{name}")'
    return "stub_launched(); return 0"
