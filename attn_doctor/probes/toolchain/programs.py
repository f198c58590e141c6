"""Finds programs on the user's PATH, and decides which may be run.

PATH is read only to report what a build would start. A program is run only if it is `trusted`, that
is, installed by the system; one that a user or an environment placed first on PATH is described and
never started.
"""

from __future__ import annotations

from collections.abc import Iterator

from attn_doctor.host import Host

#: Folders of the system. Those of ccache contain links named after compilers.
PLACES = (
    "/usr/bin",
    "/bin",
    "/usr/local/bin",
    "/usr/sbin",
    "/sbin",
    "/usr/lib/ccache",
    "/usr/lib64/ccache",
)
#: Folders that the C library and Python search if PATH is not set.
WITHOUT_PATH = "/bin:/usr/bin"
#: Highest number of folders of PATH that are searched.
MOST = 64


def on_path(host: Host, name: str) -> Iterator[str]:
    """Yield every program `name` on PATH, in order. None is run."""
    if host.windows:
        found = host.which(name)
        if found:
            yield found
        return
    folders = host.environ.get("PATH", WITHOUT_PATH).split(":")
    for folder in list(dict.fromkeys(folders))[:MOST]:
        path = host.join(host.platform.cwd, folder, name)
        if folder and runnable(host, path):
            yield path


def first_on_path(host: Host, name: str) -> str:
    """Return the first program `name` on PATH, or empty text."""
    return next(on_path(host, name), "")


def named(host: Host, name: str) -> str:
    """Return the program that starting `name` would run: a path, or found on PATH."""
    if not name:
        return ""
    if "/" in name or (host.windows and "\\" in name):
        path = host.join(host.platform.cwd, name)
        return path if runnable(host, path) else ""
    return first_on_path(host, name)


def runnable(host: Host, path: str) -> bool:
    """Whether `path` leads to a file that this user may execute."""
    return host.is_file(path) and host.access(path, "x")


def trusted(host: Host, path: str) -> bool:
    """Whether the system installed this program, so that it may be run.

    It is in a folder of the system or of a Red Hat toolset, and root owns the file and that folder,
    which not everyone can write to.
    """
    folder = host.parent(path)
    toolset = folder.startswith("/opt/rh/") and folder.endswith("/root/usr/bin")
    if folder not in PLACES and not toolset:
        return False
    found = (host.try_stat(path), host.try_stat(folder))
    owned = all(one is not None and one.uid == 0 and not one.mode & 0o002 for one in found)
    return owned and not host.danger(path)


def wrapped(host: Host, path: str, name: str) -> str | None:
    """Return the absolute path of the program `name` that a script starts, or empty text.

    Returns None if `path` is not a script.
    """
    if not host.try_read(path, 64).startswith("#!"):
        return None
    import re

    # #!/bin/sh
    # exec /usr/local/cuda-13.0/bin/nvcc "$@"
    pattern = rf"(?<![\w$}}.])/[\w./+-]*/{re.escape(name)}(?![\w./-])"
    for line in host.try_read(path, 1 << 14).splitlines():
        named = f"/{name}" in line and not line.lstrip().startswith("#")
        match = re.search(pattern, line) if named else None
        if match is not None and match[0] != path:
            return match[0]
    return ""
