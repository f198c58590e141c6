"""Writes the files that a user names, such as reports and rules, and leaves none half written."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from attn_doctor.cli.streams import PLAIN
from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import replacing
from attn_doctor.render.edge import safe
from attn_doctor.worker import reach

#: Errors of a file that can be written, but not replaced: a file that a container mounts
#: (Kubernetes: /dev/termination-log), a folder that this user may not change.
_NOT_REPLACED = {errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS}


def write(path: str | Path, text: str, *, commands: bool = False) -> None:
    """Write `text` to a file in one step: a reader sees the old content or the new one.

    A device or a pipe (`>(program)`, /dev/stdout) is written to, and never replaced. `commands`:
    it consists of commands of a CI service. Raises `AttnDoctorError` if writing fails. The old
    content stays then, unless the file can be written but not replaced, as in a read-only folder.
    """
    path = Path(path)
    data = encoded(text, commands=commands)
    try:
        found = _status(path)
        if found is not None and not stat.S_ISREG(found.st_mode):
            path.write_bytes(data)
            return
        real = _target(path)
        mode = None if found is None or not _ours(found) else stat.S_IMODE(found.st_mode)
        try:
            with replacing(real, mode) as file:
                file.write(data)
        except OSError as error:
            if found is None or error.errno not in _NOT_REPLACED:
                raise
            real.write_bytes(data)
    except OSError as error:
        raise _failure(path, error) from None


def write_new(
    files: Mapping[Path, str],
    *,
    overwrite: bool = False,
    folders: bool = False,
    remedy: str = "choose another name",
) -> None:
    """Write text files: all of them, or none. `folders`: make their folders.

    A device or a pipe, such as /dev/null or NUL, is written to, and never replaced. Raises
    `AttnDoctorError` if a file exists, unless `overwrite`, or cannot be written.
    """
    path = Path()
    try:
        with ExitStack() as stack:
            for path, text in files.items():
                found = _status(path)
                if found is not None and _is_special(found):
                    path.write_bytes(encoded(text))
                    continue
                if folders:
                    path.parent.mkdir(parents=True, exist_ok=True)
                draft = stack.enter_context(replacing(_target(path), new=not overwrite))
                draft.write(encoded(text))
                draft.flush()
    except FileExistsError:
        exists = next((str(one) for one in files if one.exists()), str(path))
        raise AttnDoctorError(f"{exists} exists; {remedy}") from None
    except OSError as error:
        raise _failure(path, error) from None


def encoded(text: str, *, commands: bool = False) -> bytes:
    """A page as the content of a file."""
    return safe(text, commands=commands).encode("utf-8", PLAIN)


def append(path: str, data: bytes) -> None:
    """Append `data` to a file, or leave it as it is. Raises `OSError`."""
    with open(path, "ab", buffering=0) as file:
        before, rest = file.tell(), memoryview(data)
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            with suppress(OSError):
                file.truncate(before)
            raise


def _status(path: Path) -> os.stat_result | None:
    """What is there, links followed; None if nothing is. Raises `AttnDoctorError` for a trap."""
    reach.refuse(path)
    try:
        named = path.lstat()
        if stat.S_ISFIFO(named.st_mode) and not _ours(named):
            raise AttnDoctorError(f"{path} is a pipe {_REFUSED.format(named.st_uid)}")
        return path.stat()
    except FileNotFoundError:
        return None


def _is_special(found: os.stat_result) -> bool:
    """A device, a pipe or a socket: it is written to, and a file in its place would be a loss."""
    return not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode)


def _target(path: Path) -> Path:
    """The file that a symbolic link stands for, so that a link stays a link.

    Raises `AttnDoctorError` for a link of another user, which may lead to any file of this one.
    """
    reach.refuse(path)
    for _ in range(40):  # as many as Linux follows
        try:
            found = path.lstat()
        except FileNotFoundError:
            return path
        if not stat.S_ISLNK(found.st_mode):
            return path
        if not _ours(found):
            raise AttnDoctorError(f"{path} is a symbolic link {_REFUSED.format(found.st_uid)}")
        path = path.parent / os.readlink(path)
    return path


_REFUSED = "that another user made (uid {}): remove it, or choose another name"


def _ours(found: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or found.st_uid in (0, os.geteuid())


def _failure(path: Path, error: OSError) -> AttnDoctorError:
    why = error.strerror or str(error)
    if error.errno == errno.ENOENT and not path.parent.is_dir():
        why = f"the folder {path.parent} does not exist"
    return AttnDoctorError(f"{path} cannot be written: {why}")
