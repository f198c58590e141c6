"""Standard streams that never end the program, whatever they are connected to.

A terminal or a pipe may take less than Unicode: `LC_ALL=C`, Windows' code pages. Characters that
it cannot show are written in ASCII (`>=` for `≥`), and undecodable bytes of a path as numbers.

A reader may leave (`| head`), a disk may be full, a descriptor may be closed (`>&-`). Work goes on
then, so that the exit code is the result of the command and nothing is left half done. `finish`
reports lost output at the end.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, TextIO

from attn_doctor.errors import AttnDoctorError

#: Name of the error handler for characters that an encoding does not have.
PLAIN = "attn-doctor-plain"
#: The user's own choice of an encoding.
_CHOSEN = "PYTHONIOENCODING"
#: The user's own choice to see each line at once.
_UNBUFFERED = "PYTHONUNBUFFERED"
#: Errors of a reader that has left: a pipe, a socket, a terminal that was closed (Windows: EINVAL).
_LEFT = {errno.EPIPE, errno.ECONNRESET, errno.ESHUTDOWN, errno.EIO}
_LEFT |= {errno.EINVAL} if os.name == "nt" else set()


def open_closed() -> None:
    """Open closed standard streams on the null device; to be called before any file is opened.

    Otherwise the next file would get the number 1, and what a child prints would end up in it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        with suppress(OSError):
            os.fstat(number)
            continue
        handle = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
        os.set_inheritable(handle, True)
        setattr(sys, name, open(handle, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115


def prepare() -> None:
    """Make standard output and standard error accept every text, and outlive their readers."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        make_lossless(stream)
        if (raw := _raw(stream)) is not None:
            setattr(sys, name, _lasting(stream, raw, name))


def make_lossless(stream: TextIO) -> None:
    """Make a stream accept every text.

    On Windows files and pipes are written in UTF-8, the encoding of JSON, XML and Markdown. The
    code page that Python would choose is right for the console only.
    """
    if not isinstance(stream, TextIOWrapper):
        return
    if sys.platform == "win32" and not stream.isatty() and not os.environ.get(_CHOSEN):
        stream.reconfigure(encoding="utf-8", errors=PLAIN)
    else:
        stream.reconfigure(errors=PLAIN)


def shown() -> None:
    """Raise `AttnDoctorError` unless all output so far was taken; to be called before a change.

    Nothing is changed that was not shown first.
    """
    sys.stdout.flush()
    if error := _lost():
        raise AttnDoctorError(
            f"the plan could not be written to standard output ({error.strerror}), so nothing was"
            " changed"
        )


def finish(code: int) -> int:
    """Write what is still buffered. Return the exit code: 2 if output was lost on a full disk."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    error = _lost()
    if error is None or error.errno in _LEFT:
        return code
    with suppress(OSError, ValueError):
        sys.stderr.write(
            f"attn-doctor: standard output cannot be written: {error.strerror}; the output is"
            " incomplete\n"
        )
        sys.stderr.flush()
    return 2 if code in (0, 1, 4) else code


def _lost() -> OSError | None:
    """The error after which standard output took nothing more."""
    raw = _raw(sys.stdout)
    return raw.error if isinstance(raw, _Lasting) else None


def _raw(stream: TextIO) -> io.RawIOBase | None:
    """What a stream finally writes to; None if that is memory, as in tests."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # PYTHONUNBUFFERED leaves the buffer out
    return raw if isinstance(raw, io.RawIOBase) else None


def _lasting(stream: TextIO, raw: io.RawIOBase, name: str) -> TextIOWrapper:
    """A stream like `stream`, whose writes never fail."""
    stream.flush()
    return TextIOWrapper(
        io.BufferedWriter(_Lasting(stream, raw)),
        encoding=stream.encoding,
        errors=PLAIN,
        newline=None if os.name == "nt" else "\n",
        line_buffering=stream.isatty() or name == "stderr" or bool(os.environ.get(_UNBUFFERED)),
    )


class _Lasting(io.RawIOBase):
    """Writes to `raw` until that fails; then it takes everything and keeps the error."""

    def __init__(self, stream: TextIO, raw: io.RawIOBase) -> None:
        self._stream, self._raw = stream, raw  # `stream` closes `raw` when it is collected
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        return bool(self._raw.isatty())

    def write(self, data: Any) -> int:
        while self.error is None:
            try:
                written = self._raw.write(data)
                if written is not None:
                    return int(written)
                # Another program set the pipe to not wait (as node does), and it is full now.
                select.select([], [self._raw], [])
            except OSError as error:
                self.error = error
        return len(data)


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """The replacement for characters that cannot be encoded."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    from attn_doctor.render.terminal import plain

    return "".join(map(plain, error.object[error.start : error.end])), error.end


codecs.register_error(PLAIN, _plainly)
