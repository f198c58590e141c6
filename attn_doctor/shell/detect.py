"""Which shell the user types into, and where that shell keeps its start file.

The parents of this process are looked through for the nearest shell; SHELL names only the one the
user logs in with. Start files are the usual ones: what a user's own configuration sources besides
is not known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from attn_doctor.errors import AttnDoctorError

SHELLS = ("bash", "zsh", "sh", "fish", "powershell")
_NAMES = {
    **{name: name for name in ("bash", "zsh", "sh", "fish", "powershell")},
    **dict.fromkeys(("dash", "ash", "ksh", "ksh93", "mksh", "busybox"), "sh"),
    "pwsh": "powershell",
}
#: Shells whose lines this program does not write.
_OTHERS = ("csh", "tcsh", "nu", "xonsh", "elvish", "cmd")


def detect(environ: Mapping[str, str], *, windows: bool = os.name == "nt") -> str:
    """One of `SHELLS`. Raises `AttnDoctorError` for a shell that has no such lines here."""
    for name in (*_parents(), Path(environ.get("SHELL", "")).name):
        plain = name.lower().removesuffix(".exe").lstrip("-")
        if plain in _NAMES:
            return _NAMES[plain]
        if plain in _OTHERS and not (plain == "cmd" and windows):
            raise AttnDoctorError(
                f"no lines can be printed for {plain}; name another shell with --shell"
                f" ({', '.join(SHELLS)}) and set the same variables in {plain}"
            )
    return "powershell" if windows else "sh"


def _parents() -> list[str]:
    """Names of the programs that started this one, the nearest first."""
    import psutil

    try:
        return [each.name() for each in psutil.Process().parents()]
    except (psutil.Error, OSError):
        return []


def start_file(shell: str, environ: Mapping[str, str], *, macos: bool = False) -> Path:
    """The file that a shell reads when it starts. Raises `AttnDoctorError` without a home."""
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


def how_to_eval(shell: str) -> str:
    """What to type so that the printed lines take effect in the shell at hand."""
    if shell == "powershell":
        return 'Invoke-Expression "$(attn-doctor fix --cuda-home)"'
    if shell == "fish":
        return "attn-doctor fix --cuda-home | source"  # `eval "$(…)"` needs fish 3.4
    return 'eval "$(attn-doctor fix --cuda-home)"'
