"""A remote file that is read in parts, by HTTP range, with a limit on the bytes fetched."""

from __future__ import annotations

import http.client
import io
import math
import queue
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from attn_doctor._version import __version__

#: Bytes of the first request of a run of reads; each following one is twice as long, up to MOST.
LEAST, MOST = 1 << 13, 1 << 20
#: Bytes from the end that the first request asks for. It holds the directory of most wheels.
TAIL = 1 << 13
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class WheelError(ValueError):
    """A wheel cannot be read; the text is the reason, as the rest of a sentence."""


class TooMuchError(WheelError):
    """Reading on would exceed the limit of bytes."""


class RemoteFile(io.RawIOBase):
    """A file at a URL, read by range. `fetched` counts the bytes that were received.

    Raises `WheelError` if the server does not answer, knows no ranges, or sends something else, and
    `TooMuchError` before a request that would exceed `limit`.
    """

    def __init__(
        self, url: str, *, limit: int, seconds: float = 20.0, deadline: float = float("inf")
    ) -> None:
        """Ask for the end of the file. `deadline`: by `time.monotonic`, for all requests."""
        super().__init__()
        scheme = urllib.parse.urlsplit(url).scheme
        if scheme not in ("http", "https"):
            raise WheelError(f"{scheme or 'a path'} is not http or https")
        self._url, self._seconds, self._deadline = url, seconds, deadline
        self.limit, self.fetched = limit, 0
        self._place = 0
        self._start, self._piece = 0, b""
        self._next = LEAST
        tail, first, self.size = self._ask(f"bytes=-{TAIL}", TAIL)
        self._tail, self._tail_start = tail, first

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position; nothing is fetched."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.size}[whence]
        self._place = max(0, start + offset)
        return self._place

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, fewer at the end of the file."""
        start = min(self._place, self.size)
        end = self.size if size < 0 else min(start + size, self.size)
        found = self._take(start, end)
        self._place = start + len(found)
        return found

    def _take(self, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : end - self._tail_start]
        inner = start - self._start
        if not 0 <= inner <= len(self._piece):
            self._start, self._piece, inner = start, b"", 0
            self._next = LEAST
        while len(self._piece) - inner < end - start:
            # Bytes before the position are not needed again: reads go forward.
            self._start, self._piece, inner = start, self._piece[inner:], 0
            self._piece += self._more(self._start + len(self._piece), end)
        return self._piece[inner : inner + end - start]

    def _more(self, start: int, needed: int) -> bytes:
        """Fetch from `start` up to `needed` at least, and somewhat more: reads go forward."""
        end = min(max(needed, start + self._next), self.size)
        if self.fetched + end - start > self.limit:
            end = needed
        if self.fetched + end - start > self.limit:
            raise TooMuchError(f"more than {self.limit} bytes of it would have to be fetched")
        self._next = min(2 * self._next, MOST)
        piece, first, size = self._ask(f"bytes={start}-{end - 1}", end - start)
        if first != start or size != self.size or len(piece) != end - start:
            raise WheelError("the server sent another part of the file than it was asked for")
        return piece

    def _ask(self, wanted: str, most: int) -> tuple[bytes, int, int]:
        """Return the bytes of a range, the position of the first, and the size of the file.

        A thread asks, which is left behind at the deadline: a server can send its head so slowly
        that no limit of a single read ends it.
        """
        answers: queue.SimpleQueue[tuple[bytes, int, int] | Exception] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answers.put(self._asked(wanted, most))
            except Exception as error:
                answers.put(error)

        left = self._deadline - time.monotonic()
        try:
            if left <= 0:
                raise queue.Empty
            threading.Thread(target=ask, daemon=True).start()
            found = answers.get(timeout=left if math.isfinite(left) else None)
        except queue.Empty:
            raise WheelError("its server is too slow") from None
        if isinstance(found, Exception):
            raise found
        return found

    def _asked(self, wanted: str, most: int) -> tuple[bytes, int, int]:
        headers = {
            "Range": wanted,
            "Accept-Encoding": "identity",
            "User-Agent": f"attn-doctor/{__version__}",
        }
        request = urllib.request.Request(self._url, headers=headers)  # noqa: S310 (checked above)
        try:
            with urllib.request.urlopen(request, timeout=self._seconds) as answer:  # noqa: S310
                return self._checked(answer, most)
        except urllib.error.HTTPError as error:
            with error:
                raise WheelError(f"the server answered {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, WheelError):
                raise
            reason = getattr(error, "reason", None) or error
            text = getattr(reason, "strerror", None) or reason
            raise WheelError(f"the server cannot be read: {text}") from None

    def _checked(self, answer: Any, most: int) -> tuple[bytes, int, int]:
        # After a redirection, ask where the file is: each further one costs a round trip.
        if urllib.parse.urlsplit(answer.url).scheme in ("http", "https"):
            self._url = answer.url
        if answer.status != 206:
            raise WheelError("its server sends no parts of files (no HTTP ranges)")
        match = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
        if match is None:
            raise WheelError("its server does not say which part of the file it sends")
        first, last, size = (int(one) for one in match.groups())
        if not 0 <= first <= last < size or last - first + 1 > most:
            raise WheelError("its server sends another part of the file than it says")
        piece = self._body(answer, last - first + 1)
        if len(piece) != last - first + 1:
            raise WheelError("the server ended its answer early")
        return piece, first, size

    def _body(self, answer: Any, length: int) -> bytes:
        """Read the answer. A server that sends a byte from time to time ends at the deadline."""
        pieces = b""
        while len(pieces) < length and (piece := answer.read1(length - len(pieces))):
            pieces += piece
            self.fetched += len(piece)
            if time.monotonic() > self._deadline:
                raise WheelError("its server is too slow")
        return pieces
