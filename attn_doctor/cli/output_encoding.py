"""Writes output without encoding errors.

A terminal or a pipe may take less than Unicode: `LC_ALL=C`, Windows' code pages. Characters that
it cannot show are written in ASCII (`>=` for `≥`), and undecodable bytes of a path as numbers.
Python would end the program with an error.
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


def make_lossless(*streams: TextIO) -> None:
    """Make these streams accept every text.

    On Windows files and pipes are written in UTF-8, the encoding of JSON, XML and Markdown. The
    code page that Python would choose is right for the console only.
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
    """The replacement for characters that cannot be encoded."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    from attn_doctor.render.terminal import plain

    return "".join(map(plain, error.object[error.start : error.end])), error.end
