"""Finds the sources of modules in an environment, as an import would, and what folders hold."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site

#: A list of names in a package that resolves them on demand.
_LAZY = r"""["']([\w.]+)["']\]?\s*[:=]\s*\[([^\]]*)\]"""


class Sources:
    """The sources of modules; every folder is listed once."""

    def __init__(self, host: Host, site: Site) -> None:
        self._host, self._site = host, site
        self._files: dict[str, str] = {}
        self._folders: dict[str, frozenset[str]] = {}
        self._lists: dict[str, dict[str, str]] = {}

    def file(self, module: str) -> str:
        """Return the source of `module` in the environment; empty if there is none."""
        if module not in self._files:
            self._files[module] = self._found(module)
        return self._files[module]

    def _found(self, module: str) -> str:
        host, (*parents, name) = self._host, module.split(".")
        for folder in self._site.folders:
            package = host.join(folder, *parents)
            there = self.names(package)
            source = f"{name}.py"
            for entry, parts in ((name, (name, "__init__.py")), (source, (source,))):
                if entry in there and host.is_file(path := host.join(package, *parts)):
                    return path
        return ""

    def names(self, folder: str) -> frozenset[str]:
        """Return what a folder holds. Most names are not in it, and asking for each takes long."""
        if folder not in self._folders:
            self._folders[folder] = frozenset(self._host.try_list(folder))
        return self._folders[folder]

    def there(self, module: str) -> bool:
        """Whether a search for `module` finds something: sources, a compiled module or a folder."""
        *packages, name = module.split(".")
        return bool(self.file(module)) or any(
            one.partition(".")[0] == name
            for folder in self._site.folders
            for one in self.names(self._host.join(folder, *packages))
        )

    def of_name(self, base: str, name: str) -> Iterator[str]:
        """Yield the module behind `from base import name`, if it is one or resolved on demand."""
        if self.file(f"{base}.{name}"):
            yield f"{base}.{name}"
            return
        path = self.file(base)
        if not path.endswith("__init__.py"):
            return
        if base not in self._lists:
            text = self._host.try_read(path, 1 << 20)
            lazy = "_LazyModule" in text or "__getattr__" in text
            self._lists[base] = {
                one: module
                for module, names in (re.findall(_LAZY, text) if lazy else ())
                for one in re.findall(r"""["'](\w+)["']""", names)
            }
        module = self._lists[base].get(name)
        if module is not None:
            yield from parents(f"{base}.{module}")

    def short(self, path: str) -> str:
        """Return a path relative to its folder of modules."""
        folders = (one for one in self._site.folders if path.startswith(one))
        return path.removeprefix(max(folders, key=len, default="")).lstrip("/\\")


def parents(module: str) -> Iterator[str]:
    """Yield the packages that importing `module` imports first, then itself."""
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])


def absolute(source: str, package: str) -> str:
    """Return the name of a module that a module of `package` names, perhaps with leading dots."""
    dots = len(source) - len(source.lstrip("."))
    if not dots:
        return source
    parts = package.split(".")
    base = parts[: len(parts) - dots + 1]
    return ".".join([*base, *filter(None, [source[dots:]])])
