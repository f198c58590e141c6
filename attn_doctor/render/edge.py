"""The edge: what attn-doctor prints or writes for its user passes through `safe` here.

Values are cleaned where they are put into a page, because only the renderer knows where a line must
end. This is the second barrier: no secret, no control character and no command of a CI service
passes, whatever a renderer forgot. Only our own colours do, links to our own site, and
`replace_line`, which rewrites a line of progress. Output of the user's own programs goes around it.
"""

from __future__ import annotations

import re
import sys
from typing import Any, TextIO

from attn_doctor.clean import clean, clean_lines, without_commands
from attn_doctor.errors import AttnDoctorError
from attn_doctor.language import AS_IT_IS, chosen
from attn_doctor.redact import Redacted, redact
from attn_doctor.site import address

#: Colours and weights; not the concealed and blinking text that a terminal also knows.
_STYLE = r"\x1b\[(?:(?:[0-4]|[34]\d|38;5;\d+|9\d);?)*m"


def safe(text: str, *, styled: bool = False, commands: bool = False) -> str:
    """Return a page without secrets, control characters and commands of a CI service.

    `styled` keeps colours; `commands` keeps GitHub's commands, which then are lines of the page.
    """
    if isinstance(text, Redacted):
        return text
    parts = _allowed().split(text) if styled and "\x1b" in text else [text]
    shown = "".join(
        part if number % 2 else redact(clean_lines(part)) for number, part in enumerate(parts)
    )
    return without_commands(shown, lines=not commands)


def _allowed() -> re.Pattern[str]:
    """Our colours, and links to the documentation site if it has an address."""
    try:
        site = address()
    except AttnDoctorError:  # this may be the message about it
        site = ""
    link = rf"|\x1b\]8;;(?:{re.escape(site)}[\w./-]*)?\x1b\\" if site else ""
    return re.compile(f"({_STYLE}{link})")


class Edge:
    """A standard stream that passes all text through `safe`; otherwise it is that stream.

    `said`: every line is for a person, and is translated.
    """

    def __init__(self, stream: TextIO, *, styled: bool, said: bool = False) -> None:
        self.stream = stream
        self._styled = styled
        self._said = said

    def write(self, text: str, *, commands: bool = False) -> int:
        """Write a page. `commands`: it consists of commands of a CI service."""
        if self._said:
            text = _in_width(_in_language(text, self.stream), self.stream)
        return self.stream.write(safe(text, styled=self._styled, commands=commands))

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def guard() -> None:
    """Put the edge between attn-doctor and its standard output and error."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Edge):
            said = name == "stderr"
            setattr(sys, name, Edge(stream, styled=_is_styled(stream), said=said))


def _in_language(text: str, stream: TextIO) -> str:
    """Each line in the language of the user, if the stream can show it."""
    try:
        language = chosen()
        if not language or (stream.encoding or "").lower().replace("-", "") != "utf8":
            return text
        from attn_doctor.translation import say
    except (ImportError, AttnDoctorError):  # this may be the message about it
        return text
    return "\n".join(say(line, language).replace(AS_IT_IS, "") for line in text.split("\n"))


def _in_width(text: str, stream: TextIO) -> str:
    """A message in lines of the terminal's width. Commands in it stay whole."""
    if not (text.startswith("attn-doctor: ") and stream.isatty()):
        return text
    try:
        from attn_doctor.render.terminal import Terminal
    except ImportError:  # this may be the message about it
        return text
    terminal = Terminal(width=Terminal.of(stream).width)
    rows = (row for line in text.splitlines() for row in terminal.wrap(line, 0) or [""])
    return "".join(f"{row}\n" for row in rows)


def _is_styled(stream: TextIO) -> bool:
    import os

    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


def raw(stream: TextIO) -> TextIO:
    """Return the stream behind the edge, for progress bars, whose texts are clean already."""
    return stream.stream if isinstance(stream, Edge) else stream


def show(text: str, *, commands: bool = False) -> None:
    """Print a page. `commands`: it consists of commands of a CI service."""
    if isinstance(sys.stdout, Edge):
        sys.stdout.write(text, commands=commands)
    else:
        sys.stdout.write(text)


def replace_line(text: str = "") -> None:
    """Show `text` in place of the last line of standard error, which has to be a terminal."""
    stream = raw(sys.stderr)
    stream.write(f"\x1b[2K\r{redact(clean(text))}" + ("\r" if text else ""))
    stream.flush()
