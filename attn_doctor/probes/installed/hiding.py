"""Finds what is imported in place of a module that a package needs.

A folder that is searched before its own has a file of that name, or the copy is made for another
Python.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Distribution, Site
from attn_doctor.probes.installed.requirement_graph import Requirements, module_of
from attn_doctor.probes.installed.sources import Sources

#: Endings of files that an import of a module finds.
_IMPORTED = ("py", "pyc", "so", "pyd")
#: Modules of the standard library that a file of this name can hide. Python has others when it
#: starts, and no framework imports the last ones; many projects have a folder `test`.
_STDLIB = (
    sys.stdlib_module_names
    - {"abc", "codecs", "io", "os", "runpy", "site", "stat", *sys.builtin_module_names}
    - {
        "antigravity",
        "idlelib",
        "lib2to3",
        "test",
        "this",
        "tkinter",
        "turtle",
        "turtledemo",
        "venv",
    }
)


class Hiding:
    """What hides modules that the distributions `roots` need."""

    def __init__(
        self,
        host: Host,
        site: Site,
        sources: Sources,
        requirements: Requirements,
        roots: list[Distribution],
    ) -> None:
        self._host, self._site = host, site
        self._file, self._names = sources.file, sources.names
        self._requirements, self._roots = requirements, roots

    def doubt(self, root: str) -> str:
        """Return what is imported in place of a module that `root` may need; empty if nothing is.

        torch continues without Triton and NumPy; other packages import what needs them.
        """
        return self._in_front(root) or ("" if root == "torch" else self._strange())

    def in_front(self, folder: str, root: str = "") -> Iterator[tuple[str, str]]:
        """Yield what an import finds in `folder`, and the name of the module that it hides.

        That is a module of the standard library, or one that `root`, or any known package, needs.
        """
        roots = self._roots if not root else filter(None, [self._site.distributions.get(root)])
        needed = {
            module_of(name): one.site
            for each in roots
            for name, one in self._requirements.closure(each).items()
            if name != root
        }
        for name in sorted(self._names(folder)):
            module, dot, end = name.partition(".")
            known = needed.get(module, folder) != folder or module in _STDLIB
            package = (
                known and not dot and "__init__.py" in self._names(self._host.join(folder, name))
            )
            if known and (end.rpartition(".")[2] in _IMPORTED or package):
                yield self._host.join(folder, name), module

    def _in_front(self, root: str) -> str:
        """Return what is imported in place of a module that `root` may need.

        PYTHONPATH names its folder or archive, or a `.pth` file puts the folder first.
        """
        for entry in _entries(self._host):
            if self._host.is_file(entry):
                return f"PYTHONPATH names the archive {entry}, which attn-doctor does not read"
        for folder in self._site.first:
            for path, module in self.in_front(folder, root):
                return f"{path} is imported in place of the module {module}"
        return ""

    def _strange(self) -> str:
        """Return that a file hides Triton, or that NumPy is made for another Python.

        torch continues without Triton; other packages import what needs it.
        """
        triton = self._file("triton")
        if triton.endswith("triton.py") and self._site.distributions.get("triton") is not None:
            return f"{triton} is imported in place of triton"
        return self.other_numpy()

    def other_numpy(self) -> str:
        """Return that NumPy is made for another Python; empty if it is not."""
        numpy = self._file("numpy")
        start, _, ours = self._site.cache_tag.partition("-3")
        folder = self._host.parent(numpy) if numpy else ""
        names = [
            name
            for part in ("_core", "core")
            for name in (self._names(self._host.join(folder, part)) if folder else ())
            if name.startswith("_multiarray_umath.")
        ]
        theirs = re.findall(r"\.(?:cpython-|cp)3(\d+)", " ".join(names))
        if start == "cpython" and theirs and ours not in theirs:
            return f"numpy in {folder} is made for Python 3.{theirs[0]}"
        return ""


def _entries(host: Host) -> list[str]:
    """Return the entries of PYTHONPATH that are absolute paths."""
    entries = host.environ.get("PYTHONPATH", "").split(";" if host.windows else ":")
    return [one for one in entries if one and host.join(host.platform.cwd, one) == one]
