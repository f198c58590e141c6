"""Runs programs that show faults: those of advisories, and those that an audit has made.

They run in the examined interpreter, in a folder of their own, and use nothing of attn-doctor.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from attn_doctor.backends.audit.outcome import Fault, Kind, Reproduced
from attn_doctor.files import write_atomic
from attn_doctor.findings import Finding
from attn_doctor.processes import Ended, run
from attn_doctor.redact import presentable

_LINES = 12


def confirmed(
    fault: Fault, python: str, folder: str, env: Mapping[str, str], seconds: float
) -> tuple[bool | None, str]:
    """Whether the program of a fault shows it, and what it printed."""
    if not fault.program:
        return None, ""
    ended = _ran(fault.program, "fault.py", python, folder, env, seconds)
    printed = _printed(ended, folder)
    if fault.kind is Kind.HUNG:
        return ended.timed_out, printed
    if fault.kind is Kind.CRASHED:
        # A process dies of a signal; a device that is lost raises, at the next call that uses it.
        words = fault.sentence.partition(": ")[2]
        return (ended.code or 0) < 0 or (bool(words) and words in ended.err), printed
    if ended.code not in (0, 1) or "Traceback" in ended.err:
        return None, printed
    return ended.code == 1, printed


def reproduced(
    finding: Finding, python: str, folder: str, env: Mapping[str, str], seconds: float
) -> Reproduced | None:
    """Run the program of an advisory; None if it has none that says whether the fault is there."""
    advisory = finding.advisory
    if advisory is None or not advisory.reproducer or not advisory.shows:
        return None
    ended = _ran(advisory.reproducer, "advisory.py", python, folder, env, seconds)
    present: bool | None = None
    if ended.code == 0:
        present = re.search(advisory.shows, ended.out) is not None
    return Reproduced(
        advisory=finding.rule.partition("/")[2],
        title=finding.title,
        present=present,
        printed=_printed(ended, folder),
    )


def _ran(
    program: str, name: str, python: str, folder: str, env: Mapping[str, str], seconds: float
) -> Ended:
    path = Path(folder) / name
    write_atomic(path, program.encode(), durable=False)
    return run([python, str(path)], seconds, env=dict(env), cwd=folder)


def _printed(ended: Ended, folder: str) -> str:
    lines = [line for line in (ended.out + ended.err).splitlines() if line.strip()]
    if ended.timed_out:
        lines.append(f"(it did not end within {ended.seconds:.0f} s)")
    elif ended.code not in (0, 1):
        lines.append(f"(exit code {ended.code})")
    return presentable("\n".join(lines[-_LINES:]).replace(folder + os.sep, ""))
