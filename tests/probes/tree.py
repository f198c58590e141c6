"""A machine made of folders and files with rights, for probes that look at a few paths."""

from __future__ import annotations

import ntpath
import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from attn_doctor.host.recorded import RecordedHost, key

__all__ = ["MOUNTINFO", "machine"]

MOUNTINFO = "/proc/self/mountinfo"
PLAIN_ROOT = "27 1 254:0 / / rw,relatime - ext4 /dev/sda2 rw\n"
GIB = 1 << 30


def machine(
    files: Mapping[str, str] | None = None,
    *,
    os: str = "linux",
    env: Mapping[str, str] | None = None,
    folders: Iterable[str] = (),
    programs: Iterable[str] = (),
    locked: Iterable[str] = (),
    foreign: Iterable[str] = (),
    links: Mapping[str, str] | None = None,
    answers: Mapping[str, Any] | None = None,
    **platform: object,
) -> RecordedHost:
    """A host that has these files with their text, and the folders they lie in.

    `programs` may be executed, `locked` folders may not be written to, `foreign` ones belong to
    another user, `links` are names that lead nowhere but to a path. `answers` are added last.
    """
    path = ntpath if os == "windows" else posixpath
    home = r"C:\Users\ada" if os == "windows" else "/home/ada"
    known = {"os": os, "machine": "x86_64", "release": "6.8.0-60-generic", "libc": "glibc 2.39"}
    place = {"cpus": 16, "uid": 1000, "home": home, "cwd": home}
    table: dict[str, Any] = {"platform": {**known, **place, **platform}, "environ": dict(env or {})}
    texts = {**({MOUNTINFO: PLAIN_ROOT} if os == "linux" else {}), **(files or {})}
    names: dict[str, set[str]] = {folder: set() for folder in (*folders, home)}
    for start in (*texts, *programs, *folders, *(links or {}), home):
        lower = start
        while lower != path.dirname(lower):
            names.setdefault(path.dirname(lower), set()).add(path.basename(lower))
            lower = path.dirname(lower)
    for folder, held in names.items():
        table[key("stat", folder)] = {"kind": "dir", "uid": 1001 if folder in foreign else 1000}
        table[key("list", folder)] = sorted(held)
        table[key("access", folder, "w")] = folder not in locked
        table[key("access", folder, "x")] = True
        table[key("space", folder)] = {"total": 100 * GIB, "free": 40 * GIB}
    for name in (*texts, *programs):
        table[key("stat", name)] = {"kind": "file"}
        table[key("read", name)] = texts.get(name, "\x7fELF")
        table[key("access", name, "x")] = name in programs
    for name in foreign:
        table[key("danger", name)] = f"{name} belongs to bob (uid 1001, mode 0755)"
    for name, target in (links or {}).items():
        table[key("real", name)] = target
    recording: dict[str, Any] = {name: {"answer": answer} for name, answer in table.items()}
    return RecordedHost({**recording, **(answers or {})})
