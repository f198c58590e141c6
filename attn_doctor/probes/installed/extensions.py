"""Reads compiled extension modules without loading them: GPU code, libraries, symbols.

Functions that a DLL of Windows itself lacks are not looked up. On macOS, where no extension has GPU
code, none are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from attn_doctor.binaries.binary import GpuCode, Unresolved
from attn_doctor.facts import Extension
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed import packages
from attn_doctor.probes.installed.dlls import Dlls
from attn_doctor.probes.installed.linking import Linking
from attn_doctor.probes.installed.links import Links
from attn_doctor.probes.installed.origin import cxx11_abi, said_by

#: Seconds for the GPU code of all files together; a cold disk takes a tenth of that.
SECONDS = 1.5
#: Highest number of files that are read.
MOST = 40
#: Number of symbols that the facts name.
SHOWN = 3
#: How the names of torch's own libraries begin.
_TORCH = ("libtorch", "libc10", "torch", "c10")


class _File(Struct, frozen=True):
    """One file to read, with its package, its name and its package's folder."""

    package: str
    name: str
    folder: str
    path: str
    fault: str = ""
    """Why no import finds it; empty if one does."""


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return the compiled modules of packages and of kernels from the Hub."""
    if host.platform.os == "macos":
        return {"extensions": ()}
    torch = site.module(host, "torch")
    files = list(_files(host, site, torch))
    if not files:
        return {"extensions": ()}
    linking = _linking(host, site, torch)
    files = files[:MOST]
    links = [linking.links(file.path, file.folder) for file in files]
    symbols = _symbols(host, files, links)
    end = host.now() + SECONDS * host.patience
    found = []
    for number, file in enumerate(files):
        place = _ElementGaps(gaps, f"extensions[{number}]")
        code = _gpu_code(host, file.path, place, end)
        needs = linking.binary(file.path).needed
        found.append(_extension(file, links[number], symbols[number], code, needs, place))
    return {"extensions": tuple(found)}


class _ElementGaps(Struct, frozen=True):
    """The gaps of one element of a list of facts."""

    gaps: Gaps
    place: str

    def add(self, name: str, reason: str) -> None:
        """Record why the fact `name` of this element is unknown."""
        self.gaps.add(f"{self.place}.{name}", reason)


def _files(host: Host, site: Site, torch: str) -> Iterator[_File]:
    said = said_by(host, torch) if torch else {}
    version, cuda = said.get("__version__", ""), said.get("cuda", "")
    for modules in packages.compiled(host, site):
        paths = modules.paths
        if modules.field == "bitsandbytes":
            paths = _of_this_cuda(paths, cuda)
        for path in paths:
            fault = _other_python(path, paths, site.cache_tag) if modules.imported else ""
            yield _File(modules.field, _stem(path), modules.folder, path, fault)
    if version and cuda and site.distributions.get("kernels") is not None:
        from attn_doctor.probes.installed import hub

        abi = {True: "11", False: "98", None: ""}[cxx11_abi(host, torch)]
        for kernel in hub.cached(host, version, cuda, host.platform.machine.lower(), abi):
            name = f"{kernel.repository}/{_stem(kernel.path)}"
            yield _File("hub", name, kernel.folder, kernel.path)


def _other_python(path: str, paths: list[str], cache_tag: str) -> str:
    """Return the fault of a module whose name has another Python's tag; empty if it has none.

    `cache_tag` is that of the examined Python. A second file of that name for this one counts.
    """
    ours = re.fullmatch(r"cpython-3(\d+)", cache_tag)
    theirs = packages.TAG.search(path)
    if ours is None or theirs is None or ours[1] == theirs[1]:
        return ""
    others = (packages.TAG.search(one) for one in paths if _stem(one) == _stem(path))
    if any(other is None or other[1] == ours[1] for other in others):
        return ""
    return f"it is made for Python 3.{theirs[1]}, and this is Python 3.{ours[1]}"


def _stem(path: str) -> str:
    return re.split(r"[/\\]", path)[-1].partition(".")[0]


# libbitsandbytes_cpu.so · libbitsandbytes_cuda128.so · libbitsandbytes_cuda130.so
def _of_this_cuda(paths: list[str], cuda: str) -> list[str]:
    """Return the library that bitsandbytes loads; it has one for each CUDA version."""
    tag = "".join(cuda.split(".")[:2])
    wanted = f"cuda{tag}" if tag else "cpu"
    return [path for path in paths if _stem(path).endswith(f"_{wanted}")]


def _linking(host: Host, site: Site, torch: str) -> Linking | Dlls:
    if host.windows:
        return Dlls(host, site, torch)
    return Linking(host, site, torch, host.join(site.prefix, "bin", "python3"))


def _extension(
    file: _File,
    links: Links,
    symbols: Unresolved | str,
    code: GpuCode | None,
    needed: tuple[str, ...],
    gaps: _ElementGaps,
) -> Extension:
    from attn_doctor.binaries.architectures import cuda_of, order

    clear = not links.unclear
    fault = links.fault or file.fault
    if not clear:
        for name in (
            *(() if fault else ("fault",)),
            "missing_libraries",
            "missing_found_at",
            "outdated_libraries",
            "missing_symbol_versions",
            "cuda_major",
        ):
            gaps.add(name, f"{file.path}: {links.unclear}")
    unseen = any(name.lower().startswith(_TORCH) for name in links.missing)
    if isinstance(symbols, str):
        for name in (
            "undefined_symbol_count",
            "first_undefined_symbols",
            *(() if unseen else ("mismatch",)),
        ):
            gaps.add(name, symbols)
    return Extension(
        package=file.package,
        name=file.name,
        path=file.path,
        fault=None if links.unclear and not fault else fault,
        archs=None if code is None else order(code.cubins),
        ptx=None if code is None else order(code.ptx),
        ptx_cuda=None if code is None else cuda_of(code.isa),
        missing_libraries=links.missing if clear else None,
        missing_found_at=links.elsewhere if clear else None,
        outdated_libraries=links.too_old if clear else None,
        missing_symbol_versions=links.versions if clear else None,
        cuda_major=_cuda_major(needed) if clear else None,
        **(
            ({"mismatch": "unchecked"} if unseen else {})
            if isinstance(symbols, str)
            else _about_symbols(symbols, links)
        ),
    )


def _gpu_code(host: Host, path: str, gaps: _ElementGaps, end: float) -> GpuCode | None:
    """Return all GPU code of a file, or None with the reason as a gap."""
    reason = f"{path}: there was no time left to read its GPU code"
    left = end - host.now()
    if left > 0:
        try:
            code = host.gpu_code(path, 0, left)
        except OSError as error:
            reason = f"{path} cannot be read: {error.strerror}"
        else:
            if code.whole and not code.damaged:
                return code
            reason = f"{path}: {code.damaged}" if code.damaged else reason
    for name in ("archs", "ptx", "ptx_cuda"):
        gaps.add(name, reason)
    return None


def _symbols(host: Host, files: list[_File], links: list[Links]) -> list[Unresolved | str]:
    """For each file what its symbols tell, or why they tell nothing. All are asked for at once."""
    reasons = [_why_not(file, one) for file, one in zip(files, links, strict=True)]
    needs = {
        file.path: one.providers
        for file, one, reason in zip(files, links, reasons, strict=True)
        if not reason
    }
    answers: dict[str, Unresolved] = {}
    failure = ""
    try:
        answers = host.unresolved(needs) if needs else {}
    except OSError as error:
        failure = f"symbols cannot be read: {error.strerror}"
    found: list[Unresolved | str] = []
    for file, reason in zip(files, reasons, strict=True):
        answer = answers.get(file.path, Unresolved())
        found.append(reason or failure or answer.damaged or answer)
    return found


def _why_not(file: _File, links: Links) -> str:
    """Return why the symbols of a file are unknown; empty if they can be read."""
    if links.unclear:
        return f"{file.path}: {links.unclear}"
    gone = [name for name in links.missing if name.lower().startswith(_TORCH)]
    if gone:
        return f"{', '.join(gone)}, which would define its symbols, is missing"
    return ""


def _about_symbols(symbols: Unresolved | None, links: Links) -> dict[str, Any]:
    if symbols is None:
        return {}
    from attn_doctor.binaries.demangle import readable

    # A missing library may define the other symbols.
    count = symbols.torch if links.missing else symbols.count
    mismatch = ""
    if count:
        mismatch = "cxx-abi" if symbols.other_abi else "torch" if symbols.torch else "libraries"
    return {
        "undefined_symbol_count": count,
        "first_undefined_symbols": tuple(dict.fromkeys(map(readable, symbols.first[:count])))[
            :SHOWN
        ],
        "mismatch": mismatch,
        "cxx11_abi": symbols.cxx11_abi,
    }


def _cuda_major(needed: tuple[str, ...]) -> int:
    """From `libcudart.so.12`, `libcudart.so.11.0`, `cudart64_12.dll` or `cudart64_110.dll`."""
    for name in needed:
        match = re.fullmatch(
            r"libcudart\.so\.(\d{1,4})[\d.]*|cudart64_(\d\d)\d?\.dll", name.lower()
        )
        if match is not None:
            return int(match[1] or match[2])
    return 0
