"""Reads the requirements of a distribution that apply to the examined machine.

Their markers (`; platform_system == "Linux"`) are evaluated as pip does. Only requirements on the
names asked for are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.requirement import Requirement, applicable, normal_name

_SYSTEMS = {
    "linux": ("posix", "linux", "Linux"),
    "macos": ("posix", "darwin", "Darwin"),
    "windows": ("nt", "win32", "Windows"),
}


# Requires-Dist: triton==3.6.0; platform_system == "Linux"
# Requires-Dist: nvidia-nccl-cu12 (==2.20.5) ; platform_system == "Linux" and platform_machine == …
# Requires-Dist: nvidia-cublas==13.1.0.3.*; (sys_platform == 'linux') and extra == 'cublas'
def required(
    host: Host,
    site: Site,
    lines: Iterable[str],
    wanted: Callable[[str], bool],
    extras: Iterable[str] = (),
) -> tuple[Requirement, ...]:
    """Return the requirements of `lines` that apply here and whose name is `wanted`."""
    chosen = tuple(extras)
    concerned = [line for line in lines if _concerns(line, wanted, chosen)]
    if not concerned:
        return ()
    here = _environment(host, site)
    environments = [{**here, "extra": normal_name(extra)} for extra in chosen or ("",)]
    found = (applicable(line, _distinct(line, environments)) for line in concerned)
    return tuple(one for one in found if one is not None)


def _distinct(line: str, environments: list[dict[str, str]]) -> list[dict[str, str]]:
    """The environments between which a marker can differ: those whose extra it names, one other."""
    named = normal_name(line) if "extra" in line else ""
    others = [one for one in environments if one["extra"] not in named or not one["extra"]]
    return [*(one for one in environments if one["extra"] and one["extra"] in named), *others[:1]]


def _concerns(line: str, wanted: Callable[[str], bool], extras: tuple[str, ...]) -> bool:
    # Most lines of large packages belong to extras and are skipped without parsing.
    if not extras and "extra ==" in line and " or " not in line:
        return False
    name = re.match(r"[\w.-]+", line)
    return name is not None and wanted(normal_name(name[0]))


def _environment(host: Host, site: Site) -> dict[str, str]:
    """Return the variables of markers, for the examined interpreter."""
    platform = host.platform
    os_name, sys_platform, system = _SYSTEMS.get(platform.os, _SYSTEMS["linux"])
    return {
        "os_name": os_name,
        "sys_platform": sys_platform,
        "platform_system": system,
        "platform_machine": platform.machine,
        "platform_release": platform.release,
        "platform_version": platform.version,
        "python_version": ".".join(site.python.split(".")[:2]),
        "python_full_version": site.python,
        "implementation_name": "cpython",
        "implementation_version": site.python,
        "platform_python_implementation": "CPython",
    }
