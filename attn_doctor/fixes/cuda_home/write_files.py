"""Writes what `places` worked out, through the journal, so that `fix --undo` takes it back."""

from __future__ import annotations

import os

from attn_doctor.errors import AttnDoctorError
from attn_doctor.fixes.cuda_home.start_files import Change, Keeping
from attn_doctor.fixes.journal import Journal


def write(keeping: Keeping, journal: Journal) -> tuple[Change, ...]:
    """Write every file that is not yet as it should be; returns those that were written.

    Raises `AttnDoctorError` if a file changed since it was read, or cannot be written.
    """
    needed = tuple(one for one in keeping.changes if one.needed)
    for change in needed:
        _unchanged(change)
        journal.write_file(change.path, change.after)
    return needed


def append(keeping: Keeping) -> tuple[Change, ...]:
    """Add to the files of GitHub Actions, which last for one step and are never put back."""
    needed = tuple(one for one in keeping.changes if one.needed)
    for change in needed:
        with change.real.open("ab") as file:
            file.write(change.after[len(change.before or b"") :])
    return needed


def _unchanged(change: Change) -> None:
    """The file is as it was when the change was worked out and shown."""
    try:
        now = change.real.read_bytes() if os.path.lexists(change.real) else None
    except OSError as error:
        raise AttnDoctorError(f"{change.real} cannot be read: {error.strerror}") from None
    if now != change.before:
        raise AttnDoctorError(f"{change.real} has changed in the meantime; run this again")
