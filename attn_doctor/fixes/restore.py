"""Exchanges what is at a path with what is kept elsewhere, so that nothing is ever deleted.

An exchange can be repeated after an interruption, and reversed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable

from msgspec import Struct

from attn_doctor.fixes import link_copy
from attn_doctor.fixes.path_state import State, state_of


class Exchange(Struct, frozen=True):
    """What is to be at a path, and where what is there now goes."""

    path: str
    here: State
    """What is there now."""
    wanted: State
    store: str = ""
    """Where the wanted file is."""
    aside: str = ""
    """Where the present file goes; empty: it is deleted."""


def exchange_all(wanted: Iterable[Exchange]) -> list[str]:
    """Make all exchanges. Returns what was not done, a sentence each.

    What has to go, goes first and from the inside out, so that folders become empty.
    """
    order = sorted(wanted, key=lambda one: one.path)
    first = [one for one in reversed(order) if one.wanted.kind in ("nothing", "folder")]
    then = [one for one in order if one.wanted.kind in ("file", "link")]
    return [fault for one in (*first, *then) if (fault := _exchange(one))]


def _exchange(one: Exchange) -> str:
    """Make one exchange. Returns why it was not made; empty if it was."""
    try:
        now = state_of(one.path, one.here, one.wanted)
        if now.same(one.wanted):
            return ""
        if not now.same(one.here):
            return f"{one.path} was changed just now; it is kept"
        if one.wanted.kind in ("file", "link") and not state_of(one.store, one.wanted).same(
            one.wanted
        ):
            return f"{one.store} is not what was copied from {one.path}, which is kept as it is"
        _put_aside(one)
        _put_in_place(one)
    except OSError as error:
        return f"{one.path} cannot be restored: {error.strerror}"
    return ""


def _put_aside(one: Exchange) -> None:
    """Keep what is at the path, and leave the path free or with a file that may be replaced."""
    if one.here.kind == "folder":
        with contextlib.suppress(OSError):  # a folder with something of the user's stays
            os.rmdir(one.path)
        return
    if one.here.kind == "nothing":
        return
    if one.aside:
        os.makedirs(os.path.dirname(one.aside), exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(one.aside)
        link_copy.put(one.path, one.aside)
    if one.wanted.kind not in ("file", "link"):
        os.unlink(one.path)


def _put_in_place(one: Exchange) -> None:
    if one.wanted.kind == "folder":
        os.makedirs(one.path, exist_ok=True)
        if os.path.isdir(one.store):
            shutil.copymode(one.store, one.path)
    elif one.wanted.kind in ("file", "link"):
        os.makedirs(os.path.dirname(one.path), exist_ok=True)
        part = f"{one.path}.attn-doctor-{secrets.token_hex(4)}"
        link_copy.put(one.store, part)
        try:
            os.replace(part, one.path)
        except OSError:
            os.unlink(part)
            raise
        os.unlink(one.store)
