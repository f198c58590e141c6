"""Demangles C++ symbol names: `_ZN3c105ErrorC2E…` is `c10::Error::Error(…)`.

So is `?what@Error@c10@@…` of Windows: `c10::Error::what(…)`.

Only the qualified name is demangled, not the types of arguments; a name with an unknown form is not
changed.
"""

from __future__ import annotations

import re

_START = r"_Z(?P<what>TV|TI|TS|TT|GV|)(?P<nested>N?)[rVK]*[RO]?"
_WHAT = {"TV": "vtable of ", "TI": "type of ", "TS": "type of ", "TT": "table of ", "GV": ""}
_LENGTH = re.compile(r"[1-9]\d{0,3}")
_SHORT = {"St": "std", "Ss": "std::string", "Sa": "std::allocator"}


# ?toScalarType@TypeMeta@caffe2@@QEAA?AW4ScalarType@c10@@XZ
_MSVC = r"\?(\w+(?:@\w+)*)@@[A-Z]"


def readable(name: str) -> str:
    """Return `name` as in C++, with `(…)` for its arguments."""
    windows = re.match(_MSVC, name)
    if windows is not None:
        return "::".join(reversed(windows[1].split("@"))) + "(…)"
    start = re.match(_START, name)
    if start is None:
        return name
    parts, place = _parts(name, start.end(), nested=bool(start["nested"]))
    if not parts:
        return name
    what = _WHAT.get(start["what"], "")
    text = what + "::".join(parts)
    return text if what or start["what"] or place >= len(name) else f"{text}(…)"


def _parts(name: str, place: int, *, nested: bool) -> tuple[list[str], int]:
    """Return the parts of a qualified name, and where they end."""
    parts: list[str] = []
    while place < len(name):
        short = name[place : place + 2]
        if short in _SHORT and not parts:
            parts.append(_SHORT[short])
            place += 2
        elif short in ("C1", "C2", "C3", "D0", "D1", "D2") and parts:
            parts.append(("~" if short[0] == "D" else "") + parts[-1].partition("<")[0])
            place += 2
        elif short in ("cl", "eq", "ne", "ls", "aS", "ix") and parts:
            operators = {"cl": "()", "eq": "==", "ne": "!=", "ls": "<<", "aS": "=", "ix": "[]"}
            parts.append(f"operator{operators[short]}")
            place += 2
        else:
            number = _LENGTH.match(name, place)
            if number is None:
                break
            end = number.end() + int(number[0])
            if end > len(name):
                return [], place
            parts.append(name[number.end() : end])
            place = end
            if not nested:
                break
    if name[place : place + 1] == "I" and parts:
        parts[-1] += "<…>"
        return parts, place
    if nested and name[place : place + 1] == "E":
        place += 1
    return parts, place
