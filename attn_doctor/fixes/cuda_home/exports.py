"""Works out the variables that make builds take the chosen toolkit.

CUDA_HOME and CUDA_PATH are both set: torch prefers the first, NVIDIA's own tools the second. PATH
is touched only where `nvcc` would not be the chosen one's. LD_LIBRARY_PATH is never set: torch
brings its CUDA libraries along, and another toolkit's would be loaded in their place.
"""

from __future__ import annotations

from collections.abc import Mapping

from attn_doctor.fixes.cuda_home import trial_build
from attn_doctor.fixes.cuda_home.candidate import Candidate
from attn_doctor.host import Host
from attn_doctor.probes.toolchain import programs
from attn_doctor.shell.exports import Exports


def needed(host: Host, chosen: Candidate, environ: Mapping[str, str]) -> Exports:
    """Return what has to be set in `environ` so that builds use the chosen toolkit."""
    variables = {"CUDA_HOME": chosen.root, "CUDA_PATH": chosen.root}
    variables |= trial_build.headers_beside(host, chosen.root, environ)
    if chosen.compiler.cxx:
        variables |= {"CC": chosen.compiler.cc, "CXX": chosen.compiler.cxx}
    folder = host.join(chosen.root, "bin")
    return Exports(variables=variables, path="" if _leads_to(host, folder, environ) else folder)


def _leads_to(host: Host, folder: str, environ: Mapping[str, str]) -> bool:
    """The first nvcc on PATH is the one in `folder`, a link to it, or a script that starts it."""
    if host.windows:
        first = host.which("nvcc")
        return bool(first) and host.parent(first).lower() == folder.lower()
    folders = environ.get("PATH", programs.WITHOUT_PATH).split(":")
    paths = (host.join(one, "nvcc") for one in folders if one)
    first = next((path for path in paths if programs.runnable(host, path)), "")
    target = programs.wrapped(host, first, "nvcc") if first else ""
    return host.real(target or first) == host.real(host.join(folder, "nvcc")) if first else False


def apply(exports: Exports, environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` after the lines were run."""
    changed = {**environ, **exports.variables}
    if exports.path:
        separator = ";" if "\\" in exports.path else ":"
        old = environ.get("PATH", "")
        changed["PATH"] = exports.path + (separator + old if old else "")
    return changed
