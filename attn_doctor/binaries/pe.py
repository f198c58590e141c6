"""Reads PE files, Windows' libraries and extensions: the DLLs they need, and their GPU code.

Names on Windows have no versions: a DLL may exist without a function that is needed, which only its
export table shows. Functions that are taken by number, and those that are looked up at their first
call (delay imports), are left out: an import of the module does not fail for them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from attn_doctor.binaries.window import DamagedError, Nearby, Window

_MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64", 0x14C: "i686"}
_COFF = struct.Struct("<4sHHIIIHH")
_SECTION = struct.Struct("<8sIIII16x")
_DIRECTORY = struct.Struct("<II")
_IMPORT = struct.Struct("<IIIII")
_RVA, _WIDE = struct.Struct("<I"), struct.Struct("<Q")
#: Which data directories list the exports and the imports.
_EXPORTS, _IMPORTS = 0, 1
MOST_SECTIONS, MOST_IMPORTS, LONGEST_NAME = 256, 4096, 512
#: Functions of one DLL that are read, and the length of their names: MSVC cuts them at 4,096.
MOST_FUNCTIONS, LONGEST_FUNCTION = 1 << 20, 4100


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
        self._wide = wide = header[:2] == b"\x0b\x02"
        #: The data directories of the optional header; their number is before them.
        self._directories = header[112 if wide else 96 :]
        table = window.take(place + _COFF.size + optional, _SECTION.size * sections)
        #: Name, size in memory, address, size in the file, place in the file.
        self._sections = list(_SECTION.iter_unpack(table))

    def needed(self) -> tuple[str, ...]:
        """Return the names of the DLLs it needs, in order."""
        return tuple(name for name, _ in self._imports())

    def functions(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield each DLL it needs, with the names of the functions that it takes from it."""
        for name, address in self._imports():
            yield name, self._names(address)

    def exports(self) -> Exports:
        """The names that this DLL offers."""
        place = self._directory(_EXPORTS)
        if place is None:
            return Exports(self, b"")
        count, _, names = struct.unpack_from("<III", self.window.take(place, 40), 24)
        if count > MOST_FUNCTIONS:
            raise DamagedError(f"it has {count} names")
        table = self.window.take(self._offset(names), _RVA.size * count) if count else b""
        return Exports(self, table)

    def name_at(self, address: int) -> bytes:
        """The name of a function at an address in memory."""
        return self.window.text(self._offset(address), self.window.size, LONGEST_FUNCTION)

    def _directory(self, number: int) -> int | None:
        """The place of a data directory; None if the file has none."""
        if len(self._directories) < _DIRECTORY.size * (number + 1):
            return None
        address, size = _DIRECTORY.unpack_from(self._directories, _DIRECTORY.size * number)
        return self._offset(address) if address and size else None

    def _imports(self) -> Iterator[tuple[str, int]]:
        """Yield each DLL that is needed, with the address of the list of its functions."""
        place = self._directory(_IMPORTS)
        if place is None:
            return
        for _ in range(MOST_IMPORTS):
            entry = self.window.unpack(_IMPORT, place)
            if not entry[3]:
                return
            start = self._offset(entry[3])
            name = self.window.text(start, self.window.size, LONGEST_NAME)
            yield name.decode("utf-8", "replace"), entry[0] or entry[4]
            place += _IMPORT.size
        raise DamagedError("its list of DLLs has no end")

    def _names(self, address: int) -> Iterator[bytes]:
        if not address:
            return
        form = _WIDE if self._wide else _RVA
        by_number = 1 << (8 * form.size - 1)
        place = self._offset(address)
        table = Nearby(self.window, place)
        for _ in range(MOST_FUNCTIONS):
            (entry,) = table.unpack(form, place)
            if not entry:
                return
            if not entry & by_number:
                yield self.name_at(entry + 2)  # a hint of two bytes precedes it
            place += form.size
        raise DamagedError("its list of functions has no end")

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


class Exports:
    """The names that a DLL offers. They are sorted, so that few of them are read."""

    def __init__(self, pe: Pe, table: bytes) -> None:
        self._pe, self._table = pe, table
        self._read: dict[int, bytes] = {}

    def __contains__(self, name: bytes) -> bool:
        low, high = 0, len(self._table) // _RVA.size
        while low < high:
            middle = (low + high) // 2
            found = self._name(middle)
            if found == name:
                return True
            low, high = (middle + 1, high) if found < name else (low, middle)
        return False

    def _name(self, number: int) -> bytes:
        if number not in self._read:
            (address,) = _RVA.unpack_from(self._table, _RVA.size * number)
            self._read[number] = self._pe.name_at(address)
        return self._read[number]
