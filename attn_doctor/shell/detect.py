"""Finds the shell that the user types into and the file that this shell reads when it starts.

The parents of this process are searched for the nearest shell; SHELL names only the login shell.
Start files are the usual ones: what a user's own configuration sources besides is not known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import get_args

from attn_doctor.errors import AttnDoctorError
from attn_doctor.shell.quote import SHELLS, Shell

_NAMES: dict[str, Shell] = {
    **{name: name for name in get_args(Shell)},
    **dict.fromkeys(("dash", "ash", "ksh", "ksh93", "mksh", "busybox"), "sh"),
    "rbash": "bash",
    "pwsh": "powershell",
}
#: Shells that no lines are written for.
_UNSUPPORTED = ("csh", "tcsh", "nu", "xonsh", "elvish")


def named(name: str) -> Shell:
    """Return the shell of that name. Raises `AttnDoctorError` if there are no lines for it."""
    shell = next((shell for shell in SHELLS if shell == name), None)
    if shell is None:
        raise AttnDoctorError(f"--shell {name}: unknown; choose from {', '.join(SHELLS)}")
    return shell


def detect(environ: Mapping[str, str], *, windows: bool = os.name == "nt") -> Shell:
    """Return the nearest shell above this process, else the login shell.

    Raises `AttnDoctorError` for a shell that no lines are written for.
    """
    for name in (_nearest(), Path(environ.get("SHELL", "")).name):
        plain = name.lower().removesuffix(".exe").lstrip("-")
        if plain in _NAMES:
            return _NAMES[plain]
        if plain in _UNSUPPORTED:
            raise AttnDoctorError(
                f"no lines can be printed for {plain}; name another shell with --shell"
                f" ({', '.join(SHELLS)}) and set the same variables in {plain}"
            )
    return "powershell" if windows else "sh"


@cache
def here_on_windows() -> Shell:
    """Return the shell above this process on Windows: PowerShell, cmd or one of Git for Windows."""
    shell = _NAMES.get(_nearest().lower().removesuffix(".exe"), "powershell")
    return shell if shell in ("cmd", "bash", "zsh", "sh") else "powershell"


def _nearest() -> str:
    """Name of the nearest shell above this process; empty if there is none."""
    import shellingham

    try:
        name, _ = shellingham.detect_shell()
    except (OSError, RuntimeError, ValueError):  # ShellDetectionFailure is an OSError
        return ""
    return str(name)


def start_file(shell: Shell, environ: Mapping[str, str], *, macos: bool = False) -> Path:
    """Return the file that a shell reads when it starts.

    Raises `AttnDoctorError` without a home folder, and for cmd, which reads no file.
    """
    if shell == "cmd":
        raise AttnDoctorError("cmd reads no start file; use --write-to environment")
    home = environ.get("HOME") or environ.get("USERPROFILE", "")
    if not os.path.isabs(home):
        raise AttnDoctorError("HOME is not set, so the start file of the shell cannot be found")
    config = environ.get("XDG_CONFIG_HOME", "")
    base = Path(config) if os.path.isabs(config) else Path(home, ".config")
    if shell == "fish":
        return base / "fish" / "config.fish"
    if shell == "zsh":
        return Path(environ.get("ZDOTDIR") or home, ".zshrc")
    if shell == "powershell":
        name = "Microsoft.PowerShell_profile.ps1"
        documents = (
            Path(home, "Documents", "PowerShell") if os.name == "nt" else base / "powershell"
        )
        return documents / name
    if shell == "bash":
        # A terminal of macOS starts a login shell, which does not read .bashrc.
        return Path(home, ".bash_profile" if macos else ".bashrc")
    return Path(home, ".profile")


def how_to_eval(shell: Shell, command: str) -> str:
    """Return what to type so that the lines that `command` prints take effect in this shell."""
    if shell == "powershell":
        return f'Invoke-Expression "$({command})"'
    if shell == "fish":
        return f"{command} | source"  # `eval "$(…)"` needs fish 3.4
    if shell == "cmd":
        return f"for /f \"delims=\" %i in ('{command}') do @%i"
    return f'eval "$({command})"'
