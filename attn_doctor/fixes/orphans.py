"""Ends the installer of a run that was killed, so that its run can be undone."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from attn_doctor.errors import AttnDoctorError
from attn_doctor.fixes.journal import Run

#: Seconds until the installer must have ended after it was killed.
_GRACE = 10.0


def end_orphan(run: Run) -> None:
    """End the installer of a run that was killed.

    Raises `AttnDoctorError` if the run is still running, or its installer does not end.
    """
    process = int(run.first("begin").get("process", 0))
    if _alive(process):
        raise AttnDoctorError(
            f"run {run.id} is still running (process {process}): wait for it, or end it"
        )
    for line in list(run.all("child"))[-1:]:
        _kill(int(line["process"]), float(line["time"]))
    end = time.monotonic() + _GRACE
    while Run(run.folder).state == "running":
        if time.monotonic() > end:
            raise AttnDoctorError(
                f"the installer of run {run.id} is still running and does not end"
            )
        time.sleep(0.05)
    for log in run.folder.glob("*.log"):  # the installer was alive until now
        os.utime(log)


def _kill(process: int, noted: float) -> None:
    """Kill an installer with its group, if it is the process that was started at that time."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        found = psutil.Process(process)
        if abs(found.create_time() - noted) > 5:
            return  # the number belongs to another process now
        if hasattr(os, "killpg"):
            os.killpg(process, signal.SIGKILL)
        else:
            for one in [*found.children(recursive=True), found]:
                one.kill()


def _alive(process: int) -> bool:
    """Whether there is such a process. `os.kill(process, 0)` would be Ctrl-C to it on Windows."""
    import psutil

    return process > 0 and bool(psutil.pid_exists(process))
