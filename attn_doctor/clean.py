"""Removes what text of other origin could do to a terminal or a log: the one place that knows how.

File names, package names, logs and answers of drivers may hold control characters that rewrite a
terminal, invisible ones, ones that turn the direction of writing, line breaks that begin
a command of a CI service, and such commands themselves. What is removed leaves `�`, so that a
reader sees that something was there. Colours of a log leave nothing.
"""

from __future__ import annotations

import re

#: Whole escape sequences, so that no half of one remains: CSI, OSC and other strings, two letters.
_ESCAPE = (
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
)
#: Line breaks of every kind, and other white space with a width.
_BREAK = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"
#: Letters without a shape, and numbers that Unicode reserves for such letters.
_INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2065\u2800\u3164\uffa0")
_RESERVED = (("\ufff0", "\ufff8"), ("\U000e0000", "\U000e0fff"))
#: Control characters, invisible ones such as marks of direction, halves of letters, breaks.
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
#: Commands in the output of a step: `::error::` begins a line (GitHub), `##[` and `##vso[` stand
#: anywhere (GitHub, Azure Pipelines), `##teamcity[` too.
_OF_LINES = r"(?m)^([ \t]*:)(?=:)"
_ANYWHERE = r"#(?=#\w{0,20}\[)"


def clean(text: str) -> str:
    """Return `text` as one line without characters that a terminal obeys or does not show."""
    if text.isprintable() and (text.isascii() or not _hides(text)):
        return text
    return "".join(map(_shown, re.sub(_ESCAPE, "", text)))


def clean_lines(text: str) -> str:
    """Return `text` as `clean` does, but with its line breaks and tabs."""
    if "\n" not in text and "\t" not in text:
        return clean(text)
    return "".join(
        part if part in ("\n", "\t") else clean(part)
        for part in re.split(r"(\n|\t)", text.replace("\r\n", "\n"))
    )


def is_clean(text: str) -> bool:
    """Return whether a terminal shows every character of `text` and obeys none."""
    return clean(text) == text


def without_commands(text: str, *, lines: bool = True) -> str:
    """Return a page without commands of a CI service: a space parts their first two letters.

    `lines`: also without those that are a line of GitHub's own form.
    """
    if "##" in text:
        text = re.sub(_ANYWHERE, "# ", text)
    return re.sub(_OF_LINES, r"\1 ", text) if lines and "::" in text else text


def _hides(text: str) -> bool:
    """Whether a letter in `text` has no shape."""
    if not _INVISIBLE.isdisjoint(text):
        return True
    # Most text has no letter as high as these.
    return max(text) >= _RESERVED[0][0] and any(
        first <= char <= last for char in text for first, last in _RESERVED
    )


def _shown(char: str) -> str:
    if char in _BREAK:
        return " "
    # An undecodable byte of a path, which the output shows as a number.
    if "\udc80" <= char <= "\udcff":
        return char
    from unicodedata import category  # an extension module, which few runs need

    hidden = category(char) in _HIDDEN or _hides(char)
    return "\ufffd" if hidden else char
