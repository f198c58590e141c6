"""The table `rules/tables/components.toml`: parts of attention software and kinds of failures."""

from __future__ import annotations

import re
from functools import cache

import msgspec
from msgspec import Struct

from attn_doctor.rulebook import library

#: What pip and archives add to the name of a package in the folder of its sources.
_UNPACKED = re.compile(r"(?<=[A-Za-z\d])(?:_[0-9a-f]{32}|-\d+(?:\.\w+)+)(?=/)")


class Component(Struct, frozen=True):
    """A part of attention software, and the signs that a failure comes from it."""

    id: str
    name: str
    """As it stands in a sentence."""
    frames: tuple[str, ...]
    """Patterns for the path of a file."""
    calls: tuple[str, ...]
    """Patterns for a line of code in a frame."""
    messages: tuple[str, ...]
    """Patterns for the message."""
    packages: tuple[str, ...] = ()
    """Packages with it that have other parts too. Whether it failed is unknown if a build did."""
    fallback: bool = False
    """Counts only if no other component does."""
    attention: bool = False
    """Counts only if the failure mentions attention."""
    kinds: tuple[str, ...] = ()
    """Counts only for failures of these kinds; empty for all."""
    before: tuple[str, ...] = ()
    """Components whose frames count less than a message that names this one."""

    def owns(self, path: str) -> bool:
        """The file at `path`, with `/` between folders, belongs to it."""
        return _found(self.frames, _UNPACKED.sub("", path))

    def has(self, package: str) -> bool:
        """The package that is installed by this name has it."""
        return package.lower().replace("_", "-") in self.packages

    def is_called_by(self, code: str) -> bool:
        """The line of code calls it."""
        return _found(self.calls, code)

    def is_named_in(self, message: str) -> bool:
        """The message names it."""
        return _found(self.messages, message)


class Kind(Struct, frozen=True):
    """A kind of failure."""

    id: str
    patterns: tuple[str, ...]
    """One of them is in the message or its exception."""
    title: str
    """With `{name}` for the component."""
    advice: tuple[str, ...]
    """What to try, in order."""


class Outside(Struct, frozen=True):
    """A part of the GPU's software that can fail before attention begins."""

    id: str
    name: str
    messages: tuple[str, ...]
    """Patterns for a message."""
    advice: str
    """What to try first."""

    def named_in(self, message: str) -> str:
        """What the message says of it; empty if it is not one of it."""
        found = _compiled(self.messages).search(message)
        return found[0] if found else ""


class Framework(Struct, frozen=True):
    """Another framework than torch, with kernels of its own."""

    id: str
    name: str
    words: str
    """Pattern by which a line names it."""
    advice: str
    """What to try first."""
    falls_back: bool = False
    """Without a GPU it prints a notice, and uses the CPU."""

    def is_named_in(self, text: str) -> bool:
        """The text names it."""
        return re.search(self.words, text) is not None


class ComponentTable(Struct, frozen=True):
    """The whole table."""

    component: tuple[Component, ...]
    outside: tuple[Outside, ...]
    framework: tuple[Framework, ...]
    gpu_failures: tuple[str, ...]
    """Patterns for messages of any framework that cannot use the GPU."""
    kind: tuple[Kind, ...]
    unrelated: tuple[str, ...]
    """Patterns for messages that are not about attention, whatever component is in them."""
    unrelated_calls: tuple[str, ...]
    """The same, for messages above a line with the innermost function and its code."""
    other_work: str
    """Pattern for words that show other work of the same packages than attention."""
    attention: str
    """Pattern for the words by which a failure mentions attention."""
    other: tuple[str, ...]
    """Packages that no rule is about, unless it names them."""
    foreign: str
    """Pattern for words that show that another framework than torch ran."""
    hosts: frozenset[str]
    """Packages that pass the calls of a program on to attention software."""

    def other_software(self, text: str) -> set[str]:
        """The packages without a part in attention that a text names, in lower case."""
        pattern = rf"(?i)(?<![a-z0-9])(?:{'|'.join(self.other)})(?![a-z0-9])"
        return {name.lower() for name in re.findall(pattern, text)}

    def is_unrelated(self, message: str, call: str = "") -> bool:
        """The failure is not about attention. `call`: the innermost function and its code."""
        other = call and _found(self.unrelated_calls, f"{message}\n{call}")
        return _found(self.unrelated, message) or bool(other)

    def is_other_work(self, text: str) -> bool:
        """The text is about other work than attention."""
        other = re.search(self.other_work, text) is not None
        return other and not self.is_about_attention(text)

    def gpu_fails(self, line: str) -> bool:
        """The line says that a GPU, its driver or one of its libraries cannot be used."""
        return _found(self.gpu_failures, line)

    def is_about_attention(self, text: str) -> bool:
        """The text mentions attention."""
        return re.search(self.attention, text) is not None

    def kind_of(self, message: str) -> Kind:
        """The first kind that fits; the last kind fits everything."""
        return next(kind for kind in self.kind if _found(kind.patterns, message))


@cache
def component_table() -> ComponentTable:
    """The table. It is read only for a failure that no rule knows."""
    return msgspec.convert(library.tables()["components"], ComponentTable)


@cache
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


def _found(patterns: tuple[str, ...], text: str) -> bool:
    return bool(patterns) and _compiled(patterns).search(text) is not None
