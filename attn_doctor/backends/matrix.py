"""All names of a framework, evaluated for the calls that are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cache

from msgspec.structs import replace

from attn_doctor.backends import catalogue as store
from attn_doctor.backends import own_source
from attn_doctor.backends.attention_call import AttentionCall, Context, context_of
from attn_doctor.backends.catalogue_entries import Backend, Catalogue, Framework, Name, Requirement
from attn_doctor.backends.framework_source import names_in_source, package_of
from attn_doctor.backends.readiness import Answer, Matrix, RequirementResult, Row
from attn_doctor.backends.recommend import recommend
from attn_doctor.backends.requirement_outcomes import Evaluator, by_rule
from attn_doctor.derived.releases import parts
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding
from attn_doctor.rulebook.conditions import Condition
from attn_doctor.rulebook.rule import Group

_IMPORT = "https://packaging.python.org/en/latest/specifications/core-metadata/"
_LOAD = "https://man7.org/linux/man-pages/man8/ld.so.8.html"


def framework_of(facts: Facts, wanted: str = "") -> str:
    """The framework to evaluate for: `wanted`, else the first trainer that is installed.

    Raises `AttnDoctorError` for a framework that is not in the catalogue.
    """
    if wanted:
        known = [framework.name for framework in store.load().frameworks]
        if wanted not in known:
            raise AttnDoctorError(f"no framework {wanted!r}; choose from {', '.join(known)}")
        return wanted
    trainers = ("simpletuner", "finetrainers")
    return next((name for name in trainers if getattr(facts, name).installed), "diffusers")


def matrix(
    facts: Facts,
    findings: Sequence[Finding],
    calls: Sequence[AttentionCall],
    framework: str = "",
    only: Sequence[str] = (),
    catalogue: Catalogue | None = None,
) -> Matrix:
    """Evaluate every name of the framework for every call. `findings`: those of the rules.

    `only`: canonical names of the backends to include; empty for all.
    """
    catalogue = catalogue or store.load()
    evaluator, chosen = _evaluator(facts, findings, framework, catalogue)
    calls = _asked(calls, chosen)
    context = evaluator.context
    listed = _listed(facts, chosen)
    rows = []
    for name in catalogue.names_of(chosen.name):
        if only and name.backend not in only:
            continue
        backend = _taken(name, facts, catalogue)
        own = own_source.requirement(facts, chosen.name, name.backend, chosen.source)
        more = _more(name, backend, chosen, catalogue, listed)
        rows.append(
            Row(
                name=name.name,
                backend=backend.name,
                title=backend.title,
                known=_known(name, context.version, listed),
                answers=tuple(
                    # Other code may have other requirements, whatever else holds.
                    evaluator.answer_to(own, call)
                    if own is not None
                    else evaluator.answer(backend, _made(call, name), more)
                    for call in calls
                ),
                hardware="" if _has(backend.hardware, context.device) else backend.hardware,
                package=backend.package,
                note=" ".join(filter(None, (name.note, backend.note))),
                fallback=name.fallback,
                compiled=name.compiled,
            )
        )
    names = catalogue.names_of(chosen.name)
    nameless = "" if listed or any(row.known for row in rows) else _nameless(context, names)
    return Matrix(
        framework=chosen.name,
        title=chosen.title,
        version=context.version,
        installed=package_of(facts, chosen.name).installed,
        context=context,
        calls=tuple(calls),
        rows=tuple(rows),
        recommended=tuple(
            recommend(
                catalogue,
                [(row, row.answers[number].state) for row in rows],
                call,
                facts,
                some=bool(only),
                nameless=nameless,
            )
            for number, call in enumerate(calls)
        ),
        note=" ".join(filter(None, (chosen.note, _unlisted(chosen, catalogue, listed)))),
    )


def _nameless(context: Context, names: Sequence[Name]) -> str:
    """Why none of the names can be used: the release is older than all of them, if it is."""
    oldest = min((name.since for name in names), key=parts, default="")
    if context.version is None or not oldest or parts(context.version) >= parts(oldest):
        return ""
    return f"{context.title} {context.version} has no named backends; they came with {oldest}"


def requirements(
    facts: Facts,
    findings: Sequence[Finding],
    calls: Sequence[AttentionCall],
    name: str,
    framework: str = "",
) -> tuple[Backend, list[tuple[RequirementResult, ...]]]:
    """Every requirement of a name, with its outcome, for each call. Raises `KeyError`."""
    catalogue = store.load()
    evaluator, chosen = _evaluator(facts, findings, framework, catalogue)
    for entry in catalogue.names_of(chosen.name):
        if entry.name == name:
            backend = _taken(entry, facts, catalogue)
            own = own_source.requirement(facts, chosen.name, entry.backend, chosen.source)
            more = _more(entry, backend, chosen, catalogue, _listed(facts, chosen))
            more = more if own is None else (own, *more)
            made = [_made(call, entry) for call in _asked(calls, chosen)]
            return backend, [evaluator.results(backend, call, more) for call in made]
    raise KeyError(name)


def _evaluator(
    facts: Facts, findings: Sequence[Finding], framework: str, catalogue: Catalogue
) -> tuple[Evaluator, Framework]:
    chosen = catalogue.framework(framework_of(facts, framework))
    newest = {entry.name: entry.newest for entry in catalogue.frameworks}
    context = context_of(facts, chosen.name, chosen.title, newest)
    found = by_rule(findings)
    return Evaluator(facts, catalogue, context, found, direct=chosen.direct), chosen


def answer_of(
    facts: Facts, findings: Sequence[Finding], call: AttentionCall, backend: str
) -> Answer:
    """A backend's readiness for a program that calls it without a framework of the catalogue."""
    catalogue = store.load()
    context = replace(
        context_of(facts, "transformers", "", {"transformers": ""}), framework="", version=""
    )
    evaluator = Evaluator(facts, catalogue, context, by_rule(findings), direct=True)
    found = catalogue.backend(backend)
    return evaluator.answer(found, call, _of_packages(found.package, "", flex="flex" in found.tags))


def _listed(facts: Facts, framework: Framework) -> Collection[str] | None:
    """The names in the installed source, of a release that the table was not compared with."""
    version = package_of(facts, framework.name).version
    if version is None or version in framework.compared:
        return None
    return names_in_source(facts, framework.name)


def _known(name: Name, version: str | None, listed: Collection[str] | None) -> bool:
    """The release accepts a name. Names of the Hub are not in a framework's source."""
    if listed is not None and "/" not in name.name:
        return name.name in listed
    return all(line.truth(lambda _: version) is not False for line in _releases(name))


def _unlisted(framework: Framework, catalogue: Catalogue, listed: Collection[str] | None) -> str:
    """A sentence on names of the installed release that the table lacks."""
    table = {one.name for one in catalogue.names_of(framework.name)}
    others = sorted({*(listed or ())} - table)
    return f"The installed release also has {', '.join(others)}." if others else ""


def _asked(calls: Sequence[AttentionCall], framework: Framework) -> tuple[AttentionCall, ...]:
    """The calls of phases that the framework has; all of them if it has none of these."""
    return tuple(one for one in calls if one.phase in framework.phases) or tuple(calls)


def _taken(name: Name, facts: Facts, catalogue: Catalogue) -> Backend:
    """The backend behind a name, with the packages that are installed."""
    backend = catalogue.backend(name.backend)
    if not name.instead or not backend.package or not facts.kernels.installed:
        return backend
    missing = getattr(facts, backend.package).installed is False
    return catalogue.backend(name.instead) if missing else backend


def _has(hardware: str, device: str | None) -> bool:
    """Whether torch computes on the hardware that a backend is made for."""
    return {"rocm": "AMD GPU", "mps": "Apple GPU"}.get(device or "") == hardware


def _made(call: AttentionCall, name: Name) -> AttentionCall:
    """The call as the framework makes it."""
    return replace(call, compiled=True) if name.compiled else call


def _more(
    name: Name,
    backend: Backend,
    framework: Framework,
    catalogue: Catalogue,
    listed: Collection[str] | None,
) -> tuple[Requirement, ...]:
    """The requirements that come with a name, beside those of its backend."""
    known = _of_name(name, framework, catalogue)
    if listed is not None and "/" not in name.name:
        # The source has decided, and the table knows nothing of this release.
        known = () if name.name in listed else (replace(known[0], needs=Group(), never=True),)
    return (
        *known,
        *(one for id in name.requires for one in catalogue.requirements if one.id == id),
        *_of_packages(backend.package, framework.name, flex="flex" in backend.tags),
    )


def _releases(name: Name) -> tuple[Condition, ...]:
    """Conditions on the framework's version: releases that have the name."""
    lines = [Condition("context.version", ">=", "version", name.since)]
    if name.before:
        lines.append(Condition("context.version", "<", "version", name.before))
    return tuple(lines)


def _of_name(name: Name, framework: Framework, catalogue: Catalogue) -> tuple[Requirement, ...]:
    """Requirements that come with the name: releases that have it."""
    since = (
        f" (since {name.since}, removed in {name.before})"
        if name.before
        else f" (since {name.since})"
    )
    found = [
        Requirement(
            id="name-known",
            text=f"{framework.title} {{context.version}} has no {name.name}{since}",
            label=f"{framework.title} has the name {name.name}",
            source=framework.source,
            needs=Group(all=_releases(name)),
            by="framework",
        )
    ]
    if framework.name == "simpletuner":
        # SimpleTuner silently leaves out what the installed Diffusers does not have.
        found += [
            Requirement(
                id="name-in-diffusers",
                text=f"Diffusers {{context.diffusers}} has no {entry.name} (since {entry.since}):"
                " SimpleTuner then keeps plain attention without a message",
                label=f"Diffusers has the name {entry.name}",
                source=framework.source,
                needs=Group(all=(Condition("context.diffusers", ">=", "version", entry.since),)),
                by="framework",
                silent=True,
                rule="simpletuner/mechanism-ignored",
            )
            for entry in catalogue.names_of("diffusers")
            if entry.name == name.backend
        ][:1]
    return tuple(found)


@cache
def _of_packages(behind: str, framework: str, *, flex: bool) -> tuple[Requirement, ...]:
    """The requirements that the packages behind a row can be imported and loaded.

    `behind`: the package of the backend, or empty text. `flex`: it is FlexAttention.
    """
    return tuple(_loadable(behind, framework, flex))


def _loadable(behind: str, framework: str, flex: bool) -> Iterator[Requirement]:
    names = ("torch", framework, *filter(None, [behind]))
    for package in dict.fromkeys(one for one in names if one in Facts.__struct_fields__):
        yield _empty(f"{package}-importable", package, "import_error", "imported", _IMPORT)
        yield Requirement(
            id=f"{package}-import-unsure",
            text=f"{package} may not be importable: {{{package}.import_doubt}}",
            label=f"{package} has the versions that it requires",
            source=_IMPORT,
            when=(
                Condition(f"{package}.import_doubt", "!=", "text", ""),
                Condition(f"{package}.import_doubt", "is known", "text"),
            ),
            needs=Group(all=(Condition(f"{package}.import_error", "==", "text", ""),)),
            by="package",
        )
    if flex:
        yield _empty("flex-importable", "torch", "flex_import_error", "imported", _IMPORT)
    if behind:
        yield _empty(f"{behind}-loadable", behind, "load_error", "loaded", _LOAD)


def _empty(id: str, package: str, fact: str, verb: str, source: str) -> Requirement:
    """Return the requirement that a fact with an error is empty, where it is known."""
    name = f"{package}.{fact}"
    title = "FlexAttention" if fact.startswith("flex") else package
    return Requirement(
        id=id,
        text=f"{title} cannot be {verb}: {{{name}}}",
        label=f"{title} can be {verb}",
        source=source,
        when=(
            Condition(f"{package}.installed", "==", "boolean", True),
            Condition(name, "is known", "text"),
        ),
        needs=Group(all=(Condition(name, "==", "text", ""),)),
        by="package",
    )
