"""Lists the undefined symbols of an extension, and looks symbols up in libraries.

The loader binds all functions of a Python extension at import, so one name that no library defines
is an ImportError. Names are looked up in the hash tables that the loader itself uses: libtorch has
hundreds of thousands of names, and one look-up reads some thirty bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from operator import mul
from typing import NamedTuple

from attn_doctor.binaries.elf import Elf
from attn_doctor.binaries.window import DamagedError, Window

_SYMBOL = struct.Struct("<IBBHQQ")
_GNU = struct.Struct("<IIII")
_WORD, _LONG = struct.Struct("<I"), struct.Struct("<Q")
_WEAK, _GLOBAL, _UNIQUE = 2, 1, 10
#: More symbols than any library defines (libtorch_cpu: 500 000) or leaves undefined (10 000).
MOST_SYMBOLS, MOST_UNDEFINED = 1 << 23, 1 << 17
#: Filters up to this size are read in one piece, because they answer most look-ups.
MOST_WORDS = 1 << 17
#: Longest chain that is followed in a hash table; real ones have tens of entries.
MOST_STEPS = 4096

#: Longest name whose hash is computed from a table of powers.
_LONGEST = 512
_POWERS = [1]
for _ in range(_LONGEST):
    _POWERS.append(_POWERS[-1] * 33 & 0xFFFFFFFF)


def gnu_hash(name: bytes) -> int:
    """Return the hash of GNU's tables: h = h·33 + c, from 5381, in 32 bits."""
    length = len(name)
    if length <= _LONGEST:
        # The same polynomial, summed without a loop in Python.
        powers = _POWERS[length - 1 :: -1] if length else ()
        total: int = sum(map(mul, name, powers))
        return (5381 * _POWERS[length] + total) & 0xFFFFFFFF
    value = 5381
    for one in name:
        value = value * 33 + one & 0xFFFFFFFF
    return value


def sysv_hash(name: bytes) -> int:
    """Return the hash of System V's tables."""
    value = 0
    for one in name:
        value = (value << 4) + one
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


class Library:
    """A library in which symbols are looked up by name.

    Raises `DamagedError` with `path` if it has no symbol table or a damaged one.
    """

    def __init__(self, window: Window, path: str) -> None:
        self._window, self._path = window, path
        try:
            self._open(window)
        except DamagedError as error:
            raise DamagedError(f"{path}: {error}") from error

    def _open(self, window: Window) -> None:
        self._elf = Elf(window)
        tables = self._elf.tables()
        self._symbols = tables["symbols"]
        self._gnu, self._sysv = tables["gnu"], tables["sysv"]
        if not self._symbols or not (self._gnu or self._sysv):
            raise DamagedError("it has no table of symbols")
        if self._gnu:
            buckets, self._first, words, self._shift = window.unpack(_GNU, self._gnu)
            if not buckets or not words:
                raise DamagedError("its hash table is empty")
            self._words, self._buckets = words, buckets
            self._filter = self._gnu + _GNU.size
            self._bits = window.take(self._filter, 8 * words) if words <= MOST_WORDS else b""
            self._table = self._filter + 8 * words
            self._chain = self._table + 4 * buckets
        else:
            self._buckets, _ = struct.Struct("<II").unpack(window.take(self._sysv, 8))
            self._table = self._sysv + 8
            self._chain = self._table + 4 * self._buckets
            if not self._buckets:
                raise DamagedError("its hash table is empty")

    def has(self, name: bytes, hashed: int) -> bool:
        """Whether it defines `name`, whose `gnu_hash` is `hashed`."""
        try:
            return self._by_gnu(name, hashed) if self._gnu else self._by_sysv(name)
        except DamagedError as error:
            raise DamagedError(f"{self._path}: {error}") from error

    def _by_gnu(self, name: bytes, hashed: int) -> bool:
        window = self._window
        word = 8 * (hashed // 64 % self._words)
        if self._bits:
            (bits,) = _LONG.unpack_from(self._bits, word)
        else:
            (bits,) = window.unpack(_LONG, self._filter + word)
        if not bits >> (hashed % 64) & bits >> ((hashed >> self._shift) % 64) & 1:
            return False
        (index,) = window.unpack(_WORD, self._table + 4 * (hashed % self._buckets))
        if index < self._first:
            return False
        for step in range(MOST_STEPS):
            place = self._chain + 4 * (index - self._first + step)
            (value,) = window.unpack(_WORD, place)
            if value | 1 == hashed | 1 and self._is(name, index + step):
                return True
            if value & 1:
                return False
        raise DamagedError("its hash table has no end")

    def _by_sysv(self, name: bytes) -> bool:
        window = self._window
        place = self._table + 4 * (sysv_hash(name) % self._buckets)
        for _ in range(MOST_STEPS):
            (index,) = window.unpack(_WORD, place)
            if not index:
                return False
            if self._is(name, index):
                return True
            place = self._chain + 4 * index
        raise DamagedError("its hash table has no end")

    def _is(self, name: bytes, index: int) -> bool:
        """Whether symbol `index` has the name `name` and is defined."""
        if index > MOST_SYMBOLS:
            raise DamagedError("it names too many symbols")
        entry = self._window.unpack(_SYMBOL, self._symbols + _SYMBOL.size * index)
        bound = entry[1] >> 4
        if entry[3] == 0 or bound not in (_GLOBAL, _WEAK, _UNIQUE):
            return False
        return self._elf.raw(entry[0]) == name


class Undefined(NamedTuple):
    """An undefined symbol of a file; a `versioned` one names its library."""

    name: bytes
    versioned: bool


def undefined_symbols(elf: Elf) -> Iterator[Undefined]:
    """Yield the symbols that must be found when `elf` is loaded, without weak ones."""
    tables = elf.tables()
    if not tables["symbols"]:
        return
    end = _undefined_end(elf, tables)
    window, size = elf.window, _SYMBOL.size
    block = window.take(tables["symbols"], size * end)
    versions = window.take(tables["versions"], 2 * end) if tables["versions"] else b""
    for number, (name, info, _, section, _, _) in enumerate(_SYMBOL.iter_unpack(block)):
        if section == 0 and info >> 4 == _GLOBAL and name:
            index = int.from_bytes(versions[2 * number : 2 * number + 2], "little") & 0x7FFF
            yield Undefined(elf.raw(name), index > 1)


def _undefined_end(elf: Elf, tables: dict[str, int]) -> int:
    """Return how many symbols to read: GNU's hash table puts the undefined ones first."""
    if tables["gnu"]:
        buckets, first, words, _ = elf.window.unpack(_GNU, tables["gnu"])
        # A file that defines nothing has an empty table, which begins at 1 or at the end.
        if first > 1 or not tables["sysv"]:
            count = first if first > 1 else _gnu_end(elf, tables["gnu"], buckets, first, words)
            if count > MOST_UNDEFINED:
                raise DamagedError("it has too many undefined symbols")
            return count
    if tables["sysv"]:
        (_, count) = struct.Struct("<II").unpack(elf.window.take(tables["sysv"], 8))
        if count > MOST_UNDEFINED * 4:
            raise DamagedError("it has too many symbols")
        return int(count)
    raise DamagedError("it has no table of symbols")


def _gnu_end(elf: Elf, place: int, buckets: int, first: int, words: int) -> int:
    """Return the number of symbols in a GNU hash table."""
    table = place + _GNU.size + 8 * words
    last = max(struct.unpack(f"<{buckets}I", elf.window.take(table, 4 * buckets)), default=0)
    if last < first:
        return first
    chain = table + 4 * buckets
    for step in range(MOST_STEPS):
        (value,) = elf.window.unpack(_WORD, chain + 4 * (last - first + step))
        if value & 1:
            return int(last + step + 1)
    raise DamagedError("its hash table has no end")
