"""Finds prebuilt wheels among the files of releases, in `rules/tables/wheels/`.

pip does not know these files; it installs one by its address. A wheel is named after the torch that
it was built with. It may load with later ones too, which only its symbols show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from msgspec import Struct

from attn_doctor.derived.releases import major, parts, series
from attn_doctor.errors import RuleError
from attn_doctor.facts import Facts
from attn_doctor.files import DATA, read_text
from attn_doctor.rulebook import library
from attn_doctor.toml_files import read_toml

_TORCH = re.compile(r"(\d+\.\d+)(\.\d+)?(andhigher)?(?:cxx11abi(TRUE|FALSE))?")
_PYTHON = re.compile(r"cp3(\d+)-(abi3|cp3\d+)")
_GLIBC = re.compile(r"manylinux_2_(\d+)_")
_ARCHS = {"x86_64": ("x86_64", "amd64"), "aarch64": ("aarch64",)}


class ReadyWheel(Struct, frozen=True, kw_only=True):
    """A prebuilt wheel of a release."""

    package: str
    version: str
    publisher: str
    official: bool
    """The project itself publishes it."""
    file: str
    url: str
    torch: str
    """Minor release of torch that it was built with."""
    and_later: bool
    """Built with torch's stable ABI, for later releases too."""
    cuda: str
    """What its name says: `12`, `130`."""
    abi: bool | None
    """Built with the new C++ ABI; None if its name does not say."""
    python: str
    """Its tags of Python, such as `cp312-cp312`."""
    platform: str

    def names_torch(self, version: str | None) -> bool | None:
        """Whether its name is for this torch; None for a later one, with which it may load."""
        wanted, built = parts(series(version) or ""), parts(self.torch)
        if not wanted or wanted < built:
            return False
        return True if wanted == built or self.and_later else None


def ready_wheels(package: str, facts: Facts, *, community: bool = False) -> tuple[ReadyWheel, ...]:
    """Return the wheels for this system, Python, CUDA, C++ ABI and torch, the best first.

    Those that are named after an earlier torch come last. `community`: also those that the project
    does not publish itself. None without a torch that was built for CUDA.
    """
    torch = facts.torch
    if torch.build != "cuda" or not torch.cuda:
        return ()
    cuda = str(major(torch.cuda))
    for_python = cache(partial(_for_python, facts))
    for_platform = cache(partial(_for_platform, facts))
    found = [
        one
        for one in _of(package)
        if (one.official or community)
        and one.cuda.startswith(cuda)
        and for_python(one.python)
        and for_platform(one.platform)
        and (torch.cxx11_abi is None or one.abi is None or one.abi is torch.cxx11_abi)
        and one.names_torch(torch.version) is not False
    ]
    tag = "".join(torch.cuda.split(".")[:2])
    return tuple(
        sorted(
            found,
            key=lambda one: (
                one.names_torch(torch.version) is True,
                one.official,
                one.cuda in (tag, tag[:2]),
                parts(one.torch),
                _version(one.version),
                "manylinux" in one.platform,
            ),
            reverse=True,
        )
    )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in re.findall(r"\d+", text))


def _for_python(facts: Facts, tags: str) -> bool:
    match = _PYTHON.fullmatch(tags)
    python = parts(facts.python.version or "")[:2]
    if match is None or len(python) < 2 or facts.python.free_threaded:
        return False
    built = (3, int(match[1]))
    return built <= python if match[2] == "abi3" else built == python


def _for_platform(facts: Facts, platform: str) -> bool:
    system = facts.system
    if (system.os == "windows") != platform.startswith("win") or system.os == "macos":
        return False
    # A log of Windows does not name the processor; NVIDIA's drivers for it are for x86-64.
    arch = system.arch or ("x86_64" if system.os == "windows" else "")
    if system.musl or not platform.endswith(_ARCHS.get(arch, ("?",))):
        return False
    newest = min((int(one) for one in _GLIBC.findall(platform)), default=0)
    glibc = parts(system.glibc or "")
    return not newest or not glibc or glibc >= (2, newest)


@cache
def _of(package: str) -> tuple[ReadyWheel, ...]:
    return tuple(one for one in _all() if one.package == package)


@cache
def _all() -> tuple[ReadyWheel, ...]:
    """Every file of the tables. Raises `RuleError` for a line that is not understood."""
    folder = Path(library.folder(), "tables", "wheels")
    found: list[ReadyWheel] = []
    for publisher in read_toml(folder / "publishers.toml", RuleError)["publisher"]:
        path = folder / f"{publisher['name']}.tsv"
        if "url" in publisher:
            found += _files(path, publisher)
    return tuple(found)


def _files(path: Path, publisher: dict[str, str]) -> Iterator[ReadyWheel]:
    for number, line in enumerate(read_text(str(path), DATA).splitlines(), 1):
        if line.startswith("#") or not line:
            continue
        cells = line.split("\t")
        match = _TORCH.match(cells[3]) if len(cells) == 7 else None
        if match is None:
            raise RuleError(f"{path}:{number}: not a line of a table of wheels")
        package, version, tag, torch, cuda, platform, pythons = cells
        for python in pythons.split(","):
            name = package.replace("-", "_")
            local = publisher.get("local", "+cu{cuda}torch{torch}").format(cuda=cuda, torch=torch)
            file = f"{name}-{version}{local}-{python}-{platform}.whl"
            yield ReadyWheel(
                package=package,
                version=version.partition("+")[0],
                publisher=publisher["name"],
                official=publisher["trust"] == "official",
                file=file,
                url=publisher["url"].format(tag=tag, file=file.replace("+", "%2B")),
                torch=match[1],
                and_later=match[3] is not None,
                cuda=cuda,
                abi=None if match[4] is None else match[4] == "TRUE",
                python=python,
                platform=platform,
            )
