"""Lists the symbols of extensions that no library defines, with those of torch counted apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing

from attn_doctor.binaries.binary import Unresolved
from attn_doctor.binaries.elf import Elf
from attn_doctor.binaries.symbols import Library, gnu_hash, undefined_symbols
from attn_doctor.binaries.window import DamagedError, Window

#: Symbols of torch: in the namespaces c10, c10d, at, torch and caffe2, or of its C interface.
_TORCH = re.compile(
    rb"_Z(?:T[ISVT]|GV)?(?:NK?[RO]?|K)?(?:3c10|4c10d|2at|5torch|6caffe2)|aoti_torch_|torch_"
)
#: Symbols of the interpreter itself; the extension's file name says which one it needs.
_PYTHON = (b"Py", b"_Py")
_NEW_STRING = b"NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
#: A string of the old ABI as an argument: by reference, or the last one by value.
_OLD_STRING = re.compile(rb"(?<=[ORK])Ss|Ss$")
#: Number of names that are returned.
SHOWN = 5


def of_torch(name: bytes) -> bool:
    """Whether a mangled name belongs to torch: to its C++ namespaces or its C interface."""
    return _TORCH.match(name) is not None


def unresolved(
    needs: Sequence[tuple[str, Sequence[str]]], versioned: bool = False
) -> list[Unresolved]:
    """Find for each extension the symbols that none of its libraries defines.

    Symbols with a version are omitted unless `versioned`: a library that belongs to the extension
    has them if it defines their versions (`read.versions`). With `versioned` they are looked up by
    name. For an extension or library that cannot be read, `damaged` is set.
    """
    with ExitStack() as files:
        pool = _Pool(files)
        return [_unresolved(path, libraries, pool, versioned) for path, libraries in needs]


def _unresolved(path: str, libraries: Sequence[str], pool: _Pool, versioned: bool) -> Unresolved:
    try:
        with closing(Window(path)) as window:
            symbols = undefined_symbols(Elf(window))
            names = [one.name for one in symbols if versioned or not one.versioned]
    except (DamagedError, OSError) as error:
        return Unresolved(damaged=f"{path}: {_reason(error)}")
    names = [name for name in names if not name.startswith(_PYTHON)]
    try:
        missing = [name for name in names if not pool.have(name, libraries)]
        torchs = [name for name in missing if of_torch(name)]
        # If only some are defined, it was built for another torch too.
        other_abi = bool(torchs) and all(
            any(pool.have(other, libraries) for other in _in_other_abi(name)) for name in torchs
        )
    except DamagedError as error:
        return Unresolved(damaged=str(error))
    missing.sort(key=lambda name: not _TORCH.match(name))  # those of torch first, else in order
    return Unresolved(
        count=len(missing),
        torch=len(torchs),
        first=tuple(name.decode("utf-8", "replace") for name in missing[:SHOWN]),
        other_abi=other_abi,
        cxx11_abi=_cxx11_abi(names),
    )


class _Pool:
    """Libraries, each opened at its first look-up, and the symbols found in them."""

    def __init__(self, files: ExitStack) -> None:
        self._files = files
        self._opened: dict[str, Library] = {}
        self._found: dict[bytes, str] = {}

    def have(self, name: bytes, libraries: Sequence[str]) -> bool:
        """Whether one of `libraries` defines `name`."""
        if self._found.get(name) in libraries:
            return True
        hashed = gnu_hash(name)
        for path in libraries:
            if self._open(path).has(name, hashed):
                self._found[name] = path
                return True
        return False

    def _open(self, path: str) -> Library:
        if path not in self._opened:
            try:
                window = self._files.enter_context(closing(Window(path)))
            except OSError as error:
                raise DamagedError(f"{path}: {_reason(error)}") from error
            self._opened[path] = Library(window, path)
        return self._opened[path]


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def _in_other_abi(name: bytes) -> Iterator[bytes]:
    """Yield a symbol in the spelling of the other C++ ABI, if it has a string in it."""
    if _NEW_STRING in name:
        yield name.replace(_NEW_STRING, b"Ss")
    elif b"Ss" in name and _OLD_STRING.search(name):
        yield _OLD_STRING.sub(_NEW_STRING, name)


def _cxx11_abi(names: Iterable[bytes]) -> bool | None:
    """Return whether calls into torch use the new C++ ABI; None if they do not show it."""
    old = None
    for name in names:
        if b"__cxx11" in name and _TORCH.match(name):
            return True
        if b"Ss" in name and _OLD_STRING.search(name) and _TORCH.match(name):
            old = False
    return old
