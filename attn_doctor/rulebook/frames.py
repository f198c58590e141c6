"""The frames of a traceback, as Python, IPython, rich, torch and stacks of crashes show them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

# File "/a/b.py", line 7, in f · File "/a/b.py", line 7 in f (in the stack of a crash)
# File /a/b.py:7, in f(x) · a/b.py:7  in f -> g(...) · Cell In[4], line 2 (of a notebook)
# /a/b.py in f(x) · [/a/b.py](https://localhost:8080/#) in f(x) (of older notebooks, and of Colab)
# a/b.py:7: RuntimeError (of pytest, which prints the code above)
FRAME = re.compile(
    r'\s*(?:[>❱] ?)?(?:File "(?P<a>[^"]{1,400})", line (?P<n>\d+)(?:,? in (?P<f>\S+))?'
    r"|File (?P<b>(?:[A-Za-z]:)?[^\s:]{1,400}\.py):(?P<m>\d+)(?:, in (?P<g>[\w.]+))?"
    r"|(?P<c>[\w./\\-]{1,300}\.py):(?P<k>\d+):? +in(?: (?P<h>[\w.<>]+)| *$)"
    r"|(?P<e>[\w./\\-]{1,300}\.py):(?P<p>\d+):(?: [A-Z]\w*)? *$"
    r"|\[?(?P<q>[~/][^\s:\]]{1,300}\.py)(?:\]\(https?://[^)\s]{1,100}\))? in (?P<i>[\w.<>]+)\("
    r"|(?P<d>(?:Cell|Input) In ?\[\d+\]), (?:line (?P<l>\d+)|in ))"
)
# A stack of a crash: 0x7FF8, C:\py\triton\_C\libtriton.pyd(0x7FF8) + 0x3 · a_cuda.pyd!PyInit ·
# frame #3: <unknown function> + 0x2 (0x7f in /py/_qattn_sm89.so)
_NATIVE = re.compile(
    r".{0,80}?(?P<path>(?:[A-Za-z]:)?[\w./\\+-]{1,300}\.(?:pyd|dll|so(?:\.\d+)*))"
    r"(?:\(0x[0-9A-Fa-f]|![\w?:]|\)$)"
)
#: The exception directly below a frame without its code.
_RAISED_BELOW = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b(?::|$)")
#: Lines of a message that pytest prints below the code.
_ABOVE = 20
#: The header of a stack that begins with the innermost frame.
_REVERSED = "(most recent call first)"
_POINTER = re.compile(r"^\s*(?:-+> ?\d*|❱ ?\d+ ?[│|]?|\d+ [│|]?)\s*")


class Frame(NamedTuple):
    """One frame. What is not printed is an empty text."""

    path: str
    """With `/` between folders."""
    line: str
    function: str
    code: str
    native: bool = False
    """It is a compiled module in the stack of a crash."""


def frames_of(lines: Sequence[str]) -> list[Frame]:
    """The frames of a traceback, outermost first, each with the line of code below it."""
    frames = list(_frames_as_printed(lines))
    native = [frame for frame in frames if frame.native]
    python = [frame for frame in frames if not frame.native]
    if any(_REVERSED in text for text in lines):
        python.reverse()
    return python + native[::-1]


def _frames_as_printed(lines: Sequence[str]) -> Iterator[Frame]:
    for index, text in enumerate(lines):
        match = FRAME.match(text)
        if match is None:
            if native := _NATIVE.match(text):
                yield Frame(native["path"].replace("\\", "/"), "", "", "", native=True)
            continue
        path = next(filter(None, map(match.group, "abcdeq"))).replace("\\", "/")
        number = next(filter(None, map(match.group, "nmklp")), "")
        function = match["f"] or match["g"] or match["h"] or match["i"] or ""
        if match["e"]:
            above = (line for line in lines[max(0, index - _ABOVE) : index][::-1] if line.strip())
            code = next((line for line in above if not line.startswith("E ")), "")
            yield Frame(path, number, "", code.lstrip("> "))
            continue
        code = next(
            (
                _POINTER.sub("", below)
                for below in lines[index + 1 : index + 8]
                if "^" not in below.strip(" ~") and (match["a"] or re.match(r"\s*(?:-+>|❱)", below))
            ),
            "",
        )
        other = FRAME.match(code) or _RAISED_BELOW.match(code)
        yield Frame(path, number, function, "" if other else code.strip())


def raising(frames: Sequence[Frame]) -> Frame | None:
    """The innermost frame that does not only pass the call on; None if no such frame is shown."""
    return next((frame for frame in reversed(frames) if not passes_on(frame.path)), None)


def passes_on(path: str) -> bool:
    """The file only passes a call on, such as torch's dispatcher."""
    return _passing().search(path) is not None


@cache
def _passing() -> re.Pattern[str]:
    from attn_doctor.rulebook import library  # which reads rules, and so imports this module

    return re.compile("|".join(library.tables()["components"]["neutral"]))
