"""Findings about a configuration: a rule's knowledge, this file's line, the change that helps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from attn_doctor.backends.readiness import RequirementResult
from attn_doctor.configs.readers.settings import Reading
from attn_doctor.findings import Because, Finding, Fix, Safety, Severity, SourceLocation, Verdict
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import Rule


def tell(
    rule: str,
    reading: Reading,
    key: str,
    title: str,
    *,
    why: str = "",
    seen: Sequence[Because] = (),
    fixes: Iterable[Fix | None] = (),
    severity: Severity | None = None,
    line: int = 0,
) -> Finding:
    """A problem of a configuration. `rule` lends what is not given; `key` is what is at fault."""
    known = _rules()[rule]
    return Finding(
        rule=rule,
        verdict=Verdict.PROBLEM,
        severity=severity or Severity(known.severity),
        cause=known.cause,
        title=title,
        subject=reading.file,
        why=why or known.why,
        because=tuple(seen),
        fixes=tuple(one for one in fixes if one is not None),
        backends=known.backends,
        evidence=known.evidence,
        location=SourceLocation(reading.file, line or reading.line(key)),
    )


def because(reading: Reading, key: str, wanted: str, *, seen: str = "") -> Because:
    """A setting with its value and the one wanted."""
    value = seen or reading.get(key) or "not set"
    return Because(fact=f"config.{key}", seen=value, wanted=wanted, truth=True)


def change(reading: Reading, key: str, new: str, effect: str) -> Fix:
    """The exact change: file, line, key, old and new value."""
    setting = reading.settings.get(key)
    if setting is None:
        return Fix(
            title=f"{reading.file}: add {_pair(reading, key, new)}: {effect}", safety=Safety.MANUAL
        )
    name = setting.name
    return Fix(
        title=f"{reading.file}, line {setting.line}: {name}: {setting.text} → {new}: {effect}",
        safety=Safety.MANUAL,
    )


def remedy(reason: RequirementResult) -> Fix | None:
    """The catalogue's own remedy, such as the command that installs what is missing."""
    if not reason.remedy:
        return None
    title = f"{reason.remedy[0].upper()}{reason.remedy[1:]}"
    return Fix(title=title, safety=Safety.MANUAL, code=reason.code)


def _pair(reading: Reading, key: str, value: str) -> str:
    """A setting as this kind of file writes it."""
    if reading.form == "json":
        return f'"{key}": "{value}"'
    if reading.form == "toml":
        return f'{key} = "{value}"'
    if reading.form == "env":
        return f'TRAINER_EXTRA_ARGS+=" --{key}={value}"'
    return f"--{key} {value}"


@cache
def _rules() -> dict[str, Rule]:
    return {one.id: one for one in library.load()}
