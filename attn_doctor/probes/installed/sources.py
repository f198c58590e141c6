"""Finds the sources of modules in an environment, as an import would, and what folders hold."""

from __future__ import annotations

from collections.abc import Iterator

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site


class Sources:
    """The sources of modules; every folder is listed once."""

    def __init__(self, host: Host, site: Site) -> None:
        self._host, self._site = host, site
        self._files: dict[str, str] = {}
        self._folders: dict[str, frozenset[str]] = {}

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

    def short(self, path: str) -> str:
        """Return a path relative to its folder of modules."""
        folders = (one for one in self._site.folders if path.startswith(one))
        return path.removeprefix(max(folders, key=len, default="")).lstrip("/\\")


def parents(module: str) -> Iterator[str]:
    """Yield the packages that importing `module` imports first, then itself."""
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        yield ".".join(parts[:length])
