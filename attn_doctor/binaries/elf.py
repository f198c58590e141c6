"""Reads ELF files as the dynamic loader does: what they need, and what they provide.

Everything except the position of CUDA's fat binaries is read from the dynamic segment, like the
loader does; tools that strip or patch files keep it correct. `Elf` reads 64-bit little-endian
files only; `header` and `fault` read all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from msgspec import Struct

from attn_doctor.binaries.window import DamagedError, Nearby, Window, too_short

#: Names of machines, as in `uname -m`, by their number.
_MACHINES = {62: "x86_64", 183: "aarch64", 3: "i686", 40: "armv7l", 243: "riscv64", 21: "ppc64le"}

_PROGRAM = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC = struct.Struct("<QQ")
_NEED = struct.Struct("<HHIII")
_NEED_AUX = struct.Struct("<IHHII")
_GIVE = struct.Struct("<HHHHIII")
_GIVE_AUX = struct.Struct("<II")

_LOAD, _DYNAMIC_SEGMENT = 1, 2
_NEEDED, _STRTAB, _SYMTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 6, 10, 14, 15, 29
_HASH, _GNU_HASH, _VERSYM = 4, 0x6FFFFEF5, 0x6FFFFFF0
_VERDEF, _VERDEFNUM, _VERNEED, _VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF

#: Tables of names up to this size are read in one piece.
WHOLE = 1 << 20
#: No real file has as many; a file that claims more is damaged.
MOST_HEADERS, MOST_VERSIONS = 4096, 20_000


#: `e_type` of a shared library, and `e_machine` of code for NVIDIA GPUs.
_SHARED, _CUDA = 3, 190


class Header(Struct, frozen=True):
    """The fields of an ELF header with the positions of all other parts."""

    native: bool
    """A 64-bit little-endian file."""
    kind: int
    machine: int
    programs: int
    """Offset of the program headers in bytes; `sections` is that of the section headers."""
    sections: int
    program_size: int
    program_count: int
    section_size: int
    section_count: int
    names: int
    """Number of the section that holds the sections' names."""

    @property
    def end(self) -> int:
        """The lowest possible size of the file in bytes."""
        programs = self.programs + self.program_size * self.program_count
        return max(programs, self.sections + self.section_size * self.section_count)


def header(data: bytes) -> Header:
    """Read the header from the first 64 bytes of a file. Raises `DamagedError`."""
    if not data:
        raise DamagedError("it is empty")
    if data[:4] != b"\x7fELF":
        raise DamagedError("it does not begin like an ELF file")
    if len(data) < 64 or data[4] not in (1, 2) or data[5] not in (1, 2):
        raise DamagedError("its ELF header is truncated")
    wide, order = data[4] == 2, "<" if data[5] == 1 else ">"
    layout = struct.Struct(order + ("HHIQQQIHHHHHH" if wide else "HHIIIIIHHHHHH"))
    fields = layout.unpack_from(data, 16)
    kind, machine, _, _, programs, sections, _, _, *sizes = fields
    return Header(wide and order == "<", kind, machine, programs, sections, *sizes)


def fault(data: bytes, size: int, *, cubin: bool = False) -> str:
    """Say what is wrong with an ELF file of `size` bytes; empty if nothing is.

    A linker or a copy that was killed leaves the first part of a file; loading it fails, or crashes
    the process. Whether the code in it is right cannot be seen here. `data`: at least the first 64
    bytes. `cubin`: it must be machine code for an NVIDIA GPU, otherwise a shared library.
    """
    try:
        found = header(data)
    except DamagedError as error:
        return str(error)
    if found.end > size:
        return too_short(size, found.end)
    if cubin and found.machine != _CUDA:
        return "it is not machine code for an NVIDIA GPU"
    if not cubin and found.kind != _SHARED:
        return "it is not a shared library"
    return ""


class Wanted(Struct, frozen=True):
    """A symbol version that a file requires, such as `GLIBC_2.34` of `libc.so.6`."""

    library: str
    version: str
    weak: bool
    """The loader only warns if it is missing."""


class Elf:
    """The headers of one ELF file. The caller closes the `Window`.

    Raises `DamagedError` if they are not valid, or if it is not a 64-bit little-endian ELF file.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        found = header(window.take(0, min(64, window.size)))
        if not found.native:
            raise DamagedError("it is not a 64-bit little-endian ELF file")
        self.machine = _MACHINES.get(found.machine, f"machine {found.machine}")
        self._sections = (found.sections, found.section_size, found.section_count, found.names)
        segments = self._segments(found.programs, found.program_size, found.program_count)
        self._loads = [(one[3], one[2], one[5]) for one in segments if one[0] == _LOAD]
        #: What the loader maps ends here.
        self.mapped = max((place + length for _, place, length in self._loads), default=0)
        places = [(one[2], one[5]) for one in segments if one[0] == _DYNAMIC_SEGMENT]
        #: Values of the dynamic section by tag.
        self.dynamic: dict[int, list[int]] = self._read_dynamic(*places[0]) if places else {}
        size = self._first(_STRSZ)
        self._strings, self._text = (0, 0), b""
        if self._first(_STRTAB):
            place = self.offset(self._first(_STRTAB))
            self._strings = (place, min(place + size, window.size))

    def _segments(self, place: int, size: int, count: int) -> list[tuple[int, ...]]:
        if (count and size < _PROGRAM.size) or count > MOST_HEADERS:
            raise DamagedError("its program headers are not understood")
        table = self.window.take(place, size * count)
        return [_PROGRAM.unpack_from(table, number * size) for number in range(count)]

    def _read_dynamic(self, place: int, length: int) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        table = self.window.take(place, min(length, MOST_HEADERS * _DYNAMIC.size) // 16 * 16)
        for tag, value in _DYNAMIC.iter_unpack(table):
            if tag == 0:
                break
            found.setdefault(tag, []).append(value)
        return found

    def _first(self, tag: int) -> int:
        return self.dynamic.get(tag, [0])[0]

    def offset(self, address: int) -> int:
        """Return the position in the file of what is loaded at `address`."""
        for start, place, length in self._loads:
            if start <= address < start + length:
                return place + address - start
        raise DamagedError(f"nothing of the file is loaded at {address:#x}")

    def string(self, index: int) -> str:
        """Return a name from the dynamic string table."""
        return self.raw(index).decode("utf-8", "replace")

    def raw(self, index: int) -> bytes:
        """Return a name from the dynamic string table as bytes. Mangled names can be very long."""
        start, end = self._strings
        if not 0 <= index < end - start:
            raise DamagedError(f"no name has the number {index}")
        if end - start <= WHOLE:
            # For most extensions one read gets all names.
            self._text = self._text or self.window.take(start, end - start)
            stop = self._text.find(b"\0", index)
            if stop < 0:
                raise DamagedError(f"the name {index} has no end")
            return self._text[index:stop]
        try:
            return self.window.text(start + index, end, 512)
        except DamagedError:
            return self.window.text(start + index, end, 1 << 20)

    @property
    def soname(self) -> str:
        """The name by which other files need it; empty if it has none."""
        return self.string(self._first(_SONAME)) if _SONAME in self.dynamic else ""

    @property
    def needed(self) -> tuple[str, ...]:
        """Names of the libraries it needs, in order."""
        return tuple(self.string(index) for index in self.dynamic.get(_NEEDED, ())[:MOST_HEADERS])

    @property
    def rpath(self) -> tuple[str, ...]:
        """Folders it names for its libraries, and for the libraries that they need."""
        # If a file has both, the loader ignores its RPATH.
        return () if _RUNPATH in self.dynamic else self._folders(_RPATH)

    @property
    def runpath(self) -> tuple[str, ...]:
        """Folders it names for its own libraries only."""
        return self._folders(_RUNPATH)

    def _folders(self, tag: int) -> tuple[str, ...]:
        texts = (self.string(index) for index in self.dynamic.get(tag, ()))
        return tuple(folder for text in texts for folder in text.split(":") if folder)

    def wanted(self) -> list[Wanted]:
        """Return the symbol versions that it requires of other libraries."""
        found: list[Wanted] = []
        place, left = self._table(_VERNEED), self._first(_VERNEEDNUM)
        near = Nearby(self.window, place)
        while place and left > 0 and len(found) < MOST_VERSIONS:
            _, count, library, aux, following = near.unpack(_NEED, place)
            name, inner = self.string(library), place + aux
            for _ in range(count):
                _, flags, _, version, step = near.unpack(_NEED_AUX, inner)
                found.append(Wanted(name, self.string(version), bool(flags & 2)))
                inner += step
                if not step:
                    break
            place, left = place + following, left - 1
            if not following:
                break
        return found

    def given(self) -> list[str]:
        """Return the symbol versions that it defines, such as those of glibc."""
        found: list[str] = []
        place, left = self._table(_VERDEF), self._first(_VERDEFNUM)
        near = Nearby(self.window, place)
        while place and left > 0 and len(found) < MOST_VERSIONS:
            _, flags, _, _, _, aux, following = near.unpack(_GIVE, place)
            if not flags & 1:  # the first entry is the file itself
                found.append(self.string(near.unpack(_GIVE_AUX, place + aux)[0]))
            place, left = place + following, left - 1
            if not following:
                break
        return found

    def _table(self, tag: int) -> int:
        """Return the position of a table in the file; 0 if there is none."""
        return self.offset(self.dynamic[tag][0]) if tag in self.dynamic else 0

    def tables(self) -> dict[str, int]:
        """Return the positions of the tables that `symbols` reads; 0 for a missing one."""
        return {
            "symbols": self._table(_SYMTAB),
            "versions": self._table(_VERSYM),
            "gnu": self._table(_GNU_HASH),
            "sysv": self._table(_HASH),
        }

    def sections(self, names: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        """Yield position and length of the sections in `names`."""
        place, size, count, strings = self._sections
        if not place or not count:
            return
        if size < _SECTION.size or count > MOST_HEADERS * 16:
            raise DamagedError("its section headers are not valid")
        table = self.window.take(place, size * count)
        headers = [_SECTION.unpack_from(table, number * size) for number in range(count)]
        if strings >= count:
            return
        first, length = headers[strings][4], headers[strings][5]
        text = self.window.take(first, length)
        wanted = {name.encode() for name in names}
        for one in headers:
            begin = one[0]
            if text[begin : text.find(b"\0", begin)] in wanted and one[1] != 8:  # NOBITS
                yield one[4], one[5]
