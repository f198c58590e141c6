"""Errors that users see as one sentence. Any other exception that reaches them is a bug."""

from __future__ import annotations


class AttnDoctorError(Exception):
    """Bad input: the message names the file or argument, the place in it, and the fix.

    The command line prints it and exits with code 2.
    """


class ExaminationError(AttnDoctorError):
    """The interpreter cannot be examined."""


class RuleError(AttnDoctorError):
    """A rule file is not valid."""


class SnapshotError(AttnDoctorError):
    """A snapshot cannot be read, or a newer attn-doctor wrote it."""
