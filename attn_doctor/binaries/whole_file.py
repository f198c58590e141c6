"""Whether an ELF file (a shared library, a cubin) has all the bytes that its header promises.

A linker or a copy that was killed leaves the front of a file behind; loading it fails, or crashes
the process. That the code in it is right cannot be seen here.
"""

from __future__ import annotations

import struct

_CUDA = 190
_SHARED = 3


def fault(data: bytes, size: int, *, cubin: bool = False) -> str:
    """What is wrong with an ELF file of `size` bytes that begins with `data`; empty if nothing is.

    `data`: at least the first 64 bytes. `cubin`: it must be machine code for an NVIDIA GPU.
    """
    if data[:4] != b"\x7fELF":
        return "it does not begin as an ELF file does"
    if len(data) < 64 or data[4] not in (1, 2) or data[5] not in (1, 2):
        return "its ELF header is cut short"
    order = "<" if data[5] == 1 else ">"
    kind, machine = struct.unpack_from(order + "HH", data, 16)
    wide = data[4] == 2
    phoff, shoff = struct.unpack_from(order + ("QQ" if wide else "II"), data, 32 if wide else 28)
    phentsize, phnum, shentsize, shnum = struct.unpack_from(
        order + "HHHH", data, 54 if wide else 42
    )
    end = max(phoff + phentsize * phnum, shoff + shentsize * shnum)
    if end > size:
        return f"it ends after {size} of at least {end} bytes"
    if cubin and machine != _CUDA:
        return "it is no machine code for an NVIDIA GPU"
    if not cubin and kind != _SHARED:
        return "it is no shared library"
    return ""
