"""What is told of one shared library or extension, as the `Host` answers it."""

from __future__ import annotations

from msgspec import Struct


class Binary(Struct, frozen=True, kw_only=True):
    """What one library needs and offers, read and not loaded."""

    format: str = ""
    """`elf` or `pe`; empty if it is neither."""
    machine: str = ""
    """Processor, as `uname -m` names it."""
    soname: str = ""
    """The name other files need it by; empty if it has none."""
    needed: tuple[str, ...] = ()
    """Names of the libraries it needs, in the order the loader takes them."""
    rpath: tuple[str, ...] = ()
    """Folders for them, which also serve what those load in turn."""
    runpath: tuple[str, ...] = ()
    """Folders for them alone."""
    damaged: str = ""
    """What is wrong with the file; empty if nothing is."""


class Versions(Struct, frozen=True, kw_only=True):
    """Versions of libraries; of a numbered series (`GLIBC_2.34`) the highest."""

    wants: dict[str, tuple[str, ...]] = {}
    """Those that one library wants of others."""
    gives: tuple[str, ...] = ()
    """Those that it offers."""
    damaged: str = ""
    """What is wrong with the file; empty if nothing is."""


class GpuCode(Struct, frozen=True, kw_only=True):
    """The code for GPUs in one library."""

    cubins: dict[str, int] = {}
    """Machine code by code name (`90a`), with the number of pieces."""
    ptx: dict[str, int] = {}
    """PTX, likewise."""
    isa: str = ""
    """Highest PTX version, such as `8.7`; empty without PTX."""
    whole: bool = True
    """All of it was counted."""
    damaged: str = ""
    """What is wrong with the file; empty if nothing is. What was counted before stands."""


class Unresolved(Struct, frozen=True, kw_only=True):
    """Symbols that a file leaves open and no library defines, those of Python's own left out."""

    count: int = 0
    """How many there are."""
    torch: int = 0
    """How many of them belong to torch."""
    first: tuple[str, ...] = ()
    """A few of them as the linker writes them, torch's own first."""
    other_abi: bool = False
    """Those of torch are all there in the spelling of the other C++ ABI."""
    cxx11_abi: bool | None = None
    """The C++ ABI that its calls into torch are written in; None if they do not show it."""
    damaged: str = ""
    """Why it could not be told, naming the file; empty if it could."""
