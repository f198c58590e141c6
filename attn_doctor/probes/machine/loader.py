"""Lists the folders in which the dynamic loader of Linux searches for libraries, from text files.

The loader itself reads `/etc/ld.so.cache`, which `ldconfig` builds from the folders in these files;
a folder added since the last run of `ldconfig` is listed here too.
"""

from __future__ import annotations

from attn_doctor.host import Host

#: Highest number of folders that are searched, for each source.
MOST = 40


def environment_folders(host: Host) -> tuple[str, ...]:
    """Return the folders of LD_LIBRARY_PATH. An empty entry means the working directory."""
    value = host.environ.get("LD_LIBRARY_PATH", "")
    if not value or host.platform.os != "linux":
        return ()
    folders = (host.join(host.platform.cwd, one) for one in value.replace(";", ":").split(":"))
    return tuple(dict.fromkeys(one.rstrip("/") or "/" for one in folders))[:MOST]


def system_folders(host: Host) -> tuple[str, ...]:
    """Return the folders that `ldconfig` searches."""
    if host.platform.os != "linux":
        return ()
    found: list[str] = []
    for line in _lines(host, "/etc/ld.so.conf"):
        if line.startswith("include"):
            for pattern in line.split()[1:]:
                for path in _matching(host, host.join("/etc", pattern)):
                    found.extend(one for one in _lines(host, path) if one.startswith("/"))
        elif line.startswith("/"):
            found.append(line)
    found += ["/usr/lib64", "/usr/lib"]
    return tuple(dict.fromkeys(one.rstrip("/") or "/" for one in found))[:MOST]


def find(host: Host, library: str, folders: tuple[str, ...]) -> str:
    """Return the path of the first file `library` in `folders`, or empty text."""
    paths = (host.join(folder, library) for folder in folders)
    return next((path for path in paths if host.is_file(path)), "")


# # Multiarch support
# /usr/local/lib/x86_64-linux-gnu
def _lines(host: Host, path: str) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in host.try_read(path).splitlines())
    return [line for line in lines if line]


def _matching(host: Host, pattern: str) -> list[str]:
    folder, _, name = pattern.rpartition("/")
    if name.startswith("*.") and name[2:].isalnum():  # as in all of Debian's and Red Hat's
        names = host.try_list(folder)
        return [host.join(folder, one) for one in names if one.endswith(name[1:])]
    import fnmatch

    return [host.join(folder, one) for one in host.try_list(folder) if fnmatch.fnmatch(one, name)]
