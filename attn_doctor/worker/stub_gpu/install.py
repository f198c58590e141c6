"""Installs the guard in this process, with every change to torch that a stub GPU needs."""

from __future__ import annotations

import os

from attn_doctor.worker.stub_gpu import (
    constant_folding,
    import_hooks,
    replaced_libraries,
    report,
    timed_choices,
    torch_caches,
)
from attn_doctor.worker.stub_gpu.guard import LIBRARY, Guard, installed, keep


def install() -> Guard:
    """Return the guard of this process, installing it first if needed. Call it where `active()`.

    Raises `OSError` or `AttributeError` if the variable names something else than the stub library.
    """
    guard = installed()
    if guard is None:
        guard = Guard(os.environ.get(LIBRARY), os.environ.get(report.FOLDER, ""))
        keep(guard)
        guard.begin()
        import_hooks.when("torch", replaced_libraries.change)
        for part in (torch_caches, constant_folding, timed_choices):
            part.install(guard)
    return guard
