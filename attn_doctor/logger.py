"""Loggers that import nothing until `log.enable` is called: logging takes 3 ms of a check."""

from __future__ import annotations

import sys

#: Environment variable with the level of the log; empty and unset mean no log.
VARIABLE = "ATTN_DOCTOR_LOG"


class Logger:
    """Passes messages to `logging.getLogger(name)`, if something has imported logging.

    Otherwise no one can have asked for them.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, message: str, *values: object, exc_info: bool = False) -> None:
        """Log at the level `debug`."""
        if "logging" in sys.modules:
            import logging

            logging.getLogger(self._name).debug(message, *values, exc_info=exc_info)

    @property
    def wanted(self) -> bool:
        """Whether messages at the level `debug` are shown."""
        if "logging" not in sys.modules:
            return False
        import logging

        return logging.getLogger(self._name).isEnabledFor(logging.DEBUG)
