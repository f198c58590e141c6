"""Whether a failure with a symptom of a rule is one of other software than the rule is about.

Programs share messages: bitsandbytes prints "no kernel image is available", as flash-attn does. The
innermost frame and the message of an exception say whose failure it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from attn_doctor.explain.components import component_table
from attn_doctor.explain.tracebacks import LineKind, Position
from attn_doctor.rulebook.frames import Frame, frames_of, passes_on, raising
from attn_doctor.rulebook.packages import is_named, package_of
from attn_doctor.rulebook.rule import Rule

#: The folder of an installed package. That of an egg has a version behind the name.
_INSTALLED = re.compile(r"(?:site|dist)-packages/(?P<package>[A-Za-z_]\w*)")
#: Innermost frames that show what failed.
_CLOSE = 3
#: Areas of rules that have the name of the one package that they are about.
_OF_ONE_PACKAGE = frozenset({"fla", "flashinfer", "natten", "simpletuner"})
#: Areas of rules about attention alone, whose messages other kernels print too.
_OF_ATTENTION = frozenset({"flex"})


class Raised(Struct, frozen=True):
    """One exception: what it says, and where it was raised."""

    message: str
    frames: tuple[Frame, ...]
    """The outermost first."""

    @property
    def frame(self) -> Frame | None:
        """The innermost frame that does not only pass the call on; None if no frame is shown."""
        return raising(self.frames)

    @property
    def package(self) -> str:
        """The installed package that raised it; empty if another file did, or if it is unknown."""
        match = _INSTALLED.search(self.frame.path) if self.frame is not None else None
        return match["package"] if match else ""

    @property
    def innermost(self) -> str:
        """The message, and the frames next to it."""
        return self._with(self.frames[-_CLOSE:])

    @property
    def work(self) -> str:
        """The message, and the innermost frames that do not only pass a call on."""
        doing = [one for one in self.frames if not passes_on(one.path)]
        return self._with(doing[-_CLOSE:])

    def _with(self, frames: Sequence[Frame]) -> str:
        close = (f"{one.path} {one.function} {one.code}" for one in frames)
        return "\n".join((self.message, *close))


def raised(lines: Sequence[tuple[str, Position]]) -> Raised:
    """The exception of these lines, which are one link of a chain of exceptions."""
    said = (text for text, at in lines if at.kind >= LineKind.MESSAGE)
    return Raised("\n".join(said), tuple(frames_of([text for text, _ in lines])))


def is_of_other_software(rule: Rule, one: Raised) -> bool:
    """The exception is one of software that the rule is not about, and does not name."""
    table, words = component_table(), _words(rule)
    other = table.other_software(one.innermost)
    if other and not table.is_about_attention(one.message):
        return not any(name in words for name in other)
    area, subject = rule.id.partition("/")[0], package_of(rule.id)
    if area in _OF_ATTENTION and table.is_other_work(one.work):
        return True
    package = one.package.lower()
    if not package or package in table.hosts or package in words:
        return False
    if subject:
        return not is_named(subject, one.innermost)
    return area in _OF_ONE_PACKAGE and area not in one.innermost.lower()


def _words(rule: Rule) -> str:
    """What the rule says of its failures, in lower case."""
    texts = (text for one in rule.symptoms for text in (*one.patterns, *one.lines))
    return "\n".join((rule.id, rule.title, rule.why, *texts)).lower()
