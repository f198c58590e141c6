"""Errors that users see as one sentence. Any other exception that reaches them is a bug."""

from __future__ import annotations

from attn_doctor.clean import clean


class MessageError(Exception):
    """An error whose message is for the user. Each argument is one line of it.

    Names of files and words of other programs in it cannot begin a line, nor rewrite a terminal.
    """

    def __init__(self, text: str, *more: str) -> None:
        super().__init__("\n".join(map(clean, (text, *more))))


class AttnDoctorError(MessageError):
    """Bad input: the message names the file or argument, the place in it, and the fix.

    The command line prints it and exits with code 2.
    """


class OwnershipError(AttnDoctorError):
    """Another user owns something that would be run, loaded or obeyed, or can write to it."""


class ExaminationError(AttnDoctorError):
    """The interpreter cannot be examined."""


class RuleError(AttnDoctorError):
    """A rule file is not valid."""


class SnapshotError(AttnDoctorError):
    """A snapshot cannot be read, or a newer attn-doctor wrote it."""
