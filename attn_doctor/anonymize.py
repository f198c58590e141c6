"""Removes home directory, user name, host name, GPU ids and tokens from facts and recordings.

Each of them is replaced by the same word everywhere, so that paths still make sense and a recorded
machine can be replayed. Environment variables are filtered when they are read (`env_vars.py`,
`redact.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from attn_doctor.facts import Facts, to_builtins
from attn_doctor.host import Host

#: User names that are ordinary words in paths and texts; they identify no one.
_COMMON = {"root", "user", "ubuntu", "admin", "runner", "docker", "home", "python", "usr", "opt"}


def anonymous(host: Host) -> Callable[[str], str]:
    """Return a function that removes this machine's identity from a text."""
    platform = host.platform
    pairs: list[tuple[re.Pattern[str], str]] = []
    home = platform.home.rstrip("/\\")
    if len(home) > 1 and home != "/root":
        pairs.append((re.compile(re.escape(home) + r"(?![\w.-])"), _home(platform.os)))
    if len(platform.user) > 1 and platform.user not in _COMMON:
        # Only between separators: a user called `torch` must not rename the package.
        name = re.escape(platform.user)
        pairs.append((re.compile(rf"(?<=[/\\_:@~]){name}(?=$|[/\\:@\s])"), "user"))
    node = host.try_read("/proc/sys/kernel/hostname", 256).strip()
    node = node or host.environ.get("COMPUTERNAME", "")
    if len(node) > 3 and node not in ("localhost", *_COMMON):
        pairs.append((re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w-])"), "host"))
    pairs.append((re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{20,}"), r"\1-0"))

    def replaced(text: str) -> str:
        for pattern, replacement in pairs:
            text = pattern.sub(replacement, text)
        return text

    return replaced


def _home(os: str) -> str:
    return {"windows": r"C:\\Users\\user", "macos": "/Users/user"}.get(os, "/home/user")


def rewritten(facts: Facts, replaced: Callable[[str], str]) -> Facts:
    """Return the same facts with `replaced` applied to every text."""
    return msgspec.convert(walk(to_builtins(facts), replaced), Facts)


def walk(value: Any, replaced: Callable[[str], str]) -> Any:
    """Return `value` with `replaced` applied to every text in it, keys included."""
    if isinstance(value, str):
        return replaced(value)
    if isinstance(value, dict):
        return {replaced(name): walk(one, replaced) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [walk(one, replaced) for one in value]
    return value
