"""Starts an interpreter that describes itself, early if its path is already known.

Its answer takes 30 ms, about as long as the imports that a check needs before it can ask. So an
interpreter that the command line or the shell names by its full path is started before them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from attn_doctor import processes
from attn_doctor.errors import OwnershipError
from attn_doctor.files import open_binary, read_text
from attn_doctor.worker import reach

_CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker", "interpreter.py")
#: Where programs are looked for that answer a question.
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
#: Options after which no interpreter of this machine is examined.
_ELSEWHERE = ("--facts", "--help", "-h", "--explain-policy")

#: What was started early, by its command line.
_begun: dict[tuple[str, ...], processes.Running] = {}


def command(python: str) -> list[str]:
    """The command line with which the interpreter at `python` describes itself."""
    what = [_CHILD]
    if os.name != "nt" and os.getuid() == 0:
        # The user as whom root starts it may not be able to read our files.
        what = ["-c", read_text(_CHILD, 1 << 20)]
    return [python, "-I", "-S", "-B", *what]


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a program that answers a question: no translations, the system's PATH."""
    return {**environ, "LC_ALL": "C", **({} if os.name == "nt" else {"PATH": SYSTEM_PATH})}


def is_this(python: str, environ: Mapping[str, str]) -> bool:
    """The interpreter at `python` is the one that runs us, and sees the same environment.

    A virtual environment's interpreter is a link to its base, so the folder must be the same too,
    letter by letter, for the prefix is made of it. Under PYTHONHOME our own prefix is not the one
    that an isolated child would find.
    """
    ours = os.path.abspath(sys.executable or os.sep)
    if sys.flags.no_site or environ.get("PYTHONHOME"):
        return False
    if os.path.dirname(os.path.abspath(python)) != os.path.dirname(ours):
        return False
    try:
        return os.path.samefile(python, ours)
    except OSError:
        return False


def begin(words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Start the interpreter that the `words` of `check` or VIRTUAL_ENV name, if that is certain."""
    python = _named(words, environ)
    if not _is_python(python) or is_this(python, environ):
        return
    argv = command(python)
    with suppress(OSError, ValueError, OwnershipError):  # said when it is needed
        _begun[tuple(argv)] = processes.Running(
            argv,
            env=variables({**environ, **reach.left_out}),
            cwd=os.path.abspath(os.sep),
            as_owner=True,
        )


def begun(argv: Sequence[str]) -> processes.Running | None:
    """Return what was started early with this command line, once; None if it was not."""
    return _begun.pop(tuple(argv), None)


def end() -> None:
    """Kill what was started early and not needed."""
    while _begun:
        with _begun.popitem()[1]:
            pass


def _named(words: Sequence[str], environ: Mapping[str, str]) -> str:
    """The path of the interpreter that is named; empty if files have to be looked at for that."""
    if any(word.partition("=")[0] in _ELSEWHERE for word in words):
        return ""
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word.partition("=")[0] == "--python":
            return word.partition("=")[2] or following
    active = environ.get("VIRTUAL_ENV", "")
    return os.path.join(active, "bin", "python") if active else ""


def _is_python(path: str) -> bool:
    """Whether `path` is a program of Linux with the name of a Python, and no script."""
    if not re.fullmatch(r"python[0-9.]*", os.path.basename(path)) or path != os.path.abspath(path):
        return False
    try:
        with open_binary(path) as file:
            return file.read(4) == b"\x7fELF" and os.access(path, os.X_OK)
    except OSError:
        return False
