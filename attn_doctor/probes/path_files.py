"""Reads what a `.pth` file or `sitecustomize.py` does to the import path, without running it.

Python adds each line that is a folder, and executes each line that begins with `import`. Of that
code the common ways to change `sys.path` are understood: insert, append, extend, `+=`, a slice or a
list in front, and `site.addsitedir`, with paths made of text, `sys.prefix`, `sitedir` and functions
of `os.path`. All else that names the path is reported as not understood, as are archives and code
that may end Python or replace its import.
"""

from __future__ import annotations

import re

from msgspec import Struct

from attn_doctor.host import Host
from attn_doctor.probes.added_folder import END, Added

#: Modules that `site` imports after the `.pth` files were read; the second one where the user's
#: folder is enabled.
CUSTOM = ("sitecustomize", "usercustomize")
#: Names in code that may end Python before a program starts, or replace what an import does. `site`
#: goes on after other errors.
_ENDS = (
    *("SystemExit", "KeyboardInterrupt", "exit", "_exit", "quit", "abort", "kill"),
    *("execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe"),
    *("meta_path", "path_hooks"),
)
#: Assignments that replace what an import does.
_REPLACES = r"\b(modules\[[^]]*\]|__import__) *=(?!=)"
#: The line by which setuptools declares a namespace package. It leaves the import path as it is.
_NAMESPACE = (
    r"import sys, types, os;(?:(?!sys\.path\b|addsitedir).)*"
    r"p = os\.path\.join\(sys\._getframe\(1\)\.f_locals\['sitedir'\], \*\([^()]*\)\);"
    r"(?:(?!sys\.path\b|addsitedir).)*\(p not in mp\) and mp\.append\(p\)"
)
#: Characters of code that are parsed; longer code is not understood.
_LONGEST = 4000


class PathFile(Struct, frozen=True, kw_only=True):
    """What a `.pth` file does."""

    added: tuple[Added, ...] = ()
    runs: bool = False
    """It contains code."""
    unread: bool = False
    """Its code may change the import path in a way that is not understood."""


def read(host: Host, folder: str, name: str, prefix: str) -> PathFile:
    """Return what the file `name` in the site folder `folder` does. `prefix` is `sys.prefix`."""
    added: list[Added] = []
    runs = unread = False
    lines = [one.rstrip() for one in host.try_read(host.join(folder, name)).splitlines()]
    # The frame that setuptools writes around the eggs of easy-install.pth puts them first.
    eggs = any("sys.__egginsert" in one for one in lines)
    for line in lines:
        if line.startswith(("import ", "import\t")):
            runs = True
            if "mp.append" in line and re.fullmatch(_NAMESPACE, line):
                continue
            concerned = "path" in line or "addsitedir" in line
            if concerned and not (eggs and "sys.__" in line):
                found = _changes(host, line, folder, prefix)
                unread |= found is None
                added += found or ()
            unread |= _may_end(line)
        elif line and not line.startswith("#"):
            path = host.normal(host.join(folder, line))
            if host.is_dir(path):
                added.append(Added(folder=path, at=len(added) if eggs else END))
            elif host.is_file(path):
                unread = True  # an archive, such as an egg
    return PathFile(added=tuple(added), runs=runs, unread=unread)


def read_custom(host: Host, path: str, prefix: str) -> PathFile:
    """Return what the file of such a module at `path` does."""
    text = host.try_read(path, _LONGEST + 1)
    if _may_end(text):
        return PathFile(runs=True, unread=True)
    if "path" not in text and "addsitedir" not in text:
        return PathFile(runs=True)
    found = _changes(host, text, host.parent(path), prefix, path)
    return PathFile(added=tuple(found or ()), runs=True, unread=found is None)


def _may_end(code: str) -> bool:
    """Whether code may end Python, or replace what an import does."""
    # Patterns are compiled for what few files have.
    named = [name for name in _ENDS if name in code]
    if named and re.search(rf"\b({'|'.join(named)})\b", code):
        return True
    rest = code.partition("modules[")[2] + code.partition("__import__")[2]
    return "=" in rest and re.search(_REPLACES, code) is not None


def _changes(host: Host, code: str, folder: str, prefix: str, file: str = "") -> list[Added] | None:
    """Return the folders that code adds; None if it is not understood."""
    if len(code) > _LONGEST:
        return None
    from attn_doctor.probes.path_code import changes

    found = changes(host, code, folder, prefix, file)
    return None if found is None else [one for one in found if host.is_dir(one.folder)]
