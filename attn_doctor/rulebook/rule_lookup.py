"""Find rules by what a person types: an id, the last part of one, a cause, or filters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.rulebook.rule import Rule
from attn_doctor.suggest import hint, nearest


class FoundRules(Struct, frozen=True):
    """The rules that a word names; more than one only if it is a cause."""

    rules: tuple[Rule, ...]
    cause: str = ""
    """Set if the word is the label of a cause."""


def find_rules(word: str, rules: Sequence[Rule], causes: Mapping[str, str]) -> FoundRules:
    """The rules that `word` names. Raises `AttnDoctorError`, with the nearest names, if none."""
    exact = tuple(rule for rule in rules if rule.id == word)
    if exact:
        return FoundRules(exact)
    by_cause = tuple(rule for rule in rules if rule.cause == word)
    if by_cause or word in causes:
        return FoundRules(by_cause, word)
    by_name = tuple(rule for rule in rules if rule.id.partition("/")[2] in (word, word.upper()))
    if len(by_name) == 1:
        return FoundRules(by_name)
    if by_name:
        ids = ", ".join(rule.id for rule in by_name)
        raise AttnDoctorError(f"{word!r} is the name of several rules; write one of {ids}")
    area = word.rstrip("/")
    if any(rule.id.startswith(f"{area}/") for rule in rules):
        raise AttnDoctorError(
            f"{area!r} is an area; `attn-doctor rules list --area {area}` shows its rules"
        )
    ids_by_name = {rule.id: rule.id for rule in rules}
    if "/" not in word:
        ids_by_name.update({id.partition("/")[2]: id for id in ids_by_name})
        ids_by_name.update({cause: cause for cause in causes})
    near = dict.fromkeys(ids_by_name[name] for name in nearest(word, ids_by_name, 3))
    suggestion = (
        f"; did you mean {' or '.join(near)}?" if near else "; `attn-doctor rules list` shows them"
    )
    raise AttnDoctorError(f"no rule or cause {word!r}{suggestion}")


def select_rules(
    rules: Iterable[Rule], *, area: str = "", severity: str = "", cause: str = "", backend: str = ""
) -> list[Rule]:
    """The rules that pass every filter given.

    Raises `AttnDoctorError` for a name that no rule has, since it is probably misspelt.
    """
    rules = list(rules)
    _check_known("area", area, {rule.id.partition("/")[0] for rule in rules})
    _check_known("cause", cause, {rule.cause for rule in rules})
    _check_known("backend", backend, {name for rule in rules for name in rule.backends})
    return [
        rule
        for rule in rules
        if (not area or rule.id.startswith(f"{area}/"))
        and severity in ("", rule.severity)
        and cause in ("", rule.cause)
        and (not backend or backend in rule.backends)
    ]


#: What a word in each part of a rule counts.
_WEIGHTS = (("id", 8), ("title", 5), ("cause", 4), ("symptom", 3), ("fix", 2), ("why", 1))
#: Marks of patterns, which are not part of a message.
_PATTERN_MARKS = re.compile(r"\\[a-zA-Z]|\(\?[^)]{0,20}[:>]|[\\()\[\]{}?*+|^$]")


def search_rules(
    words: Sequence[str], rules: Iterable[Rule], meanings: Mapping[str, str]
) -> list[Rule]:
    """The rules with most of the words, the best first.

    `meanings`: a word of another language, and the English words for it.
    """
    text = " ".join(words).casefold()
    for foreign, english in meanings.items():
        if foreign.casefold() in text:
            text = text.replace(foreign.casefold(), f" {english} ")
    wanted = dict.fromkeys(re.findall(r"[a-z0-9_.+-]{2,}", text))
    scored = [(_score(rule, wanted), rule) for rule in rules]
    most = max((found for (found, _), _ in scored), default=0)
    # A rule with half of the words that the best rule has is hardly meant.
    chosen = [(score, rule) for score, rule in scored if score[0] and score[0] * 2 > most]
    return [rule for _, rule in sorted(chosen, key=lambda one: (-one[0][0], -one[0][1], one[1].id))]


def _score(rule: Rule, wanted: Iterable[str]) -> tuple[int, int]:
    """How many of the words a rule has, and how much they count."""
    parts = {
        "id": rule.id,
        "title": rule.title,
        "cause": rule.cause,
        "symptom": " ".join(
            _PATTERN_MARKS.sub(" ", pattern) for one in rule.symptoms for pattern in one.patterns
        ),
        "fix": " ".join(f"{fix.title} {fix.manual}" for fix in rule.fixes),
        "why": rule.why,
    }
    lowered = {name: text.casefold() for name, text in parts.items()}
    found = score = 0
    for word in wanted:
        whole = re.compile(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])")
        weight = max(
            # A whole word counts twice: `black` is a colour, and the beginning of Blackwell.
            (
                w * (1 + bool(whole.search(lowered[name])))
                for name, w in _WEIGHTS
                if word in lowered[name]
            ),
            default=0,
        )
        found += weight > 0
        score += weight
    return found, score


def _check_known(kind: str, name: str, names: Iterable[str]) -> None:
    if name and name not in (known := sorted(names)):
        few = f"one of {', '.join(known)}" if len(known) < 30 else ""
        raise AttnDoctorError(f"no rule has the {kind} {name!r}{hint(name, known, few)}")
