"""The only interface to the machine.

A probe reads the machine only through a `Host`: files, directories, environment, programs, NVML.
Each question goes through one method, `ask`, and each answer is plain JSON. So a machine can be
recorded (`recorded.RecordingHost`) and replayed as a test (`recorded.RecordedHost`) without
patching anything.

Questions about files raise `OSError` as the operating system does. Questions about programs never
do: `Ran.outcome` is how the program ended.
"""

import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from attn_doctor.binaries.binary import Binary, GpuCode, Unresolved, Versions


class Ran(Struct, frozen=True, kw_only=True):
    """How a program ended and what it printed.

    `outcome` is ``done`` (see `code`), ``missing`` (no such program), ``refused`` (not
    executable, or not permitted), ``timeout`` (killed at the limit) or ``abandoned`` (the kill had
    no effect, as with a process in uninterruptible sleep; it is left behind).
    """

    outcome: str = "missing"
    code: int | None = None
    out: str = ""
    err: str = ""
    pid: int | None = None

    @property
    def ok(self) -> bool:
        """Whether it ran to its end and returned 0."""
        return self.outcome == "done" and self.code == 0

    def why_not(self, program: str, seconds: float) -> str:
        """Return one sentence for a gap, or empty text if it is `ok`."""
        if self.ok:
            return ""
        last = self.err.strip().splitlines()[-1:] or self.out.strip().splitlines()[-1:]
        return {
            "missing": f"{program} does not exist",
            "refused": f"{program} may not be run: {''.join(last)}",
            "timeout": f"{program} did not answer within {seconds:g} s",
            "abandoned": f"{program} did not answer within {seconds:g} s and cannot be killed"
            f" (process {self.pid} is left behind)",
            "done": f"{program} ended with code {self.code}: {''.join(last)[:200]}",
        }[self.outcome]


class Stat(Struct, frozen=True, kw_only=True):
    """The target of a path, links followed. `kind` is ``file``, ``dir`` or ``other``."""

    kind: str
    size: int = 0
    mtime: float = 0.0
    uid: int = 0
    mode: int = 0


class Space(Struct, frozen=True, kw_only=True):
    """Total bytes and bytes free for this user on the file system of a path."""

    total: int
    free: int


class Measure(Struct, frozen=True, kw_only=True):
    """Size of a directory tree; `complete` is false if the time limit ended the walk.

    `locks` holds paths of lock files, relative to the tree. `danger` is the first file or folder in
    it that another user owns or can write, as a clause.
    """

    files: int = 0
    bytes: int = 0
    newest: float = 0.0
    complete: bool = True
    locks: tuple[str, ...] = ()
    danger: str = ""


class Platform(Struct, frozen=True, kw_only=True):
    """What the interpreter that runs attn-doctor knows of its machine by itself."""

    os: str
    machine: str
    release: str
    version: str = ""
    libc: str = ""
    cpus: int = 1
    uid: int = -1
    user: str = ""
    home: str = ""
    cwd: str = ""
    python: str = ""
    prefix: str = ""


class Host:
    """A machine that answers questions. Subclasses implement `ask`; all else is built on it."""

    #: Factor for the time limits of slow answers, from `--timeout`. Without persistence mode NVML
    #: needs seconds to wake each GPU.
    patience: float = 1.0

    #: Questions that were answered so far. While there are more, a late probe is not stuck.
    answered: int = 0

    #: Probes may run in forks of this process: it is the command line's own.
    forks: bool = False

    #: Work that an examination needs later, such as imports, done while the interpreter starts.
    prepare: Callable[[], None] | None = None

    #: Tells the user what is about to be started; set by the command line.
    show: Callable[[str], None] = staticmethod(lambda _: None)

    def ask(self, question: str, *args: Any) -> Any:
        """Answer one question with plain JSON data. The methods below are the questions."""
        raise NotImplementedError(question)

    @cached_property
    def platform(self) -> Platform:
        """The platform; it is asked once."""
        return msgspec.convert(self.ask("platform"), Platform)

    @cached_property
    def environ(self) -> Mapping[str, str]:
        """Environment variables, as they were when attn-doctor started."""
        answer: Mapping[str, str] = self.ask("environ")
        return answer

    @property
    def windows(self) -> bool:
        """Whether the machine runs Windows."""
        return self.platform.os == "windows"

    def join(self, *parts: str) -> str:
        """Join path parts in this machine's notation."""
        if self.windows:
            import ntpath

            return ntpath.join(*parts)
        first, *others = parts
        if len(others) == 1 and first and first[-1] != "/" != others[0][:1]:
            return f"{first}/{others[0]}"  # as `posixpath` does, in a third of the time
        return posixpath.join(*parts)

    def parent(self, path: str) -> str:
        """Return the directory of `path`; a root is its own parent."""
        if self.windows:
            import ntpath

            return ntpath.dirname(path)
        return posixpath.dirname(path)

    def normal(self, path: str) -> str:
        """Return `path` with `.` and `..` resolved as text, as Python's `normpath` does."""
        if self.windows:
            import ntpath

            return ntpath.normpath(path)
        return posixpath.normpath(path)

    def now(self) -> float:
        """Return the seconds since 1970."""
        return float(self.ask("now"))

    def read(self, path: str, limit: int = 1 << 16) -> str:
        """Return the text of a file, at most `limit` bytes. Undecodable bytes are replaced."""
        return str(self.ask("read", path, limit))

    def try_read(self, path: str, limit: int = 1 << 16) -> str:
        """Return the text of a file, or empty text if it cannot be read."""
        try:
            return self.read(path, limit)
        except OSError:
            return ""

    def head(self, path: str, limit: int = 1 << 18) -> str:
        """Return the lines of a file up to its first empty one, such as METADATA's headers."""
        return str(self.ask("head", path, limit))

    def grep(self, path: str, *needles: str, limit: int = 1 << 20) -> tuple[str, ...]:
        """Return the lines with one of `needles` in the first `limit` bytes of a file."""
        return tuple(self.ask("grep", path, [*needles], limit))

    def try_grep(self, path: str, *needles: str, limit: int = 1 << 20) -> tuple[str, ...]:
        """Return the lines with one of `needles`, or nothing if the file cannot be read."""
        try:
            return self.grep(path, *needles, limit=limit)
        except OSError:
            return ()

    def checksum(self, path: str, limit: int) -> str:
        """Return size and CRC-32 of the first `limit` bytes of a file, as `162248-1a2b3c4d`."""
        return str(self.ask("checksum", path, limit))

    def stat(self, path: str) -> Stat:
        """Return the target of `path`."""
        return msgspec.convert(self.ask("stat", path), Stat)

    def try_stat(self, path: str) -> Stat | None:
        """Return the target of `path`, or None if it cannot be read."""
        try:
            return self.stat(path)
        except OSError:
            return None

    def is_file(self, path: str) -> bool:
        """Whether `path` leads to a file."""
        found = self.try_stat(path)
        return found is not None and found.kind == "file"

    def is_dir(self, path: str) -> bool:
        """Whether `path` leads to a directory."""
        found = self.try_stat(path)
        return found is not None and found.kind == "dir"

    def list(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory, sorted."""
        return tuple(self.ask("list", path))

    def try_list(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory, or nothing if it cannot be read."""
        try:
            return self.list(path)
        except OSError:
            return ()

    def real(self, path: str) -> str:
        """Return `path` with every link followed."""
        return str(self.ask("real", path))

    def danger(self, path: str) -> str | None:
        """Return who else than this user and root decides what is at `path`, as a clause.

        Empty if only they do; None if that is unknown, as on Windows.
        """
        answer: str | None = self.ask("danger", path)
        return answer

    def interpreter_danger(self, python: str) -> str | None:
        """Return the same for an interpreter and the environment around it."""
        answer: str | None = self.ask("interpreter_danger", python)
        return answer

    def unreachable(self) -> tuple[str, ...]:
        """Return the folders that do not answer and that something led to so far."""
        return tuple(self.ask("unreachable"))

    def access(self, path: str, mode: str) -> bool:
        """Whether this user may read (`r`), write (`w`) or execute (`x`) `path`."""
        return bool(self.ask("access", path, mode))

    def space(self, path: str) -> Space:
        """Return the space on the file system of `path`."""
        return msgspec.convert(self.ask("space", path), Space)

    def measure(self, path: str, seconds: float) -> Measure:
        """Measure the tree below `path` for at most `seconds`; links are not followed."""
        return msgspec.convert(self.ask("measure", path, seconds), Measure)

    def changed_files(self, info: str, seconds: float) -> tuple[tuple[str, int], ...]:
        """Return files that the RECORD of a package lists and that differ.

        Each with its size, or -1 if it is gone, -2 if it is compiled for another processor, -3 if
        it is longer, -4 if this user may not read it, -5 if it is compiled for another system.
        `info` is the package's metadata folder, in site-packages. Only files that an import may
        execute count. OSError: the package has no RECORD.
        """
        answer = self.ask("changed_files", info, seconds)
        return tuple((str(path), int(size)) for path, size in answer)

    def memory(self) -> tuple[int, int]:
        """Return the memory in bytes: total and available."""
        total, available = self.ask("memory")
        return int(total), int(available)

    def run(self, argv: Sequence[str], seconds: float, env: Mapping[str, str] | None = None) -> Ran:
        """Run a program, never through a shell, for at most `seconds`.

        `argv[0]` is an absolute path. Standard input is closed, the language is C, PATH is the
        system's own, the working directory is the root, and output is cut at 256 KiB.
        """
        return msgspec.convert(self.ask("run", [*argv], seconds, dict(env or {})), Ran)

    def nvml(self, seconds: float) -> dict[str, Any]:
        """Ask NVML in a child process (`nvml_process.py`). `outcome` as in `Ran`."""
        answer: dict[str, Any] = self.ask("nvml", seconds)
        return answer

    def inside(self, python: str, seconds: float) -> dict[str, Any]:
        """Let an interpreter describe itself (`worker/interpreter.py`). `outcome` as in `Ran`."""
        answer: dict[str, Any] = self.ask("inside", python, seconds)
        return answer

    def binary(self, path: str) -> Binary:
        """Read what a shared library needs, without loading it (`binaries`)."""
        return msgspec.convert(self.ask("binary", path), Binary)

    def versions(self, path: str) -> Versions:
        """Read the symbol versions that a shared library requires and those that it defines."""
        return msgspec.convert(self.ask("versions", path), Versions)

    def gpu_code(self, path: str, most: int, seconds: float) -> GpuCode:
        """Read the GPU code in a shared library, of at most `most` fat binaries (0: all)."""
        return msgspec.convert(self.ask("gpu_code", path, most, seconds), GpuCode)

    def unresolved(self, needs: Mapping[str, Sequence[str]]) -> dict[str, Unresolved]:
        """Find for each extension the symbols that none of its libraries defines."""
        answer = self.ask("unresolved", [*needs], [[*libraries] for libraries in needs.values()])
        return dict(zip(needs, msgspec.convert(answer, list[Unresolved]), strict=True))

    def lacking(self, needs: Mapping[str, Sequence[str]]) -> dict[str, Unresolved]:
        """Do the same for libraries of Linux, with the symbols that have a version."""
        answer = self.ask("lacking", [*needs], [[*libraries] for libraries in needs.values()])
        return dict(zip(needs, msgspec.convert(answer, list[Unresolved]), strict=True))

    def which(self, name: str) -> str:
        """Return the first program `name` on the user's PATH, or empty text. It is not run."""
        suffixes: tuple[str, ...] = ("",)
        if self.windows:
            suffixes = ("", *self.environ.get("PATHEXT", ".EXE;.BAT;.CMD").lower().split(";"))
        separator = ";" if self.windows else ":"
        for folder in self.environ.get("PATH", "").split(separator):
            for suffix in suffixes:
                path = self.join(folder, name + suffix)
                if folder and self.is_file(path) and self.access(path, "x"):
                    return path
        return ""


def stat_kind(mode: int) -> str:
    """Return ``file``, ``dir`` or ``other`` for a `st_mode`."""
    import stat

    return "file" if stat.S_ISREG(mode) else "dir" if stat.S_ISDIR(mode) else "other"


def expand(path: str, home: str) -> str:
    """Return `path` with a leading `~` replaced by `home`."""
    if path == "~" or path.startswith(("~/", "~" + os.sep)):
        return home + path[1:]
    return path
