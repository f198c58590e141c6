"""Which rules a person means: by id, by the last part of one, or by a cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.rulebook.rule import Rule
from attn_doctor.suggest import hint, nearest


class Meant(Struct, frozen=True):
    """The rules that a word stands for; more than one only if it is a cause."""

    rules: tuple[Rule, ...]
    cause: str = ""
    """Set if the word was a cause's label."""


def meant(word: str, rules: Sequence[Rule], causes: Mapping[str, str]) -> Meant:
    """What `word` stands for. Raises `AttnDoctorError`, with the nearest names, if nothing."""
    named = tuple(rule for rule in rules if rule.id == word)
    if named:
        return Meant(named)
    by_cause = tuple(rule for rule in rules if rule.cause == word)
    if by_cause or word in causes:
        return Meant(by_cause, word)
    last = tuple(rule for rule in rules if rule.id.partition("/")[2] == word)
    if len(last) == 1:
        return Meant(last)
    if last:
        ids = ", ".join(rule.id for rule in last)
        raise AttnDoctorError(f"{word!r} is the name of several rules; write one of {ids}")
    if any(rule.id.startswith(f"{word.rstrip('/')}/") for rule in rules):
        area = word.rstrip("/")
        raise AttnDoctorError(
            f"{area!r} is an area; `attn-doctor rules list --area {area}` shows its rules"
        )
    raise AttnDoctorError(f"no rule or cause {word!r}{_nearest(word, rules, causes)}")


def _nearest(word: str, rules: Iterable[Rule], causes: Iterable[str]) -> str:
    """The nearest ids; a word without an area is held against names and causes as well."""
    names = {rule.id: rule.id for rule in rules}
    if "/" not in word:
        names.update({id.partition("/")[2]: id for id in names})
        names.update({cause: cause for cause in causes})
    near = dict.fromkeys(names[name] for name in nearest(word, names, 3))
    return f"; did you mean {' or '.join(near)}?" if near else ""


def selected(
    rules: Iterable[Rule], *, area: str = "", severity: str = "", cause: str = "", backend: str = ""
) -> list[Rule]:
    """The rules that fit every filter given.

    Raises `AttnDoctorError` for a name that no rule has, since it is more likely misspelt.
    """
    rules = list(rules)
    areas = {rule.id.partition("/")[0] for rule in rules}
    _known("area", area, areas)
    _known("cause", cause, {rule.cause for rule in rules})
    _known("backend", backend, {name for rule in rules for name in rule.backends})
    return [
        rule
        for rule in rules
        if (not area or rule.id.startswith(f"{area}/"))
        and severity in ("", rule.severity)
        and cause in ("", rule.cause)
        and (not backend or backend in rule.backends)
    ]


def _known(kind: str, name: str, names: Iterable[str]) -> None:
    if name and name not in (known := sorted(names)):
        few = f"one of {', '.join(known)}" if len(known) < 30 else ""
        raise AttnDoctorError(f"no rule has the {kind} {name!r}{hint(name, known, few)}")
