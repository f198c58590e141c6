"""Terminal capabilities: width, colour, and the glyphs it can show.

Written by hand because importing a terminal library would take longer than examining the machine.
Progress bars use rich.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TextIO

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.clean import clean
from attn_doctor.language import AS_IT_IS, chosen, width_of

__all__ = ["Terminal", "clean", "plain", "width_of"]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_ASCII = {
    "✗": "x", "✓": "ok", "·": "-", "→": "->", "…": "...", "≥": ">=", "≤": "<=", "×": "x",
    "└": "`", "’": "'", "“": '"', "”": '"', "—": "--", "–": "-",
}  # fmt: skip
#: Code between backticks, such as a command, and what stands for its spaces while lines are broken.
_CODE = re.compile(r"`[^`\s][^`\n]*`")
_UNBROKEN = "\0"


def plain(character: str) -> str:
    """`character` in ASCII: its replacement; for an undecodable byte, its number."""
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python holds such a byte of a path
        return f"\\x{code - 0xDC00:02x}"
    return _ASCII.get(character, "?")


class Terminal(Struct, frozen=True):
    """Width, colour and glyphs of an output."""

    width: int = 100
    colour: bool = False
    unicode: bool = True
    links: bool = False
    """It makes text a link (OSC 8)."""
    language: str = ""
    """The language of its texts, one of `attn_doctor.language.LANGUAGES`; empty for English."""

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str] = os.environ) -> Terminal:
        """The terminal behind a stream, with NO_COLOR, FORCE_COLOR, TERM and COLUMNS applied."""
        is_terminal = stream.isatty()
        colour = is_terminal and environ.get("TERM") != "dumb"
        if environ.get("FORCE_COLOR"):
            colour = True
        if environ.get("NO_COLOR"):
            colour = False
        unicode = (stream.encoding or "").lower().replace("-", "") in ("utf8", "utf16", "cp65001")
        # Other terminals ignore the sequence; these two show it.
        links = is_terminal and environ.get("TERM", "") not in ("dumb", "linux")
        language = chosen(environ) if unicode else ""
        return cls(_width(is_terminal, environ), colour, unicode, links, language)

    def say(self, text: str) -> str:
        """`text` in the language of this terminal."""
        if not self.language:
            return text
        from attn_doctor.translation import say

        return say(text, self.language)

    def joined(self, before: str, behind: str) -> str:
        """Two texts with a colon between, each in the language of this terminal."""
        colon = self.say(":")
        # A full-width colon has its own space.
        return self.say(before) + colon + (" " if colon.isascii() else "") + self.say(behind)

    def pad(self, text: str, columns: int) -> str:
        """`text` in the language of this terminal, filled to a width in columns."""
        text = self.say(text)
        return text + " " * max(columns - width_of(text), 1 if self.language else 0)

    def right(self, text: str, columns: int) -> str:
        """`text` in the language of this terminal, at the right of a column."""
        text = self.say(text)
        return " " * max(columns - width_of(text), 1) + text

    def style(self, text: str, *styles: str) -> str:
        """`text` in the language of this terminal and in the given styles."""
        return self._painted(self.say(text), *styles)

    def code(self, text: str, *styles: str) -> str:
        """A command or code, which is not translated, in the given styles."""
        kept = f"{AS_IT_IS}{text}{AS_IT_IS}" if self.language and text else text
        return self._painted(kept, *styles)

    def _painted(self, text: str, *styles: str) -> str:
        if not (self.colour and text and styles):
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"

    def link(self, text: str, address: str) -> str:
        """`text` as a link, if the output shows links and there is an address."""
        return f"\x1b]8;;{address}\x1b\\{text}\x1b]8;;\x1b\\" if self.links and address else text

    def glyphs(self, text: str) -> str:
        """`text` with replacements for characters that this terminal cannot show."""
        if self.unicode:
            return text
        for glyph, plain in _ASCII.items():
            text = text.replace(glyph, plain)
        return text.encode("ascii", "replace").decode()

    def page(self, lines: Iterable[str]) -> str:
        """A whole text of `lines`, in the language and characters of this terminal."""
        if self.language:
            lines = [self.say(line).replace(AS_IT_IS, "") for line in lines]
        return self.glyphs("\n".join(lines)) + "\n"

    def beside(self, head: str, words: str, indent: int, *styles: str) -> Iterator[str]:
        """`words` beside `head`, which fills `indent` columns, and further lines below them."""
        first, *rest = self.wrap(clean(words), indent) or [""]
        yield head + self.style(first[indent:], *styles)
        yield from (self.style(line, *styles) for line in rest)

    def marked(self, mark: str, words: str, *styles: str) -> Iterator[str]:
        """`words` beside a glyph in the given styles."""
        return self.beside(f"{self.style(mark, *styles)} ", words, 2)

    def quote(self, text: str, indent: int) -> list[str]:
        """`text` of a log or another program, as it is, as lines of this width."""
        return [self.code(line) for line in replace(self, language="").wrap(text, indent)]

    def wrap(self, text: str, indent: int) -> list[str]:
        """`text` as lines of this width; paths and commands between backticks are kept whole."""
        text = self.say(text)
        if not text.isascii() and any(map(_is_wide, text)):
            return _wrapped_wide(text, max(self.width, indent + 20), indent)
        text = _CODE.sub(lambda code: code[0].replace(" ", _UNBROKEN), text)
        lines = filled(text, max(self.width, indent + 20), indent)
        return [line.replace(_UNBROKEN, " ") for line in lines]


_BLANKS = str.maketrans(dict.fromkeys("\t\n\v\f\r", " "))


def filled(text: str, width: int, indent: int) -> list[str]:
    """Return the lines that `textwrap.wrap` makes without breaking words.

    Its import takes as long as a probe: it compiles patterns that are for breaking words.
    """
    pieces = [one for one in re.split("( +)", text.expandtabs().translate(_BLANKS)) if one]
    lines: list[str] = []
    at = 0
    while at < len(pieces):
        if lines and not pieces[at].strip():
            at += 1  # a blank where the line was broken
        start, left = at, width - indent
        while at < len(pieces) and len(pieces[at]) <= left:
            left -= len(pieces[at])
            at += 1
        if at == start:
            at += 1  # a word that is longer than a line
        line = pieces[start:at]
        if line and not line[-1].strip():
            line.pop()
        if line:
            lines.append(" " * indent + "".join(line))
    return lines


def _is_wide(character: str) -> bool:
    """It fills two columns or none, so that characters do not count as columns."""
    return width_of(character) != 1


#: Code, a word of Latin or Indic letters, one wide character, each with the marks behind it. Marks
#: that end a clause never begin a line.
_PIECE = (
    r"`[^`\n]*`[，。；：、）]*|[\u2e80-\u9fff\uf900-\ufaff][，。；：、）]*"
    r"|[^\s`\u2e80-\u9fff\uf900-\ufaff]+|\s+"
)


def _wrapped_wide(text: str, columns: int, indent: int) -> list[str]:
    """Lines of at most so many columns; a line may end between two wide characters."""
    lines, line, filled = [], "", indent
    for piece in re.findall(_PIECE, text):
        size = width_of(piece)
        if piece.isspace():
            line, filled = (line + " ", filled + 1) if line else (line, filled)
            continue
        if line and filled + size > columns:
            lines.append(" " * indent + line.rstrip())
            line, filled = "", indent
        line, filled = line + piece, filled + size
    return [*lines, " " * indent + line.rstrip()] if line else lines


def _width(is_terminal: bool, environ: Mapping[str, str]) -> int:
    columns = environ.get("COLUMNS", "")
    if columns and re.fullmatch("[1-9][0-9]{0,8}", columns):
        return min(int(columns), 120)
    try:
        return min(os.get_terminal_size(1).columns, 120) if is_terminal else 100
    except OSError:
        return 100
