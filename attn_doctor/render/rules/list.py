"""The rulebook as a list: one line per rule, grouped by area."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from attn_doctor.render.grouping import plural
from attn_doctor.render.rules.text import COLOURS
from attn_doctor.render.terminal import Terminal, clean, width_of
from attn_doctor.rulebook.rule import Rule
from attn_doctor.rulebook.texts import in_general

_MARKS = {"error": "✗", "warning": "!", "info": "i"}
_NAMES = {"error": "error", "warning": "warning", "info": "note"}
#: Below this width columns would leave no space for the title.
_NARROW = 90


def rule_list(rules: Sequence[Rule], terminal: Terminal, *, whole: bool) -> str:
    """The list. `whole`: titles are not cut, for output that does not go to a terminal."""
    lines: list[str] = []
    for area, group in groupby(rules, lambda rule: rule.id.partition("/")[0]):
        members = list(group)
        lines.append(f"{terminal.style(area, 'bold')} ({len(members)})")
        lines += _rows(members, terminal, whole)
        lines.append("")
    lines += terminal.wrap(_count(rules), 0)
    return terminal.page(lines)


def found_rules(rules: Sequence[Rule], terminal: Terminal, *, whole: bool) -> str:
    """The rules that a search found, the best first. `whole` is that of `rule_list`."""
    if not rules:
        return terminal.page(terminal.wrap("No rule has any of these words.", 0))
    lines = list(_rows(rules, terminal, whole))
    show = f"Next: `attn-doctor rules show {rules[0].id}` shows the first one."
    return terminal.page([*lines, "", *terminal.wrap(show, 0)])


def _rows(rules: Sequence[Rule], terminal: Terminal, whole: bool) -> Iterator[str]:
    if terminal.width < _NARROW and not whole:
        yield from (_narrow_row(rule, terminal) for rule in rules)
        return
    column = max(len(rule.id) for rule in rules)
    for rule in rules:
        title = terminal.say(clean(in_general(rule.title)))
        if not whole:
            title = _cut(title, terminal.width - column - len("    warning  "), terminal)
        severity = terminal.code(f"{rule.severity:<7}", COLOURS[rule.severity])
        yield f"  {rule.id:<{column}}  {severity}  {title}".rstrip()


def _narrow_row(rule: Rule, terminal: Terminal) -> str:
    """A row without columns and with a mark for the severity, so that most of it is the title."""
    mark = terminal.glyphs(_MARKS[rule.severity])
    title = _cut(
        terminal.say(clean(in_general(rule.title))),
        terminal.width - len(f"  {mark} {rule.id}  "),
        terminal,
    )
    return f"  {terminal.style(mark, COLOURS[rule.severity])} {rule.id}  {title}".rstrip()


def _cut(title: str, width: int, terminal: Terminal) -> str:
    """`title` cut to `width`; empty where only a few letters would remain."""
    if width_of(title) <= width:
        return title
    end = "…" if terminal.unicode else "..."
    while title and width_of(title) > width - len(end):
        title = title[:-1]
    return title.rstrip() + end if width > 12 else ""


def _count(rules: Sequence[Rule]) -> str:
    counts = Counter(rule.severity for rule in rules)
    parts = [plural(counts[key], name) for key, name in _NAMES.items() if counts[key]]  # type: ignore[index]
    if not parts:
        return "No rule matches all filters."
    count = f"{plural(len(rules), 'rule')}: {', '.join(parts)}"
    machines = sum(rule.has_conditions for rule in rules)
    logs = sum(bool(rule.symptoms) for rule in rules)
    return (
        f"{count}. {machines} are for machines (check), {logs} for logs (explain), some for both."
        " `attn-doctor rules show ID` shows one in full."
    )
