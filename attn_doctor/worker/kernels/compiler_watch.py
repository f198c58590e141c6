"""Observes what a process compiles and which cache files it uses, by Python's audit events.

A counter that says "hit" is not enough: torch counts a hit when it finds an entry and may still run
a compiler afterwards. So every program that is started, and every file that is opened or renamed,
is recorded. Files that C++ code opens are not seen; where a folder holds one kernel, one file that
was seen counts for all of them.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable
from threading import get_ident
from typing import Any

from attn_doctor.worker.files import read_bytes

#: Programs that compile, by the name of their resolved file or the one that they are called by. A
#: triple may stand before it, as in conda's `x86_64-conda-linux-gnu-c++`, and a version behind it.
_COMPILER = re.compile(
    r"(.+-)?(gcc|g\+\+|cc|c\+\+|cpp|clang|clang\+\+|clang-cl|icc|icpc|icx|icpx|dpcpp|tcc|nvc|nvc\+\+|nvcc|"
    r"hipcc|cl|ptxas|nvlink|cicc|fatbinary|as|collect2|cc1|cc1plus|ld|ld\.\w+|lld|lld-link|gold|mold)"
    r"(-blackwell)?([-.]?\d[\d.]*)?(\.exe)?"
)
#: Programs that start another one, given in their arguments.
_LAUNCHERS = re.compile(r"(ccache|sccache|distcc|icecc|env|nice|time|zig)(\.exe)?")
_SHELLS = re.compile(r"(sh|bash|dash|zsh|ksh)")
#: Outputs of compilers. What names one as its output compiles, whatever it is called.
_COMPILED = re.compile(r".*\.(so(\.[\d.]+)?|o|obj|a|dll|dylib|pyd|cubin|fatbin|hsaco|ptx|gch)")
#: Arguments with which a compiler only describes itself.
_QUESTION = re.compile(r"--version|-v|-V|-dump\S*|-print-\S*|--help\S*|-###|/\?")
#: Largest source, in bytes, of a check of the CPU's vector instructions; kernels are longer.
_LARGEST_CHECK = 4096
#: Folders of the cache whose files do not belong to a kernel.
_NOT_KERNELS = ("locks", "attn-doctor", "cache", "precompiled_headers")


class Watch:
    """Compilers that were started, and files that were opened or renamed, since it began."""

    def __init__(self) -> None:
        self.compilers: list[str] = []
        self.preprocessed = 0
        self.touched: set[str] = set()
        self._popened: dict[int, object] = {}
        """The arguments that `subprocess` is about to start in each thread."""
        self._began = time.time()

    def event(self, name: str, args: tuple[Any, ...]) -> None:
        """Record one audit event."""
        if name in ("open", "ctypes.dlopen") and args and isinstance(args[0], (str, bytes)):
            self.touched.add(os.fsdecode(args[0]))
        elif name in ("os.rename", "import") and isinstance(args[1], (str, bytes, os.PathLike)):
            self.touched.add(os.fsdecode(args[1]))
        elif name in ("subprocess.Popen", "os.posix_spawn", "os.spawn", "os.exec"):
            # `os.spawn` has a mode before them.
            first = 1 if name == "os.spawn" else 0
            argv = args[first + 1]
            # Since Python 3.13 `subprocess` starts some programs by `os.posix_spawn`.
            if self._popened.pop(get_ident(), None) is argv and name == "os.posix_spawn":
                return
            if name == "subprocess.Popen":
                self._popened[get_ident()] = argv
            self._program(args[first], argv)
        elif name == "os.system":
            self._program(None, args[0])

    def written(self, folder: str, files: Iterable[str]) -> None:
        """Add what wrote those libraries among `files` of a folder that are newer than this watch.

        Whatever it was: C++ code can start a compiler unseen, and a compiler may have any name.
        """
        for name in files if not self.compilers else ():
            with contextlib.suppress(OSError):
                if (
                    name.endswith(".so")
                    and os.stat(os.path.join(folder, name)).st_mtime > self._began
                ):
                    self.compilers.append(f"what wrote {name}")

    def _program(self, program: Any, argv: Any) -> None:
        words = _words(program, argv)
        if not words:
            return
        output = _output(words)
        name = os.path.basename(words[0])
        known = any(_COMPILER.fullmatch(one) for one in (name, _resolved(words[0])))
        if not known and not _COMPILED.fullmatch(output):
            return
        if all(_QUESTION.fullmatch(word) for word in words[1:]):
            return
        if "-E" in words:
            # torch hashes its preprocessed headers even where everything is compiled already.
            self.preprocessed += 1
            return
        self.compilers.append(name)
        if output:
            self.touched.add(output)


def _words(program: Any, argv: Any) -> list[str]:
    """The command line of what runs in the end: without shells and launchers before it."""
    if isinstance(argv, (str, bytes)):
        words = _split(os.fsdecode(argv))
    else:
        words = [os.fsdecode(one) for one in argv or ()]
        if program:
            # A program may be called by another name than that of its file.
            words[:1] = [os.fsdecode(program)]
    while len(words) > 1:
        name = os.path.basename(words[0])
        if _SHELLS.fullmatch(name) and "-c" in words[1:-1]:
            line = _split(words[words.index("-c") + 1])
            names = [bool(_COMPILER.fullmatch(os.path.basename(one))) for one in line]
            words = line[names.index(True) :] if True in names else line
        elif _LAUNCHERS.fullmatch(name):
            words = [one for one in words[1:] if "=" not in one or one.startswith("-")]
        else:
            break
    return words


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _resolved(program: str) -> str:
    """The name of the file that a program is, links followed."""
    return os.path.basename(os.path.realpath(shutil.which(program) or program))


def _output(words: list[str]) -> str:
    """The file that a command line says to write; empty if it says none."""
    for flag, path in zip(words, [*words[1:], ""]):  # noqa: B905 - Python 3.9 has no strict
        if flag in ("-o", "--output", "--output-file"):
            return path
        if flag.lower().startswith(("/out:", "/fe", "-o/", "-o.")):
            return flag.partition(":")[2] or flag[2:]
    return ""


_EVENTS = (
    "ctypes.dlopen",
    "import",
    "open",
    "os.exec",
    "os.posix_spawn",
    "os.rename",
    "os.spawn",
    "os.system",
    "subprocess.Popen",
)
_now: list[Watch] = []


def watching() -> Watch:
    """Begin a new watch. Audit hooks cannot be removed, so the process has one for all."""
    if not _now:
        _now.append(Watch())
        sys.addaudithook(_hook)
    _now[0] = Watch()
    return _now[0]


def _hook(name: str, args: tuple[Any, ...]) -> None:
    if name in _EVENTS:
        with contextlib.suppress(Exception):  # an error here would break what is watched
            _now[0].event(name, args)


def mapped() -> set[str]:
    """Files that this process has mapped, such as libraries loaded by C++ code; Linux only."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.rstrip("\n").split(maxsplit=5) for line in file]
    except OSError:
        return set()
    return {line[5] for line in lines if len(line) == 6 and line[5].startswith("/")}


def vector_checks(folder: str) -> set[str]:
    """The small libraries with which Inductor tests, once per folder, what the CPU can do.

    A kernel for the CPU needs them in a fresh process: without them a compiler runs again.
    """
    found: set[str] = set()
    for path in glob.glob(os.path.join(glob.escape(folder), "??", "*.cpp")):
        try:
            known = b"_chk_kernel" in read_bytes(path, _LARGEST_CHECK)
        except OSError:
            continue
        if known:
            found |= set(glob.glob(glob.escape(path[: -len(".cpp")]) + ".*"))
    return found


def files_below(folder: str, touched: set[str]) -> dict[str, int]:
    """Files of `touched` below `folder` → bytes, by relative path; those of kernels only."""
    root = os.path.realpath(folder)
    found: dict[str, int] = {}
    for path in {os.path.realpath(one) for one in touched}:
        relative = os.path.relpath(path, root) if path.startswith(root + os.sep) else ""
        parts = relative.split(os.sep)
        if not relative or parts[0] in _NOT_KERNELS or "__pycache__" in parts:
            continue
        whole = parts[0] in ("triton", "fxgraph", "aotautograd")
        for file in _siblings(path) if whole else [path]:
            size = _size(file)
            if size is not None:
                found[os.path.relpath(file, root)] = size
    return dict(sorted(found.items()))


def _siblings(path: str) -> list[str]:
    """All files of the folder that holds one kernel or one graph."""
    folder = os.path.dirname(path)
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return [path]


def _size(path: str) -> int | None:
    try:
        return os.path.getsize(path) if os.path.isfile(path) else None
    except OSError:
        return None
