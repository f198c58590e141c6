"""Findings about a configuration: a rule's knowledge, this file's line, the change that helps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from msgspec.structs import replace

from attn_doctor.configs.readers.settings import Reading
from attn_doctor.facts import Facts
from attn_doctor.findings import Because, Finding, Fix, Safety, Severity, SourceLocation, Verdict
from attn_doctor.rulebook import library
from attn_doctor.rulebook.evaluate import evaluate_rule
from attn_doctor.rulebook.rule import Rule


def config_finding(
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
    """A problem of a configuration, at its setting `key`. The rule gives what is not given here."""
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


#: The prefix of a finding that no rule explains further; the backend's name follows.
PREFIX = "configured/"


def problem_of(
    rule: str,
    reading: Reading,
    title: str,
    *,
    why: str,
    seen: Sequence[Because],
    fixes: Iterable[Fix | None],
    line: int,
    backend: str = "",
) -> Finding:
    """A backend that will not work as configured: by its rule, or without one."""
    if rule in _rules():
        return config_finding(
            rule, reading, "", title, why=why, seen=seen, fixes=fixes, line=line or 1
        )
    return Finding(
        rule=f"{PREFIX}{backend}",
        verdict=Verdict.PROBLEM,
        severity=Severity.ERROR,
        cause="required-backend",
        title=title,
        subject=reading.file,
        why=why,
        because=tuple(seen),
        fixes=tuple(one for one in fixes if one is not None),
        backends=(backend,),
        location=SourceLocation(reading.file, line or 1),
    )


def because(reading: Reading, key: str, wanted: str, *, seen: str = "") -> Because:
    """A setting with its value and the one wanted."""
    value = seen or reading.get(key) or "not set"
    return Because(fact=f"config.{key}", seen=value, wanted=wanted, truth=True)


def observed(key: str, value: str, wanted: str) -> Because:
    """A value that is not a setting, such as an argument in a script."""
    return Because(fact=f"config.{key}", seen=value, wanted=wanted, truth=True)


def from_variables(
    reading: Reading, facts: Facts, framework: str, newest: Mapping[str, str]
) -> Iterator[Finding]:
    """Findings of a framework's rules on the environment variables that the configuration sets.

    The framework and Diffusers count as installed, with their newest known versions if they are
    not. Variables of the machine itself are the business of `check`'s other findings.
    """
    packages = {}
    for name in (framework, "diffusers"):
        package = getattr(facts, name)
        version = package.version if package.installed else newest[name]
        packages[name] = replace(package, installed=True, version=version)
    env = {name: setting.text for name, setting in reading.variables.items()}
    assumed = replace(facts, env={**facts.env, **env}, **packages)
    for rule in _rules().values():
        names = [line.fact.removeprefix("env.") for line in (*rule.when.all, *rule.when.any)]
        key = next((name for name in names if name in env), "")
        if not key or not rule.id.startswith(f"{framework}/"):
            continue
        line = reading.line(key)
        for finding in evaluate_rule(rule, assumed):
            if finding.verdict is Verdict.PROBLEM:
                yield replace(
                    finding,
                    subject=reading.file,
                    location=SourceLocation(reading.file, line),
                    context=(),
                    fixes=(at_line(reading, line, f"remove {key}"),),
                )


def at_line(reading: Reading, line: int, text: str) -> Fix:
    """A change by hand at a line of the file."""
    return Fix(title=f"{reading.file}, {reading.place(line)}: {text}", safety=Safety.MANUAL)


def change(reading: Reading, key: str, new: str, effect: str) -> Fix:
    """The exact change: file, line, key, old and new value."""
    setting = reading.settings.get(key)
    if setting is None:
        return Fix(
            title=f"{reading.file}: add {_pair(reading, key, new)}: {effect}", safety=Safety.MANUAL
        )
    name = setting.name
    return at_line(reading, setting.line, f"{name}: {setting.text} → {new}: {effect}")


def written(reading: Reading, key: str, value: str) -> str:
    """A setting as the file has it: an option, a variable, or a key of its format."""
    if key.startswith("--"):
        return f"{key} {value}"
    quoted = value if value in ("true", "false") else f'"{value}"'
    if reading.form == "json":
        return f'"{key}": {quoted}'
    if reading.form == "toml":
        return f"{key} = {quoted}"
    colon = reading.form == "yaml" and key not in reading.variables
    return f"{key}: {value}" if colon else f"{key}={value}"


def _pair(reading: Reading, key: str, value: str) -> str:
    """A setting as this kind of file of SimpleTuner writes it."""
    if reading.form in ("json", "toml"):
        return written(reading, key, value)
    if reading.form == "env":
        return f'TRAINER_EXTRA_ARGS+=" --{key}={value}"'
    return f"--{key} {value}"


@cache
def _rules() -> dict[str, Rule]:
    return {one.id: one for one in library.load()}
