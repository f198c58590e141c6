"""The option by which each program computes attention in another way: `tables/programs.toml`.

Rules about a package fail in many programs, and each program has its own option. A fix names the
family of attention to replace; the log shows the program.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import FixFile

#: A line of Python, which is shown as code of its own.
_CODE = re.compile(r"\w[\w.]*\(")


class Program(Struct, frozen=True, forbid_unknown_fields=True):
    """A program, or a package that programs call, which chooses an attention."""

    name: str
    signs: tuple[str, ...]
    """Patterns for lines of a log that only this program prints."""
    source: str
    instead_of: dict[str, str]
    """Family of attention → what a reader does to replace it."""
    common: bool = False
    """Shown where a log names no program."""

    def is_in(self, log: str) -> bool:
        """One of its signs is in the text."""
        return any(re.search(sign, log) for sign in self.signs)

    def says(self, family: str) -> str:
        """What a reader does to replace a family, as a sentence that names the program."""
        option = self.instead_of[family]
        return f"{self.name}: " + (f"`{option}`." if _CODE.match(option) else f"{option}.")


@cache
def programs() -> tuple[Program, ...]:
    """The table, the most specific program first."""
    return msgspec.convert(library.tables()["programs"]["program"], tuple[Program, ...])


def with_options(fix: FixFile, log: str = "") -> FixFile:
    """The fix with the option of the program that a log shows; of the common ones without one."""
    fitting = [one for one in programs() if fix.instead_of in one.instead_of]
    shown = next((one for one in fitting if one.is_in(log)), None)
    if shown is not None and _CODE.match(code := shown.instead_of[fix.instead_of]):
        return replace(fix, code=code, manual=f"{fix.manual} {shown.name}:".strip())
    said = (shown.says(fix.instead_of),) if shown else options(fix)
    return replace(fix, manual=" ".join((*said, fix.manual)).strip())


def options(fix: FixFile) -> tuple[str, ...]:
    """The options of the common programs for a fix, a sentence each; none if it names no family."""
    return tuple(
        one.says(fix.instead_of)
        for one in programs()
        if one.common and fix.instead_of in one.instead_of
    )
