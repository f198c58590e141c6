"""The errors a user may see as one sentence. Anything else that escapes is a bug of ours."""

from __future__ import annotations


class AttnDoctorError(Exception):
    """Bad input: the message names the file or argument, the place in it, and the remedy.

    The command line prints it and exits with code 2.
    """


class ExaminationError(AttnDoctorError):
    """The interpreter that should be examined cannot be."""


class RuleError(AttnDoctorError):
    """A rule file that does not say what a rule must say."""


class SnapshotError(AttnDoctorError):
    """A snapshot that cannot be read, or that a newer attn-doctor wrote."""
