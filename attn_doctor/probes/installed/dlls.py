"""Where Windows would find the DLLs that an extension needs.

Since Python 3.8 neither PATH nor the working directory is searched: a DLL must lie beside the
extension, beside the interpreter, in a folder that a package has added, or in Windows itself.
torch adds its own `lib` folder. What other packages add while they are imported is not seen; a DLL
in the package's own folders is taken as found.
"""

from __future__ import annotations

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.installed.links import Links, reader

#: Sets of functions that Windows maps to DLLs of its own.
_VIRTUAL = ("api-ms-win-", "ext-ms-")


class Dlls:
    """The view of one environment on Windows; every file and folder is read once."""

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
        #: What the file at a path needs.
        self.binary = reader(host)

    def links(self, path: str, package: str) -> Links:
        """The needs of the extension at `path`, which belongs to the folder `package`."""
        host, binary = self._host, self.binary(path)
        own = [host.parent(path), package, host.join(package, "lib"), package + ".libs"]
        # The interpreter's own DLL may lie with the base installation, which is loaded already.
        missing = [
            name
            for name in binary.needed
            if not name.lower().startswith((*_VIRTUAL, "python3"))
            and not any(name.lower() in self._list(folder) for folder in (*own, *self._folders))
        ]
        return Links(
            missing=tuple(missing),
            elsewhere=tuple(place for name in missing if (place := self._elsewhere(name))),
            providers=(),
            too_old=(),
            versions=(),
            unclear=binary.damaged,
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
