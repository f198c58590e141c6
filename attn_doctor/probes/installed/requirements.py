"""Reads the requirements of a distribution that apply to the examined machine.

`packaging` evaluates their markers (`; platform_system == "Linux"`), as in pip. Only requirements
on the names asked for are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site, normalise

if TYPE_CHECKING:
    from packaging.requirements import Requirement

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
    return tuple(_applicable(concerned, _environment(host, site), chosen)) if concerned else ()


def _concerns(line: str, wanted: Callable[[str], bool], extras: tuple[str, ...]) -> bool:
    name = re.match(r"[\w.-]+", line)
    if name is None or not wanted(normalise(name[0])):
        return False
    # Most lines of large packages belong to extras and are skipped without parsing.
    return bool(extras) or "extra ==" not in line or " or " in line


def _applicable(
    lines: list[str], environment: dict[str, str], extras: tuple[str, ...]
) -> Iterator[Requirement]:
    # Imported only if a line applies: the import takes as long as all probes together.
    from packaging.markers import UndefinedEnvironmentName
    from packaging.requirements import Requirement

    for line in lines:
        try:
            requirement = Requirement(line)
            if requirement.marker is None or any(
                requirement.marker.evaluate({**environment, "extra": extra})
                for extra in extras or ("",)
            ):
                yield requirement
        except (ValueError, UndefinedEnvironmentName):
            continue


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
