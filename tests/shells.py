"""Shells that tests start."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

#: A locale for all characters; macOS has no C.UTF-8.
UTF8 = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"


def path_of(program: str) -> str:
    """Where a shell is; without it the test is skipped."""
    # On Windows a shell of POSIX reads other paths than the Python that starts it.
    found = shutil.which(program) if os.name == "posix" or program == "pwsh" else None
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found
