"""Lines out of what carried them: records in JSON, text with escaped line ends, typographic signs.

Docker and log collectors write a line of a program as one record of JSON, servers put a whole
traceback into one string, web pages and chat programs exchange blanks and quotes for others that
look alike, and text that is pasted as prose loses its line ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

#: Where a record keeps what the program said, the likeliest first.
_KEYS = ("log", "message", "msg", "MESSAGE", "text", "line", "textPayload", "error", "exc_info")
#: A literal `\n` where Python's messages go on, and not within a path as `C:\new`.
_ESCAPED = re.compile(r"(?:\\r)?\\n(?=[ \t\\A-Z~^\"'`]|$)")
_TRACEBACK = "Traceback (most recent call last):\\n"
_QUOTE = re.compile(r"\\([\"'\\])")
#: A traceback whose line ends were lost where it was pasted: its frames and its message.
_FOLDED = re.compile(r'Traceback \(most recent call last\):[ \t]+(?:\[rank\d{1,4}\]: *)?File "')
_FRAME = re.compile(
    r'(?<!\]:)[ \t]+(?=(?:\[rank\d{1,4}\]: *)?File "[^"\n]{1,300}", line \d{1,7}\b)'
    r"|(?<!:)[ \t]+(?=(?:\[rank\d{1,4}\]: *)?(?:[a-z_]\w{0,40}\.){0,8}"
    r"[A-Z]\w{0,60}(?:Error|Exception): )"
    r"|[ \t]+(?=During handling of the above|The above exception was)"
)
#: Signs that look like others. Quotes of languages that write them so in messages count as well.
_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\u00a0\u2002\u2003\u2007\u2009\u202f\u3000", " "),
        **dict.fromkeys("\u2018\u2019\u201a\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u2033", '"'),
        **dict.fromkeys("\u2010\u2011", "-"),
        "\uff1a": ":",
        "\uff08": "(",
        "\uff09": ")",
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", ""),
    }
)
_ENTITY = re.compile(r"&(amp|lt|gt|quot|apos|nbsp|#39|#x27|#34|#x22);")
_ENTITIES = {
    "amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'", "nbsp": " ",
    "#39": "'", "#x27": "'", "#34": '"', "#x22": '"',
}  # fmt: skip


def plain(text: str) -> str:
    """The text with plain blanks and quotes, and without the entities of HTML."""
    if not text.isascii():
        text = text.translate(_ALIKE)
    if "&" in text and ";" in text:
        text = _ENTITY.sub(lambda match: _ENTITIES[match[1]], text)
    return text


def unwrapped(line: str) -> Sequence[str]:
    """The lines that a line carries: itself, unless it is a record, or a text without line ends."""
    if line.startswith("{") and line.rstrip().endswith("}") and '":' in line:
        found = _record(line)
        if found:
            return found
    if "\\n" in line and (_TRACEBACK in line or line.count("\\n  ") > 1):
        return [_QUOTE.sub(r"\1", part) for part in _ESCAPED.split(line)]
    if "(most recent call last):" in line and _FOLDED.search(line):
        return ["  " + part if part.startswith("File") else part for part in _FRAME.split(line)]
    return (line,)


def _record(line: str) -> list[str]:
    """What a record of JSON says; nothing if it is none, or says nothing."""
    import msgspec

    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return []
    texts = list(_texts(record))
    return [part for text in texts for part in text.removesuffix("\n").split("\n")]


def _texts(record: Any) -> Iterator[str]:
    if not isinstance(record, dict):
        return
    for key in _KEYS:
        value = record.get(key)
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from _texts(value)
