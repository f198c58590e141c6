"""The front of a member of an archive, decompressed as far as it is asked for."""

from __future__ import annotations

from typing import IO

from attn_doctor.binaries.window import DamagedError, Window, too_short
from attn_doctor.wheels.archive import DAMAGE
from attn_doctor.wheels.ranges import WheelError

#: Most bytes of a member that are kept. The tables of torch's largest library end before 64 MiB.
MOST = 96 << 20
_STEP = 1 << 13


class TooFarError(WheelError):
    """A place lies behind the part of a member that is kept."""


class Front(Window):
    """A member that is read from its start; `take` decompresses on until it has what it needs.

    Raises `DamagedError` for places that lie outside the member, `WheelError` for a damaged archive
    and for places beyond `MOST`.
    """

    def __init__(self, member: IO[bytes], size: int) -> None:
        self._member, self.size = member, size
        self._data = bytearray()
        self._file = -1  # nothing to close for `Window`

    def close(self) -> None:
        """Close the member."""
        self._member.close()

    @property
    def have(self) -> int:
        """Number of bytes that are decompressed."""
        return len(self._data)

    def take(self, start: int, length: int) -> bytes:
        """Return exactly `length` bytes from `start`."""
        if start < 0 or length < 0:
            raise DamagedError(f"{length} bytes at {start} cannot be read")
        if start + length > self.size:
            raise DamagedError(too_short(self.size, start + length))
        self.reach(start + length)
        return bytes(self._data[start : start + length])

    def reach(self, end: int) -> None:
        """Decompress up to position `end` at least, or to the end of the member."""
        end = min(end, self.size)
        if end > MOST:
            raise TooFarError(f"what is needed lies behind its first {MOST >> 20} MiB")
        while len(self._data) < end:
            try:
                piece = self._member.read(max(_STEP, end - len(self._data)))
            except WheelError:
                raise
            except DAMAGE as error:
                raise WheelError(f"the archive is damaged: {error}") from None
            if not piece:
                raise WheelError("the archive is damaged: a file in it is too short")
            self._data += piece

    def find(self, what: bytes, start: int, end: int) -> int:
        """Return the first position of `what` from `start` on, -1 if it is not before `end`."""
        self.reach(end)
        return self._data.find(what, start, end)
