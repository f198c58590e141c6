"""Where `fix` keeps what it did: the user's state folder, never the examined environment.

Without a home there is no place that outlives the run, and without such a place nothing could be
undone; so `fix` then refuses to change anything rather than choose a folder by itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from attn_doctor.errors import AttnDoctorError


def fixes_folder(environ: Mapping[str, str], *, windows: bool = os.name == "nt") -> Path:
    """The folder that holds one folder for each run of `fix`; it need not exist yet.

    `$XDG_STATE_HOME/attn-doctor/fixes`, else `~/.local/state/attn-doctor/fixes`; on Windows
    below `%LOCALAPPDATA%`. Raises `AttnDoctorError` where none of these is set.
    """
    state = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):  # the specification says to ignore a relative one
        return Path(state, "attn-doctor", "fixes")
    if windows and environ.get("LOCALAPPDATA"):
        return Path(environ["LOCALAPPDATA"], "attn-doctor", "fixes")
    home = environ.get("USERPROFILE" if windows else "HOME", "")
    if os.path.isabs(home):
        return Path(home, ".local", "state", "attn-doctor", "fixes")
    raise AttnDoctorError(
        "fix keeps what --undo needs in your state folder, and neither XDG_STATE_HOME nor HOME"
        " names one; set XDG_STATE_HOME to a folder that lasts, then run fix again"
    )
