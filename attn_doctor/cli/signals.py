"""Makes SIGTERM and SIGHUP end a long command like Ctrl-C: children end, records are kept."""

from __future__ import annotations

import signal
from typing import Any


class TerminatedError(BaseException):
    """The system asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.code = 128 + number


class Signals:
    """In this block, SIGTERM and SIGHUP raise `TerminatedError`; ignored ones (nohup) stay so."""

    def __enter__(self) -> None:
        self._before: dict[int, Any] = {}
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._end)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _end(self, number: int, _: object) -> None:
        raise TerminatedError(number)
