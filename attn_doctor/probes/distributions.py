"""Lists the distributions of the examined environment from their metadata files.

One directory listing per site-packages folder names every distribution; only those that a probe
asks for are opened. Nothing is imported and no `.pth` line is run: what `.pth` files add to the
import path is read as text, because editable installs and conda need it. Of an editable install
with an import hook only the metadata are seen, not the modules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from attn_doctor.host import Host
from attn_doctor.probes import path_files
from attn_doctor.probes.added_folder import END
from attn_doctor.probes.gaps import Gaps
from attn_doctor.requirement import normal_name


class Distribution(Struct, frozen=True, kw_only=True):
    """One installed distribution: `info` is its `.dist-info` or `.egg-info`."""

    name: str
    """Normalised: lower case, with single hyphens."""
    version: str
    site: str
    """Its site-packages folder."""
    info: str
    """Path of its metadata folder (or file, for some `.egg-info`)."""


class Distributions:
    """The distributions of an environment; the first copy on the import path counts."""

    def __init__(self, host: Host, found: tuple[Distribution, ...]) -> None:
        self._host = host
        self.all = found
        self._copies: dict[str, list[Distribution]] = {}
        self._headers: dict[tuple[str, str], dict[str, list[str]]] = {}
        for one in found:
            self._copies.setdefault(one.name, []).append(one)

    def __iter__(self) -> Iterator[Distribution]:
        return (copies[0] for copies in self._copies.values())

    def __len__(self) -> int:
        return len(self._copies)

    def get(self, name: str) -> Distribution | None:
        """Return the first distribution of this name on the import path."""
        return next(iter(self.copies(name)), None)

    def copies(self, name: str) -> tuple[Distribution, ...]:
        """Return every installed copy of a distribution."""
        return tuple(self._copies.get(normal_name(name), ()))

    def read(self, one: Distribution, file: str) -> str:
        """Return the text of a metadata file such as `INSTALLER`; empty if it cannot be read."""
        return self._host.try_read(self._host.join(one.info, file), 1 << 18)

    def damage(self, one: Distribution) -> str:
        """Return what is wrong with its METADATA, which pip and `importlib.metadata` cannot read.

        Empty if nothing is, or if this user may not read it.
        """
        if not one.info.endswith(".dist-info"):
            return ""
        path = self._host.join(one.info, "METADATA")
        try:
            head = self._host.head(path)
        except FileNotFoundError:
            return "METADATA is missing" if self._lists_no_metadata(one.info) else ""
        except PermissionError:
            return ""
        except OSError as error:
            return f"METADATA cannot be read: {error.strerror}"
        # Installers decode all of it, the long description too.
        text = self._host.try_read(path, 1 << 20) or head
        strange = sum("\ufffd" in line for line in text.split("\n"))
        # The character that replaces invalid bytes may be in the file itself.
        if strange and strange > len(self._host.try_grep(path, "\ufffd")):
            return "METADATA is not text in UTF-8"
        if text.startswith("\ufeff"):
            return "METADATA begins with a byte order mark"
        fields = self.headers(one)
        absent = [name for name in ("Name", "Version") if name not in fields]
        return f"METADATA has no {' and no '.join(absent)}" if absent else ""

    def _lists_no_metadata(self, info: str) -> bool:
        try:
            return "METADATA" not in self._host.list(info)
        except OSError:
            return False

    def headers(self, one: Distribution, file: str = "METADATA") -> dict[str, list[str]]:
        """Return the header lines of a metadata file by name, without the long description."""
        known = self._headers.get((one.info, file))
        if known is not None:
            return known
        fields: dict[str, list[str]] = {}
        for line in self._head(one, file).splitlines():
            name, colon, value = line.partition(": ")
            if colon and not line[0].isspace():
                fields.setdefault(name, []).append(value.strip())
        self._headers[one.info, file] = fields
        return fields

    def _head(self, one: Distribution, file: str) -> str:
        """Read a metadata file up to its first empty line; an egg has PKG-INFO or is the file."""
        egg = file == "METADATA" and one.info.lower().endswith("egg-info")
        names = ("PKG-INFO", "") if egg else (file,)
        for path in (self._host.join(one.info, name) if name else one.info for name in names):
            try:
                return self._host.head(path)
            except OSError:
                continue
        return ""


class Site(Struct, frozen=True, kw_only=True):
    """The folders of an environment's modules, for probes that read files of packages."""

    folders: tuple[str, ...]
    """site-packages folders and those that `.pth` files add, in import order."""
    distributions: Distributions
    plain: tuple[str, ...] = ()
    """Those of `folders` that PYTHONPATH adds."""
    first: tuple[str, ...] = ()
    """Those of `folders` that are searched before the standard library."""
    prefix: str = ""
    """Root of the examined environment (`sys.prefix`)."""
    python: str = ""
    """Version of the examined interpreter, for the markers of requirements."""
    cache_tag: str = ""
    """Tag in the names of its compiled modules, such as `cpython-312`; empty if unknown."""
    ctypes: bool = True
    """It was built with `ctypes`."""
    pth_code: tuple[str, ...] = ()
    """`.pth` files with lines that Python would execute."""
    path_unread: tuple[str, ...] = ()
    """`.pth` files, and `sitecustomize.py`, that may change the import path or the import in a way
    that is not understood."""
    added_by: Mapping[str, str] = {}
    """Folder → the `.pth` file or `sitecustomize.py` whose code adds it to the import path."""
    leftovers: tuple[str, ...] = ()
    """Folders such as `~orch` that an interrupted uninstall left behind."""

    def module(self, host: Host, name: str) -> str:
        """Return the path of the package or module that an import would find; empty if none."""
        for folder in self.folders:
            base = host.join(folder, *name.split("."))
            for path in (base, base + ".py"):
                found = host.try_stat(path)
                if found is not None and found.kind in ("dir", "file"):
                    return path
        return ""


#: Letters of a version; Python converts no number of more than 4,300 digits, and raises.
_LONGEST = 200


def scan(
    host: Host,
    folders: tuple[str, ...],
    prefix: str,
    gaps: Gaps,
    plain: tuple[str, ...] = (),
    python: str = "",
    cache_tag: str = "",
    stdlib: str = "",
    user: bool = False,
) -> Site:
    """Read the names in each site-packages folder, and in those that `.pth` files add.

    `plain` are those of `folders` that PYTHONPATH adds; Python reads no `.pth` files there.
    `stdlib` is the folder of the standard library. `user`: the user's folder is among `folders`.
    """
    path = _ImportPath(host, prefix, plain, gaps)
    for folder in folders:
        if folder not in plain:
            path.add_site(folder)
    for name in path_files.CUSTOM[: 1 + user]:
        path.customize(stdlib, name)
    found: list[Distribution] = []
    leftovers: list[str] = []
    for folder in path.folders:
        for name in path.names(folder):
            if name.startswith("~"):
                leftovers.append(host.join(folder, name))
            elif name.endswith((".dist-info", ".egg-info")):
                found += _distribution(host, folder, name)
            elif name == "EGG-INFO" and folder.endswith(".egg"):
                found += _egg(host, folder, host.join(folder, name))
    return Site(
        folders=path.folders,
        distributions=Distributions(host, tuple(found)),
        plain=plain,
        first=path.first,
        prefix=prefix,
        python=python,
        cache_tag=cache_tag,
        pth_code=tuple(path.code),
        path_unread=tuple(path.unread),
        added_by=path.added_by,
        leftovers=tuple(leftovers),
    )


class _ImportPath:
    """The folders of modules in the order in which Python searches them."""

    def __init__(self, host: Host, prefix: str, plain: tuple[str, ...], gaps: Gaps) -> None:
        self._host, self._prefix, self._gaps = host, prefix, gaps
        #: What `site` finds on `sys.path`: PYTHONPATH and the standard library's three entries.
        self._entries = [*plain, "", "", ""]
        self._names: dict[str, tuple[str, ...]] = {}
        self._sites: set[str] = set()
        #: `.pth` files that run code, and files whose code is not understood.
        self.code: list[str] = []
        self.unread: list[str] = []
        #: Folder → the file whose code adds it.
        self.added_by: dict[str, str] = {}

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders, each once."""
        return tuple(dict.fromkeys(filter(None, self._entries)))

    @property
    def first(self) -> tuple[str, ...]:
        """Those before the standard library."""
        return tuple(dict.fromkeys(self._entries[: self._entries.index("")]))

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names in a folder; one that cannot be read is a gap."""
        if folder not in self._names:
            self._names[folder] = _names(self._host, folder, self._gaps)
        return self._names[folder]

    def add_site(self, folder: str) -> None:
        """Add a folder at the end, and what its `.pth` files add, as `site` does."""
        if folder in self._sites:
            return
        self._sites.add(folder)
        self._append(folder)
        for name in self.names(folder):
            if name.endswith(".pth"):
                self._apply(self._host.join(folder, name), folder, name)

    def _apply(self, path: str, folder: str, name: str) -> None:
        file = path_files.read(self._host, folder, name, self._prefix)
        self.code += [path] * file.runs
        self._follow(path, file)

    def customize(self, stdlib: str, package: str) -> None:
        """Add what the first module of this name adds, which `site` imports at the end."""
        source = f"{package}.py"
        for folder in self._searched(stdlib):
            names = self.names(folder)
            inside = self._host.join(folder, package, "__init__.py")
            if package in names and self._host.is_file(inside):
                self.unread.append(inside)
            elif source in names:
                path = self._host.join(folder, source)
                self._follow(path, path_files.read_custom(self._host, path, self._prefix))
            elif f"{package}.pyc" in names:
                self.unread.append(self._host.join(folder, f"{package}.pyc"))
            else:
                continue
            return

    def _searched(self, stdlib: str) -> Iterator[str]:
        """Yield the folders with the standard library, which comes after PYTHONPATH."""
        plain = self._entries.index("")
        yield from filter(None, self._entries[:plain])
        if stdlib:
            yield stdlib
        yield from filter(None, self._entries[plain:])

    def _follow(self, path: str, file: path_files.PathFile) -> None:
        self.unread += [path] * file.unread
        for one in file.added:
            if one.code:
                self.added_by.setdefault(one.folder, path)
            if one.is_site:
                self.add_site(one.folder)
            elif one.at == END:
                self._append(one.folder)
            else:
                self._entries.insert(one.at, one.folder)

    def _append(self, folder: str) -> None:
        if folder not in self._entries:
            self._entries.append(folder)


def _names(host: Host, folder: str, gaps: Gaps) -> tuple[str, ...]:
    try:
        return host.list(folder)
    except FileNotFoundError:
        return ()
    except OSError as error:
        gaps.add("python.distribution_count", f"{folder} cannot be read: {error.strerror}")
        return ()


# torch-2.13.0+cpu.dist-info · PyYAML-6.0-py3.11.egg-info
def _in_name(folder: str) -> tuple[str, str]:
    """Return name and version in the name of a metadata folder; empty without a version."""
    parts = folder.rpartition(".")[0].split("-")
    at = next((at for at, one in enumerate(parts) if at and one[:1].isdecimal()), 0)
    return ("-".join(parts[:at]), parts[at]) if at and all(parts) else ("", "")


def _distribution(host: Host, folder: str, name: str) -> list[Distribution]:
    """Return the distribution of a metadata folder or file, if its version is known."""
    info = host.join(folder, name)
    said, version = _in_name(name)
    if version:
        return [Distribution(name=normal_name(said), version=version, site=folder, info=info)]
    # `package.egg-info` of a development install has its version only inside.
    one = Distribution(name=normal_name(name.rsplit(".", 1)[0]), version="", site=folder, info=info)
    versions = Distributions(host, (one,)).headers(one).get("Version", [])
    return [msgspec.structs.replace(one, version=version[:_LONGEST]) for version in versions[:1]]


def _egg(host: Host, folder: str, info: str) -> list[Distribution]:
    """Return the distribution in an egg folder such as `xformers-0.0.35-py3.11.egg`."""
    one = Distribution(name="", version="", site=folder, info=info)
    headers = Distributions(host, (one,)).headers(one)
    if "Name" not in headers or "Version" not in headers:
        return []
    name, version = normal_name(headers["Name"][0]), headers["Version"][0]
    return [msgspec.structs.replace(one, name=name, version=version[:_LONGEST])]
