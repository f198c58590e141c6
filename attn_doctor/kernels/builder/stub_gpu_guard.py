"""The guard of a stub GPU, as seen from outside: how a program gets it, what it tells.

A program of the user's own may swallow the exception with which the guard refuses, so each of its
processes also writes a report into a folder, which counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attn_doctor.worker.stub_gpu import report
from attn_doctor.worker.stub_gpu.report import Verdict

#: What is said of a program that ran without a stub GPU.
unheard = Verdict((), (), 0, 0)


def watched(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment in which a program's Python processes are guarded, and report to `folder`."""
    from attn_doctor.worker.stub_gpu import program_environment

    return program_environment.environment(environ, str(folder))


def heard(folder: Path) -> Verdict:
    """What the reports of all processes of one run tell."""
    return report.read(str(folder))
