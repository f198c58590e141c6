"""Finds the compilers and build tools that Triton, Inductor and extension builds would start.

They use the programs in CC and CXX, else the first on PATH. Only a program of the system is run for
its version. Only a build shows whether a compiler works, and with which options it is called.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from attn_doctor.facts import Program
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.toolchain import programs

#: Seconds for a program to print its version. gcc needs 2 ms.
LIMIT = 2.0
#: Programs that start the compiler named after them.
LAUNCHERS = ("ccache", "sccache", "distcc", "icecc")
MSVC = "Microsoft Visual Studio"


class _Choice(Struct, frozen=True):
    """A program and how it was found; see `facts.Program`."""

    path: str = ""
    source: str = ""


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return the compilers and build tools."""
    cl = _cl(host, gaps)
    cc = _compiler(host, gaps, "cc", _cc(host, site), cl)
    cxx = _compiler(host, gaps, "cxx", _cxx(host), cl if host.windows else cc)
    return {
        "cc": cc,
        "cxx": cxx,
        "cl": cl,
        "ninja": _tool(host, site, gaps, "ninja"),
        "cmake": _tool(host, site, gaps, "cmake"),
    }


# Choosing


def _cc(host: Host, site: Site) -> _Choice:
    """Choose the C compiler as Triton does (`triton/runtime/build.py`)."""
    if not host.windows:
        return _chosen(host, "CC", ("gcc", "clang"))
    if "CC" not in host.environ:
        # triton-windows contains TinyCC.
        triton = site.module(host, "triton")
        bundled = host.join(triton, "runtime", "tcc", "tcc.exe") if triton else ""
        if bundled and host.is_file(bundled):
            return _Choice(bundled, "wheel")
    return _chosen(host, "CC", ("cl", "gcc", "clang"))


def _cxx(host: Host) -> _Choice:
    """Choose the C++ compiler as Inductor does (`torch/_inductor/config.py`)."""
    names = {"windows": ("cl",), "macos": ("clang++", "c++")}
    return _chosen(host, "CXX", names.get(host.platform.os, ("g++", "c++")))


def _chosen(host: Host, variable: str, names: tuple[str, ...]) -> _Choice:
    value = host.environ.get(variable)
    if value is not None:
        path = programs.named(host, value)
        if path:
            return _Choice(path, variable)
        # distutils splits `CC="ccache gcc -m64"`; Triton looks for a program of that name.
        words = (word for word in value.split() if word not in LAUNCHERS and word[0] != "-")
        path = next((found for word in words if (found := programs.named(host, word))), "")
        return _Choice(path, f"{variable} ({'with arguments' if path else 'missing'})")
    for name in names:
        path = programs.first_on_path(host, name)
        if path:
            return _Choice(path, _place(host, path))
    places = (host.join(place, name) for name in names for place in programs.PLACES)
    if not host.windows and any(programs.runnable(host, path) for path in places):
        return _Choice("", "not on PATH")
    return _Choice()


def _place(host: Host, path: str) -> str:
    return "known place" if host.parent(path) in programs.PLACES else "PATH"


# Compilers


def _compiler(host: Host, gaps: Gaps, fact: str, choice: _Choice, sibling: Program) -> Program:
    """Describe the compiler `choice`, with facts of its `sibling` for the other language."""
    path = choice.path
    if not path:
        return Program(path="", family="", source=choice.source)
    if path == sibling.path:
        return Program(
            path=path, version=sibling.version, family=sibling.family, source=choice.source
        )
    family = _family(host, path)
    version = sibling.version if _same_suite(host, sibling.path or "", path) else None
    if version is None and family == "msvc":
        version = _msvc_version(gaps, path, fact)
    elif version is None:
        version = _version(host, gaps, path, family, fact)
    return Program(path=path, version=version, family=family, source=choice.source)


def _family(host: Host, path: str) -> str:
    """Return `gcc`, `clang` or `msvc` by the name of the file behind `path`; else empty."""
    paths = (one.lower().replace("\\", "/") for one in (host.real(path), path))
    names = [one.rpartition("/")[2] for one in paths]
    for name in names:
        if "clang" in name or (
            host.platform.os == "macos" and re.match(r"(gcc|g\+\+|cc|c\+\+)$", name)
        ):
            return "clang"
        # conda's are called `x86_64-conda-linux-gnu-cc`
        words = name.replace(".", "-.").split("-")
        if "gcc" in words or "g++" in words or name.endswith(("-gnu-cc", "-gnu-c++")):
            return "gcc"
        if name in ("cl", "cl.exe"):
            return "msvc"
    return ""


def _same_suite(host: Host, cc: str, cxx: str) -> bool:
    """Whether both belong to one installation, such as `…-gnu-gcc-12` and `…-gnu-g++-12`."""
    if not cc:
        return False
    one, other = host.real(cc), host.real(cxx)
    head, slash, name = one.rpartition("/")
    return other in (one, head + slash + name.replace("gcc", "g++"), one + "++")


def _version(host: Host, gaps: Gaps, path: str, family: str, fact: str) -> str | None:
    if host.platform.os == "macos":
        # Without the developer tools, running /usr/bin/clang opens an installer.
        gaps.add(f"{fact}.version", f"{path} is not run: on macOS it may open an installer")
        return None
    if programs.trusted(host, path):
        # gcc: 12.2.0; clang does not know the first option and prints 14.0.6 for the second
        wanted = ["-dumpversion"] if family == "clang" else ["-dumpfullversion", "-dumpversion"]
        return _asked(host, gaps, [path, *wanted], fact)
    installed = _installed_version(host, path)
    if not installed:
        _not_run(gaps, path, fact)
    return installed or None


def _installed_version(host: Host, path: str) -> str:
    """Return the version in the path of gcc's parts, such as `lib/gcc/…-linux-gnu/13.3.0`."""
    folder = host.join(host.parent(host.parent(host.real(path))), "lib", "gcc")
    found = {
        name
        for target in host.try_list(folder)
        for name in host.try_list(host.join(folder, target))
        if _is_version(name)
    }
    return found.pop() if len(found) == 1 else ""


def _not_run(gaps: Gaps, path: str, fact: str) -> None:
    gaps.add(f"{fact}.version", f"{path} is not run: check runs only programs of the system")


def _asked(host: Host, gaps: Gaps, argv: list[str], fact: str) -> str | None:
    """Return the first version number that a program prints."""
    ran = host.run(argv, LIMIT)
    version = _first_version(ran.out) if ran.ok else ""
    if not version:
        why = ran.why_not(argv[0], LIMIT) or f"{argv[0]} prints no version"
        gaps.add(f"{fact}.version", why)
    return version or None


def _first_version(text: str) -> str:
    """Return the first version number in `text`, or empty text."""
    if _is_version(text.strip()):
        return text.strip()
    match = re.search(r"\d+(\.\d+)+|^\d+$", text, re.MULTILINE)
    return match[0] if match is not None else ""


def _is_version(text: str) -> bool:
    return all(map(str.isdecimal, text.split(".")))


# Microsoft's compiler


def _cl(host: Host, gaps: Gaps) -> Program:
    """Return the `cl.exe` on PATH, which Inductor needs, else the newest installed one."""
    if not host.windows:
        return Program(path="", family="", source="")
    path, source = programs.first_on_path(host, "cl"), "PATH"
    if not path:
        path, source = _newest_msvc(host), "known place"
    if not path:
        return Program(path="", family="", source="")
    version = _msvc_version(gaps, path, "cl")
    return Program(path=path, version=version, family="msvc", source=source)


def _newest_msvc(host: Host) -> str:
    """Return the `cl.exe` of the newest toolset of Visual Studio or its Build Tools."""
    found: list[tuple[tuple[int, ...], str]] = []
    for variable, usual in (
        ("PROGRAMFILES", "C:\\Program Files"),
        ("PROGRAMFILES(X86)", "C:\\Program Files (x86)"),
    ):
        studio = host.join(host.environ.get(variable, usual), MSVC)
        for year in host.try_list(studio):
            for edition in host.try_list(host.join(studio, year)):
                tools = host.join(studio, year, edition, "VC", "Tools", "MSVC")
                for name in host.try_list(tools):
                    path = host.join(tools, name, "bin", "Hostx64", "x64", "cl.exe")
                    if re.fullmatch(r"[\d.]+", name) and host.is_file(path):
                        found.append((tuple(map(int, name.split("."))), path))
    return max(found)[1] if found else ""


def _msvc_version(gaps: Gaps, path: str, fact: str) -> str | None:
    # …\VC\Tools\MSVC\14.44.35207\bin\Hostx64\x64\cl.exe
    match = re.search(r"\\MSVC\\([\d.]+)\\", path, re.IGNORECASE)
    if match is None:
        gaps.add(f"{fact}.version", f"the path {path} does not name a version")
    return match[1] if match is not None else None


# Build tools


def _tool(host: Host, site: Site, gaps: Gaps, name: str) -> Program:
    """Return the ninja or cmake on PATH, else that of a wheel in the environment."""
    folder, suffix = ("Scripts", ".exe") if host.windows else ("bin", "")
    script = host.join(site.prefix, folder, name + suffix)
    path = programs.first_on_path(host, name)
    wheel = site.distributions.get(name)
    if wheel is not None and path and host.real(path) == host.real(script):
        return Program(path=path, version=wheel.version, family="", source="wheel")
    if wheel is not None and not path and host.is_file(script):
        source = "wheel (not on PATH)"
        return Program(path=script, version=wheel.version, family="", source=source)
    if not path:
        return Program(path="", family="", source="")
    version = _shared_version(host, path) if name == "cmake" else ""
    if not version and programs.trusted(host, path):
        version = _asked(host, gaps, [path, "--version"], name) or ""
    elif not version:
        _not_run(gaps, path, name)
    return Program(path=path, version=version or None, family="", source=_place(host, path))


def _shared_version(host: Host, path: str) -> str:
    """Return the version in the name of cmake's folder, such as `/usr/share/cmake-3.25`."""
    folder = host.join(host.parent(host.parent(host.real(path))), "share")
    names = (one.partition("-") for one in host.try_list(folder))
    versions = (end for start, dash, end in names if start == "cmake" and dash)
    found = [one for one in versions if _is_version(one) and one.count(".") == 1]
    return found[0] if len(found) == 1 else ""
