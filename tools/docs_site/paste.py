"""What runs in the browser when a log is pasted: `explain` with the rules, without a machine.

Pyodide runs it on the site's first page, and a test runs it under Node.js.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

if not hasattr(time, "thread_time"):
    # Python in a browser has no clock for a thread, and takes about five times as long.
    time.thread_time = lambda: time.perf_counter() / 5  # type: ignore[attr-defined,unused-ignore]

from attn_doctor.explain.engine import explain
from attn_doctor.install.offered import offered_for_log
from attn_doctor.render.explanation.html import html
from attn_doctor.render.explanation.json import json
from attn_doctor.render.html.page import fragment
from attn_doctor.rulebook import library
from attn_doctor.site import VARIABLE

#: The name that the pasted log has in the answer.
NAME = "pasted-log"
_CODES = {"nothing": 0, "cause": 1, "component": 5}


def answer(text: str, site: str = "") -> tuple[str, str]:
    """The explanation of a log as JSON, as `attn-doctor explain --no-probe --json` prints it.

    Second, the same as a part of a page. `site`: the address of the site, for links to rules. The
    log is a file of the current folder, since a file of a megabyte is read in parts.
    """
    if site:
        os.environ[VARIABLE] = site
    Path(NAME).write_text(text, "utf-8", newline="")
    found = offered_for_log(explain([NAME], library.load()))
    return json(found, _CODES[found.outcome.value]), fragment(html(found))
