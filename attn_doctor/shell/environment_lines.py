"""Lines that set environment variables, in the language of each shell, and which shell it is.

A value is quoted so that no shell sees anything in it but text. A value with a line break or a
control character is refused: no folder that is meant to be one has any.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from attn_doctor.errors import AttnDoctorError

#: Names of programs → the shell whose language they speak.
_SHELLS = {
    "bash": "bash", "rbash": "bash", "zsh": "zsh", "fish": "fish", "sh": "sh", "dash": "sh",
    "ash": "sh", "busybox": "sh", "ksh": "sh", "mksh": "sh", "pwsh": "powershell",
    "powershell": "powershell",
}  # fmt: skip


def line(shell: str, name: str, value: str) -> str:
    """The line that exports a variable. Raises `AttnDoctorError` for control characters."""
    if re.search(r"[\x00-\x1f\x7f]", value):
        raise AttnDoctorError(
            f"{value!r} holds a control character, so it cannot be handed to a shell: rename it"
        )
    if shell == "fish":
        quoted = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"set -gx {name} '{quoted}'"
    if shell == "powershell":
        # PowerShell takes the typographic quotes for quotes as well.
        quoted = re.sub("(['‘’‚‛])", r"\1\1", value)
        return f"$env:{name} = '{quoted}'"
    quoted = value.replace("'", "'\\''")
    return f"export {name}='{quoted}'"


def detected(environ: Mapping[str, str], *, windows: bool) -> str:
    """The shell that asks: the nearest one above this process, else the user's login shell."""
    for name in _above():
        if name in _SHELLS:
            return _SHELLS[name]
    login = re.split(r"[/\\]", environ.get("SHELL", ""))[-1]
    return _SHELLS.get(login, "powershell" if windows else "sh")


def _above() -> Iterator[str]:
    """Names of the programs that started this one, the nearest first."""
    import psutil

    try:
        for process in psutil.Process(os.getpid()).parents()[:6]:
            yield process.name().removeprefix("-").removesuffix(".exe").lower()
    except psutil.Error:
        return
