"""Small recorded machines: files, links, variables and programs in, a host out."""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Mapping
from typing import Any

from attn_doctor.host import Host
from attn_doctor.host.recorded import RecordedHost, key
from attn_doctor.probes.distributions import Site, scan
from attn_doctor.probes.gaps import Gaps

__all__ = ["machine", "site_of"]


def machine(
    files: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
    runs: Mapping[str, str] | None = None,
    foreign: tuple[str, ...] = (),
    more: Mapping[str, Any] | None = None,
    **platform: Any,
) -> RecordedHost:
    """A machine with these files (path → text) and the folders around them.

    `links` (path → where it leads) hold for what lies below them too. `runs` maps a command to
    what it prints. Files named in `foreign` belong to user 1000, all others to root.
    """
    windows = platform.get("os") == "windows"
    paths = ntpath if windows else posixpath
    known = {"os": "linux", "machine": "x86_64", "release": "6.1", "uid": 0, "user": "root"}
    known |= {"home": "/root", "cwd": "/home/me/project"}
    if windows:
        known |= {"home": "C:\\Users\\me", "cwd": "C:\\project", "uid": -1, "user": "me"}
    answers: dict[str, Any] = {
        "platform": {"answer": {**known, **platform}},
        "environ": {"answer": dict(environ or {})},
    }
    there = dict(files or {})
    for link, target in (links or {}).items():
        for path, text in list(there.items()):
            if path == target or path.startswith(target + "/"):
                there[link + path[len(target) :]] = text
                answers[key("real", link + path[len(target) :])] = {"answer": path}
        answers[key("real", link)] = {"answer": target}
    folders: dict[str, set[str]] = {}
    for path, text in there.items():
        uid = 1000 if path in foreign else 0
        answers[key("read", path)] = {"answer": text}
        answers[key("stat", path)] = {"answer": {"kind": "file", "uid": uid, "mode": 0o755}}
        for mode in "rx":
            answers[key("access", path, mode)] = {"answer": True}
        while (folder := paths.dirname(path)) != path:
            folders.setdefault(folder, set()).add(paths.basename(path))
            path = folder
    for folder, names in folders.items():
        answers[key("list", folder)] = {"answer": sorted(names)}
        answers[key("stat", folder)] = {"answer": {"kind": "dir", "mode": 0o755}}
    for command, out in (runs or {}).items():
        answers[key("run", command)] = {"answer": {"outcome": "done", "code": 0, "out": out}}
    return RecordedHost({**answers, **(more or {})})


def site_of(host: Host, *folders: str, prefix: str = "/env") -> Site:
    """The environment at `prefix` with these site-packages folders."""
    return scan(host, folders, prefix, Gaps())
