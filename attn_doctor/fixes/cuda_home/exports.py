"""The variables that make a toolkit known, as lines of each shell.

CUDA_HOME and CUDA_PATH are both set: torch prefers the first, NVIDIA's own tools the second. PATH
is touched only where `nvcc` would not be the chosen one's. LD_LIBRARY_PATH is never set: torch
brings its CUDA libraries along, and another toolkit's would be loaded in their place.

Every line ends in a semicolon, so that they may arrive joined to one line.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from msgspec import Struct

from attn_doctor.fixes.cuda_home import trial_build
from attn_doctor.fixes.cuda_home.candidate import Candidate
from attn_doctor.host import Host
from attn_doctor.probes.toolchain import programs


class Exports(Struct, frozen=True, kw_only=True):
    """Variables to set, and a folder to put first on PATH."""

    variables: dict[str, str]
    path: str = ""
    """Empty if PATH is right as it is."""


def needed(host: Host, chosen: Candidate, environ: Mapping[str, str]) -> Exports:
    """What has to be set in `environ` so that builds take the chosen toolkit."""
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
    """`environ` as it is once the lines were carried out."""
    changed = {**environ, **exports.variables}
    if exports.path:
        separator = ";" if "\\" in exports.path else ":"
        old = environ.get("PATH", "")
        changed["PATH"] = exports.path + (separator + old if old else "")
    return changed


def lines(exports: Exports, shell: str) -> list[str]:
    """The lines of one shell, for `eval`."""
    setting = {"fish": "set -gx {} {};", "powershell": "$env:{} = {};"}.get(shell, "export {}={};")
    found = [
        setting.format(name, quoted(value, shell)) for name, value in exports.variables.items()
    ]
    if exports.path:
        path = quoted(exports.path, shell)
        found.append(
            {
                "fish": f"set -gx PATH {path} $PATH;",
                "powershell": f"$env:PATH = {path} + [IO.Path]::PathSeparator + $env:PATH;",
            }.get(shell, f'export PATH={path}"${{PATH:+:${{PATH}}}}";')
        )
    return found


def quoted(text: str, shell: str) -> str:
    """`text` as one word that the shell takes letter by letter."""
    if shell == "powershell":
        return "'" + text.replace("'", "''") + "'"
    if shell == "fish":
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return shlex.quote(text)
