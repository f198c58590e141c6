"""Lists the distributions of the examined environment from their metadata files.

One directory listing per site-packages folder names every distribution; only those that a probe
asks for are opened. Nothing is imported and no `.pth` line is run: paths in `.pth` files are read
as text, because editable installs and conda need them. Of an editable install with an import hook
only the metadata are seen, not the modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from attn_doctor.host import Host
from attn_doctor.probes.gaps import Gaps


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
        self._first: dict[str, Distribution] = {}
        self._headers: dict[tuple[str, str], dict[str, list[str]]] = {}
        for one in found:
            self._first.setdefault(one.name, one)

    def __iter__(self) -> Iterator[Distribution]:
        return iter(self._first.values())

    def __len__(self) -> int:
        return len(self._first)

    def get(self, name: str) -> Distribution | None:
        """Return the first distribution of this name on the import path."""
        return self._first.get(normalise(name))

    def copies(self, name: str) -> tuple[Distribution, ...]:
        """Return every installed copy of a distribution."""
        wanted = normalise(name)
        return tuple(one for one in self.all if one.name == wanted)

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
            names = self._host.try_list(one.info)
            return "METADATA is missing" if names and "METADATA" not in names else ""
        except PermissionError:
            return ""
        except OSError as error:
            return f"METADATA cannot be read: {error.strerror}"
        # Installers decode all of it, the long description too.
        text = self._host.try_read(path, 1 << 20) or head
        strange = sum("\ufffd" in line for line in text.split("\n"))
        # The character that replaces invalid bytes may be in the file itself.
        if "\0" in text or (strange and strange > len(self._host.try_grep(path, "\ufffd"))):
            return "METADATA is not text in UTF-8"
        fields = self.headers(one)
        absent = [name for name in ("Name", "Version") if name not in fields]
        return f"METADATA has no {' and no '.join(absent)}" if absent else ""

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
    prefix: str = ""
    """Root of the examined environment (`sys.prefix`)."""
    python: str = ""
    """Version of the examined interpreter, for the markers of requirements."""
    cache_tag: str = ""
    """Tag in the names of its compiled modules, such as `cpython-312`; empty if unknown."""
    pth_code: tuple[str, ...] = ()
    """`.pth` files with lines that Python would execute."""
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
_INFO = re.compile(
    r"(?P<name>[^-]+(?:-[^-]+)*?)-(?P<version>\d[^-]*)(?:-[^-]+)*\.(?:dist|egg)-info$"
)


def normalise(name: str) -> str:
    """Return a distribution name in the form in which PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def scan(
    host: Host,
    folders: tuple[str, ...],
    prefix: str,
    gaps: Gaps,
    plain: tuple[str, ...] = (),
    python: str = "",
    cache_tag: str = "",
) -> Site:
    """Read the names in each site-packages folder, and in those that `.pth` files add.

    `plain` are those of `folders` that PYTHONPATH adds; Python reads no `.pth` files there.
    """
    found: list[Distribution] = []
    code: list[str] = []
    leftovers: list[str] = []
    order: list[str] = []
    pending = list(folders)
    while pending:
        folder = pending.pop(0)
        if folder in order:
            continue
        order.append(folder)
        follows: list[str] = []
        for name in _names(host, folder, gaps):
            path = host.join(folder, name)
            if name.startswith("~"):
                leftovers.append(path)
            elif name.endswith((".dist-info", ".egg-info")):
                found += _distribution(host, folder, name)
            elif name == "EGG-INFO" and folder.endswith(".egg"):
                found += _egg(host, folder, path)
            elif name.endswith(".pth") and folder in folders and folder not in plain:
                extra, runs = _pth(host, folder, name)
                follows += extra
                code += [path] * runs
        # Python adds them directly after the folder of the `.pth` file.
        pending[:0] = follows
    return Site(
        folders=tuple(order),
        distributions=Distributions(host, tuple(found)),
        plain=plain,
        prefix=prefix,
        python=python,
        cache_tag=cache_tag,
        pth_code=tuple(code),
        leftovers=tuple(leftovers),
    )


def _names(host: Host, folder: str, gaps: Gaps) -> tuple[str, ...]:
    try:
        return host.list(folder)
    except FileNotFoundError:
        return ()
    except OSError as error:
        gaps.add("python.distribution_count", f"{folder} cannot be read: {error.strerror}")
        return ()


def _distribution(host: Host, folder: str, name: str) -> list[Distribution]:
    """Return the distribution of a metadata folder or file, if its version is known."""
    info = host.join(folder, name)
    match = _INFO.match(name)
    if match is not None:
        version = match["version"]
        return [
            Distribution(name=normalise(match["name"]), version=version, site=folder, info=info)
        ]
    # `package.egg-info` of a development install has its version only inside.
    one = Distribution(name=normalise(name.rsplit(".", 1)[0]), version="", site=folder, info=info)
    versions = Distributions(host, (one,)).headers(one).get("Version", [])
    return [msgspec.structs.replace(one, version=version[:_LONGEST]) for version in versions[:1]]


def _egg(host: Host, folder: str, info: str) -> list[Distribution]:
    """Return the distribution in an egg folder such as `xformers-0.0.35-py3.11.egg`."""
    one = Distribution(name="", version="", site=folder, info=info)
    headers = Distributions(host, (one,)).headers(one)
    if "Name" not in headers or "Version" not in headers:
        return []
    name, version = normalise(headers["Name"][0]), headers["Version"][0]
    return [msgspec.structs.replace(one, name=name, version=version[:_LONGEST])]


def _pth(host: Host, folder: str, name: str) -> tuple[list[str], bool]:
    """Return the folders that a `.pth` file adds, and whether it also contains code."""
    extra: list[str] = []
    runs = False
    for line in host.try_read(host.join(folder, name)).splitlines():
        line = line.rstrip()
        if line.startswith(("import ", "import\t")):
            runs = True
        elif line and not line.startswith("#"):
            path = host.normal(host.join(folder, line))
            if host.is_dir(path):
                extra.append(path)
    return extra, runs
