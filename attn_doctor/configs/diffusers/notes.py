"""What a reader should know of a script beside its answer, and calls that no torch has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_doctor.configs.diffusers.choices import choices, late
from attn_doctor.configs.diffusers.loaded import loaded, uses_diffusers
from attn_doctor.configs.diffusers.phases import Stage
from attn_doctor.configs.findings import at_line, config_finding, observed
from attn_doctor.configs.readers.settings import Reading
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding, Fix, Safety


def helpers(reading: Reading) -> Iterator[Finding]:
    """Calls that no torch has, one finding for each line."""
    lines: dict[int, list[str]] = {}
    for call in reading.calls:
        if call.what == "helper":
            names = lines.setdefault(call.line, [])
            if call.value not in names:
                names.append(call.value)
    for line, names in lines.items():
        yield config_finding(
            "flex/build-helper",
            reading,
            "",
            f"{' and '.join(sorted(names))}: no torch has it, so this line fails",
            seen=(observed("call", ", ".join(sorted(names)), "not there"),),
            fixes=(
                at_line(reading, line, "delete it"),
                Fix(
                    title="Build the kernels ahead of time",
                    safety=Safety.ASK,
                    run=(("attn-doctor", "build-kernels"),),
                ),
            ),
            line=line,
        )


def notes(reading: Reading, phases: Sequence[Stage], facts: Facts, newest: str) -> Iterator[str]:
    """Where the phases come from, what is assumed, and lines without effect."""
    for one in phases:
        if one.said is not None:
            does = "trains a model" if one.name == "training" else "runs a model"
            name = one.said.on if one.said.what == "variable" else one.said.value
            yield f"{reading.place(one.said.line)}: {name} says that the script {does}"
    if loaded(reading) and all(one.said is None and one.given for one in phases):
        yield "no line of this file is certain to train or to run what it loads"
    if facts.diffusers.installed is False and uses_diffusers(reading):
        yield f"Diffusers is not installed; assumed: {newest}, the newest known release"
    yield from _without_effect(reading)
    several = sum(one.what == "set_attention_backend" for one in reading.calls)
    if several > 1:
        yield (
            "set_attention_backend is called more than once: from Diffusers 0.37 on each call also"
            " changes the default of the whole process"
        )
    for first, last, reason in reading.unread:
        lines = f"lines {first} to {last}" if last > first else f"line {first}"
        yield (f"{lines} cannot be parsed by this Python ({reason}): searched for names alone")
    if not [*choices(reading)]:
        yield (
            "no line of this file chooses a backend in a way that is known here; code that it"
            " imports was not read"
        )


def _without_effect(reading: Reading) -> Iterator[str]:
    for call in reading.calls:
        if call.what == "no effect":
            yield (
                f"{reading.place(call.line)}: {call.value} has no effect: Transformers reads"
                " _attn_implementation of a configuration"
            )
        if call.what == "variable" and call.on == "DIFFUSERS_ATTN_BACKEND" and late(reading, call):
            yield (
                f"{reading.place(call.line)} sets DIFFUSERS_ATTN_BACKEND after Diffusers was"
                " imported, which read it then: it has no effect"
            )
