"""Logging: silent unless `-vv` or ATTN_DOCTOR_LOG asks for it, then on standard error.

Modules log with `logging.getLogger(__name__)`; those that `check` imports, with `Logger(__name__)`.
The level `debug` shows the time of each
probe, each program that is started, and the unknown fact behind each undecided rule.
"""

from __future__ import annotations

import logging
from typing import Any, TextIO

from attn_doctor.clean import clean
from attn_doctor.errors import AttnDoctorError
from attn_doctor.logger import VARIABLE

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO}
_FORMAT = "%(relativeCreated)6.0f ms  %(name)s: %(message)s"


def enable(level: str, stream: TextIO | None = None) -> None:
    """Log from `level` (`debug` or `info`) upwards to `stream`, standard error by default.

    Raises `AttnDoctorError` for another level. A second call replaces the level of the first.
    """
    if level.lower() not in _LEVELS:
        raise AttnDoctorError(f"{VARIABLE}={level}: not a level; use debug or info")
    logger = logging.getLogger("attn_doctor")
    logger.setLevel(_LEVELS[level.lower()])
    if not logger.handlers:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(_Formatter(_FORMAT))
        logger.addHandler(handler)
        # The handlers of a program that imports attn_doctor would write each line again.
        logger.propagate = False


class _Formatter(logging.Formatter):
    """One line for each message, since messages hold text of other origin."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = clean(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return "\n".join(f"    | {clean(line)}" for line in super().formatException(ei).split("\n"))
