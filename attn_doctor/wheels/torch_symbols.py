"""The symbols that a torch defines: of the installed one, or of a release.

Those of an installed torch are looked up in its libraries. PyTorch's wheels keep the tables of
symbols at the end of each library, behind hundreds of megabytes, so that those of a release cannot
be read from afar. A table has the symbols that known extensions use, for each release.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from functools import cache
from typing import NamedTuple, Protocol

from attn_doctor.binaries.symbols import Library, gnu_hash
from attn_doctor.binaries.window import DamagedError, Window
from attn_doctor.files import DATA, is_file, read_text
from attn_doctor.wheels.ranges import WheelError

#: Libraries of torch whose symbols extensions use, in `torch/lib`, the most likely first.
LIBRARIES = (
    "libc10.so",
    "libtorch_cpu.so",
    "libtorch_python.so",
    "libc10_cuda.so",
    "libtorch_cuda.so",
    "libtorch.so",
)


class TorchSymbols(Protocol):
    """A torch whose symbols are known."""

    @property
    def torch(self) -> str:
        """Its version."""

    @property
    def cuda(self) -> str:
        """CUDA version that it was built for; empty if there is none or it is unknown."""

    @property
    def has_cuda(self) -> bool:
        """It was built for CUDA."""

    def defines(self, name: str) -> bool | None:
        """Whether one of its libraries defines the mangled `name`; None if that is unknown."""


class InstalledTorch:
    """The torch in a folder. Close it with `with`. Raises `WheelError` if it cannot be read."""

    def __init__(self, folder: str, torch: str, cuda: str = "") -> None:
        self.torch, self.cuda = torch, cuda
        self._files = ExitStack()
        self._libraries: list[Library] = []
        paths = [os.path.join(folder, "lib", name) for name in LIBRARIES]
        self.has_cuda = is_file(paths[LIBRARIES.index("libtorch_cuda.so")])
        try:
            for path in filter(is_file, paths):
                window = self._files.enter_context(closing(Window(path)))
                self._libraries.append(Library(window, path))
        except (DamagedError, OSError) as error:
            self._files.close()
            raise WheelError(f"the installed torch cannot be read: {error}") from None
        if not self._libraries:
            raise WheelError(f"the libraries of torch are not in {folder}")

    def __enter__(self) -> InstalledTorch:  # noqa: PYI034 (Self is newer than Python 3.10)
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def defines(self, name: str) -> bool | None:
        """Whether one of its libraries defines the mangled `name`."""
        raw = name.encode()
        hashed = gnu_hash(raw)
        try:
            return any(library.has(raw, hashed) for library in self._libraries)
        except DamagedError as error:
            raise WheelError(f"the installed torch cannot be read: {error}") from None


class _Table(NamedTuple):
    releases: tuple[str, ...]
    symbols: dict[int, int]
    """Hash of a name → the releases that define it, a bit for each."""


class ReleasedTorch:
    """A release of torch for CUDA, by the table. Raises `WheelError` if the table lacks it."""

    has_cuda = True

    def __init__(self, table: str, torch: str, cuda: str = "") -> None:
        self.torch, self.cuda = torch, cuda
        try:
            found = _table(table)
        except OSError as error:
            raise WheelError(f"the table of torch's symbols: {error.strerror}") from None
        release = torch.partition("+")[0]
        if release not in found.releases:
            raise WheelError(f"the symbols of torch {release} are not in the tables")
        self._bit = 1 << found.releases.index(release)
        self._symbols = found.symbols

    def defines(self, name: str) -> bool | None:
        """Whether it defines the mangled `name`; None if the table does not list the name."""
        mask = self._symbols.get(gnu_hash(name.encode()))
        return None if mask is None else bool(mask & self._bit)


@cache
def _table(path: str) -> _Table:
    lines = read_text(path, DATA).splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return _Table(
        releases=tuple(rows[0][1:]),
        symbols={int(row[0], 16): int(row[1], 16) for row in rows[1:]},
    )


def table_text(releases: list[str], defined: dict[str, set[str]]) -> str:
    """Return the table for symbols, each with the releases that define it."""
    lines = ["releases\t" + "\t".join(releases)]
    for name, those in sorted(defined.items(), key=lambda one: gnu_hash(one[0].encode())):
        mask = sum(1 << number for number, one in enumerate(releases) if one in those)
        lines.append(f"{gnu_hash(name.encode()):08x}\t{mask:x}")
    return "\n".join(lines) + "\n"
