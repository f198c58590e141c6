"""The files that GitHub Actions gives each step: what is written there shows on the job's page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attn_doctor.errors import AttnDoctorError

#: Bytes that GitHub takes of one step's summary.
LIMIT = 1 << 20


def summarise(markdown: str, environ: Mapping[str, str]) -> None:
    """Append `markdown` to the job summary; nothing outside GitHub Actions.

    Raises `AttnDoctorError` if the file that GitHub names cannot be written.
    """
    path = environ.get("GITHUB_STEP_SUMMARY", "")
    if not path:
        return
    data = markdown.encode("utf-8", "replace")
    if len(data) > LIMIT:
        data = data[: LIMIT - 100].rsplit(b"\n", 1)[0] + b"\n\n(cut here: GitHub takes 1 MiB)\n"
    try:
        with Path(path).open("ab") as file:
            file.write(data)
    except OSError as error:
        raise AttnDoctorError(
            f"GITHUB_STEP_SUMMARY={path}: cannot be written: {error.strerror}"
        ) from None
