"""Results of reading one shared library or extension, as the `Host` returns them."""

from msgspec import Struct


class Binary(Struct, frozen=True, kw_only=True):
    """What one library needs and provides, read and not loaded."""

    format: str = ""
    """`elf` or `pe`; empty if it is neither."""
    machine: str = ""
    """Processor, as `uname -m` names it."""
    soname: str = ""
    """The name by which other files need it; empty if it has none."""
    needed: tuple[str, ...] = ()
    """Names of the libraries it needs, in the order the loader takes them."""
    rpath: tuple[str, ...] = ()
    """Folders for these libraries, and for the libraries that they need."""
    runpath: tuple[str, ...] = ()
    """Folders for these libraries only."""
    damaged: str = ""
    """What is wrong with the file; empty if nothing is."""
    unread: bool = False
    """The file could not be read, for the reason in `damaged`; it may be whole."""


class Versions(Struct, frozen=True, kw_only=True):
    """Symbol versions; of a numbered series (`GLIBC_2.34`) the highest."""

    wants: dict[str, tuple[str, ...]] = {}
    """Versions that the library requires, by library."""
    gives: tuple[str, ...] = ()
    """Versions that it defines."""
    damaged: str = ""
    """What is wrong with the file; empty if nothing is."""


class GpuCode(Struct, frozen=True, kw_only=True):
    """The code for GPUs in one library."""

    cubins: dict[str, int] = {}
    """Number of machine code entries by architecture (`90a`)."""
    ptx: dict[str, int] = {}
    """Number of PTX entries, likewise."""
    isa: str = ""
    """Highest PTX version, such as `8.7`; empty without PTX."""
    whole: bool = True
    """All of the file was counted."""
    damaged: str = ""
    """What is wrong with the file; empty if nothing is. Entries before the fault are counted."""


class Unresolved(Struct, frozen=True, kw_only=True):
    """Symbols of a file that no library defines, without those of Python itself."""

    count: int = 0
    """Their number."""
    torch: int = 0
    """Number of those that belong to torch."""
    first: tuple[str, ...] = ()
    """A few of them, mangled, those of torch first."""
    other_abi: bool = False
    """All of torch's are defined in the spelling of the other C++ ABI."""
    cxx11_abi: bool | None = None
    """Its calls into torch use the new C++ ABI; None if they do not show it."""
    damaged: str = ""
    """Why the symbols are unknown, with the file; empty if they are known."""
