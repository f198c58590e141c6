"""Reads PE files, Windows' libraries and extensions: the DLLs they need, and their GPU code.

Names on Windows have no versions and no ABI: a DLL may exist without a function that is needed,
which only its export table shows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from attn_doctor.binaries.window import DamagedError, Window

_MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64", 0x14C: "i686"}
_COFF = struct.Struct("<4sHHIIIHH")
_SECTION = struct.Struct("<8sIIII16x")
_DIRECTORY = struct.Struct("<II")
_IMPORT = struct.Struct("<IIIII")
#: Which data directory lists the imports.
_IMPORTS = 1
MOST_SECTIONS, MOST_IMPORTS, LONGEST_NAME = 256, 4096, 512


class Pe:
    """The headers of one PE file. Raises `DamagedError` if they are not valid."""

    def __init__(self, window: Window) -> None:
        self.window = window
        place = int.from_bytes(window.take(0x3C, 4), "little")
        magic, machine, sections, _, _, _, optional, _ = window.unpack(_COFF, place)
        if magic != b"PE\0\0" or sections > MOST_SECTIONS:
            raise DamagedError("it is not a PE file")
        self.machine = _MACHINES.get(machine, f"machine {machine:#x}")
        header = window.take(place + _COFF.size, optional)
        wide = header[:2] == b"\x0b\x02"
        #: The data directories of the optional header; their number is before them.
        self._directories = header[112 if wide else 96 :]
        table = window.take(place + _COFF.size + optional, _SECTION.size * sections)
        #: Name, size in memory, address, size in the file, place in the file.
        self._sections = list(_SECTION.iter_unpack(table))

    def needed(self) -> tuple[str, ...]:
        """Return the names of the DLLs it needs, in order."""
        if len(self._directories) < _DIRECTORY.size * (_IMPORTS + 1):
            return ()
        address, size = _DIRECTORY.unpack_from(self._directories, _DIRECTORY.size * _IMPORTS)
        if not address or not size:
            return ()
        place = self._offset(address)
        found: list[str] = []
        for _ in range(MOST_IMPORTS):
            entry = self.window.unpack(_IMPORT, place)
            if not entry[3]:
                return tuple(found)
            start = self._offset(entry[3])
            name = self.window.text(start, self.window.size, LONGEST_NAME)
            found.append(name.decode("utf-8", "replace"))
            place += _IMPORT.size
        raise DamagedError("its list of DLLs has no end")

    def sections(self, names: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        """Yield position and length of the sections in `names`; eight letters count."""
        wanted = {name.encode()[:8].rstrip(b"\0") for name in names}
        for name, length, _, raw, place in self._sections:
            if name.rstrip(b"\0") in wanted:
                yield place, min(length, raw)

    def _offset(self, address: int) -> int:
        for _, length, start, raw, place in self._sections:
            if start <= address < start + max(length, raw):
                return int(place + address - start)
        raise DamagedError(f"nothing of the file is loaded at {address:#x}")
