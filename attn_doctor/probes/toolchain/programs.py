"""Programs: which one the user's PATH gives, and which may be run.

PATH is read only to report what a build would start. A program is run only where `trusted` says
that the system put it there; one that a user, an environment or a stranger placed first on PATH
is described, never started.
"""

from __future__ import annotations

from collections.abc import Iterator

from attn_doctor.host import Host

#: Folders that belong to the system. `ccache` keeps links named after the compilers it serves.
PLACES = (
    "/usr/bin",
    "/bin",
    "/usr/local/bin",
    "/usr/sbin",
    "/sbin",
    "/usr/lib/ccache",
    "/usr/lib64/ccache",
)
#: What the C library and Python search when PATH is not set at all.
WITHOUT_PATH = "/bin:/usr/bin"
#: Folders of PATH that are looked into.
MOST = 64


def on_path(host: Host, name: str) -> Iterator[str]:
    """Every program `name` on PATH, in order. None is run."""
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
    """The first program `name` on PATH, or empty text."""
    return next(on_path(host, name), "")


def named(host: Host, name: str) -> str:
    """The program that `name` leads to when it is started: a path, or looked for on PATH."""
    if not name:
        return ""
    if "/" in name or (host.windows and "\\" in name):
        path = host.join(host.platform.cwd, name)
        return path if runnable(host, path) else ""
    return first_on_path(host, name)


def runnable(host: Host, path: str) -> bool:
    """`path` leads to a file that this user may execute."""
    return host.is_file(path) and host.access(path, "x")


def trusted(host: Host, path: str) -> bool:
    """The system put this program here, so it may be run.

    It lies in a folder of the system (or of a Red Hat toolset), and the file behind it and that
    folder belong to root and cannot be changed by everyone.
    """
    folder = host.parent(path)
    toolset = folder.startswith("/opt/rh/") and folder.endswith("/root/usr/bin")
    if folder not in PLACES and not toolset:
        return False
    found = (host.try_stat(path), host.try_stat(folder))
    return all(one is not None and one.uid == 0 and not one.mode & 0o002 for one in found)


def wrapped(host: Host, path: str, name: str) -> str | None:
    """For a script, the absolute path of the program `name` that it starts, or empty text.

    None if `path` is no script.
    """
    if not host.try_read(path, 64).startswith("#!"):
        return None
    import re

    # #!/bin/sh
    # exec /usr/local/cuda-13.0/bin/nvcc "$@"
    pattern = re.compile(rf"(?<![\w$}}.])/[\w./+-]*/{re.escape(name)}(?![\w./-])")
    for line in host.try_read(path, 1 << 14).splitlines():
        match = None if line.lstrip().startswith("#") else pattern.search(line)
        if match is not None and match[0] != path:
            return match[0]
    return ""
