"""Finds the libraries that an extension needs, as the loader of Linux would.

An extension is imported after torch, so every library that torch has loaded counts as found,
wherever it is: those that torch's own libraries need, and those that torch opens by full path. Then
the loader searches the folders that the extension names, LD_LIBRARY_PATH and the system's folders.
A library in the extension's own package counts as found, because the package can open it first.
Libraries that an extension opens later by `dlopen` are not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from attn_doctor.binaries.binary import Binary, Versions
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.installed.libraries import opened_by
from attn_doctor.probes.installed.links import Links, differs, fault, reader
from attn_doctor.probes.machine import loader


class Displaced(Struct, frozen=True):
    """A library of LD_LIBRARY_PATH or LD_PRELOAD with which `import torch` fails."""

    path: str
    variable: str
    lacks: str
    """What is wrong: `libtorch_cpu.so needs omp_get_max_threads`."""


#: Libraries that every Python has loaded: a symbol without a version is looked up there too.
_ALWAYS = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
#: Parts of the GNU C library, which have one version. Symbols are looked up in `_ALWAYS`.
_GLIBC = ("libc.", "libm.", "libdl.", "libpthread.", "librt.", "libutil.", "libresolv.", "ld-linux")
#: Libraries that `import torch` loads itself, in this order; these need all others.
_TORCH_FIRST = ("libtorch_global_deps.so", "libtorch_python.so")
#: How the names of libraries begin that come with torch itself.
_TORCH_OWN = ("libc10.", "libc10_", "libtorch.", "libtorch_", "libshm.")


class Linking:
    """Linux's loader in one environment; every file and folder is read once."""

    def __init__(self, host: Host, site: Site, torch: str, python: str) -> None:
        self._host = host
        #: Reads what the file at a path needs and provides.
        self.binary = reader(host)
        self._offered: dict[str, Versions] = {}
        self._names: dict[str, frozenset[str]] = {}
        self._searched: dict[str, tuple[str, ...]] = {}
        self._site = site
        self._torch = host.join(torch, "lib") if torch else ""
        self._first = loader.environment_folders(host)
        self._system = self._system_folders(python)
        self._always = tuple(
            place for name in _ALWAYS if (place := self._find(name, python, Binary()))
        )
        #: Libraries that `import torch` needs and the loader does not find.
        self.torch_missing: tuple[str, ...] = ()
        #: Libraries of torch that are gone, empty or cut short, each with what is wrong.
        self.torch_faults: list[str] = []
        #: The first damaged library of a CUDA wheel that `import torch` loads; empty if none is.
        self.wheel_fault = ""
        #: Why the libraries that torch needs are unknown; empty if they are known.
        self.torch_unclear = "" if self._torch else "there is no torch folder"
        #: Libraries that LD_PRELOAD puts before all others, by name.
        self._forced = self._in_preload()
        #: Libraries that `import torch` has loaded, by name.
        self._loaded: dict[str, str] = self._load_torch()

    def links(self, path: str, package: str) -> Links:
        """Return the libraries for the extension at `path` of the package in `package`."""
        binary = self.binary(path)
        found, missing = self._closure(path, binary, package)
        too_old, unclear = self._too_old(path, found)
        return Links(
            missing=tuple(missing),
            elsewhere=tuple(place for name in missing if (place := self._elsewhere(name))),
            providers=(
                *(place for name, place in found.items() if not name.startswith(_GLIBC)),
                *self._always,
            ),
            too_old=tuple(too_old),
            versions=tuple(f"{one} of {name}" for name, ones in too_old.items() for one in ones),
            unclear=binary.damaged or unclear,
            fault=fault(binary, self._host.platform.machine),
        )

    def displaced(self) -> Displaced | None:
        """Return the first library of LD_LIBRARY_PATH or LD_PRELOAD with which torch fails to load.

        The loader takes it before the library that came with torch, or before the system's, and it
        is damaged, or lacks a symbol or a version that a library of torch needs.
        """
        foreign = {
            name: place
            for name, place in self._loaded.items()
            if name in self._forced or self._host.parent(place) in self._first
        }
        users = {
            path: [name for name in self.binary(path).needed if name in foreign]
            for path in self._loaded.values()
            if path not in foreign.values()
        }
        users = {path: names for path, names in users.items() if names}
        for path, names in users.items():
            for name in names:
                binary = self.binary(foreign[name])
                if binary.damaged and not binary.unread:
                    return self._displaced(foreign[name], name, binary.damaged)
            for name, versions in self._too_old(path, self._loaded)[0].items():
                if name in names:
                    wanted = f"{_file(path)} needs its version {versions[0]}"
                    return self._displaced(foreign[name], name, wanted)
        return self._lacking(users, foreign) if users else None

    def wheels_that_lack(self) -> str:
        """Return which library of a CUDA wheel needs a symbol that no loaded library has.

        Empty if there is none, or if it is unknown.
        """
        folders = self._wheel_folders()
        wheels = [one for one in self._loaded.values() if self._host.parent(one) in folders]
        providers = tuple(dict.fromkeys((*self._loaded.values(), *self._always)))
        try:
            answers = self._host.lacking(dict.fromkeys(wheels, providers))
        except OSError:
            return ""
        for path, answer in answers.items():
            if answer.count and not answer.damaged:
                return f"{_file(path)}: undefined symbol {answer.first[0]}"
        return ""

    def _lacking(self, users: dict[str, list[str]], foreign: dict[str, str]) -> Displaced | None:
        """Return the first library in `foreign` without a symbol that only it could define."""
        providers = tuple(dict.fromkeys((*self._loaded.values(), *self._always)))
        try:
            answers = self._host.lacking(dict.fromkeys(users, providers))
        except OSError:
            return None
        for path, names in users.items():
            answer = answers[path]
            if answer.count and not answer.damaged:
                # Which of several should have it is not known; the first is named.
                wanted = f"{_file(path)} needs {answer.first[0]}"
                return self._displaced(foreign[names[0]], names[0], wanted)
        return None

    def _displaced(self, path: str, name: str, lacks: str) -> Displaced:
        return Displaced(path, "LD_PRELOAD" if name in self._forced else "LD_LIBRARY_PATH", lacks)

    def _in_preload(self) -> dict[str, str]:
        """Return the libraries of LD_PRELOAD, by the name under which others need them."""
        paths = self._host.environ.get("LD_PRELOAD", "").replace(":", " ").split()
        found = [one for one in paths if "/" in one and self._host.is_file(one)][: loader.MOST]
        # A file without a name of its own is not taken for another, a damaged one not at all.
        return {name: one for one in reversed(found) if (name := self.binary(one).soname)}

    def _load_torch(self) -> dict[str, str]:
        """Return the libraries that `import torch` loads, with their paths."""
        loaded: dict[str, str] = dict(self._forced) if self._torch else {}
        opened = dict(self._preloaded()) if self._torch else {}
        for one, place in opened.items():
            loaded.setdefault(one, place)
        absent: dict[str, None] = {}
        names = [name for name in _TORCH_FIRST if name in self._list(self._torch)]
        if _TORCH_FIRST[-1] not in names:
            self.torch_unclear = f"{self._torch} contains no readable {_TORCH_FIRST[-1]}"
            self.torch_faults += self._without_library()
        pending = [self._host.join(self._torch, name) for name in names]
        # What they need may be missing too: libcusparse needs libnvJitLink.
        pending += [place for one, place in opened.items() if loaded[one] == place]
        wheels = self._wheel_folders()
        while pending:
            path = pending.pop(0)
            binary = self.binary(path)
            # A damaged library of LD_LIBRARY_PATH is reported by `displaced`.
            if binary.damaged and self._host.parent(path) == self._torch:
                self.torch_unclear = f"{path}: {binary.damaged}"
                if not binary.unread:
                    self.torch_faults.append(f"torch/lib/{_file(path)}: {binary.damaged}")
            elif binary.damaged and not binary.unread and self._host.parent(path) in wheels:
                self.wheel_fault = self.wheel_fault or f"{_file(path)}: {binary.damaged}"
            loaded.setdefault(binary.soname or path.rpartition("/")[2], path)
            for name in binary.needed:
                if name in loaded:
                    continue
                place = self._find(name, path, binary)
                if not place:
                    absent[name] = None
                    continue
                loaded[name] = place
                folder = self._host.parent(place)
                follow = self._first or folder == self._torch or folder in wheels
                pending += [place] * bool(follow and not name.startswith(_GLIBC))
        # The loader takes a library that was loaded before for another one.
        missing = [name for name in absent if name not in loaded]
        loaded |= self._second_try(missing) | loaded
        missing = [name for name in missing if name not in loaded]
        own = [name for name in missing if name.startswith(_TORCH_OWN)]
        self.torch_faults += [f"torch/lib lacks {name}" for name in own]
        self.torch_missing = tuple(name for name in missing if name not in own)
        return loaded

    def _without_library(self) -> Iterator[str]:
        """Yield the fault of a torch whose extension needs a library that the loader cannot find.

        A `lib` that cannot be listed gives no fault.
        """
        package = self._host.parent(self._torch)
        for name in sorted(self._list(package)):
            if not (name.startswith("_C.") and name.endswith(".so") and self._list(self._torch)):
                continue
            extension = self._host.join(package, name)
            binary = self.binary(extension)
            wanted = _TORCH_FIRST[-1]
            if wanted in binary.needed and not self._find(wanted, extension, binary):
                yield f"torch/lib lacks {wanted}, which torch/{name} needs"

    def _second_try(self, missing: Sequence[str]) -> dict[str, str]:
        """Return the libraries that torch opens by their paths once its first library failed.

        `_load_global_deps` catches the error, and looks on the whole import path for the wheels.
        They bring what they need: libcusparse brings libnvJitLink.
        """
        init = self._host.join(self._host.parent(self._torch), "__init__.py")
        if not missing or not self._host.try_grep(init, '"libcudart.so.*[0-9]"'):
            return {}
        found = {
            name: self._host.join(folder, name)
            for folder in reversed(self._wheel_folders())
            for name in {*missing}.intersection(self._list(folder))
        }
        pending = [*found.values()]
        while pending:
            path = pending.pop(0)
            binary = self.binary(path)
            for name in binary.needed:
                place = "" if name in found else self._find(name, path, binary)
                if place:
                    found[name] = place
                    pending.append(place)
        return found

    def _preloaded(self) -> Iterator[tuple[str, str]]:
        """Yield the libraries of wheels that torch opens by their paths, of any CUDA version.

        So a wheel of the CUDA 12 runtime beside a CUDA 13 torch is loaded too. A file in a folder
        of its own (`nvidia/cuda_runtime`) comes before one in `nvidia/cu13`.
        """
        stems = opened_by(self._host, self._host.parent(self._torch))
        for stem in sorted(stems):
            for folder in self._wheel_folders():
                names = [name for name in self._list(folder) if name.startswith(f"{stem}.so.")]
                if names:
                    yield min(names), self._host.join(folder, min(names))
                    break

    def _wheel_folders(self) -> list[str]:
        """Folders of CUDA libraries in wheels, those of single libraries first."""
        found = []
        for one in self._site.folders:
            place = self._host.join(one, "nvidia")
            names = sorted(self._list(place), key=lambda name: (name.startswith("cu1"), name))
            found += [self._host.join(place, name, "lib") for name in names]
        return found

    def _closure(self, path: str, binary: Binary, package: str) -> tuple[dict[str, str], list[str]]:
        """The libraries found for an extension, by name, and the names of those that are not.

        Those of torch and of the package are followed to what they need.
        """
        found: dict[str, str] = {}
        missing: list[str] = []
        pending = [(path, binary)]
        while pending:
            user, needs = pending.pop(0)
            for name in needs.needed:
                if name in found or name in missing:
                    continue
                place = self._loaded.get(name) or self._find(name, user, needs)
                place = place or self._beside(name, package)
                if not place:
                    missing.append(name)
                    continue
                found[name] = place
                if self._host.parent(place) == self._torch or place.startswith(package + "/"):
                    pending.append((place, self.binary(place)))
        return found, missing

    def _find(self, name: str, user: str, binary: Binary) -> str:
        """Return the path of the library that the loader finds for `user`; empty if none."""
        if "/" in name:
            return name if self._host.is_file(name) else ""
        if user not in self._searched:
            self._searched[user] = self._folders(user, binary)
        for folder in self._searched[user]:
            if name in self._list(folder):
                place = self._host.join(folder, name)
                # The loader passes over a library that is made for another processor.
                if folder in self._first and differs(
                    self.binary(place), self._host.platform.machine
                ):
                    continue
                return place
        return ""

    def _folders(self, user: str, binary: Binary) -> tuple[str, ...]:
        """Return the folders in which the loader looks for what `user` needs, in its order."""
        origin = self._host.parent(self._host.real(user))
        own = [_placed(folder, origin) for folder in (*binary.rpath, *binary.runpath)]
        before, behind = (own, []) if binary.rpath else ([], own)
        return tuple(map(self._host.normal, (*before, *self._first, *behind, *self._system)))

    def _beside(self, name: str, package: str) -> str:
        """Return the library in the package itself, which can load it first."""
        for folder in (package, self._host.join(package, "lib"), package + ".libs"):
            if package and name in self._list(folder):
                return self._host.join(folder, name)
        return ""

    def _elsewhere(self, name: str) -> str:
        """Return the path of a library that the loader does not find."""
        for folder in self._other_folders():
            if name in self._list(folder):
                return self._host.join(folder, name)
        return ""

    def _other_folders(self) -> list[str]:
        host = self._host
        folders = [self._torch] if self._torch else []
        folders += self._wheel_folders()
        folders.append(host.join(self._site.prefix, "lib"))
        toolkits = sorted(one for one in self._list("/usr/local") if one.startswith("cuda"))
        folders += [host.join("/usr/local", one, "lib64") for one in reversed(toolkits)]
        home = host.environ.get("CUDA_HOME") or host.environ.get("CUDA_PATH")
        return folders + ([host.join(home, "lib64")] if home else [])

    def _list(self, folder: str) -> frozenset[str]:
        if folder not in self._names:
            self._names[folder] = frozenset(self._host.try_list(folder)) if folder else frozenset()
        return self._names[folder]

    def _system_folders(self, python: str) -> tuple[str, ...]:
        """Return the interpreter's RPATH (with libstdc++ in conda), then the system's folders."""
        real = self._host.real(python) if python else ""
        binary = self.binary(real) if real else Binary()
        own = (_placed(folder, self._host.parent(real)) for folder in binary.rpath)
        folders = (*own, *loader.system_folders(self._host), "/lib64", "/lib")
        return tuple(dict.fromkeys(folders))

    def _too_old(self, path: str, found: dict[str, str]) -> tuple[dict[str, list[str]], str]:
        """Return the missing versions of each library, and why some are unknown."""
        too_old: dict[str, list[str]] = {}
        wanted = self._versions(path)
        if wanted.damaged:
            return too_old, wanted.damaged
        for library, versions in wanted.wants.items():
            name = "libc.so.6" if library.startswith(_GLIBC) else library
            place = found.get(name)
            if place is None:
                continue  # it is missing, which `missing` reports
            given = self._versions(place)
            if given.damaged:
                return too_old, f"{place}: {given.damaged}"
            # The loader accepts a library without any versions.
            absent = [one for one in versions if given.gives and not _offers(given.gives, one)]
            if absent:
                too_old[name] = [*dict.fromkeys(too_old.get(name, []) + absent)]
        return too_old, ""

    def _versions(self, path: str) -> Versions:
        if path not in self._offered:
            try:
                self._offered[path] = self._host.versions(path)
            except OSError as error:
                self._offered[path] = Versions(damaged=f"it cannot be read: {error.strerror}")
        return self._offered[path]


def _file(path: str) -> str:
    return path.rpartition("/")[2]


def _placed(folder: str, origin: str) -> str:
    return folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)


def _offers(given: tuple[str, ...], wanted: str) -> bool:
    """Whether one of `given` is `wanted`, or a later version of its series."""
    series, _, number = wanted.rpartition("_")
    for one in given:
        if one == wanted:
            return True
        other, _, offered = one.rpartition("_")
        if series and other == series and _numbers(offered) >= _numbers(number) > ():
            return True
    return False


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split(".")
    return tuple(map(int, parts)) if all(one.isdecimal() and len(one) < 19 for one in parts) else ()
