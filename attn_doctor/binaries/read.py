"""Reads one binary: what it needs and provides, and its GPU code."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing

from attn_doctor.binaries.binary import Binary, GpuCode, Versions
from attn_doctor.binaries.elf import Elf
from attn_doctor.binaries.window import DamagedError, Window, too_short


def binary(path: str) -> Binary:
    """Read what the library at `path` needs and provides.

    Raises `OSError` if it cannot be opened or read.
    """
    with closing(Window(path)) as window:
        try:
            if not window.size:
                return Binary(damaged="it is empty")
            if window.take(0, 2) == b"MZ":
                return _pe(window)
            return _elf(window)
        except DamagedError as error:
            return Binary(damaged=str(error))


def _elf(window: Window) -> Binary:
    elf = Elf(window)
    if elf.mapped > window.size:
        # Loading it would kill the process with SIGBUS. The loader does not read what is behind,
        # such as the table of sections.
        raise DamagedError(too_short(window.size, elf.mapped))
    return Binary(
        format="elf",
        machine=elf.machine,
        soname=elf.soname,
        needed=elf.needed,
        rpath=elf.rpath,
        runpath=elf.runpath,
    )


def _pe(window: Window) -> Binary:
    from attn_doctor.binaries.pe import Pe

    pe = Pe(window)
    return Binary(format="pe", machine=pe.machine, needed=pe.needed())


def versions(path: str) -> Versions:
    """Read the symbol versions that the library at `path` requires and defines.

    Only ELF files have them. Raises `OSError` if it cannot be opened or read.
    """
    wants: dict[str, list[str]] = {}
    with closing(Window(path)) as window:
        try:
            elf = Elf(window)
            for one in elf.wanted():
                if not one.weak:
                    wants.setdefault(one.library, []).append(one.version)
            given = _highest(elf.given())
        except DamagedError as error:
            return Versions(damaged=str(error))
    return Versions(wants={name: _highest(names) for name, names in wants.items()}, gives=given)


def _highest(names: Iterable[str]) -> tuple[str, ...]:
    """Return the highest of each numbered series (`GLIBC_2.34`), and all other names."""
    best: dict[str, tuple[tuple[int, ...], str]] = {}
    for version in names:
        series, _, number = version.rpartition("_")
        parts = number.split(".")
        if not series or not all(part.isdecimal() and len(part) < 9 for part in parts):
            best[version] = ((), version)
        else:
            one = (tuple(map(int, parts)), version)
            best[series] = max(best.get(series, one), one)
    return tuple(sorted(version for _, version in best.values()))


def gpu_code(path: str, most: int = 0, seconds: float = 0.0) -> GpuCode:
    """Read the GPU code in the library at `path`.

    At most `most` of its fat binaries are read (0: all), for at most `seconds` (0: no limit).
    Raises `OSError` if it cannot be opened or read.
    """
    end = time.monotonic() + seconds if seconds else float("inf")
    with closing(Window(path)) as window:
        try:
            places = _sections(window)
        except DamagedError as error:
            return GpuCode(whole=False, damaged=str(error))
        from attn_doctor.binaries import fatbin

        code = fatbin.walk(window, places, most, lambda: time.monotonic() > end)
    return GpuCode(
        cubins=dict(code.cubins),
        ptx=dict(code.ptx),
        isa=f"{code.isa[0]}.{code.isa[1]}" if code.ptx else "",
        whole=code.whole,
        damaged=code.damaged,
    )


def _sections(window: Window) -> list[tuple[int, int]]:
    """Return the sections with the fat binaries that count."""
    if window.take(0, 2) == b"MZ":
        from attn_doctor.binaries.pe import Pe

        sections = Pe(window).sections
    else:
        sections = Elf(window).sections
    from attn_doctor.binaries import fatbin

    return list(sections(fatbin.EXECUTABLE)) or list(sections(fatbin.RELOCATABLE))
