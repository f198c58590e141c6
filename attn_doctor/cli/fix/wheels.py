"""`attn-doctor fix wheels WHEEL…`: read wheels before they are installed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from attn_doctor.cli.screen import terminal
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.fixes.read_wheel import read_wheel
from attn_doctor.render.fix.wheels import read_wheels_json, read_wheels_text


def show_wheels(sources: Sequence[str], facts: Facts, *, json: bool) -> int:
    """Read the wheels and show the verdicts. Returns the exit code.

    Raises `AttnDoctorError` for a word that is neither a URL nor a file.
    """
    for source in sources:
        if "://" not in source and not Path(source).is_file():
            raise AttnDoctorError(f"{source} is not a file; give the path or the URL of a wheel")
    found = [read_wheel(source, facts) for source in sources]
    text = read_wheels_json(found) if json else read_wheels_text(found, terminal())
    sys.stdout.write(text)
    return 0 if all(one.verdict.loads == "yes" for one in found) else 1
