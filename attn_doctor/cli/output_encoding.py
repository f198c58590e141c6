"""Output that never fails for want of a character.

A terminal or a pipe may take less than Unicode: `LC_ALL=C`, Windows' code pages. What it cannot
show is then written in plain letters (`>=` for `≥`), and a byte of a path that is no text as its
number, where Python would end the program with an error.
"""

from __future__ import annotations

import codecs
import os
import sys
from io import TextIOWrapper
from typing import TextIO

_PLAIN = "attn-doctor-plain"
#: The user's own choice of an encoding.
_CHOSEN = "PYTHONIOENCODING"


def bear(*streams: TextIO) -> None:
    """Let these streams take every text.

    On Windows files and pipes are written in UTF-8, as JSON, XML and Markdown are read; the code
    page that Python would choose is only right for the console.
    """
    codecs.register_error(_PLAIN, _plainly)
    for stream in streams:
        if not isinstance(stream, TextIOWrapper):
            continue
        if sys.platform == "win32" and not stream.isatty() and not os.environ.get(_CHOSEN):
            stream.reconfigure(encoding="utf-8", errors=_PLAIN)
        else:
            stream.reconfigure(errors=_PLAIN)


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """What to write for characters that cannot be encoded."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    from attn_doctor.render.terminal import plain

    return "".join(map(plain, error.object[error.start : error.end])), error.end
