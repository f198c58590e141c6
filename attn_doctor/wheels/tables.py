"""Finds the symbol tables of a library in its front, without the parts that come later.

The dynamic section says where the tables are, but it lies behind the code, which can have hundreds
of megabytes. Linkers put the tables first. So they are searched there, and recognised by what they
hold: in a hash table of GNU's each hash belongs to its bucket, and the hash of each name is that of
its symbol. A wrong place does not pass by chance.

`patchelf`, which repairs many wheels, moves the names to the end of the file, and sometimes all
tables. Where it leaves the hashes, it is known what the library defines, and not what it needs.
"""

from __future__ import annotations

import re
import struct
from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from attn_doctor.binaries.elf import Elf, header
from attn_doctor.binaries.symbols import gnu_hash, undefined_symbols
from attn_doctor.binaries.window import DamagedError, Window

_PROGRAM = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_GNU = struct.Struct("<IIII")
_LOAD, _GLOBAL = 1, 1
#: The tables of hashes begin within so many bytes: behind headers, notes and, for some linkers, the
#: symbols and their names.
_SEARCHED = 8 << 20
#: More than any library has (libtorch_cpu: 500 000 symbols, 20 MB of names).
_MOST_SYMBOLS, _MOST_NAMES = 1 << 22, 1 << 26
#: Names that are compared with their hashes before a table of names is believed.
_TRIED = 16
_LIBRARY = re.compile(rb"(?<=\0)[\w+.-]*\.so(?:\.\d+)*(?=\0)")


#: Bytes that are searched first; `patchelf` fills tables that it has moved with this letter.
_STEP, _ERASED = 1 << 12, b"X" * 64


class MovedError(Exception):
    """The table of hashes, or the names of the symbols, are not in the front of the file."""


class Hashes(NamedTuple):
    """A table of hashes, and where it ends in the file."""

    first: int
    """Number of the first symbol that the library defines."""
    values: array[int]
    """The hash of each defined symbol; the lowest bit means something else."""
    end: int

    @property
    def total(self) -> int:
        """Number of all symbols."""
        return self.first + len(self.values)

    def exported(self) -> frozenset[int]:
        """The hashes of the names that the library defines, with the lowest bit set."""
        return frozenset(value | 1 for value in self.values)


class Needs(NamedTuple):
    """What a library needs when it is loaded."""

    symbols: tuple[bytes, ...]
    """Undefined symbols without a version, mangled, in the order of the file."""
    libraries: tuple[str, ...]


def front_end(window: Window) -> int:
    """Return the end of the first part that is loaded: the tables lie before it.

    Raises `DamagedError` if it is not a 64-bit little-endian ELF file.
    """
    found = header(window.take(0, min(64, window.size)))
    if not found.native:
        raise DamagedError("it is not a 64-bit little-endian ELF file")
    if found.program_size < _PROGRAM.size or found.program_count > 512:
        raise DamagedError("its program headers are not understood")
    table = window.take(found.programs, found.program_size * found.program_count)
    for number in range(found.program_count):
        kind, _, place, _, _, length, _, _ = _PROGRAM.unpack_from(
            table, number * found.program_size
        )
        if kind == _LOAD and place == 0:
            return int(min(length, window.size))
    raise DamagedError("nothing of its start is loaded")


def hashes(window: Window, end: int) -> Hashes:
    """Find the table of hashes before `end`. Raises `MovedError` if it is not there."""
    last = min(end, _SEARCHED)
    start, step = 64, _STEP
    while start < last:
        stop = min(start + step + _GNU.size, last)
        piece = window.take(start, stop - start)
        for inner in range(0, len(piece) - _GNU.size + 1, 8):
            found = _GNU.unpack_from(piece, inner)
            if _plausible(*found) and (table := _table(window, start + inner, end, found)):
                return table
        if start == 64 and _ERASED in piece:
            break
        start, step = start + step, min(2 * step, 1 << 16)
    raise MovedError


def _plausible(buckets: int, first: int, words: int, shift: int) -> bool:
    return (
        0 < buckets < _MOST_SYMBOLS
        and 0 < first < _MOST_SYMBOLS
        and 0 < words < _MOST_SYMBOLS
        and not words & (words - 1)
        and 0 < shift < 64
    )


def _table(window: Window, place: int, end: int, found: tuple[int, ...]) -> Hashes | None:
    """Return the table at `place` if each of its hashes belongs to its bucket."""
    buckets, first, words, _ = found
    start = place + _GNU.size + 8 * words
    chain = start + 4 * buckets
    if chain >= end:
        return None
    heads = array("I", window.take(start, 4 * buckets))
    used = [one for one in heads if one]
    if not used or used[0] != first or any(a >= b for a, b in pairwise(used)):
        return None
    count = used[-1] - first
    if chain + 4 * count >= end:
        return None
    values = array("I", window.take(chain, 4 * count))
    for number, head in enumerate(heads):
        if head and head - first < count and not _belongs(values[head - first], number, buckets):
            return None
    # The last chain ends with the first odd value.
    while True:
        if chain + 4 * len(values) + 4 > end or len(values) > _MOST_SYMBOLS:
            return None
        (value,) = struct.unpack("<I", window.take(chain + 4 * len(values), 4))
        values.append(value)
        if value & 1:
            return Hashes(first, values, chain + 4 * len(values))


def _belongs(value: int, bucket: int, buckets: int) -> bool:
    return bucket in ((value | 1) % buckets, (value & ~1) % buckets)


def needs(window: Window, table: Hashes, end: int) -> Needs:
    """Return what the library needs. Raises `MovedError` if its front does not hold the names.

    Whether a symbol has a version is not seen here; names of torch have none.
    """
    symbols = _symbols(window, table, end)
    names = _names(window, table, symbols, end)
    found = []
    for index in range(1, table.first):
        name, info, _, section, _, _ = _SYMBOL.unpack_from(symbols, index * _SYMBOL.size)
        if section == 0 and info >> 4 == _GLOBAL and name:
            found.append(_at(names, name))
    libraries = (match[0].decode("ascii") for match in _LIBRARY.finditer(names))
    return Needs(tuple(found), tuple(dict.fromkeys(libraries)))


def _symbols(window: Window, table: Hashes, end: int) -> bytes:
    """Return the table of symbols: behind the hashes, or, of other linkers, before them."""
    size = _SYMBOL.size * table.total
    behind = -(-table.end // 8) * 8
    for place in (behind, *range(64, min(table.end, _SEARCHED), 8)):
        if place + size > end or any(window.take(place, _SYMBOL.size)):
            continue
        if _are_symbols(
            window.take(place, _SYMBOL.size * min(table.total, table.first + 8)), table
        ):
            return window.take(place, size)
    raise MovedError


def _are_symbols(piece: bytes, table: Hashes) -> bool:
    """Whether a table begins here: undefined symbols up to the first hash, defined ones after."""
    for index, entry in enumerate(_SYMBOL.iter_unpack(piece)):
        name, info, other, section, value, _ = entry
        if index == 0:
            continue
        if info >> 4 not in (0, 1, 2, 10) or info & 15 > 10 or other > 3 or name >= _MOST_NAMES:
            return False
        if index >= table.first and (not section or not name):
            return False
        if index < table.first and section == 0 and value:
            return False
    return True


def _names(window: Window, table: Hashes, symbols: bytes, end: int) -> bytes:
    """Return the names, from their first byte: behind the symbols, or elsewhere in the front."""
    offsets = [
        _SYMBOL.unpack_from(symbols, _SYMBOL.size * index)[0] for index in range(table.total)
    ]
    length = max(offsets) + 1
    tried = [
        (offsets[table.first + index], table.values[index] | 1)
        for index in range(min(_TRIED, len(table.values)))
    ]
    for start in _starts(window, table, symbols, end):
        if start + length > end or not _are_names(window, start, tried):
            continue
        # The last name, and the libraries' names behind it.
        stop = min(end, start + length + (1 << 12))
        names = window.take(start, stop - start)
        if names.find(b"\0", length - 1) >= 0:
            return names
    raise MovedError


def _starts(window: Window, table: Hashes, symbols: bytes, end: int) -> Iterator[int]:
    """Yield where the names may begin: with a zero byte, behind a table."""
    behind = -(-table.end // 8) * 8
    yield behind + len(symbols)
    stop = min(end, behind + len(symbols) + (1 << 16))
    piece = window.take(table.end, stop - table.end)
    place = piece.find(b"\0")
    while place >= 0:
        yield table.end + place
        place = piece.find(b"\0", place + 1)


def _are_names(window: Window, start: int, tried: list[tuple[int, int]]) -> bool:
    if window.take(start, 1) != b"\0":
        return False
    for offset, hashed in tried:
        try:
            name = window.text(start + offset, window.size, 1 << 14)
        except DamagedError:
            return False
        if gnu_hash(name) | 1 != hashed:
            return False
    return True


def _at(names: bytes, start: int) -> bytes:
    return names[start : names.find(b"\0", start)]


def of_whole(window: Window) -> tuple[Needs, frozenset[int]]:
    """Return what the library needs and the hashes of what it defines, from its dynamic section.

    Raises `DamagedError`.
    """
    elf = Elf(window)
    found = (one.name for one in undefined_symbols(elf) if not one.versioned)
    place = elf.tables()["gnu"]
    table = _table(window, place, window.size, window.unpack(_GNU, place)) if place else None
    return Needs(tuple(found), elf.needed), table.exported() if table else frozenset()
