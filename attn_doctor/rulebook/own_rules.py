"""A team's own rules, beside ours: `--rules DIR` and `$ATTN_DOCTOR_RULES`.

They are data like ours, but nobody here has read them. So a fix of theirs always asks, a pattern
that a log could choke on is refused, and an id means one rule only: theirs never replace ours.
What merely leaves a rule unfinished (an example, a line that none guards) is for `rules lint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from attn_doctor.errors import RuleError
from attn_doctor.findings import Safety
from attn_doctor.rulebook.paths import folder
from attn_doctor.rulebook.rule import Rule
from attn_doctor.rulebook.rule_files import read_folder
from attn_doctor.rulebook.single_rule_checks import pattern_faults


def with_own(ours: Iterable[Rule], folders: Sequence[Path]) -> tuple[Rule, ...]:
    """Our rules and those in `folders`, by id. Raises `RuleError` for one that cannot be used."""
    files = {rule.id: _file_of(folder(), rule.id) for rule in ours}
    rules = {rule.id: rule for rule in ours}
    for own in _distinct(folders):
        for rule in _read(own):
            if rule.id in rules:
                raise RuleError(
                    f"{_file_of(own, rule.id)}: {rule.id} is the id of {files[rule.id]} already;"
                    " rename one of them"
                )
            files[rule.id], rules[rule.id] = _file_of(own, rule.id), rule
    return tuple(sorted(rules.values(), key=lambda rule: rule.id))


def _file_of(folder: Path, id: str) -> Path:
    """Where the rule `id` of a folder is written."""
    return folder / f"{id}.toml"


def _distinct(folders: Iterable[Path]) -> list[Path]:
    """Each folder once, whichever way it is written."""
    return list({folder.resolve(): folder for folder in folders}.values())


def _read(own: Path) -> list[Rule]:
    if not own.is_dir():
        raise RuleError(f"{own} is no folder; name one that holds <area>/<rule>.toml files")
    found = read_folder(own)
    if not found:
        raise RuleError(f"{own} holds no rules; they are named <area>/<rule>.toml")
    return [_harmless(rule, own) for rule in found]


def _harmless(rule: Rule, own: Path) -> Rule:
    for fault in pattern_faults(rule):
        raise RuleError(f"{_file_of(own, rule.id)}: {fault}")
    fixes = tuple(
        replace(fix, safety=Safety.ASK) if fix.safety is Safety.AUTO else fix for fix in rule.fixes
    )
    return replace(rule, fixes=fixes)
