"""Events of a worker reach the process that started it."""

from __future__ import annotations

import math
import os

from attn_doctor.json_files import decode
from attn_doctor.worker.wire import emitter


def test_numbers_that_json_lacks_arrive_as_none() -> None:
    """A gradient that is NaN made its kernel "end without a result"."""
    reader, writer = os.pipe()
    errors = {"out": 0.5, "dw": math.nan}
    emitter(writer, token="t")("ended", id=1, result={"errors": errors, "more": [math.inf, 2]})
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        event = decode(pipe.read())
    assert event == {
        "event": "ended",
        "token": "t",
        "id": 1,
        "result": {"errors": {"out": 0.5, "dw": None}, "more": [None, 2]},
    }
