"""Versions, version specifiers and requirements, as `packaging` reads them.

Most are simple: `nvidia-nccl-cu12==2.20.5; platform_system == "Linux"`. They are read here, because
importing the parsers of `packaging` takes as long as all probes together. It reads the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Union

from msgspec import Struct

from attn_doctor.lean_imports import without_marks

if TYPE_CHECKING:
    from packaging.version import Version

# What follows a name is looked at, so that a long line is never tried with each shorter name.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?![A-Za-z0-9._-])"
# triton==3.6.0; platform_system == "Linux"
# cuda-toolkit[cublas,cudart]==13.0.2; platform_system == "Linux"
# nvidia-nccl-cu12 (==2.20.5) ; platform_system == "Linux"
# Compiled where it is needed: most names stand alone, or in front of a plain specifier.
_REQUIREMENT = (
    rf"[ \t]*({_NAME})[ \t]*(?:\[([\w. \t,-]*)\])?"
    r"[ \t]*(?:\(([^()@;]+)\)[ \t]*|([^()@;]*))(?:;(.+))?"
)
#: A part of a marker: a bracket, `and`, `or`, or a comparison.
_PART = (
    r"[ \t]*(?:([()])|(and|or)\b|"
    r"([a-z_]+)[ \t]*(==|!=|<=|>=|<|>)[ \t]*(?:\"([^\"\\]*)\"|'([^'\\]*)'))[ \t]*"
)
_OPERATORS = ("==", "!=", "<=", ">=", "~=", "<", ">")
#: Comparisons that also pre-releases can follow; for the others PEP 440 has more rules.
_ORDERS = ("==", "!=", "<=", ">=")
_TEXTS = ("os_name", "sys_platform", "platform_system", "platform_machine", "implementation_name")
_VERSIONS = ("python_version", "python_full_version")


#: Brackets of a marker that are followed inside each other.
_MOST_BRACKETS = 20


class Release:
    """A version of numbers alone, such as `2.13.0`. Other versions can be compared with it."""

    __slots__ = ("_key", "release")
    is_prerelease = False
    post = None

    def __init__(self, release: tuple[int, ...]) -> None:
        self.release = release
        # Zeros at the end do not count.
        end = len(release)
        while end > 1 and not release[end - 1]:
            end -= 1
        self._key = release[:end]

    def __str__(self) -> str:
        return ".".join(map(str, self.release))

    def _pair(self, other: object) -> tuple[Any, Any]:
        if isinstance(other, Release):
            return self._key, other._key
        return _packaged()(str(self)), other

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        one, two = self._pair(other)
        return bool(one == two)

    def __lt__(self, other: AnyVersion) -> bool:
        one, two = self._pair(other)
        return bool(one < two)

    def __le__(self, other: AnyVersion) -> bool:
        return not self > other

    def __gt__(self, other: AnyVersion) -> bool:
        one, two = self._pair(other)
        return bool(one > two)

    def __ge__(self, other: AnyVersion) -> bool:
        return not self < other


AnyVersion = Union[Release, "Version"]


def parsed(version: str) -> AnyVersion:
    """Read a version. Raises `ValueError` if it is none."""
    if _is_release(version):
        return Release(tuple(map(int, version.split("."))))
    return _packaged()(version)


def without_local(version: str) -> AnyVersion:
    """Read a version without its local part (`+cu130`). Raises `ValueError` if it is none."""
    return parsed(_public(version) or _packaged()(version).public)


def _is_release(text: str) -> bool:
    """Whether `text` is numbers alone, such as `2.13.0`."""
    return text.isascii() and all(map(str.isdecimal, text.split(".")))


def _public(version: str) -> str:
    """Return an installed version without its local part; empty if it is not numbers alone."""
    public, plus, local = version.partition("+")
    whole = not plus or (local.isascii() and all(map(str.isalnum, local.split("."))))
    return public if whole and _is_release(public) else ""


@cache
def _packaged() -> type[Version]:
    with without_marks():
        from packaging.version import Version
    return Version


class Requirement(Struct, frozen=True):
    """One requirement that applies."""

    name: str
    extras: frozenset[str]
    specifier: str
    """In the order of `packaging`; empty if every version fits."""


class _Clause(Struct, frozen=True):
    op: str
    version: AnyVersion
    family: bool
    """It ends in `.*`."""
    text: str


def satisfies(version: str, specifier: str) -> bool:
    """Whether `version` fulfils `specifier`; a pre-release can.

    Raises `ValueError` if either cannot be read.
    """
    clauses = _clauses(specifier)
    seen = _public(version)
    if clauses is None or not seen:
        from packaging.specifiers import SpecifierSet

        return SpecifierSet(specifier).contains(version, prereleases=True)
    public = parsed(seen)
    return all(_holds(public, one) for one in clauses)


def satisfiable(one: str, other: str) -> bool:
    """Whether a version fits both: tries the versions that they name and the next ones."""
    both = ",".join(filter(None, (one, other)))
    tried = _named(both)
    return tried is None or any(satisfies(version, both) for version in tried)


def wants_older(one: str, other: str) -> bool:
    """Whether the versions named that fit `one` are all older than those that fit `other`."""
    tried = _named(f"{one},{other}") or ()
    fit = [parsed(version) for version in tried if satisfies(version, one)]
    others = [parsed(version) for version in tried if satisfies(version, other)]
    return bool(fit) and bool(others) and max(fit) < min(others)


def combined(specifiers: Iterable[str]) -> str:
    """Return one specifier for all: of several lower or upper bounds only the closest.

    A release that one clause names stands for the bounds that it keeps.
    """
    found = dict.fromkeys(part for one in specifiers for part in one.split(",") if part)
    # The first of those that mean the same.
    clauses = {_meaning(one): one for one in reversed(found)}.values()
    kept = [one for one in clauses if not any(_closer(other, one) for other in clauses)]
    return ",".join(sorted(kept))


def _meaning(clause: str) -> object:
    """Return a key that bounds with the same meaning share, such as `<5` and `<5.0`."""
    found = _split(clause)
    if found is None or found.op not in ("<", "<=", ">", ">="):
        return clause
    try:
        return found.op, parsed(found.text)
    except ValueError:
        return clause


def _closer(one: str, other: str) -> bool:
    """Whether the bound `one` makes the bound `other` needless."""
    mine, theirs = _split(one), _split(other)
    if one == other or mine is None or theirs is None or mine.family or theirs.family:
        return False
    try:
        if mine.op == "==":
            return theirs.op != "==" and satisfies(mine.text, other)
        version, bound = parsed(mine.text), parsed(theirs.text)
    except ValueError:
        return False
    same = version == bound and mine.op in "<>" and theirs.op != mine.op
    if theirs.op in (">=", ">"):
        return mine.op in (">=", ">") and (version > bound or same)
    return theirs.op in ("<=", "<") and mine.op in ("<=", "<") and (version < bound or same)


class _Split(Struct, frozen=True):
    """One clause of a specifier, as written."""

    op: str
    text: str
    """The version, without `.*`."""
    family: bool
    """It ends in `.*`."""


def _split(clause: str) -> _Split | None:
    """Split a simple clause; None for one that `packaging` has to read."""
    clause = clause.strip(" \t")
    op = next((one for one in _OPERATORS if clause.startswith(one)), "")
    version = clause[len(op) :].lstrip(" \t")
    text = version.removesuffix(".*")
    letters = text.replace(".", "").replace("-", "").replace("_", "")
    if not op or not text.isascii() or not text[:1].isdecimal() or not letters.isalnum():
        return None
    return _Split(op, text, text != version)


def _named(specifier: str) -> list[str] | None:
    """The versions that a specifier names, and the next ones; None where it names none as such."""
    found = ["0", "999999"]
    for text in _versions_in(specifier):
        try:
            numbers = list(parsed(text).release)
        except ValueError:  # also a number of more digits than Python converts
            return None  # `===` with text that is not a version: leave it to the installer
        found += [text, ".".join(map(str, [*numbers, 1]))]
        found.append(".".join(map(str, [*numbers[:-1], numbers[-1] + 1])))
        if numbers[-1]:
            found.append(".".join(map(str, [*numbers[:-1], numbers[-1] - 1, 999999])))
    return found


def _versions_in(specifier: str) -> list[str]:
    """The versions that a specifier names, without `.*`. Raises `ValueError`."""
    return [version.removesuffix(".*") for _, version in written_clauses(specifier)]


def written_clauses(specifier: str) -> list[tuple[str, str]]:
    """The operator and the version, as written, of each clause. Raises `ValueError`."""
    if _clauses(specifier) is not None:
        split = filter(None, map(_split, specifier.split(",")))
        return [(one.op, one.text + ".*" * one.family) for one in split]
    from packaging.specifiers import SpecifierSet

    return [(one.operator, one.version) for one in SpecifierSet(specifier)]


def names_prerelease(specifier: str) -> bool:
    """Whether a version in `specifier` is a pre-release. Raises `ValueError`."""
    clauses = _clauses(specifier)
    if clauses is None:
        from packaging.specifiers import SpecifierSet

        return bool(SpecifierSet(specifier).prereleases)
    return any(one.version.is_prerelease and one.op != "!=" for one in clauses)


def unconditional(text: str) -> Requirement | None:
    """The requirement that `text` is, without a marker or an address; else None."""
    return None if {*text} & {*";@/"} else applicable(text, [{}])


def applicable(line: str, environments: list[dict[str, str]]) -> Requirement | None:
    """The requirement of `line`, if its marker holds in one of `environments`, else None.

    None also for a line that cannot be read. An environment has the variables of markers.
    """
    written = _plain_line(line) or _matched(line)
    if written is None:
        return _parsed(line, environments)
    name, extras, specifier, marker = written
    clauses = _clauses(specifier)
    holds = [_marker(marker, one) if marker else True for one in environments]
    if clauses is None or None in holds:
        return _parsed(line, environments)
    if not any(holds):
        return None
    return Requirement(name, extras, ",".join(sorted(one.text for one in clauses)))


#: Name, extras, specifier and marker of a requirement.
_Written = tuple[str, frozenset[str], str, str]


def _plain_line(line: str) -> _Written | None:
    """Split a line without extras and brackets; None for any other line."""
    head, semicolon, marker = line.partition(";")
    head = head.lstrip(" \t")
    ends = (at for at, letter in enumerate(head) if letter in " \t<>=!~")
    name = head[: next(ends, len(head))]
    letters = name.replace(".", "").replace("-", "").replace("_", "")
    if not (name.isascii() and letters.isalnum() and name[0].isalnum() and name[-1].isalnum()):
        return None
    specifier = head[len(name) :]
    if any(one in specifier for one in "()@[") or "\n" in line or bool(semicolon) != bool(marker):
        return None
    return name, frozenset(), specifier, marker


def _matched(line: str) -> _Written | None:
    """Split a line; None for one that `packaging` has to read."""
    match = re.fullmatch(_REQUIREMENT, line)
    if match is None:
        return None
    extras = [one.strip(" \t") for one in match[2].split(",")] if match[2] else []
    if not all(re.fullmatch(_NAME, one) for one in extras):
        return None
    return match[1], frozenset(extras), match[3] or match[4], match[5] or ""


def _parsed(line: str, environments: list[dict[str, str]]) -> Requirement | None:
    """Read a line with `packaging`, as `applicable` says."""
    from packaging.markers import UndefinedEnvironmentName
    from packaging.requirements import Requirement as Parsed

    try:
        found = Parsed(line)
        marker = found.marker
        if marker is None or any(marker.evaluate(one) for one in environments):
            return Requirement(found.name, frozenset(found.extras), str(found.specifier))
    except (ValueError, RecursionError, UndefinedEnvironmentName):
        pass
    return None


@lru_cache(maxsize=512)
def _clauses(specifier: str) -> tuple[_Clause, ...] | None:
    """The clauses of a simple specifier; None for one that `packaging` has to read."""
    found: dict[tuple[str, AnyVersion, bool], _Clause] = {}
    for part in specifier.split(",") if specifier.strip() else ():
        split = _split(part)
        if split is None:
            return None
        op, text, family = split.op, split.text, split.family
        plain = _is_release(text)
        if (family or op not in _ORDERS) and not plain:
            return None
        if (family and op not in ("==", "!=")) or (op == "~=" and "." not in text):
            return None
        try:
            version = parsed(text)
        except ValueError:  # no version, or one of thousands of digits
            return None
        if (op, version, family) in found:
            return None  # `packaging` keeps one of them
        clause = _Clause(op, version, family, f"{op}{text}{'.*' if family else ''}")
        found[op, version, family] = clause
    return tuple(found.values())


def _holds(seen: AnyVersion, clause: _Clause) -> bool:
    op, wanted = clause.op, clause.version
    if clause.family:
        return _in_family(seen, wanted.release) == (op == "==")
    if op == "~=":
        return seen >= wanted and _in_family(seen, wanted.release[:-1])
    if op in ("==", "!="):
        return (seen == wanted) == (op == "==")
    if op in ("<", ">="):
        return (seen < wanted) == (op == "<")
    return (seen > wanted) == (op == ">")


def _in_family(seen: AnyVersion, release: tuple[int, ...]) -> bool:
    """Whether a version begins with `release`; numbers that it does not have are zero."""
    padded = seen.release + (0,) * len(release)
    return padded[: len(release)] == release


def _marker(text: str, environment: Mapping[str, str]) -> bool | None:
    """Whether a marker holds; None for one that `packaging` has to read."""
    words = text.strip(" \t").split(" ")
    if len(words) == 3 and _is_quoted(words[2]):  # extra == "dev"
        name, op, quoted = words
        plain = op in _OPERATORS and op != "~="
        return _comparison(name, op, quoted[1:-1], environment) if plain else None
    parts: list[str | bool] = []
    at = 0
    part = re.compile(_PART)
    while at < len(text):
        match = part.match(text, at)
        if match is None:
            return None
        at = match.end()
        if match[3]:
            value = _comparison(match[3], match[4], match[5] or match[6] or "", environment)
            if value is None:
                return None
            parts.append(value)
        else:
            parts.append(match[1] or match[2])
    left = iter(parts)
    try:
        result = _either(left, depth=0)
    except ValueError:
        return None
    return result


def _is_quoted(word: str) -> bool:
    return word[:1] == word[-1:] == '"' and word.count('"') == 2 and "\\" not in word


def _either(parts: Iterator[str | bool], depth: int) -> bool:
    """Evaluate up to the closing bracket; `and` comes before `or`. Raises `ValueError`."""
    if depth > _MOST_BRACKETS:
        raise ValueError(depth)
    some, every = False, True
    while True:
        part = next(parts, "")
        value = _either(parts, depth + 1) if part == "(" else part
        if not isinstance(value, bool):
            raise ValueError(value)
        every = every and value
        after = next(parts, "")
        if after == "or":
            some, every = some or every, True
        elif after != "and":
            if after != (")" if depth else ""):
                raise ValueError(after)
            return some or every


def _comparison(name: str, op: str, text: str, environment: Mapping[str, str]) -> bool | None:
    value = environment.get(name)
    if value is None:
        return None
    if name == "extra" and op in ("==", "!="):
        return (normal_name(value) == normal_name(text)) == (op == "==")
    if name in _TEXTS and op in ("==", "!=") and _is_word(text):
        return (value == text) == (op == "==")
    if name in _VERSIONS and _clauses(op + text) is not None and _is_release(value):
        return satisfies(value, op + text)
    return None


def _is_word(text: str) -> bool:
    """Whether `text` is not a version: for versions, `==` is another comparison."""
    letter = text[:1].isascii() and text[:1].isalpha()
    return (
        letter
        and text.replace("_", "x").isalnum()
        and not (text[0] == "v" and text[1:2].isdecimal())
    )


def normal_name(name: str) -> str:
    """Return the name of a package in the form in which PEP 503 compares it."""
    plain = name.lower().replace("_", "-").replace(".", "-")
    return re.sub("--+", "-", plain) if "--" in plain else plain
