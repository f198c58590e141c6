"""Adds a marked block to a text file, or replaces it in place.

Line endings, encoding, byte order mark and all bytes outside the marks stay unchanged.
"""

from __future__ import annotations

import codecs
import re

from attn_doctor.errors import AttnDoctorError

#: The text in the marks; a second block in the same file adds its part.
NAME = "attn-doctor cuda-home"
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"),
          (codecs.BOM_UTF16_BE, "utf-16-be"))  # fmt: skip
_NOTE = "# Written by `attn-doctor fix --cuda-home --write`. Run it again to renew this block."


def with_block(
    data: bytes, lines: list[str], where: str, part: str = "", after: str = ""
) -> bytes | None:
    """Return `data` with a block of `lines`, which replaces an earlier one.

    A new block goes to the end, or below the first line that matches `after`; None if there is
    no such line. `where` names the file in errors. Raises `AttnDoctorError` if an earlier block
    is damaged or the text cannot be read.
    """
    mark, encoding, text = _decoded(data, where)
    span = _span(text, part, where)
    # An earlier block keeps its own line ends.
    end = "\r\n" if "\r\n" in (text if span is None else text[slice(*span)]) else "\n"
    first, last = _marks(part)
    indent = "    " if after else ""
    written = [first, *([] if part else [_NOTE]), *lines, last]
    block = "".join(f"{indent}{line}{end}" if line else end for line in written)
    if span is not None:
        text = text[: span[0]] + block + text[span[1] :]
    elif after:
        found = re.search(rf"{after}[^\n]*\n", text, re.MULTILINE)
        if found is None:
            return None
        text = text[: found.end()] + block + text[found.end() :]
    else:
        gap = "" if not text else end if text.endswith("\n") else end * 2
        text += gap + block
    return mark + text.encode(encoding, "surrogateescape" if encoding == "utf-8" else "strict")


def _marks(part: str) -> tuple[str, str]:
    name = f"{NAME}, {part}" if part else NAME
    return f"# >>> {name} >>>", f"# <<< {name} <<<"


def _decoded(data: bytes, where: str) -> tuple[bytes, str, str]:
    """Byte order mark, encoding and text. Bytes that are not UTF-8 survive the round trip."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                return mark, encoding, data[len(mark) :].decode(encoding)
            except UnicodeDecodeError:
                raise AttnDoctorError(
                    f"{where} is not valid {encoding}; it was not changed"
                ) from None
    if b"\0" in data:
        raise AttnDoctorError(
            f"{where} contains zero bytes, so it is not a text file; it was not changed"
        )
    return b"", "utf-8", data.decode("utf-8", "surrogateescape")


def _span(text: str, part: str, where: str) -> tuple[int, int] | None:
    """Where the block begins and ends, whole lines; None if there is none."""
    first, last = _marks(part)
    begins = [*re.finditer(rf"^[ \t]*{re.escape(first)}[ \t]*\r?$\n?", text, re.MULTILINE)]
    ends = [*re.finditer(rf"^[ \t]*{re.escape(last)}[ \t]*\r?$\n?", text, re.MULTILINE)]
    if not begins and not ends:
        return None
    if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
        number = text.count("\n", 0, min(one.start() for one in (*begins, *ends))) + 1
        raise AttnDoctorError(
            f"{where}, line {number}: the block of attn-doctor there is damaged (its first or last"
            " line is missing, or it is there twice); remove what is left of it, then try again"
        )
    return begins[0].start(), ends[0].end()
