"""What a command shows its user on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_doctor.render.terminal import Terminal


def say(*lines: str) -> None:
    """Print lines on standard output, in the language of the user."""
    sys.stdout.write(terminal().page(lines))


def terminal(output: str = "") -> Terminal:
    """The terminal behind standard output; for a file one without colour and with all glyphs."""
    from attn_doctor.render.terminal import Terminal

    return Terminal() if output else Terminal.of(sys.stdout)
