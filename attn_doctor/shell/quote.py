"""Quotes text so that a shell reads it back as one word, character by character.

This is the only place that quotes for a shell. Control characters and invisible ones are refused: a
terminal shows them wrongly or obeys them, so a line that holds one cannot be checked before it is
run, and a line break ends the line in cmd and in an unquoted `eval`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from attn_doctor.clean import is_clean
from attn_doctor.errors import AttnDoctorError

Shell = Literal["bash", "zsh", "sh", "fish", "powershell", "cmd"]
#: All shells that lines are written for.
SHELLS: tuple[Shell, ...] = ("bash", "zsh", "sh", "fish", "powershell", "cmd")

#: Words that need no quotes. A leading `=` is not among them: zsh replaces `=ls` by the path of ls.
_PLAIN_POSIX = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-")
#: Quoted are `-name.part` and `-name:part`, which PowerShell splits at the sign, and `++`.
_PLAIN_POWERSHELL = r"(?a)--?|(?=.*\w)(?:-{0,2}[\w+=-]+|[\w./:\\+][\w./:\\=+-]*)"
#: Text that cmd and PowerShell read alike between double quotes, so that a command is right in
#: both: to cmd single quotes are letters, and `>` writes a file. PowerShell ends a text also at
#: typographic quotes.
_SAME_IN_CMD = r"[^$`\"“”„%!]*[^$`\"“”„%!\\]"
_PLAIN_CMD = r"(?a)[\w./:\\+-]+"
#: What cmd expands or ends a quoted text at; on a typed line nothing escapes them.
_UNQUOTABLE_CMD = r'["%!]'
#: PowerShell takes the typographic single quotes for quotes as well.
_POWERSHELL_QUOTES = "(['‘’‚‛])"


def check(text: str) -> str:
    """Return `text`. Raises `AttnDoctorError` if it holds a character that a terminal hides."""
    if not is_clean(text):
        raise AttnDoctorError(
            f"{text!a} contains a control character or an invisible one and cannot be written as a"
            " shell command: rename it"
        )
    return text


def quote(text: str, shell: Shell) -> str:
    """Quote `text` as one word, only where the shell needs it.

    Raises `AttnDoctorError` for characters that a terminal hides and text that cmd cannot quote.
    """
    check(text)
    if _is_plain(text, shell):
        return text
    if shell == "powershell" and re.fullmatch(_SAME_IN_CMD, text):
        return f'"{text}"'
    return quote_always(text, shell)


def _is_plain(text: str, shell: Shell) -> bool:
    """Whether `shell` reads `text` as one word without quotes."""
    if shell in ("powershell", "cmd"):
        plain = _PLAIN_POWERSHELL if shell == "powershell" else _PLAIN_CMD
        return re.fullmatch(plain, text) is not None
    return text[:1] not in ("", "=") and _PLAIN_POSIX.issuperset(text)


def quote_always(text: str, shell: Shell) -> str:
    """Quote `text` as one word, also where it would not need quotes. Raises as `quote` does."""
    check(text)
    if shell == "fish":
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if shell == "powershell":
        return "'" + re.sub(_POWERSHELL_QUOTES, r"\1\1", text) + "'"
    if shell == "cmd":
        # In a batch file cmd replaces `%2`; the path of an address may hold the sign itself.
        text = re.sub(r"(?<=https://)\S+", lambda url: url[0].replace("%2B", "+"), text)
        if bad := re.search(_UNQUOTABLE_CMD, text):
            raise AttnDoctorError(
                f"cmd cannot quote the {bad[0]} in {text}: use PowerShell, or rename it"
            )
        # Programs read `\"` as a quote of the text, so a trailing backslash is doubled.
        slashes = len(text) - len(text.rstrip("\\"))
        return f'"{text}{chr(92) * slashes}"'
    return "'" + text.replace("'", "'\"'\"'") + "'"  # as shlex.quote writes it


def join(words: Iterable[str], shell: Shell) -> str:
    """Join a command and its arguments into one line. Raises as `quote` does."""
    first, *rest = [quote(word, shell) for word in words] or [""]
    if shell == "powershell" and first.startswith(("'", '"')):
        # A quoted program is text to PowerShell unless the call operator precedes it.
        first = f"& {first}"
    return " ".join([first, *rest])
