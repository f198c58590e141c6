"""Derives what pip installs to get a release again, from where it came.

PyPI's builds of torch and those of PyTorch's own indexes have the same release and other files, and
torchvision and torchaudio belong to one of them. Answers are arguments of `pip install`: a
requirement, and the options of its index. Empty means that no index is known to have the files.
"""

from __future__ import annotations

import re

from attn_doctor.derived.companions import torchaudio_expected
from attn_doctor.derived.extensions import of_other_torch, requirement
from attn_doctor.derived.releases import Tables, parts
from attn_doctor.facts import Extension, Facts

Arguments = tuple[str, ...]

_INDEXES = "https://download.pytorch.org/whl/"
_PYPI = "pypi"
#: Packages of torch's own project, which come from the index that torch came from.
_COMPANIONS = ("torchvision", "torchaudio")
#: Packages whose wheels fit several releases of torch; their sources are not compiled.
_FROM_PYPI = ("torchao", "bitsandbytes")
#: Since this release of torch these indexes have a torchaudio for it, and PyPI one for CUDA 13.
_LAST_WITH_TORCH, _LATER_INDEXES, _ON_PYPI = (2, 12), ("cpu", "cu126", "cu128", "cu130"), "cu132"
#: A release that an index can have; a build of one's own has another version.
_RELEASE = r"[0-9.]+(post[0-9]+)?"
#: Requirements that no sdist of the index fulfills.
_NO_SOURCES = re.compile(
    r"sageattention==[2-9]|sageattn3==|flash[-_]attn[-_]3==|flashattn[-_]hopper==|xformers"
    r"|flash[-_]attn==2[.](?:7[.]4|8[.]0|8[.]4)$"
)


def torch_again(facts: Facts, _: Tables) -> Arguments | None:
    """Return the arguments for this build of torch."""
    version, origin = facts.torch.version, _origin(facts)
    return None if version is None or origin is None else _of_torch(version, origin)


def extension_again(one: Extension, facts: Facts, tables: Tables) -> Arguments | None:
    """Return the arguments for a wheel of its package; of torch's own packages, the one for it."""
    if one.package not in (*_COMPANIONS, *_FROM_PYPI):
        return () if one.package else None
    found = requirement(one, facts)
    if not found:
        return None
    if one.package in _FROM_PYPI:
        return (found,)
    if one.package == "torchaudio":
        return torchaudio_again(facts, tables)
    origin = _origin(facts)
    return None if origin is None else () if of_other_torch(facts) else _at(found, origin)


def extension_rebuild(one: Extension, facts: Facts) -> Arguments | None:
    """Return the arguments that build its package for the installed torch."""
    if one.package in (*_COMPANIONS, *_FROM_PYPI):
        return ()
    found = requirement(one, facts)
    if not found or _NO_SOURCES.match(found):
        return () if found is not None else None
    return ("--no-build-isolation", "--no-cache-dir", found)


def torchaudio_again(facts: Facts, tables: Tables) -> Arguments | None:
    """Return the arguments for the torchaudio of the installed torch."""
    origin, expected = _origin(facts), torchaudio_expected(facts, tables)
    if origin is None or expected is None:
        return None
    later = parts(facts.torch.version or "")[:2] >= _LAST_WITH_TORCH
    if later and origin == _ON_PYPI:
        return (f"torchaudio=={tables['companions']['torchaudio']['pypi']}",)
    if later and origin not in (_PYPI, *_LATER_INDEXES):
        return ()
    return _at(f"torchaudio{expected}", origin)


def package_again(
    package: str | None, version: str | None, facts: Facts, tables: Tables
) -> Arguments | None:
    """Return the arguments for a release of a package."""
    if package is None or version is None:
        return None
    if package in ("torch", *_COMPANIONS):
        origin = _origin(facts)
        if origin is None or not parts(version):
            return None if origin is None else ()
        return (
            _of_torch(version, origin)
            if package == "torch"
            else _at(f"{package}=={version}", origin)
        )
    if package in tables["companions"]["elsewhere"]["packages"]:
        return ()
    return (f"{package}=={version}",) if re.fullmatch(_RELEASE, version) else ()


def _origin(facts: Facts) -> str | None:
    """Where torch came from: `pypi`, one of PyTorch's indexes, or empty for elsewhere."""
    torch = facts.torch
    if torch.from_pypi:
        return _PYPI
    # Builds for macOS have no local version anywhere.
    if torch.from_pypi is None and torch.local == "" and torch.source in ("index", None):
        return _PYPI
    return torch.index


def _of_torch(version: str, origin: str) -> Arguments:
    if origin == _PYPI:
        return (f"torch=={version.partition('+')[0]}",)
    # Its local version keeps pip from PyPI's build. PyPI has the packages that it requires.
    return (f"torch=={version}", "--extra-index-url", f"{_INDEXES}{origin}") if origin else ()


def _at(wanted: str, origin: str) -> Arguments:
    """A requirement with the options of torch's index; empty if it has none."""
    if origin == _PYPI:
        return (wanted.partition("+")[0],)
    return (wanted, "--index-url", f"{_INDEXES}{origin}") if origin else ()
