"""Reads CUDA's fat binaries: the GPUs for which a library contains machine code and PTX.

nvcc writes one fat binary for each source file into the section `.nv_fatbin` (`.nv_fatb` on
Windows). The section `__nv_relfatbin` is input of the device linker and does not run; it counts
only if the other one is missing, as in cuobjdump. Each fat binary has a header and a chain of
entries, each with a header and its code, compressed or not. Only headers are read: of the 456 MB of
one torch library some 150 KB. NVIDIA does not document the layout; it was found by compiling known
variants, and the tests compare it with `cuobjdump`.

Which kernels have code for an architecture is not known: a library may have one kernel for 9.0a and
all others for 8.0.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from attn_doctor.binaries.window import DamagedError, Window

#: Names of the sections in ELF files, and truncated in PE files. The second pair counts only in a
#: file without the first.
EXECUTABLE, RELOCATABLE = (".nv_fatbin", ".nv_fatb"), ("__nv_relfatbin", "__nv_relf")

_MAGIC = 0xBA55ED50
#: magic, version, size of the header, size of what follows
_BINARY = struct.Struct("<IHHQ")
#: kind, version, size of the header, size of what follows, …, PTX or cubin version (minor, major),
#: capability ×10, …, flags
_ENTRY = struct.Struct("<HHIQIIHHIIIQ")
_PTX, _CUBIN = 1, 2
#: Flags of an entry: `sm_90a` and `sm_120f`. (0x2000 and 0x8000 are its compression.)
_ARCHITECTURE, _FAMILY = 1 << 20, 1 << 21
#: Fat binaries begin at multiples of 8.
_ALIGNED = 8
#: Most entries of one file; torch's largest library has 3000.
MOST = 200_000


class Code(Struct, frozen=True):
    """The GPU code in one library.

    `cubins` and `ptx` count entries by code name (`90a`); `isa` is the highest PTX version. `whole`
    is false if the walk ended early; `damaged` is the reason if the file is at fault.
    """

    cubins: Counter[str]
    ptx: Counter[str]
    isa: tuple[int, int] = (0, 0)
    whole: bool = True
    damaged: str = ""


def walk(
    window: Window,
    places: Iterable[tuple[int, int]],
    most: int = 0,
    late: Callable[[], bool] = lambda: False,
) -> Code:
    """Count the code in the sections at `places` (start and length in the file).

    At most `most` fat binaries are read (0: all), and none after `late` returns true.
    """
    cubins: Counter[str] = Counter()
    ptx: Counter[str] = Counter()
    isa = (0, 0)
    entries = binaries = 0
    try:
        for start, length in places:
            for first, end in _binaries(window, start, length):
                if (most and binaries >= most) or entries > MOST or late():
                    return Code(cubins, ptx, isa, whole=False)
                binaries += 1
                for kind, name, version in _entries(window, first, end):
                    entries += 1
                    if kind == _PTX:
                        ptx[name] += 1
                        isa = max(isa, version)
                    elif kind == _CUBIN:
                        cubins[name] += 1
    except DamagedError as error:
        return Code(cubins, ptx, isa, whole=False, damaged=str(error))
    return Code(cubins, ptx, isa)


def _binaries(window: Window, start: int, length: int) -> Iterator[tuple[int, int]]:
    """Yield the position of the entries of each fat binary of a section, and their end."""
    end, place = start + length, start
    while place + _BINARY.size <= end:
        magic, _, header, size = window.unpack(_BINARY, place)
        if magic != _MAGIC:
            if magic:
                raise DamagedError(f"no fat binary at {place}")
            place = _after_zeros(window, place, end)
            continue
        first, after = place + header, place + header + size
        if header < _BINARY.size or after > end:
            raise DamagedError(f"the fat binary at {place} exceeds its section")
        yield first, after
        place = -(-after // _ALIGNED) * _ALIGNED


def _after_zeros(window: Window, start: int, end: int) -> int:
    """Return where the next fat binary may begin, after padding from `start` on."""
    place = start
    while place < end:
        piece = window.take(place, min(1 << 16, end - place))
        rest = piece.lstrip(b"\0")
        if rest:
            place = (place + len(piece) - len(rest)) // _ALIGNED * _ALIGNED
            if place == start:
                raise DamagedError(f"no fat binary at {place}")
            return place
        place += len(piece)
    return end


def _entries(window: Window, place: int, end: int) -> Iterator[tuple[int, str, tuple[int, int]]]:
    """Yield kind, code name and version of each entry."""
    while place + _ENTRY.size <= end:
        found = window.unpack(_ENTRY, place)
        kind, header, size, flags = found[0], found[2], found[3], found[11]
        if header < _ENTRY.size or place + header + size > end:
            raise DamagedError(f"the entry at {place} exceeds its fat binary")
        variant = "a" if flags & _ARCHITECTURE else "f" if flags & _FAMILY else ""
        yield kind, f"{found[8]}{variant}", (found[7], found[6])
        place += header + size
