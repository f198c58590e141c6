"""All names of a framework, judged for what is wished: the table behind `attn-doctor backends`."""

from __future__ import annotations

from collections.abc import Sequence

from attn_doctor.backends import catalogue as store
from attn_doctor.backends.catalogue_entries import (
    Backend,
    Catalogue,
    Framework,
    Name,
    Requirement,
)
from attn_doctor.backends.evaluate import Bench
from attn_doctor.backends.problems import problems_of
from attn_doctor.backends.readiness import Demand, Matrix, Row
from attn_doctor.backends.recommend import recommend
from attn_doctor.backends.workload import Use, Wish, use_of
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding
from attn_doctor.rulebook.conditions import Condition
from attn_doctor.rulebook.rule import Group


def framework_of(facts: Facts, wanted: str = "") -> str:
    """The framework to judge for: the one asked for, else the first trainer that is installed.

    Raises `AttnDoctorError` for one that is not in the catalogue.
    """
    if wanted:
        known = [one.name for one in store.load().frameworks]
        if wanted not in known:
            raise AttnDoctorError(f"no framework {wanted!r}; one of {', '.join(known)}")
        return wanted
    for name in ("simpletuner", "finetrainers"):
        if getattr(facts, name).installed:
            return name
    return "diffusers"


def wishes_for(wish: Wish, phases: Sequence[str], masks: Sequence[str]) -> tuple[Wish, ...]:
    """`wish` for each phase with each kind of mask."""
    from msgspec.structs import replace

    return tuple(replace(wish, phase=phase, mask=mask) for phase in phases for mask in masks)


def matrix(
    facts: Facts,
    findings: Sequence[Finding],
    wishes: Sequence[Wish],
    framework: str = "",
    only: Sequence[str] = (),
    table: Catalogue | None = None,
) -> Matrix:
    """Every name of the framework for every wish. `findings`: what the rules say of `facts`.

    `only`: canonical names to stay with; none for all.
    """
    table = table or store.load()
    bench, chosen = _bench(facts, findings, framework, table)
    use = bench.use
    rows = []
    for name in table.names_of(chosen.name):
        if only and name.backend not in only:
            continue
        backend = table.backend(name.backend)
        more = _of_name(name, chosen, table)
        rows.append(
            Row(
                name=name.name,
                backend=name.backend,
                title=backend.title,
                known=_known(name, use),
                answers=tuple(bench.answer(backend, wish, more) for wish in wishes),
                hardware=backend.hardware,
                package=backend.package,
                note=" ".join(filter(None, (name.note, backend.note))),
            )
        )
    package = getattr(facts, chosen.name)
    return Matrix(
        framework=chosen.name,
        title=chosen.title,
        version=use.version,
        installed=package.installed,
        use=use,
        wishes=tuple(wishes),
        rows=tuple(rows),
        recommended=tuple(
            recommend(table, rows, number, wish, facts) for number, wish in enumerate(wishes)
        ),
        note=chosen.note,
    )


def demands(
    facts: Facts,
    findings: Sequence[Finding],
    wish: Wish,
    name: str,
    framework: str = "",
    table: Catalogue | None = None,
) -> tuple[Backend, tuple[Demand, ...]]:
    """Everything that a name demands for a wish, with outcomes. Raises `KeyError`."""
    table = table or store.load()
    bench, chosen = _bench(facts, findings, framework, table)
    for one in table.names_of(chosen.name):
        if one.name == name:
            backend = table.backend(one.backend)
            return backend, bench.demands(backend, wish, _of_name(one, chosen, table))
    raise KeyError(name)


def _bench(
    facts: Facts, findings: Sequence[Finding], framework: str, table: Catalogue
) -> tuple[Bench, Framework]:
    chosen = table.framework(framework_of(facts, framework))
    use = use_of(
        facts, chosen.name, chosen.title, {one.name: one.newest for one in table.frameworks}
    )
    return Bench(facts, table, use, problems_of(findings)), chosen


def _known(name: Name, use: Use) -> bool:
    """This version of the framework accepts the name, as far as can be told."""
    return all(line.truth(lambda _: use.version) is not False for line in _range(name))


def _range(name: Name) -> tuple[Condition, ...]:
    lines = [Condition("use.version", ">=", "version", name.since)]
    if name.before:
        lines.append(Condition("use.version", "<", "version", name.before))
    return tuple(lines)


def _of_name(name: Name, framework: Framework, table: Catalogue) -> tuple[Requirement, ...]:
    """Demands that come with the name: releases that have it."""
    since = f" (since {name.since}" + (f", until before {name.before})" if name.before else ")")
    found = [
        Requirement(
            id="name-known",
            text=f"{framework.title} {{use.version}} has no {name.name}{since}",
            source=framework.source,
            needs=Group(all=_range(name)),
            by="framework",
        )
    ]
    if framework.name == "simpletuner":
        found += _behind(name, table)
    return tuple(found)


def _behind(name: Name, table: Catalogue) -> list[Requirement]:
    """SimpleTuner leaves out, without a word, what the installed Diffusers does not have."""
    for one in table.names_of("diffusers"):
        if one.name == name.backend:
            lines = [Condition("use.diffusers", ">=", "version", one.since)]
            return [
                Requirement(
                    id="name-in-diffusers",
                    text=f"Diffusers {{use.diffusers}} has no {one.name} (since {one.since}):"
                    " SimpleTuner then keeps plain attention without a word",
                    source=table.framework("simpletuner").source,
                    needs=Group(all=tuple(lines)),
                    by="framework",
                    silent=True,
                    rule="simpletuner/mechanism-ignored",
                )
            ]
    return []
