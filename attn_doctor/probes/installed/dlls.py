"""Finds the DLLs that an extension needs, as the loader of Windows would.

Since Python 3.8 neither PATH nor the working directory is searched. A DLL must be beside the
extension, beside the interpreter, in a folder that a package has added, or in Windows itself.
torch adds its own `lib` folder. Folders that other packages add during their import are not seen; a
DLL in the package's own folders counts as found.
"""

from __future__ import annotations

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.installed.links import Links, fault, reader

#: API sets, which Windows maps to its own DLLs.
_VIRTUAL = ("api-ms-win-", "ext-ms-")


class Dlls:
    """Windows' loader in one environment; every file and folder is read once."""

    def __init__(self, host: Host, site: Site, torch: str) -> None:
        self._host, self._site = host, site
        windows = host.environ.get("SystemRoot") or host.environ.get("SYSTEMROOT") or r"C:\Windows"
        self._folders = [
            *([host.join(torch, "lib")] if torch else []),
            site.prefix,
            host.join(site.prefix, "DLLs"),
            host.join(site.prefix, "Library", "bin"),
            host.join(windows, "System32"),
            windows,
        ]
        self._names: dict[str, frozenset[str]] = {}
        #: Reads what the file at a path needs.
        self.binary = reader(host)

    def links(self, path: str, package: str) -> Links:
        """Return the libraries for the extension at `path` of the package in `package`."""
        host, binary = self._host, self.binary(path)
        own = [host.parent(path), package, host.join(package, "lib"), package + ".libs"]
        # The interpreter's own DLL may be in the base installation; it is loaded already.
        needed = [
            name for name in binary.needed if not name.lower().startswith((*_VIRTUAL, "python3"))
        ]
        folders = (*own, *self._folders)
        places = {
            name: next((one for one in folders if name.lower() in self._list(one)), None)
            for name in needed
        }
        missing = [name for name, folder in places.items() if folder is None]
        # Windows' own DLLs have what programs need, or send it on to others.
        windows = self._folders[-2:]
        found = [(one, name) for name, one in places.items() if one and one not in windows]
        return Links(
            missing=tuple(missing),
            elsewhere=tuple(place for name in missing if (place := self._elsewhere(name))),
            providers=tuple(host.join(folder, name) for folder, name in found),
            too_old=(),
            versions=(),
            unclear=binary.damaged,
            fault=fault(binary, ""),
        )

    def _elsewhere(self, name: str) -> str:
        host, home = self._host, self._host.environ.get("CUDA_PATH", "")
        folders = [host.join(home, "bin"), host.join(home, "bin", "x64")] if home else []
        for one in self._site.folders:
            place = host.join(one, "nvidia")
            folders += [host.join(place, inner, "bin") for inner in host.try_list(place)]
        for folder in folders:
            if name.lower() in self._list(folder):
                return host.join(folder, name)
        return ""

    def _list(self, folder: str) -> frozenset[str]:
        if folder not in self._names:
            names = self._host.try_list(folder) if folder else ()
            self._names[folder] = frozenset(name.lower() for name in names)
        return self._names[folder]
