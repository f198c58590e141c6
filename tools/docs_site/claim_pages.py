"""The claims of the rules, a page for each area: what was read, where, how and on which day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from attn_doctor.rulebook.rule_shape import Claim, WrittenRule
from tools.docs_site.rule_pages import HOW, cell, linked_source

_TABLE = ("| rule | claim | checked by | source | day |", "| --- | --- | --- | --- | --- |")
_OPEN = ("## Not settled", "", "| rule | claim | what would settle it |", "| --- | --- | --- |")


def pages(rules: Sequence[WrittenRule]) -> dict[str, str]:
    """The page of each area, by path."""
    return {f"claims/{area}.md": page(area, group) for area, group in _areas(rules)}


def areas(rules: Sequence[WrittenRule]) -> str:
    """The list of the pages, and of all open claims, for `docs/claims.md`."""
    lines = ["| area | rules | claims | not settled |", "| --- | --- | --- | --- |"]
    for area, group in _areas(rules):
        claims = [claim for rule in group for claim in rule.claims]
        unsettled = sum(claim.how == "open" for claim in claims)
        lines.append(f"| [{area}](claims/{area}.md) | {len(group)} | {len(claims)} | {unsettled} |")
    return "\n".join(["", *lines, "", *_OPEN, *_unsettled(rules), ""])


def page(area: str, rules: Sequence[WrittenRule]) -> str:
    """The page of one area."""
    settled = [_row(rule, claim) for rule in rules for claim in rule.claims]
    unsettled = _unsettled(rules)
    bare = [_evidence(rule) for rule in rules if not rule.claims]
    lines = [f"# Claims of the rules of {area}", "", *_TABLE, *settled, *bare, ""]
    return "\n".join([*lines, *(_OPEN if unsettled else ()), *unsettled, ""])


def _unsettled(rules: Sequence[WrittenRule]) -> list[str]:
    return [_open(rule, one) for rule in rules for one in rule.claims if one.how == "open"]


def _areas(rules: Sequence[WrittenRule]) -> Iterator[tuple[str, list[WrittenRule]]]:
    for area, group in groupby(rules, lambda rule: rule.id.partition("/")[0]):
        yield area, list(group)


def _row(rule: WrittenRule, claim: Claim) -> str:
    sources = "<br>".join(map(linked_source, claim.source))
    return f"| `{rule.id}` | {cell(claim.says)} | {HOW[claim.how]} | {sources} | {rule.checked} |"


def _evidence(rule: WrittenRule) -> str:
    links = "<br>".join(map(linked_source, rule.evidence))
    return f"| `{rule.id}` | {cell(rule.title)} | evidence only | {links} | {rule.checked} |"


def _open(rule: WrittenRule, claim: Claim) -> str:
    return f"| `{rule.id}` | {cell(claim.says)} | {cell(claim.needs)} |"
