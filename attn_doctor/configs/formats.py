"""The formats of many programs, each a file in `rules/tables/formats/`: who is asked for what.

A file says how to recognise the program, which of its settings name a backend, what each value
leads to, and what the program does where the backend cannot run. All was read from the program's
source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec
from msgspec import Struct

from attn_doctor.configs.asked import Asked, evaluated
from attn_doctor.configs.backend_support import BackendSupport
from attn_doctor.configs.prediction import Phase, PhaseName, Prediction
from attn_doctor.configs.readers.commands import Command
from attn_doctor.configs.readers.settings import Reading, Setting
from attn_doctor.configs.transformers import implementation
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding
from attn_doctor.rulebook import library

_OFF = ("", "false", "no", "off", "0", "none", "null", "~")
#: Words of a command among which its program is looked for.
_FIRST = 40


class Target(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a value leads to."""

    backend: str = ""
    """The canonical name; empty if there is none."""
    shown: str = ""
    stops: str = ""
    """Why the program stops."""
    fallback: str = ""
    """What it does if the backend cannot run; empty if it stops."""
    undecided: str = ""
    """Why the backend is not known before the run."""


class Choice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting that chooses a backend."""

    key: str
    values: dict[str, Target] = {}
    """By value, in small letters; `true` for a flag."""
    names: str = ""
    """The framework whose names it takes beside them: `transformers` or `diffusers`."""
    others: str = ""
    """Why the program stops with any other value; empty if that is not known."""
    phases: tuple[PhaseName, ...] = ()
    """The phases that it is for; empty for all."""
    variable: bool = False
    """It is an environment variable."""
    unread: str = ""
    """Why it is not certain that the program reads it; empty if it does."""


class Found(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the program takes by itself if a package is installed."""

    package: str
    target: Target
    unless: str = ""
    """A flag that keeps it from that."""


class Format(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One program's configurations."""

    title: str
    release: str
    """The release whose source was read."""
    schema: int
    checked: object
    source: str
    order: int = 50
    """Programs with a lower number are looked for first."""
    phases: tuple[PhaseName, ...] = ("training",)
    programs: tuple[str, ...] = ()
    """Patterns of the words that start it: a path, or the last part of one."""
    maybe: tuple[str, ...] = ()
    """Patterns of words that start it if one of `flags` is given too."""
    flags: tuple[str, ...] = ()
    files: bool = False
    """Its command lines name a file with its settings."""
    keys: tuple[str, ...] = ()
    """Settings of which one has to be there, in a file of settings."""
    beside: tuple[str, ...] = ()
    """Settings of which one has to be there too."""
    without: tuple[str, ...] = ()
    """Settings of other programs' files."""
    variables: tuple[str, ...] = ()
    """Environment variables that identify it by themselves."""
    exclusive: bool = False
    """It stops if several of its flags are given."""
    via: str = ""
    """`diffusers`: the names go to Diffusers' dispatcher, with masks that depend on the model."""
    choice: tuple[Choice, ...] = ()
    found: Found | None = None
    default: Target = Target(backend="native")

    def starts(self, words: Sequence[str], options: Sequence[str]) -> bool:
        """A command of these words, paths and their last parts, starts this program."""
        if any(re.fullmatch(one, word) for one in self.programs for word in words):
            return True
        return any(one in options for one in self.flags) and any(
            re.fullmatch(one, word) for one in self.maybe for word in words
        )

    def has(self, settings: Mapping[str, Setting]) -> bool:
        """The settings are those of this program."""
        return (
            any(one in settings for one in self.keys)
            and (not self.beside or any(one in settings for one in self.beside))
            and not any(one in settings for one in self.without)
        )


@cache
def formats() -> Mapping[str, Format]:
    """All formats by name, those that are looked for first at the beginning."""
    table = library.tables()["formats"]
    found = {name: msgspec.convert(one, Format) for name, one in table.items()}
    return dict(sorted(found.items(), key=lambda one: (one[1].order, one[0])))


@cache
def _programs() -> re.Pattern[str]:
    """The patterns of all programs as one: most words of a script are none of them."""
    every = [f"(?:{each})" for one in formats().values() for each in one.programs]
    return re.compile("|".join(every))


def of_command(command: Command) -> str:
    """The format of a command, by its program or by variables; empty if it is not known."""
    paths = [word.replace("\\", "/") for word, _ in command.words[:_FIRST]]
    words = [*paths, *(one.rpartition("/")[2] for one in paths if "/" in one)]
    options = [*command.options()] if any(word.startswith("--") for word in paths) else []
    if options or any(_programs().fullmatch(word) for word in words):
        for name, one in formats().items():
            if one.starts(words, options):
                return name
    for name, one in formats().items():
        if any(variable in command.variables for variable in one.variables):
            return name
    return ""


def of_settings(settings: Mapping[str, Setting]) -> str:
    """The format of a file of settings; empty if it is not known."""
    return next((name for name, one in formats().items() if one.has(settings)), "")


def predict(reading: Reading, facts: Facts, findings: Sequence[Finding]) -> Prediction:
    """Predict the phases of a configuration of these formats."""
    one = formats()[reading.format]
    support = BackendSupport(facts, findings, one.via)
    phases: list[Phase] = []
    found: list[Finding] = []
    ignored: list[str] = []
    for phase in one.phases:
        asked, passed = _asked(one, reading, facts, phase)
        ran, wrong = evaluated(asked, reading, support)
        phases.append(ran)
        found += [each for each in wrong if each.title not in {old.title for old in found}]
        ignored += passed
    return Prediction(
        reading=reading,
        title=one.title,
        version="",
        subject="",
        phases=tuple(phases),
        findings=tuple(found),
        ignored=tuple(dict.fromkeys(ignored)),
        notes=(f"from the source of {one.title} {one.release}",),
    )


def _asked(
    one: Format, reading: Reading, facts: Facts, phase: PhaseName
) -> tuple[Asked, list[str]]:
    """The choice that counts in a phase, and settings that do not."""
    given = [
        (choice, setting)
        for choice in one.choice
        if not choice.phases or phase in choice.phases
        for setting in [_given(choice, reading, facts)]
        if setting is not None
    ]
    if not given:
        asked = Asked(key="no setting chooses", value="", phase=phase)
        return _filled(one, asked, _by_itself(one, reading, facts)), []
    choice, setting = given[0]
    asked = Asked(
        key=setting.name,
        value=_value(setting),
        phase=phase,
        line=setting.line,
        instead="the default",
    )
    if one.exclusive and len(given) > 1:
        other = given[1][1]
        stops = f"{one.title} stops: {setting.name} and {other.name} cannot be given together"
        return msgspec.structs.replace(asked, stops=stops), []
    passed = [
        f"{other.name} in {reading.place(other.line)}, because {setting.name} comes first"
        for _, other in given[1:]
        if other.line != setting.line
    ]
    if choice.unread:
        return msgspec.structs.replace(asked, undecided=choice.unread), passed
    value = setting.text.lower()
    target = choice.values.get(value) or choice.values.get("true" if _flag(setting, choice) else "")
    if target is not None:
        return _filled(one, asked, target), passed
    if choice.names == "transformers":
        return implementation(asked, facts), passed
    if choice.names == "diffusers":
        return _dispatched(one, asked), passed
    if choice.others:
        return msgspec.structs.replace(asked, stops=choice.others), passed
    reason = f"{setting.text} is not in the table of {one.title} {one.release}"
    return msgspec.structs.replace(asked, undecided=reason), passed


def _by_itself(one: Format, reading: Reading, facts: Facts) -> Target:
    """What runs where no setting chooses."""
    if reading.abridged:
        return Target(undecided="the command is not written in full (`...`)")
    option = reading.get("config_file")
    named = [option] if option else [word for word in reading.files if one.files]
    if named:
        return Target(undecided=f"{named[0]} may choose: `attn-doctor check --config {named[0]}`")
    found = one.found
    if found is None or found.unless in reading.settings:
        return one.default
    installed = getattr(facts, found.package).installed
    if installed is None:
        return Target(undecided=f"{found.package} runs if it is installed, which is not known here")
    return found.target if installed else one.default


def _given(choice: Choice, reading: Reading, facts: Facts) -> Setting | None:
    """The setting of a choice where it is set to something."""
    if choice.variable:
        own = reading.variables.get(choice.key)
        value = facts.env.get(choice.key, "")
        return own or (Setting(choice.key, value, 0) if value else None)
    setting = reading.settings.get(choice.key)
    if setting is None or setting.text.lower() in _OFF:
        known = setting is not None and setting.text.lower() in choice.values
        return setting if known and setting is not None and setting.text else None
    return setting


def _flag(setting: Setting, choice: Choice) -> bool:
    """A flag that is given; words behind it belong to the command."""
    return "true" in choice.values and len(choice.values) == 1 and bool(setting.text)


def _value(setting: Setting) -> str:
    return setting.text if setting.text.lower() != "true" else setting.name


def _filled(one: Format, asked: Asked, target: Target) -> Asked:
    return msgspec.structs.replace(
        asked,
        backend=target.backend,
        shown=target.shown,
        stops=target.stops,
        fallback=target.fallback,
        undecided=target.undecided,
        compiled=True,
        masks=_masks(one, target.backend),
    )


def _masks(one: Format, backend: str) -> tuple[str, ...]:
    """The masks are the model's where Diffusers' dispatcher gets them; else the program's own."""
    return () if one.via == "diffusers" and backend not in ("", "native") else ("none",)


def _dispatched(one: Format, asked: Asked) -> Asked:
    from attn_doctor.backends import catalogue

    names = [name.name for name in catalogue.load().names_of("diffusers")]
    if asked.value not in names:
        return msgspec.structs.replace(asked, stops=f"Diffusers has no backend {asked.value}")
    return msgspec.structs.replace(asked, backend=asked.value, masks=_masks(one, asked.value))


def titles() -> Iterator[str]:
    """The names of all programs, for a message."""
    yield from dict.fromkeys(one.title for one in formats().values())
