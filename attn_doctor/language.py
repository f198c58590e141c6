"""The language of screens: which one the user reads, and how wide its texts are.

What is shown in it is in `translation`, which no English screen loads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from attn_doctor.errors import AttnDoctorError

#: The languages with a catalogue, by the name of a locale in lower case.
_LOCALES = {"zh_cn": "zh-CN", "zh_sg": "zh-CN", "pt_br": "pt-BR", "hi_in": "hi"}
LANGUAGES = ("en", "zh-CN", "pt-BR", "hi")
VARIABLE = "ATTN_DOCTOR_LANG"
#: Stands before and behind what is not translated, until the page is complete.
AS_IT_IS = "\ue000"
#: Characters of English pages that are not ASCII and fill one column.
_NARROW = dict.fromkeys(map(ord, "✓✗·…—–→×≥≤"), "x")


def chosen(environ: Mapping[str, str] = os.environ) -> str:
    """The language by `ATTN_DOCTOR_LANG`, else by the locale; empty for English.

    Raises `AttnDoctorError` for a variable that names none of `LANGUAGES`.
    """
    if asked := environ.get(VARIABLE, ""):
        found = {one.lower(): one for one in LANGUAGES}.get(asked.replace("_", "-").lower())
        if found is None:
            raise AttnDoctorError(
                f"{VARIABLE} or --lang is {asked!r}; choose from {', '.join(LANGUAGES)}"
            )
        return "" if found == "en" else found
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    locale = next((environ[name] for name in names if environ.get(name)), "")
    return _LOCALES.get(locale.partition(".")[0].partition("@")[0].lower(), "")


def take_option(words: Sequence[str]) -> list[str]:
    """The words of a command line without `--lang LANGUAGE`, which sets the variable.

    Words behind `--` belong to another program.
    """
    end = words.index("--") if "--" in words else len(words)
    kept: list[str] = []
    own = iter(words[:end])
    for word in own:
        name, equals, value = word.partition("=")
        if name == "--lang":
            os.environ[VARIABLE] = value if equals else next(own, "")
            if not os.environ[VARIABLE]:
                raise AttnDoctorError(f"--lang needs a language: {', '.join(LANGUAGES)}")
        else:
            kept.append(word)
    return [*kept, *words[end:]]


def width_of(text: str) -> int:
    """The columns that `text` fills: two for a wide character, none for a combining one."""
    if text.translate(_NARROW).isascii():
        return len(text)
    import unicodedata  # an extension module, which few English pages need

    return sum(
        0
        if unicodedata.category(one) in ("Mn", "Me", "Cf")
        else 2
        if unicodedata.east_asian_width(one) in "WF"
        else 1
        for one in text
    )
