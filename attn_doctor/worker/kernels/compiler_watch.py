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
import sys
from typing import Any

from attn_doctor.worker.files import read_bytes

#: Programs that compile. A version may follow the name, as in `g++-12`.
_COMPILER = re.compile(
    r"(ptxas(-blackwell)?|[\w-]*gcc|[\w-]*g\+\+|cc|c\+\+|clang(\+\+)?|cl|nvcc|hipcc|icpx?|ld|ld\.lld|"
    r"nvlink)([-.][\d.]+)?(\.exe)?"
)
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

    def event(self, name: str, args: tuple[Any, ...]) -> None:
        """Record one audit event."""
        if name in ("open", "ctypes.dlopen") and args and isinstance(args[0], (str, bytes)):
            self.touched.add(os.fsdecode(args[0]))
        elif name in ("os.rename", "import") and isinstance(args[1], (str, bytes, os.PathLike)):
            self.touched.add(os.fsdecode(args[1]))
        elif name in ("subprocess.Popen", "os.posix_spawn", "os.exec"):
            self._program(args[0], args[1])

    def _program(self, program: Any, argv: Any) -> None:
        words = argv.split() if isinstance(argv, str) else [os.fsdecode(one) for one in argv or ()]
        name = os.path.basename(os.fsdecode(program) if program else words[0] if words else "")
        name = name if _COMPILER.fullmatch(name) else os.path.basename(words[0]) if words else name
        if not _COMPILER.fullmatch(name):
            return
        if all(_QUESTION.fullmatch(word) for word in words[1:]):
            return
        if "-E" in words:
            # torch hashes its preprocessed headers even where everything is compiled already.
            self.preprocessed += 1
            return
        self.compilers.append(name)
        for flag, path in zip(words, words[1:]):  # noqa: B905, RUF007 - Python 3.9 has neither
            if flag == "-o":
                self.touched.add(path)


_EVENTS = (
    "ctypes.dlopen",
    "import",
    "open",
    "os.exec",
    "os.posix_spawn",
    "os.rename",
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
