"""A rule's sentences where many facts are unknown, as they are if only a log was read."""

from __future__ import annotations

import re

from attn_doctor.rulebook.conditions import Lookup, show
from attn_doctor.rulebook.placeholders import PLACEHOLDER, fill

#: What is written in place of a fact that nobody knows and a sentence cannot do without.
_INSTEAD = {"gpu.name": "the GPU", "system.os": "this system"}
_SENTENCE = re.compile(r"(?<=\.) +")
_CLAUSE = re.compile(r"(?<=;) +|(?<=,) +(?=and |but |so |which )")

#: Signs that a sentence does not stand without the values that were left out of it.
_BROKEN = re.compile(
    r"\b(?:is|are|CUDA|for|with|in|to|beside)\.?$|:$|``|^(?:is|points)\b"
    r"|\b(?:is|are|in|to),|built (?:for|with) \w+,|: MiB|\b(?:in|to) is\b"
)


def worded(text: str, lookup: Lookup) -> str:
    """`text` with facts filled in; what nobody knows is left out, with the clause it stands in.

    The first clause stays, since it says what is wrong, but for the value itself.
    """
    if not any(lookup(name) in (None, "", ()) for name in PLACEHOLDER.findall(text)):
        return fill(text, lookup)
    first, *others = _SENTENCE.split(text)
    main, *clauses = _CLAUSE.split(first)
    kept = [_without_unknown(main, lookup), *(one for one in clauses if not _lacks(one, lookup))]
    joined = " ".join(kept).rstrip(",; ")
    if first.endswith(".") and not joined.endswith("."):
        joined += "."
    if not joined or _BROKEN.search(joined) or (first[0] == "{" and joined[0] != "{"):
        joined = first
    kept = [joined, *(one for one in others if not _lacks(one, lookup))]
    return PLACEHOLDER.sub(lambda match: _or_dots(match[1], lookup), " ".join(kept))


def _or_dots(name: str, lookup: Lookup) -> str:
    value = lookup(name)
    return _INSTEAD.get(name, "…") if value in (None, "", ()) else show(value)


def _lacks(text: str, lookup: Lookup) -> bool:
    names = PLACEHOLDER.findall(text)
    return any(lookup(name) in (None, "", ()) and name not in _INSTEAD for name in names)


def _without_unknown(text: str, lookup: Lookup) -> str:
    """The text without values nobody knows: `torch {torch.version} is old` is `torch is old`."""
    for name in PLACEHOLDER.findall(text):
        if lookup(name) not in (None, "", ()):
            continue
        place = re.escape("{" + name + "}")
        if name in _INSTEAD:
            continue
        text = re.sub(rf" ?\([^()]*{place}[^()]*\)", "", text)
        text = re.sub(rf"^{place} | ?(?:[=~<>+]+|\b(?:sm_|cu|cp|v))?{place}", "", text)
    return text
