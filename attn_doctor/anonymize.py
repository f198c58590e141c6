"""Snapshots made fit to show to strangers: no home, user, host name, GPU id or token in them.

What identifies is replaced at every place by the same stand-in, so that paths still make sense
and a recorded machine can be played back. Environment variables were filtered when they were
read (`variables.py`, `redact.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from attn_doctor.facts import Facts, to_builtins
from attn_doctor.host import Host

#: User names that are also ordinary words in paths and texts; they identify nobody.
_COMMON = {"root", "user", "ubuntu", "admin", "runner", "docker", "home", "python", "usr", "opt"}


def anonymous(host: Host) -> Callable[[str], str]:
    """A function that takes this machine's identity out of a text."""
    platform = host.platform
    pairs: list[tuple[re.Pattern[str], str]] = []
    home = platform.home.rstrip("/\\")
    if len(home) > 1 and home != "/root":
        pairs.append((re.compile(re.escape(home) + r"(?![\w.-])"), _home(platform.os)))
    if len(platform.user) > 1 and platform.user not in _COMMON:
        # Between separators only: a user called `torch` must not rename the package.
        name = re.escape(platform.user)
        pairs.append((re.compile(rf"(?<=[/\\_:@~]){name}(?=$|[/\\:@\s])"), "user"))
    node = host.try_read("/proc/sys/kernel/hostname", 256).strip()
    node = node or host.environ.get("COMPUTERNAME", "")
    if len(node) > 3 and node not in ("localhost", *_COMMON):
        pairs.append((re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w-])"), "host"))
    pairs.append((re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{20,}"), r"\1-0"))

    def replaced(text: str) -> str:
        for pattern, stand_in in pairs:
            text = pattern.sub(stand_in, text)
        return text

    return replaced


def _home(os: str) -> str:
    return {"windows": r"C:\\Users\\user", "macos": "/Users/user"}.get(os, "/home/user")


def rewritten(facts: Facts, replaced: Callable[[str], str]) -> Facts:
    """The same facts with every text in them replaced."""
    return msgspec.convert(walk(to_builtins(facts), replaced), Facts)


def walk(value: Any, replaced: Callable[[str], str]) -> Any:
    """`value` with every text in it, keys included, replaced."""
    if isinstance(value, str):
        return replaced(value)
    if isinstance(value, dict):
        return {replaced(name): walk(one, replaced) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [walk(one, replaced) for one in value]
    return value
