"""What a distribution demands, with each condition judged for the machine under examination.

The conditions (`; platform_system == "Linux"`) are judged by `packaging`, as pip does. Only
requirements on the names asked for are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site, normalise

if TYPE_CHECKING:
    from packaging.requirements import Requirement

__all__ = ["demanded"]

_SYSTEMS = {
    "linux": ("posix", "linux", "Linux"),
    "macos": ("posix", "darwin", "Darwin"),
    "windows": ("nt", "win32", "Windows"),
}


# Requires-Dist: triton==3.6.0; platform_system == "Linux"
# Requires-Dist: nvidia-nccl-cu12 (==2.20.5) ; platform_system == "Linux" and platform_machine == …
# Requires-Dist: nvidia-cublas==13.1.0.3.*; (sys_platform == 'linux') and extra == 'cublas'
def demanded(
    host: Host,
    site: Site,
    lines: Iterable[str],
    wanted: Callable[[str], bool],
    extras: Iterable[str] = (),
) -> tuple[Requirement, ...]:
    """The requirements of `lines` that hold here and whose name is `wanted`."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion

    chosen = tuple(extras)
    environment = _environment(host, site)
    found = []
    for line in lines:
        name = re.match(r"[\w.-]+", line)
        if name is None or not wanted(normalise(name[0])):
            continue
        # Most lines of large packages belong to extras; they need no parsing to be left out.
        if not chosen and "extra ==" in line and " or " not in line:
            continue
        try:
            requirement = Requirement(line)
            if requirement.marker is None or any(
                requirement.marker.evaluate({**environment, "extra": extra})
                for extra in chosen or ("",)
            ):
                found.append(requirement)
        except (InvalidRequirement, InvalidVersion, UndefinedComparison, UndefinedEnvironmentName):
            continue
    return tuple(found)


def _environment(host: Host, site: Site) -> dict[str, str]:
    """The variables of conditions, for the examined interpreter."""
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
