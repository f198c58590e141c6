"""Parses a rule's pip command: the packages that it names, their index, and the options.

Rules write few forms: `pip install` or `pip uninstall`, options, requirements, leading
`NAME=value` variables. Unknown parts are kept unchanged.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import product

from msgspec import Struct

from attn_doctor.requirement import combined, normal_name, satisfiable, unconditional
from attn_doctor.shell.commands import split_assignments

#: Options that take a value in the next element.
_VALUED = ("--index-url", "--extra-index-url", "-i", "--find-links", "-f", "-c", "--constraint")
#: How `git+https://…` begins, and no requirement.
_ADDRESS = r"[\w+.-]+://"


class Wanted(Struct, frozen=True):
    """One package that a command names."""

    name: str
    """Normalised."""
    specifier: str = ""
    url: str = ""
    """Where it comes from, if not from an index."""
    extras: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As pip takes it."""
        if self.url:
            return self.url
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}{self.specifier}"


class PipCall(Struct, frozen=True, kw_only=True):
    """One pip command."""

    verb: str
    wanted: tuple[Wanted, ...]
    flags: tuple[str, ...] = ()
    indexes: tuple[tuple[str, str], ...] = ()
    """Options with their values, such as `--index-url`."""
    variables: tuple[str, ...] = ()
    """Leading `NAME=value` elements."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The command as a rule would write it."""
        options = (part for pair in self.indexes for part in pair)
        wanted = (one.text for one in self.wanted)
        return (*self.variables, "pip", self.verb, *self.flags, *wanted, *options)

    @property
    def names(self) -> frozenset[str]:
        """The packages it names."""
        return frozenset(one.name for one in self.wanted)


def pip_call(argv: tuple[str, ...]) -> PipCall | None:
    """Parse a command; None if it is neither `pip install` nor `pip uninstall`."""
    variables, words = split_assignments(argv)
    if words[:1] != ("pip",) or len(words) < 3 or words[1] not in ("install", "uninstall"):
        return None
    wanted, flags, indexes = [], [], []
    rest = iter(words[2:])
    for word in rest:
        if word in _VALUED:
            indexes.append((word, next(rest, "")))
        elif word.startswith("-"):
            flags.append(word)
        else:
            wanted.append(_wanted(word))
    return PipCall(
        verb=words[1],
        wanted=tuple(wanted),
        flags=tuple(flags),
        indexes=tuple(indexes),
        variables=variables,
    )


def _wanted(word: str) -> Wanted:
    if found := unconditional(word):
        return Wanted(normal_name(found.name), found.specifier, "", tuple(sorted(found.extras)))
    return _addressed(word)


def _addressed(word: str) -> Wanted:
    """A package with its address, or with what only `packaging` reads."""
    if not re.match(_ADDRESS, word):
        from packaging.requirements import Requirement

        with suppress(ValueError):
            found = Requirement(word)
            url = word if found.url else ""
            extras = tuple(sorted(found.extras))
            return Wanted(normal_name(found.name), str(found.specifier), url, extras)
    # `git+https://github.com/thu-ml/SageAttention@v2.2.0`, a path, or a wheel's URL
    last = word.rstrip("/").rpartition("/")[2].partition("@")[0].partition("#")[0]
    name = last.split("-")[0] if last.endswith((".whl", ".tar.gz")) else last
    return Wanted(normal_name(name.removesuffix(".git")), url=word)


def conflict(one: PipCall, other: PipCall) -> str:
    """Return the package on which two commands conflict; empty if both can be applied."""
    for left, right in product(one.wanted, other.wanted):
        if left.name != right.name:
            continue
        if one.verb != other.verb:
            return left.name
        if one.verb == "uninstall":
            continue
        if left.url != right.url or (not left.url and _index(one) != _index(other)):
            return left.name
        if not satisfiable(left.specifier, right.specifier):
            return left.name
    return ""


def merged(one: PipCall, other: PipCall) -> PipCall | None:
    """Return one command for both, if they name the same packages from the same index."""
    if one.names != other.names or conflict(one, other) or one.verb != other.verb:
        return None
    if _index(one) != _index(other):
        return None
    wanted = []
    for left in one.wanted:
        right = next(each for each in other.wanted if each.name == left.name)
        both = combined((left.specifier, right.specifier))
        extras = tuple(sorted({*left.extras, *right.extras}))
        wanted.append(Wanted(left.name, both, left.url, extras))
    return PipCall(
        verb=one.verb,
        wanted=tuple(wanted),
        flags=tuple(dict.fromkeys((*one.flags, *other.flags))),
        indexes=tuple(dict.fromkeys((*one.indexes, *other.indexes))),
        variables=tuple(dict.fromkeys((*one.variables, *other.variables))),
    )


def _index(call: PipCall) -> str:
    """The index of the packages; extra indexes do not count."""
    return next((value for name, value in call.indexes if name in ("--index-url", "-i")), "")
