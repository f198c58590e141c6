"""The shape of a rule file, and the rule with all that its file says.

`rules/rule.schema.json` is generated from it. An unknown key is an error. A check with an index of
the rules needs none of this.
"""

import re
from datetime import date
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from attn_doctor.findings import Advisory
from attn_doctor.rulebook.rule import (
    FixFile,
    Platform,
    Rule,
    SeverityName,
    SymptomParts,
    Text,
)

#: What `means` of a look-alike looks like if it names a rule.
_RULE_ID = r"[a-z][\w-]*/[\w.-]+"


class GroupFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Condition lines: every line of `all`, at least one of `any`, and none of `none` must hold."""

    all: tuple[Text, ...] = ()
    any: tuple[Text, ...] = ()
    none: tuple[Text, ...] = ()


class TextFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The words of a rule; `{fact}` is replaced by its value."""

    title: Text
    why: Text


#: One regular expression, or several of which one must match.
Alternatives = Text | tuple[Text, ...]


class SymptomFile(SymptomParts, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A line that the failure prints, as a regular expression, with lines that it must match."""

    pattern: Alternatives
    near: tuple[Alternatives, ...] = ()


class Example(Struct, frozen=True, forbid_unknown_fields=True):
    """Facts, and the verdict that the rule must give on them."""

    name: Text
    expect: Literal["problem", "ok", "unknown", "not applicable"]
    facts: dict[str, Any] = {}
    run: tuple[Text, ...] | None = None
    """The commands that the rule must offer, one line each."""


class LookAlike(Struct, frozen=True, forbid_unknown_fields=True):
    """A log that resembles this failure and shows another one, so that no symptom may match it."""

    log: Text
    """Lines that a program printed, unchanged."""
    means: Text
    """What it shows: the id of the rule that explains it, or words."""
    source: Annotated[str, Meta(pattern="^(?:https://.*)?$")] = ""
    """Where it was posted, if no rule has it."""

    @property
    def named_rule(self) -> str:
        """The id of the rule that explains it; empty if words say what it shows."""
        return self.means if re.fullmatch(_RULE_ID, self.means) else ""


class Claim(Struct, frozen=True, forbid_unknown_fields=True):
    """One statement of the rule, and where a reading that tried to refute it found it true."""

    says: Text
    """The statement in one sentence, bounds included."""
    how: Literal["source", "wheel", "document", "run", "open"]
    """Upstream source at a tag, a released wheel or sdist, a vendor's document, an execution; or
    not settled yet."""
    source: tuple[Text, ...] = ()
    """Links to lines at a tag; `name==version path:line` of a wheel; a command and its result."""
    needs: str = ""
    """What would settle an open claim, such as a GPU of a certain kind and a command."""


class RuleFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule file, as written."""

    schema: Literal[1]
    severity: SeverityName
    cause: Text
    text: TextFile
    checked: date
    evidence: Annotated[tuple[Annotated[str, Meta(pattern="^https://")], ...], Meta(min_length=1)]
    backends: tuple[Text, ...] = ()
    platforms: tuple[Platform, ...] = ()
    row: str = ""
    requires: tuple[Text, ...] = ()
    """Rules whose problem explains this one; `@name` is a set of `tables/requires.toml`."""
    for_each: str = ""
    subject: str = ""
    applies: GroupFile = GroupFile()
    when: GroupFile | None = None
    symptom: tuple[SymptomFile, ...] = ()
    look_alike: tuple[LookAlike, ...] = ()
    fix: tuple[FixFile, ...] = ()
    claim: tuple[Claim, ...] = ()
    example: tuple[Example, ...] = ()
    advisory: Advisory | None = None


class WrittenRule(Rule, frozen=True, kw_only=True, omit_defaults=True):
    """A rule with what only `rules lint` and the documentation read. An index lacks it."""

    look_alikes: tuple[LookAlike, ...] = ()
    claims: tuple[Claim, ...] = ()
    examples: tuple[Example, ...] = ()
    alternatives: tuple[tuple[str, ...], ...] = ()
    """Of each symptom, the alternatives of its pattern."""


def schema() -> dict[str, Any]:
    """The JSON Schema of a rule file, for editors; `rules/rule.schema.json` holds it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A rule of attn-doctor",
        **msgspec.json.schema(RuleFile),
    }
