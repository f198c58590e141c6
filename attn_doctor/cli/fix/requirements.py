"""`attn-doctor fix --write-requirements FILE`."""

from __future__ import annotations

import sys
from pathlib import Path

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.fixes.requirements_file import requirements


def write_to(path: str, facts: Facts) -> int:
    """Write the file, or print it if `path` is `-`. An existing file is kept. Returns 0."""
    text = requirements(facts)
    if path == "-":
        sys.stdout.write(text)
        return 0
    try:
        with Path(path).open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise AttnDoctorError(f"{path} exists; choose another name") from None
    except OSError as error:
        raise AttnDoctorError(f"{path} cannot be written: {error.strerror}") from None
    sys.stdout.write(f"Wrote {path}.\n")
    return 0
