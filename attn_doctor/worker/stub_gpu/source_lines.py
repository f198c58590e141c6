"""Finds the line of the user's code that caused something.

It is found in Python's stacks, and in the stack that Dynamo keeps of the code it traces. A call
from C++ code that no Python code has called, as in a thread of autograd's, is attributed to the
line that the main thread executes.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import threading
from typing import Any, NamedTuple

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_STANDARD = tuple(
    {
        os.path.realpath(path) + os.sep
        for name in ("stdlib", "platstdlib")
        for path in [sysconfig.get_paths()[name]]
    }
)
#: Packages that do not count as the user's code, although they are installed beside it.
_MACHINERY = ("torch", "triton", "accelerate", "functorch", "torchgen")


#: Where compiling begins.
_TRACES = os.path.join("torch", "_dynamo", "convert_frame.py")


class Place(NamedTuple):
    """A line of the user's code, and of the library that it called, if it did."""

    file: str
    line: int
    text: str
    library: str = ""
    """`file:line` in a package such as diffusers that was called from there; "" if none was."""

    def __str__(self) -> str:
        line = f"{self.file}:{self.line}" + (f" ({self.text})" if self.text else "")
        return f"{self.library}, called from {line}" if self.library else line


#: Where nothing of the user's code is on any stack.
NOWHERE = Place("", 0, "")


def here() -> Place:
    """The line that the caller's thread executes; that of the main thread if it has none."""
    frames = _frames(sys._getframe(1))
    # What runs while Dynamo traces is called by the compiler; the code that is traced is not.
    end = next((place for place, one in enumerate(frames) if one[0].endswith(_TRACES)), None)
    found = NOWHERE if end is None else _of(frames[:end])
    found = found if found.file else _of(_traced())
    found = found if found.file else _of(frames)
    if not found.file and threading.current_thread() is not threading.main_thread():
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        found = _of(_frames(main))
    return found


def of_trace(text: str | None) -> Place:
    """The line in a stack that torch has written into a node of a graph; `here()` without one."""
    found = []
    for line in (text or "").splitlines():
        words = line.strip().split('"')
        if line.strip().startswith("File ") and len(words) > 2:
            number = words[2].replace(",", " ").split()
            if "line" in number:
                found.append((words[1], int(number[number.index("line") + 1])))
    place = _of(found[::-1])
    return place if place.file else here()


def text(place: Place) -> str:
    """The text of the line without indentation; at most 120 characters."""
    return linecache.getline(place.file, place.line).strip()[:120]


def _frames(frame: Any) -> list[tuple[str, int]]:
    """File and line of `frame` and those that called it, the innermost first."""
    found = []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def _traced() -> list[tuple[str, int]]:
    """The stack of the code that Dynamo traces in this thread, the innermost first."""
    guards = sys.modules.get("torch._guards")
    if guards is None:
        return []
    try:
        if guards.TracingContext.try_get() is None:
            return []
        stack = guards.TracingContext.extract_stack()
    except Exception:
        return []
    return [(one.filename, one.lineno or 0) for one in stack][::-1]


def _of(frames: list[tuple[str, int]]) -> Place:
    library = ""
    for file, line in frames:
        kind = _kind(file)
        if kind == "library" and not library:
            library = f"{file}:{line}"
        if kind == "user":
            return Place(file, line, text(Place(file, line, "")), library)
    if library:
        file, _, number = library.rpartition(":")
        place = Place(file, int(number), "")
        return place._replace(text=text(place))
    return NOWHERE


def _kind(file: str) -> str:
    """Whose code a file is: "user", "library", or "" for the machinery between them."""
    if file == "<string>":  # python -c
        return "user"
    if file.startswith("<") or not file:
        return ""
    path = os.path.realpath(file)
    if path.startswith(_OWN + os.sep):
        return ""
    parts = path.split(os.sep)
    for packages in ("site-packages", "dist-packages"):
        if packages in parts:
            place = len(parts) - 1 - parts[::-1].index(packages)
            return "" if parts[place + 1].split(".")[0] in _MACHINERY else "library"
    if path.startswith(_STANDARD) or "torchinductor" in path:
        return ""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if cache and path.startswith(os.path.realpath(cache) + os.sep):
        return ""
    return "user"
