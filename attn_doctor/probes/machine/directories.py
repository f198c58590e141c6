"""Reads the home, temporary and cache directories: can compilers write to them and load from them.

Nothing is written. A quota, or a server that refuses what the mode bits allow, shows only on
writing and is not seen here.
"""

from __future__ import annotations

from typing import Any

from attn_doctor.facts import Directory
from attn_doctor.facts.kinds import Purpose
from attn_doctor.host import Host, expand
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.machine.mounts import (
    Mount,
    existing,
    mount_of,
    mounts,
    network,
    noexec,
    writable,
)

MIB = 1 << 20
#: What is known of a directory once it answers.
_STATES = ("exists", "writable", "noexec", "filesystem", "network", "free_mib")
ONLY_LINUX = "only Linux lists what is mounted where"


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return one `facts.Directory` for each of `home`, `tmp` and `cache`."""
    known = mounts(host)
    found: list[Directory] = []
    for number, (purpose, path) in enumerate(places(host).items()):
        one, reasons = _directory(host, purpose, path, known)
        found.append(one)
        for field, reason in reasons.items():
            gaps.add(f"directories[{number}].{field}", reason)
    return {"directories": tuple(found)}


def places(host: Host) -> dict[Purpose, str]:
    """Return the path for each purpose, whether the directory exists or not."""
    home = host.join(host.platform.cwd, host.platform.home)
    return {"home": home, "tmp": _tmp(host), "cache": _cache(host, home)}


def _tmp(host: Host) -> str:
    """Return the first temporary directory that a variable names, in the order of `tempfile`.

    A missing directory is returned too: Python would try the next one, but nvcc stops there.
    """
    for name in ("TMPDIR", "TEMP", "TMP"):
        if host.environ.get(name):
            return host.join(host.platform.cwd, host.environ[name])
    if host.windows:
        return host.join(host.platform.home, "AppData", "Local", "Temp")
    usual = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108
    return next(filter(host.is_dir, usual), usual[0])


def _cache(host: Host, home: str) -> str:
    if host.environ.get("XDG_CACHE_HOME"):
        return expand(host.environ["XDG_CACHE_HOME"], home)
    if host.windows:
        return host.environ.get("LOCALAPPDATA") or host.join(home, "AppData", "Local")
    parts = ("Library", "Caches") if host.platform.os == "macos" else (".cache",)
    return host.join(home, *parts)


def why_unreachable(host: Host, path: str) -> str:
    """Return why nothing can be known of `path`; empty if it exists or does not exist."""
    try:
        host.stat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return ""
    except OSError as error:
        return f"{path} cannot be reached: {error.strerror}"
    return ""


def _directory(
    host: Host, purpose: Purpose, path: str, known: tuple[Mount, ...]
) -> tuple[Directory, dict[str, str]]:
    """Return the facts of one directory, and why some of them are unknown."""
    reasons: dict[str, str] = {}
    if unreachable := why_unreachable(host, path):
        return Directory(purpose=purpose, path=path), dict.fromkeys(_STATES, unreachable)
    nearest = existing(host, path)
    mount = mount_of(host.real(path), known)
    if mount is None:
        why = "/proc/self/mountinfo does not list it" if host.platform.os == "linux" else ONLY_LINUX
        reasons.update(dict.fromkeys(("noexec", "filesystem", "network"), why))
    can_write = writable(host, path, known)
    if can_write is None:
        reasons["writable"] = "Windows shows this only on an attempt to write"
    free = None
    try:
        space = host.space(nearest)
        free = space.free // MIB if space.total else None
        if free is None:
            reasons["free_mib"] = f"{nearest} is on a file system of the kernel, which has no space"
    except OSError as error:
        reasons["free_mib"] = f"free space of {nearest or path} cannot be read: {error.strerror}"
    directory = Directory(
        purpose=purpose,
        path=path,
        exists=host.is_dir(path),
        writable=can_write,
        noexec=noexec(mount) if mount else None,
        filesystem=mount.filesystem if mount else None,
        network=network(mount) if mount else None,
        free_mib=free,
    )
    return directory, reasons
