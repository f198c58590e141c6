"""Answers the questions of a `Host` for this machine.

Questions about files raise `OSError` as the operating system does; only `measure` skips what it
cannot read.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from attn_doctor import interpreter_child, processes
from attn_doctor.errors import OwnershipError
from attn_doctor.files import open_binary, read_bytes, read_lines, read_text
from attn_doctor.host import Host, stat_kind
from attn_doctor.json_files import JsonError, decode
from attn_doctor.logger import Logger
from attn_doctor.worker import ownership, reach

#: Bytes that are read at once where a file begins with headers.
_HEAD = 1 << 13


def _read(path: str, limit: int) -> str:
    """Return the first `limit` bytes of a file, as text."""
    return read_text(path, limit, cut=True)


def _checksum(path: str, limit: int) -> str:
    """Return the size and the CRC-32 of the first `limit` bytes of a file."""
    import zlib  # quicker to import than hashlib

    content = read_bytes(path, limit, cut=True)
    return f"{len(content)}-{zlib.crc32(content):08x}"


def _head(path: str, limit: int) -> str:
    """Return the lines of a file up to an empty one, at most `limit` bytes.

    A line of blanks is not empty: the text of a license in METADATA may have some.
    """
    text = b""
    with open_binary(path) as file:
        while len(text) < limit and (more := file.read(min(_HEAD, limit - len(text)))):
            text += more
            ends = [text.find(empty) + 1 for empty in (b"\n\n", b"\n\r\n")]
            if any(ends):
                return text[: min(filter(None, ends))].decode("utf-8", "replace")
    return text.decode("utf-8", "replace")


def _grep(path: str, needles: Sequence[str], limit: int) -> list[str]:
    """Return the lines with one of `needles` in the first `limit` bytes of a file."""
    wanted = [needle.encode() for needle in needles]
    lines = (line for text in read_lines(path, limit) for line in _with_one(text, wanted))
    return [line.decode("utf-8", "replace") for line in lines]


def _with_one(text: bytes, wanted: Sequence[bytes]) -> list[bytes]:
    """Return the lines of a text with one of `wanted`, in order."""
    # Searched as a whole: a header of CUDA has 24,000 lines.
    blocks: dict[int, bytes] = {}
    for needle in wanted:
        at = text.find(needle)
        while at >= 0:
            start, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
            blocks[start] = text[start : end if end >= 0 else None]
            at = text.find(needle, end) if end >= 0 else -1
    lines = (line for start in sorted(blocks) for line in blocks[start].splitlines())
    return [line for line in lines if any(needle in line for needle in wanted)]


def _stat(path: str) -> dict[str, Any]:
    """Return the fields of a `Stat`."""
    found = os.stat(path)
    return {
        "kind": stat_kind(found.st_mode),
        "size": found.st_size,
        "mtime": found.st_mtime,
        "uid": found.st_uid,
        "mode": found.st_mode & 0o7777,
    }


#: A folder whose sources count although they are three folders deep.
_ATTENTION = "torch/nn/attention/"
#: What follows the name in each line of a RECORD that has a hash, as pip, uv and conda write it.
#: To search for it too is faster than to search for the end of a name alone.
_HASH = ",sha256="
#: Bytes of a RECORD that are read; that of torch has 1.3 million.
_RECORD = 1 << 23


# torch/_C.cpython-312-x86_64-linux-gnu.so,sha256=…,37584
# "name, with a comma.py",sha256=…,12
def _changed_files(info: str, seconds: float) -> list[tuple[str, int]]:
    """Return files that RECORD in the folder `info` lists and that differ.

    Each with its size, or -1 if it is gone, -2 if it is compiled for another processor, -3 if it is
    longer, -4 if this user may not read it, or not list its folder, -5 if it is compiled for
    another system. Only files count that an import may execute: compiled modules, sources at most
    two folders deep, those of torch's attention, and torch's helper program. Files of tests do not
    count, which people delete. What is not read after `seconds` is left out.
    """
    end = time.monotonic() + seconds
    site, name = os.path.split(info)
    found: list[tuple[str, int]] = []
    library = module = ""
    folders: dict[str, bool] = {}
    for lines in read_lines(os.path.join(info, "RECORD"), _RECORD):
        if time.monotonic() > end:
            break
        record = lines.decode("utf-8", "replace")
        library = library or _first(record, ".so")
        module = module or ("" if library else _first(record, ".pyd"))
        for path, size in _recorded(record, nvidia=name.startswith("nvidia")):
            place, folder = f"{site}{os.sep}{path}", path.rpartition("/")[0]
            if folder not in folders:
                folders[folder] = _can_be_listed(os.path.dirname(place))
            have = _differs(place, size, folders[folder])
            if have is not None:
                found.append((path, have))
    if os.name != "nt" and module and not library:
        found.append((module, -5))
    elif library and _is_of_musl(info):
        found.append((library, -5))
    return found


def _can_be_listed(folder: str) -> bool:
    """Whether Python can list a folder, as it does to import from it. True for one that is gone."""
    return os.access(folder, os.R_OK | os.X_OK) or not os.path.exists(folder)


def _differs(place: str, size: int, listed: bool) -> int | None:
    """Return what `_changed_files` says of a file of a RECORD; None if it is as recorded.

    `listed`: its folder can be listed.
    """
    try:
        seen = os.stat(place)
        # Most files may be read by everybody: no need to ask.
        if not listed or (seen.st_mode & 0o444 != 0o444 and not os.access(place, os.R_OK)):
            return -4
    except (FileNotFoundError, NotADirectoryError):
        return -1
    except PermissionError:
        return -4
    except (OSError, ValueError):  # a name may hold a NUL
        return None
    if seen.st_size != size:
        return seen.st_size if seen.st_size < size else -3
    return None if place.endswith(".py") else _made_for_others(place) or None


def _is_of_musl(info: str) -> bool:
    """Whether a wheel with compiled modules is for musl, and only the GNU C library is here."""
    if sys.platform != "linux":
        return False
    try:
        wheel = read_text(os.path.join(info, "WHEEL"), 1 << 14, cut=True)
        here = any(name.startswith("ld-musl-") for name in os.listdir("/lib"))
    except OSError:
        return False
    tags = [line for line in wheel.splitlines() if line.startswith("Tag: ")]
    return bool(tags) and all("-musllinux_" in one for one in tags) and not here


def _first(record: str, ending: str) -> str:
    """Return the first file of a RECORD whose name has that ending; empty if none has."""
    at = record.find(ending + _HASH)
    return record[record.rfind("\n", 0, at) + 1 : at + len(ending)] if at >= 0 else ""


def _recorded(record: str, *, nvidia: bool) -> list[tuple[str, int]]:
    """Return what a RECORD lists of the files that `_changed_files` looks at, with their sizes.

    Ends of names are searched in the whole text: of torch's 14,000 lines one in twenty counts.
    """
    record = record if record.endswith("\n") else f"{record}\n"
    # Every sixth line is a source; the others are few.
    parts = record.split(f".py{_HASH}")
    stems = [one[one.rfind("\n") + 1 :] for one in parts[:-1]]
    found = [
        (f"{stem}.py", size)
        for stem, rest in zip(stems, parts[1:], strict=True)
        if (stem.count("/") <= 2 or _ATTENTION in stem)
        and _counts(stem)
        and (size := _size(rest)) is not None
    ]
    if nvidia:
        wheels = re.findall(r"(?m)^(nvidia/[^,\n]+\.so\.\d+),[^,\n]*,(\d{1,15})\r?$", record)
        found += [(path, int(size)) for path, size in wheels]
    for name in (".pyd" if os.name == "nt" else ".so", "/torch_shm_manager"):
        marked = name + _HASH
        at = record.find(marked)
        while at >= 0:
            stem, after = record[record.rfind("\n", 0, at) + 1 : at], at + len(marked)
            if _counts(stem) and (size := _size(record, after)) is not None:
                found.append((stem + name, size))
            at = record.find(marked, after)
    return found


def _counts(stem: str) -> bool:
    """Whether a name of a RECORD is one that `_changed_files` looks at."""
    return stem[:1] not in "/." and "," not in stem and "/test" not in stem


def _size(record: str, at: int = 0) -> int | None:
    """Return the size at the end of a line of a RECORD; None if it is not a number.

    `at`: where the hash begins in `record`.
    """
    end = record.find("\n", at)
    try:
        return int(record[record.rfind(",", at, end) + 1 : end])
    except ValueError:
        return None


#: Processor → its number in the header of an ELF file.
_PROCESSORS = {"x86_64": 62, "aarch64": 183}


#: How compiled files of macOS and of Windows begin.
_OF_OTHERS = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ")


def _made_for_others(path: str) -> int:
    """Return -2 for an ELF file for another processor, -5 for a file of another system, else 0."""
    own = _PROCESSORS.get(os.uname().machine) if hasattr(os, "uname") else None
    try:
        head = read_bytes(path, 20, cut=True)
    except OSError:
        return 0
    if head[:4] != b"\x7fELF":
        return -5 if sys.platform == "linux" and head.startswith(_OF_OTHERS) else 0
    number = int.from_bytes(head[18:20], "little")
    return -2 if own is not None and number in _PROCESSORS.values() and number != own else 0


def _real(path: str) -> str:
    """Return what `os.path.realpath` does. The same folders are followed once."""
    folder, name = os.path.split(path)
    if name in ("", ".", ".."):
        return os.path.realpath(path)
    whole = os.path.join(_real_folder(folder), name)
    return os.path.realpath(whole) if os.path.islink(whole) else whole


@lru_cache(maxsize=256)
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


def _danger(
    question: Callable[[str], ownership.Danger | None],
) -> Callable[[str], str | None]:
    """Return a function that answers in a clause; on Windows, where owners are unknown, None."""
    return lambda path: None if os.name == "nt" else str(question(path) or "")


def _space(path: str) -> dict[str, int]:
    """Return the fields of a `Space`: bytes of the file system of `path`."""
    if hasattr(os, "statvfs"):
        # What `shutil.disk_usage` does, without the time that importing shutil takes.
        found = os.statvfs(path)
        return {"total": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}
    import shutil

    usage = shutil.disk_usage(path)
    return {"total": usage.total, "free": usage.free}


def _measure(path: str, seconds: float) -> dict[str, Any]:
    """Return the fields of a `Measure` of the tree below `path`, within `seconds`.

    `SURE` entries are counted in any time, so that a busy machine does not leave out a small cache.
    """
    end = time.monotonic() + seconds
    files = size = seen = 0
    newest = 0.0
    locks: list[str] = []
    danger: ownership.Danger | None = None
    pending = [path]
    while pending:
        if seen > SURE and time.monotonic() > end:
            break
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue
        seen += 1 + len(entries)
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
                if danger is None and os.name != "nt":
                    danger = ownership.of_entry(entry.path, found)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                    continue
            except OSError:
                continue
            files += 1
            size += found.st_size
            newest = max(newest, found.st_mtime)
            if entry.name == "lock" or entry.name.endswith(".lock"):
                locks.append(os.path.relpath(entry.path, path))
    return {
        "files": files,
        "bytes": size,
        "newest": newest,
        "complete": not pending,
        "locks": sorted(locks)[:50],
        "danger": str(danger or ""),
    }


_log = Logger(__name__)

#: Bytes of a program's output that are kept, from the beginning.
OUTPUT_LIMIT = 1 << 18
#: Files and folders of a cache that are counted whatever the time; their `stat`s take about 1 ms.
SURE = 200
#: Seconds to wait for a killed program before it is left behind.
GRACE = 0.5
#: Questions about a path. The other ones open files, and `files` refuses those.
_PATHS = ("stat", "list", "real", "access", "space", "measure", "changed_files")
_MODES = {"r": os.R_OK, "w": os.W_OK, "x": os.X_OK}
_HERE = os.path.dirname(os.path.abspath(__file__))


class LocalHost(Host):
    """The machine that attn-doctor runs on."""

    def __init__(self) -> None:
        # Copied at once: libraries imported later set variables of their own.
        self._variables = {**os.environ, **reach.left_out}
        self._answers: dict[str, Callable[..., Any]] = {
            "platform": self._platform,
            "environ": lambda: self._variables,
            "now": time.time,
            "read": _read,
            "checksum": _checksum,
            "head": _head,
            "grep": _grep,
            "stat": _stat,
            "list": lambda path: sorted(os.listdir(path)),
            "real": os.path.realpath if os.name == "nt" else _real,
            "danger": _danger(ownership.danger),
            "interpreter_danger": _danger(ownership.of_interpreter),
            "access": lambda path, mode: os.access(path, _MODES[mode]),
            "space": _space,
            "measure": _measure,
            "changed_files": _changed_files,
            "memory": _memory,
            "unreachable": reach.met,
            "run": self._run,
            "nvml": self._nvml,
            "inside": self._inside,
            "binary": _binary("binary"),
            "versions": _binary("versions"),
            "gpu_code": _binary("gpu_code"),
            "unresolved": _unresolved,
            "lacking": _lacking,
        }

    def ask(self, question: str, *args: Any) -> Any:
        """Answer from the operating system."""
        # No file has a name with a NUL, but a damaged record or `.pth` file can hold one.
        if question in _PATHS and ("\0" in args[0] or reach.dead(args[0])):
            if question == "real":
                return os.path.abspath(args[0])
            if question == "access":
                return False
            reach.refuse(args[0])
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), args[0])
        try:
            return self._answers[question](*args)
        finally:
            self.answered += 1

    def _platform(self) -> dict[str, Any]:
        windows = sys.platform == "win32"
        if windows:
            import platform

            machine, release, version = platform.machine(), platform.release(), platform.version()
        else:
            uname = os.uname()
            machine, release, version = uname.machine, uname.release, uname.version
        return {
            "os": {"win32": "windows", "darwin": "macos"}.get(sys.platform, "linux"),
            "machine": machine,
            "release": release,
            "version": version,
            "libc": _libc(),
            "cpus": _cpus(),
            "uid": -1 if windows else os.getuid(),
            "user": _user(self._variables),
            "home": os.path.expanduser("~"),
            "cwd": _cwd(),
            "python": sys.executable,
            "prefix": sys.prefix,
        }

    def _run(
        self,
        argv: list[str],
        seconds: float,
        env: Mapping[str, str],
        meanwhile: Callable[[], None] | None = None,
    ) -> dict[str, Any]:
        if _log.wanted:
            _log.debug("run %s (at most %g s)", processes.shown(argv), seconds)
        try:
            ended = processes.run(
                argv,
                seconds,
                env={**interpreter_child.variables(self._variables), **env},
                cwd=os.path.abspath(os.sep),
                head=OUTPUT_LIMIT,
                tail=0,
                grace=GRACE,
                as_owner=True,
                by_work=True,
                meanwhile=meanwhile,
                begun=interpreter_child.begun(argv),
            )
        except OwnershipError as error:
            return {"outcome": "refused", "err": str(error)}
        if ended.error is not None:
            missing = isinstance(ended.error, FileNotFoundError)
            return (
                {"outcome": "missing"}
                if missing
                else {"outcome": "refused", "err": str(ended.error)}
            )
        outcome = "abandoned" if ended.abandoned else "timeout" if ended.timed_out else "done"
        return {
            "outcome": outcome,
            "code": ended.code,
            "out": ended.out,
            "err": ended.err,
            "pid": ended.pid,
        }

    def _nvml(self, seconds: float) -> dict[str, Any]:
        from attn_doctor.host.nvml_process import fold

        child = os.path.join(_HERE, "nvml_process.py")
        # -S leaves out site-packages and every .pth file in it.
        ran = self._run([sys.executable, "-I", "-S", "-B", child], seconds, {})
        # What was answered before a hang or a crash is kept.
        return {**fold(ran.pop("out", "")), **ran}

    def _inside(self, python: str, seconds: float) -> dict[str, Any]:
        if interpreter_child.is_this(python, self._variables):
            from attn_doctor.worker import interpreter

            return {**interpreter.describe(), "outcome": "done"}
        return self._script(interpreter_child.command(python), seconds)

    def _script(self, argv: list[str], seconds: float) -> dict[str, Any]:
        ran = self._run(argv, seconds, {}, self.prepare)
        try:
            answer = decode(ran["out"])
        except (KeyError, JsonError):
            answer = None
        if not isinstance(answer, dict):
            # Nothing usable was printed: how the process ended is the answer.
            return ran
        return {**answer, "outcome": ran["outcome"]}


def _binary(question: str) -> Callable[..., Any]:
    """Return a function of `binaries.read`, which is imported when it is called."""

    def answer(*args: Any) -> Any:
        import msgspec

        from attn_doctor.binaries import read

        return msgspec.to_builtins(getattr(read, question)(*args))

    return answer


def _unresolved(paths: Sequence[str], libraries: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    import msgspec

    if os.name == "nt":
        from attn_doctor.binaries.functions import unresolved
    else:
        from attn_doctor.binaries.unresolved import unresolved

    answers = unresolved([*zip(paths, libraries, strict=True)])
    return [msgspec.to_builtins(one) for one in answers]


def _lacking(paths: Sequence[str], libraries: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    import msgspec

    from attn_doctor.binaries.unresolved import unresolved

    answers = unresolved([*zip(paths, libraries, strict=True)], versioned=True)
    return [msgspec.to_builtins(one) for one in answers]


def _memory() -> tuple[int, int]:
    import psutil

    memory = psutil.virtual_memory()
    return memory.total, memory.available


def _libc() -> str:
    """Return `glibc 2.36` if the C library is the GNU one, else empty text."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _user(variables: Mapping[str, str]) -> str:
    """Return the user's name as `getpass.getuser` does; Inductor's cache has it in its name."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        if variables.get(name):
            return variables[name]
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return ""


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""
