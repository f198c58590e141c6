"""Decides which GPUs run which code, by CUDA's names of both.

A code name is a compute capability ×10, followed by `a` for code with features of only that
architecture, or by `f` for code of a family: `80`, `90a`, `120f`. The rules are NVIDIA's:
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/compute-capabilities.html
"""

from __future__ import annotations

from collections.abc import Iterable

from attn_doctor.numbers import natural

#: Tegra, Orin and Thor, whose code is separate from that of other GPUs of their generation.
#: Since CUDA 13.2, 7.2 and 8.7 are no longer separate.
APART = frozenset({53, 62, 72, 87, 101})
APART_NO_MORE = frozenset({72, 87})


#: CUDA version of each PTX version whose number does not follow the scheme.
#: https://docs.nvidia.com/cuda/parallel-thread-execution/#release-notes
_CUDA = {"8.6": "12.7", "8.7": "12.8", "8.8": "12.9"}


def cuda_of(isa: str) -> str | None:
    """Return the CUDA version that a driver must support to compile PTX of version `isa`.

    Empty for empty `isa`; None for an unknown, older or newer, version.
    """
    if not isa or isa in _CUDA:
        return _CUDA.get(isa, "")
    major, _, minor = isa.partition(".")
    first = {"7": "11", "8": "12", "9": "13"}.get(major)
    known = {"7": 8, "8": 5, "9": 2}.get(major, -1)
    return f"{first}.{minor}" if first and minor.isdecimal() and int(minor) <= known else None


def number(code: str) -> int:
    """Return the compute capability ×10 in a code name; 0 if there is none."""
    return natural(code.rstrip("af")) or 0


def order(codes: Iterable[str]) -> tuple[str, ...]:
    """Sort code names by capability, those without a letter first."""
    return tuple(sorted(set(codes), key=lambda code: (number(code), code)))


def runs(sm: int, code: str, apart: frozenset[int] = APART) -> bool:
    """Whether a GPU of capability `sm` runs machine code `code`.

    Code without a letter and code of a family run on the same generation from their architecture
    on; code with `a` runs only on its own architecture.
    """
    base = number(code)
    if code.endswith("a") or sm in apart or base in apart:
        return sm == base
    return sm // 10 == base // 10 and sm >= base


def compiles(sm: int, code: str) -> bool:
    """Whether a driver can compile PTX `code` for a GPU of capability `sm`."""
    if code.endswith("a"):
        return sm == number(code)
    if code.endswith("f"):
        return runs(sm, code, frozenset())
    return 0 < number(code) <= sm
