"""Reads Diffusers' attention dispatcher, `models/attention_dispatch.py`, as text.

The file of a known release is recognised by its size and checksum. Only another one is parsed, by
`dispatcher_source`, which takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from attn_doctor.facts import Dispatcher
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps

#: Its place below Diffusers' folder.
FILE = ("models", "attention_dispatch.py")
#: Most bytes that are read of it; 0.42.1 has 190 kB.
LIMIT = 1 << 21


def read(
    host: Host, _: Site, gaps: Gaps, folder: str = "", known: Collection[str] = ()
) -> dict[str, Any]:
    """Return the dispatcher of the Diffusers in `folder`; of a `known` one only the checksum."""
    return {"dispatcher": _read(host, gaps, folder, known)}


def _read(host: Host, gaps: Gaps, folder: str, known: Collection[str]) -> Dispatcher:
    path = host.join(folder, *FILE)
    try:
        checksum = host.checksum(path, LIMIT)
        if checksum in known:
            return Dispatcher(checksum=checksum)
        text = host.read(path, LIMIT)
    except FileNotFoundError:
        # A recording may lack the whole folder: then it is unknown what the folder has.
        if host.try_list(host.join(folder, FILE[0])):
            return Dispatcher(checksum="")
        gaps.add("dispatcher", "the folder of Diffusers' models cannot be read")
        return Dispatcher()
    except OSError as error:
        gaps.add("dispatcher", f"{path} cannot be read: {error.strerror}")
        return Dispatcher()
    from attn_doctor.probes.installed.dispatcher_source import describe

    found = describe(text, checksum)
    if found.names is None:
        gaps.add("dispatcher", f"{path} has another form than in known releases")
    return found
