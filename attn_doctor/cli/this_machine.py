"""The machine that a command examines."""

from __future__ import annotations

import sys
from collections.abc import Callable

from attn_doctor.host.local import LocalHost


def this_machine(prepare: Callable[[], None] | None = None) -> LocalHost:
    """Return this machine; it shows the path of a found interpreter before that is started.

    `prepare`: what the machine does while the interpreter starts.
    """
    host = LocalHost()
    host.prepare = prepare
    host.show = _show
    host.forks = True
    return host


def anonymous_here() -> Callable[[str], str]:
    """Return a function that removes the identity of this machine and its users from a text."""
    from attn_doctor.anonymize import anonymous

    return anonymous(LocalHost())


def _show(text: str) -> None:
    # Undecodable bytes of a path are shown with a replacement.
    sys.stderr.write(text.encode("utf-8", "replace").decode() + "\n")
    sys.stderr.flush()
