"""Reads Triton from metadata and file names; nothing is imported or run.

Several distributions contain a module `triton` and overwrite each other's files. The version in
`triton/__init__.py` shows which one was installed last, if their versions differ. The CUDA version
of the bundled ptxas is not in a text file; `derived` looks it up by Triton's version.
"""

from __future__ import annotations

import re
from typing import Any

from attn_doctor.facts import TRITON_DISTRIBUTIONS, Triton
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Distribution, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed.origin import module_path, origin


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return the field `triton` of `Facts`."""
    found = [one for one in map(site.distributions.get, TRITON_DISTRIBUTIONS) if one is not None]
    if not found:
        return {"triton": Triton(installed=False, providers=())}
    path = _folder(host, site, found)
    one = _last_written(host, path, found)
    if not path:
        for name in ("backends", "setuptools_missing"):
            gaps.add(f"triton.{name}", "triton has metadata, but no folder")
    return {
        "triton": Triton(
            installed=True,
            version=one.version,
            distribution=one.name,
            path=path,
            providers=tuple(each.name for each in found),
            backends=_backends(host, path, gaps),
            setuptools_missing=_setuptools_missing(host, site, path, gaps),
            ptxas=_ptxas(host, path, "ptxas"),
            ptxas_blackwell=_ptxas(host, path, "ptxas-blackwell"),
        )
    }


def _folder(host: Host, site: Site, found: list[Distribution]) -> str:
    paths = (module_path(host, site, "triton", origin(host, site, one)) for one in found)
    return next(filter(None, paths), "")


# __version__ = '3.6.0'
def _last_written(host: Host, path: str, found: list[Distribution]) -> Distribution:
    """Return the provider with the version of the files (`3.5.1` for `3.5.1.post24`)."""
    if len(found) == 1 or not path:
        return found[0]
    lines = host.try_grep(host.join(path, "__init__.py"), "__version__")
    said = re.search(r"^__version__\s*=\s*['\"]([\d.]+)", "\n".join(lines), re.MULTILINE)
    if said is None:
        return found[0]
    fitting = (one for one in found if re.match(rf"{re.escape(said[1])}(?!\.?\d)", one.version))
    return next(fitting, found[0])


def _backends(host: Host, path: str, gaps: Gaps) -> tuple[str, ...] | None:
    if not path:
        return None
    folder = host.join(path, "backends")
    try:
        names = host.list(folder)
    except FileNotFoundError:
        return ()
    except OSError as error:
        gaps.add("triton.backends", f"{folder} cannot be read: {error.strerror}")
        return None
    return tuple(name for name in names if "." not in name and not name.startswith("_"))


#: The file that imports it: of 3.0 to 3.2, of 2.1 to 2.3, and of 2.0.
_BUILDERS = (("runtime", "build.py"), ("common", "build.py"), ("compiler.py",))


# import setuptools
def _setuptools_missing(host: Host, site: Site, path: str, gaps: Gaps) -> bool | None:
    """Whether it needs setuptools, which its metadata, `uv venv` and Python 3.12 omit."""
    if not path:
        return None
    for names in _BUILDERS:
        file = host.join(path, *names)
        try:
            lines = host.grep(file, "import setuptools")
        except FileNotFoundError:
            continue
        except OSError as error:
            gaps.add("triton.setuptools_missing", f"{file} cannot be read: {error.strerror}")
            return None
        if not any(line.startswith("import setuptools") for line in lines):
            return False
        there = site.distributions.get("setuptools") is not None
        return not (there or site.module(host, "setuptools"))
    return False


def _ptxas(host: Host, path: str, name: str) -> str:
    """Return the path of a bundled assembler, or empty text."""
    if not path:
        return ""
    file = host.join(path, "backends", "nvidia", "bin", name + (".exe" if host.windows else ""))
    return file if host.is_file(file) else ""
