"""The user's cache folder for libraries that were compiled here, and whether they may be loaded.

Such a library is loaded into every process of a build. So it is taken only from folders that no
other user than root can write to, and only if it is unchanged since it was compiled.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import DATA, TEXT, read_bytes
from attn_doctor.ownership import require
from attn_doctor.worker.ownership import of_entry

_SUMS = "sha256"


def root(environ: Mapping[str, str]) -> Path:
    """`$XDG_CACHE_HOME/attn-doctor/stub-gpu`, else below `~/.cache`; links followed.

    Raises `AttnDoctorError` where neither XDG_CACHE_HOME nor HOME names a folder.
    """
    cache, home = environ.get("XDG_CACHE_HOME", ""), environ.get("HOME", "")
    if os.path.isabs(cache):  # the specification says to ignore a relative one
        base = Path(cache)
    elif os.path.isabs(home):
        base = Path(home, ".cache")
    else:
        raise AttnDoctorError(
            "the stub GPU is compiled into your cache folder, and neither XDG_CACHE_HOME nor HOME"
            " names one; set XDG_CACHE_HOME to a folder of yours"
        )
    return Path(os.path.realpath(base), "attn-doctor", "stub-gpu")


def kept(folder: Path, names: tuple[str, ...], make: Callable[[Path], None]) -> Path:
    """`folder` with the files `names`, which `make` writes into an empty folder if need be.

    Raises `AttnDoctorError` if others could change them, or if the folder cannot be written.
    """
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _guarded(folder.parent)
        if _sound(folder, names):
            return folder
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as scratch:
            made = Path(scratch, "made")
            made.mkdir(mode=0o700)
            make(made)
            _sum(made, names)
            _replace(folder, made, Path(scratch, "damaged"), names)
    except OSError as error:
        raise AttnDoctorError(
            f"the stub GPU cannot be kept in {folder.parent}: {error.strerror}"
            f" ({error.filename}); set XDG_CACHE_HOME to a folder that you can write to"
        ) from error
    return folder


def _guarded(folder: Path) -> None:
    """Raise if another user decides what is in `folder`, or libraries cannot be loaded there."""
    require(folder, "set XDG_CACHE_HOME to a folder that is yours alone")
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        raise AttnDoctorError(
            f"{folder} is mounted noexec, so that no library can be loaded from it; set"
            " XDG_CACHE_HOME to a folder on another file system"
        )


def _sound(folder: Path, names: tuple[str, ...]) -> bool:
    """It exists, belongs to this user alone, and is unchanged. False also if it is damaged."""
    try:
        if not _ours(folder, stat.S_ISDIR):
            return False
        if not all(_ours(folder / name, stat.S_ISREG) for name in (*names, _SUMS)):
            return False
        return read_bytes(folder / _SUMS, TEXT, follow=False).decode() == _sums(folder, names)
    except (OSError, UnicodeDecodeError):
        return False


def _ours(path: Path, kind: Callable[[int], bool]) -> bool:
    found = os.lstat(path)
    return kind(found.st_mode) and of_entry(os.fspath(path), found) is None


def _sums(folder: Path, names: tuple[str, ...]) -> str:
    parts = {name: read_bytes(folder / name, DATA, follow=False) for name in names}
    return "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in parts.items())


def _sum(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        os.chmod(folder / name, 0o700)
    (folder / _SUMS).write_text(_sums(folder, names))
    os.chmod(folder / _SUMS, 0o600)


def _replace(folder: Path, made: Path, damaged: Path, names: tuple[str, ...]) -> None:
    """Move `made` to `folder`, unless another process just did."""
    if os.path.lexists(folder) and not _sound(folder, names):
        folder.rename(damaged)
    with contextlib.suppress(OSError):  # another process was faster
        made.rename(folder)
    if not _sound(folder, names):
        raise AttnDoctorError(f"{folder} changed while it was compiled; try again")
