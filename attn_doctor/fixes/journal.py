"""Records what one run of `fix` does, before and after each action.

A journal is a folder with `journal.jsonl`, to which lines are only ever appended, each flushed to
the disk before the next thing happens, and with copies of the files that were changed. Each line
has a checksum. A run that was killed leaves a journal without its last line, and its lock is free:
a running run holds it.

Journals are in the user's state folder, never in the examined environment. platformdirs is not used
for it: it guesses a home from the password database, and without a named home fix must refuse to
change anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import DATA, open_binary, read_bytes, sync, write_atomic
from attn_doctor.fixes.locks import is_locked, lock
from attn_doctor.fixes.path_state import Changes, contents, digest
from attn_doctor.ownership import require
from attn_doctor.redact import redact_all
from attn_doctor.worker import reach

#: File in each folder that a run made, with the run's id: only such a folder is ever removed.
MARKER = ".attn-doctor-made"
_FILE = "journal.jsonl"
#: Seconds between two signs of life of a run.
_BEAT = 0.05
#: Events that decide the state of a run.
_ENDS = ("end", "undoing", "undone", "redoing")
#: Data of an event that are for readers. Undo needs the others as they are, such as paths.
_WORDS = ("title", "run", "detail", "error", "faults")
#: An event that begins to change the environment back → the events that end it.
_CLOSED_BY = {
    "undoing": ("undone", "end"),
    "redoing": ("end",),
    "rolling back": ("rolled back",),
}
_T = TypeVar("_T")


class Journal:
    """The open journal of one run. Use `begin`, which always closes it."""

    def __init__(self, folder: Path, lock_handle: int) -> None:
        self.folder = folder
        self.id = folder.name
        self.lock_handle = lock_handle
        """File descriptor that holds the lock; an installer inherits it, so that an installer
        which outlives a killed run counts as running."""
        self._made: list[Path] = []
        self._file = os.open(folder / _FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, event: str, **data: object) -> None:
        """Append one line and wait until the disk has it. Raises `AttnDoctorError` if it fails."""
        shown = {name: redact_all(one) if name in _WORDS else one for name, one in data.items()}
        line = {"event": event, "time": time.time(), **shown}
        try:
            _write_all(self._file, (json.dumps({**line, "sum": _sum(line)}) + "\n").encode())
            os.fsync(self._file)
        except OSError as error:
            raise AttnDoctorError(
                f"{self.folder / _FILE} cannot be written: {error.strerror}; fix stops here"
            ) from None

    def record(self, label: str, data: msgspec.Struct) -> None:
        """Write `data` to a file of the journal, and its digest to the journal.

        Raises `AttnDoctorError` if that fails.
        """
        text = json.dumps(msgspec.to_builtins(data)).encode()  # names may not be UTF-8
        path = self.folder / f"{label}.json"
        try:
            write_atomic(path, text, 0o600)
        except OSError as error:
            raise AttnDoctorError(f"{path} cannot be written: {error.strerror}") from None
        self.note("recorded", label=label, digest=hashlib.sha256(text).hexdigest())

    def write_file(self, path: str | Path, data: bytes, mode: int | None = None) -> Path:
        """Write `data` to `path` by one rename, after a copy of the old file is safe on disk.

        A symbolic link is followed, so that it stays a link; the file it leads to is returned and
        journalled. `mode` is for a new file; an existing one keeps its own. Raises
        `AttnDoctorError` if the file belongs to another user or cannot be written.
        """
        real = Path(os.path.realpath(path))
        try:
            before = _before(real)
            kept = ""
            if before is not None:
                kept = f"file-{len(os.listdir(self.folder))}"
                _copy(real, self.folder / kept)
            self.note(
                "file",
                path=str(real),
                kept=kept,
                before=digest(real) if before is not None else "",
                after=hashlib.sha256(data).hexdigest(),
            )
            _replace(real, data, before, mode)
        except OSError as error:
            raise AttnDoctorError(f"{real} cannot be written: {error.strerror}") from None
        return real

    def make_folder(self, path: str | Path) -> Path:
        """Make a folder that undo may remove with all its contents.

        Raises `AttnDoctorError` if something is there already.
        """
        real = Path(os.path.realpath(os.path.dirname(os.path.abspath(path))), Path(path).name)
        self.note("folder", path=str(real))
        self._made.append(real)
        try:
            real.mkdir(parents=True)
            (real / MARKER).write_text(self.id + "\n", encoding="utf-8")
        except FileExistsError:
            raise AttnDoctorError(f"{real} exists; choose another folder") from None
        except OSError as error:
            raise AttnDoctorError(f"{real} cannot be made: {error.strerror}") from None
        return real

    def record_folder(self, folder: Path) -> None:
        """Record all that is in a folder of `make_folder`: undo removes that. Raises `OSError`."""
        self.record(f"folder-{self._made.index(folder)}", Changes(items=contents(str(folder))))

    def close(self) -> None:
        """Close the file and release the lock."""
        os.close(self._file)
        os.close(self.lock_handle)


class Run:
    """A journal that is read: what a run planned, what it did, and how it ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.id = folder.name
        self.lines, self.damage = _lines(folder / _FILE)

    def first(self, event: str) -> Mapping[str, Any]:
        """The first line of that kind, or nothing."""
        return next(self.all(event), {})

    def all(self, event: str) -> Iterator[Mapping[str, Any]]:
        """All lines of that kind, in order."""
        return (line for line in self.lines if line["event"] == event)

    def recorded(self, label: str, kind: type[_T]) -> _T | None:
        """Return what the run recorded last under that label; None if it recorded nothing.

        Raises `AttnDoctorError` if the record is damaged.
        """
        found = [line for line in self.all("recorded") if line["label"] == label]
        if not found:
            return None
        path = self.folder / f"{label}.json"
        try:
            text = read_bytes(path, 2 * DATA)
            if hashlib.sha256(text).hexdigest() == found[-1]["digest"]:
                return msgspec.convert(json.loads(text), kind)
        except (OSError, ValueError, RecursionError):
            pass
        raise AttnDoctorError(damaged(path))

    @property
    def state(self) -> str:
        """`running`, `interrupted`, `undone`, or how it ended: `done`, `failed`, `stopped`.

        `damaged` if the journal cannot be trusted.
        """
        ended = [line for line in self.lines if line["event"] in _ENDS]
        if is_locked(self.folder / "lock"):
            return "running"
        if self.damage:
            return "damaged"
        if not ended or self.cut_off:
            return "interrupted"
        return "undone" if ended[-1]["event"] == "undone" else str(ended[-1]["result"])

    @property
    def cut_off(self) -> bool:
        """Its undo, its redo or the roll-back of a step began and did not end."""
        begun = ""
        for event in (str(line["event"]) for line in self.lines):
            if event in _CLOSED_BY:
                begun = event
            elif event in _CLOSED_BY.get(begun, ()):
                begun = ""
        return bool(begun)

    @property
    def title(self) -> str:
        """The requested fixes."""
        return str(self.first("begin").get("title", "unreadable"))

    @property
    def python(self) -> str:
        """The interpreter whose environment it changed."""
        return str(self.first("begin").get("python", ""))

    @property
    def when(self) -> float:
        """When it began, in seconds since 1970; 0 if that cannot be read."""
        return float(self.first("begin").get("time", 0.0))

    @property
    def changed(self) -> bool:
        """It began to change something that undo can restore, or that is unknown.

        A step that failed and was rolled back changed nothing.
        """
        steps: set[str] = set()
        for line in self.lines:
            if line["event"] == "packages":
                steps.add(line["label"])
            elif line["event"] in ("rolled back", "unkept"):
                steps.discard(line["label"])
        return bool(self.damage or steps) or any(
            line["event"] in ("file", "folder") for line in self.lines
        )


@contextlib.contextmanager
def begin(environ: Mapping[str, str], title: str, python: str = "") -> Iterator[Journal]:
    """Open a new journal. Its end is written in every case, if the disk can be written.

    Raises `AttnDoctorError` if the state folder is missing or cannot be written.
    """
    folder = fixes_folder(environ) / _new_id()
    require(folder.parent, "set XDG_STATE_HOME to a folder of yours")
    try:
        folder.mkdir(parents=True, mode=0o700)
        handle = lock(folder / "lock")
    except OSError as error:
        raise AttnDoctorError(
            f"{folder} cannot be written ({error.strerror}), and without a journal nothing could"
            " be undone; set XDG_STATE_HOME to a folder of yours with free space"
        ) from None
    journal = Journal(folder, handle)
    try:
        journal.note("begin", title=title, python=python, process=os.getpid())
        sync(folder.parent)
        yield journal
    except BaseException as error:
        with contextlib.suppress(AttnDoctorError):
            stopped = isinstance(error, KeyboardInterrupt)
            journal.note("end", result="stopped" if stopped else "failed", error=str(error))
        raise
    else:
        if not any(line["event"] == "end" for line in _lines(folder / _FILE)[0]):
            journal.note("end", result="done")
    finally:
        journal.close()


@contextlib.contextmanager
def reopen(run: Run) -> Iterator[Journal]:
    """Open the journal of an earlier run, to record its undo."""
    try:
        handle = lock(run.folder / "lock")
    except OSError:
        raise AttnDoctorError(f"run {run.id} is still running; wait for it, or end it") from None
    _cut_incomplete_line(run.folder / _FILE)
    journal = Journal(run.folder, handle)
    try:
        yield journal
    finally:
        journal.close()


def _cut_incomplete_line(path: Path) -> None:
    """Remove a last line that was not written completely, before more lines follow."""
    text = read_bytes(path, DATA)
    os.truncate(path, text.rfind(b"\n") + 1)


def runs(environ: Mapping[str, str]) -> list[Run]:
    """Return all runs with a journal, the newest first; none without a state folder.

    Raises `OwnershipError` if another user decides what is in a journal, and `NoAnswerError` if
    the folder is on a disk that does not answer.
    """
    try:
        folder = fixes_folder(environ)
        reach.refuse(folder)
        names = sorted(os.listdir(folder), reverse=True)
    except reach.NoAnswerError:
        raise
    except (AttnDoctorError, OSError):
        return []
    found = [folder / name for name in names if (folder / name / _FILE).is_file()]
    for one in found:
        require(one / _FILE)
    return [Run(one) for one in found]


@contextlib.contextmanager
def alive(path: str | Path) -> Iterator[None]:
    """Touch the file at `path` while the block runs, to tell when a run was killed."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_BEAT):
            with contextlib.suppress(OSError):
                os.utime(path)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _new_id() -> str:
    """An id that sorts by time to the millisecond: `20261121-150233042-7c`."""
    now = time.time()
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}{int(now * 1000) % 1000:03d}-" + (
        secrets.token_hex(1)
    )


def _before(real: Path) -> os.stat_result | None:
    """The file's state, or None. Raises `AttnDoctorError` if it is not the user's own file."""
    try:
        found = real.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise AttnDoctorError(f"{real} is not a regular file; it was not changed")
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise AttnDoctorError(
            f"{real} belongs to user {found.st_uid}, not to you ({os.getuid()}); it was not changed"
        )
    return found


def _copy(real: Path, kept: Path) -> None:
    with open_binary(real) as old, kept.open("xb") as new:
        shutil.copyfileobj(old, new)
        new.flush()
        os.fsync(new.fileno())  # Windows refuses this for a file that is open for reading only
    shutil.copystat(real, kept)


def _replace(real: Path, data: bytes, before: os.stat_result | None, mode: int | None) -> None:
    """Write beside `real`, flush, and rename over it: a reader sees the old file or the new one."""
    real.parent.mkdir(parents=True, exist_ok=True)
    wanted = stat.S_IMODE(before.st_mode) if before is not None else mode or 0o644
    write_atomic(real, data, wanted)


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data) :]


def _lines(path: Path) -> tuple[tuple[dict[str, Any], ...], str]:
    """The journal's lines, and a sentence if it is damaged.

    The last line is left out if it is not complete: the run was killed while it was written.
    """
    try:
        *whole, _ = read_bytes(path, DATA).split(b"\n")
    except OSError as error:
        return (), f"{path} cannot be read: {error.strerror}"
    found, damage = [], ""
    for line in whole:
        try:
            data = json.loads(line)
            if data.pop("sum") == _sum(data) and isinstance(data["event"], str):
                found.append(data)
                continue
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass
        damage = damage or damaged(path)
    return tuple(found), damage


def damaged(path: Path) -> str:
    """Return a sentence that `path`, which belongs to a journal, is damaged."""
    return (
        f"{path} is damaged, so its run cannot be undone safely; nothing was changed. `attn-doctor"
        f" fix forget {path.parent.name}` keeps the environment as it is and deletes the copies."
    )


def _sum(line: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()[:16]


def fixes_folder(environ: Mapping[str, str], *, windows: bool = os.name == "nt") -> Path:
    """Return the folder that holds one folder for each run of `fix`; it need not exist yet.

    `$XDG_STATE_HOME/attn-doctor/fixes`, else `~/.local/state/attn-doctor/fixes`; on Windows
    below `%LOCALAPPDATA%`. Raises `AttnDoctorError` where none of these is set.
    """
    state = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # the specification says to ignore a relative one
        return Path(state, "attn-doctor", "fixes")
    if windows and environ.get("LOCALAPPDATA"):
        return Path(environ["LOCALAPPDATA"], "attn-doctor", "fixes")
    home = environ.get("USERPROFILE" if windows else "HOME", "")
    if os.path.isabs(home):
        return Path(home, ".local", "state", "attn-doctor", "fixes")
    raise AttnDoctorError(
        "fix keeps what undo needs in your state folder, and neither XDG_STATE_HOME nor HOME"
        " names one; set XDG_STATE_HOME to a folder that lasts, then run fix again"
    )
