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

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.readiness import Readiness
from attn_doctor.configs.asked import Asked, evaluated
from attn_doctor.configs.backend_support import BackendSupport
from attn_doctor.configs.prediction import Phase, PhaseName, Prediction, Wanted, counts
from attn_doctor.configs.readers.commands import Command
from attn_doctor.configs.readers.settings import Reading, Setting
from attn_doctor.configs.transformers import implementation
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding
from attn_doctor.rulebook import library

_OFF = ("", "false", "no", "off", "0", "none", "null", "~")
#: Programs that name others without starting them, and commands that start nothing.
_FETCH = (
    "git", "cd", "pip", "pip3", "wget", "curl", "aria2c", "cp", "mv", "rm", "mkdir", "ln", "ls",
    "cat", "echo", "printf", "chmod", "chown", "tar", "unzip", "apt", "apt-get", "pushd", "source",
    "exist", "not", "[", "[[", "test",
    "kubectl", "helm", "rsync", "sed", "grep", "pkill", "pgrep", "kill", "killall", "ps",
)  # fmt: skip
#: Words of a shell before a command.
_BEFORE = ("if", "then", "else", "elif", "do", "while", "until", "!", "sudo")
_STARTERS = ("docker", "podman", "conda", "mamba", "uv")
_NOT_STARTED = (
    "pull", "push", "tag", "build", "buildx", "rmi", "image", "images", "save", "load", "rm",
    "stop", "logs", "ps", "install", "create", "activate", "env", "remove", "pip", "venv",
)  # fmt: skip
#: Words before the name of a program, and words behind it.
_LEADS = ("exec", "nohup", "run", "uvx", "sudo", "time", "env", "-m", "--", "call", "start", "&")
_TASKS = (
    "serve", "train", "sft", "dpo", "grpo", "kto", "reward", "rloo", "chat", "export", "api",
    "webchat", "webui", "preprocess", "inference", "launch", "run-batch",
)  # fmt: skip
#: Options with which a program shows its help or version, and ends.
_ASKED = ("--help", "--version")
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
    when: str = ""
    """The condition under which it is that."""
    package: str = ""
    """`other` runs in its place if this package is installed."""
    unless: str = ""
    """A setting that keeps the program from that."""
    other: Target | None = None
    """What runs in its place: with the package, or under another condition."""


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
    when: str = ""
    """The condition under which the program reads it; empty if it always does."""
    other: Target | None = None
    """What runs where the program does not read it."""
    part: str = ""
    """The part of the work that it is for: another setting is for the rest."""
    apart: bool = False
    """It may be given beside the others of an exclusive program."""
    same: str = ""
    """Another setting, whose values it has too."""
    own: bool = False
    """It counts only with one of `values`, for which the program has its own code and no masks."""
    beside: str = ""
    """Another setting that decides with it: a value may be both, `lumina_2 float32`."""


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
    trains: str = ""
    """A setting that a file for training has; another file is for inference."""
    programs: tuple[str, ...] = ()
    """Patterns of the words that start it: a path, or the last part of one."""
    clients: tuple[str, ...] = ()
    """Patterns of words of commands that only ask a server that runs."""
    maybe: tuple[str, ...] = ()
    """Patterns of words that start it if one of `flags` is given too."""
    flags: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()
    """Patterns of words of scripts that users write themselves, under the program's names."""
    reads: dict[str, str] = {}
    """Patterns of words that start it, and the file with further options that each reads."""
    overrides: bool = False
    """Words of its command lines are settings: `flash_attn=fa2`."""
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
    serves_both: bool = False
    """Its settings are those of a model, for training as for inference."""
    each: bool = False
    """Every setting counts, for the models that it is for."""
    via: str = ""
    """`diffusers`: the names go to Diffusers' dispatcher, with masks that depend on the model."""
    masks: str = ""
    """The framework of the catalogue that says what its own code does to a mask."""
    choice: tuple[Choice, ...] = ()
    default: Target = Target(backend="native")

    def starts(self, words: Sequence[str], options: Sequence[str]) -> bool:
        """A command of these words, paths and their last parts, starts this program."""
        if any(re.fullmatch(one, word) for one in self.clients for word in words):
            return False
        every = (*self.programs, *self.alike)
        if any(re.fullmatch(one, word) for one in every for word in words):
            return True
        return any(one in options for one in self.flags) and any(
            re.fullmatch(one, word) for one in self.maybe for word in words
        )

    def may_be_own(self, words: Sequence[str]) -> str:
        """The word of a script that the user may have written; empty if the program is certain."""
        if any(re.fullmatch(one, word) for one in self.programs for word in words):
            return ""
        found = (word for one in self.alike for word in words if re.fullmatch(one, word))
        return next(found, "")

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
    every = [f"(?:{each})" for one in formats().values() for each in (*one.programs, *one.alike)]
    return re.compile("|".join(every))


def of_command(command: Command) -> str:
    """The format of a command, by its program or by variables; empty if it is not known."""
    paths = [word.replace("\\", "/") for word, _ in command.words[:_FIRST]]
    if _fetches(paths) or any(word in _ASKED for word in paths):
        return ""
    words = named_in(command)
    options = [*command.options()] if any(word.startswith("--") for word in paths) else []
    if options or any(_programs().fullmatch(word) for word in words):
        for name, one in formats().items():
            if one.starts(words, options):
                return name
    for name, one in formats().items():
        if any(variable in command.variables for variable in one.variables):
            return name
    return ""


def named_in(command: Command) -> list[str]:
    """The first words of a command that may start a program, and the last parts of paths.

    A bare name inside a command counts where a starter is before it or a task behind it:
    `--backend vllm` starts nothing.
    """
    first = [word.replace("\\", "/") for word, _ in command.words[:_FIRST]]
    paths = [
        word
        for at, (word, after) in enumerate(zip(first, [*first[1:], ""], strict=False))
        if not word.isidentifier() or not at or first[at - 1] in _LEADS or after in _TASKS
    ]
    return [*paths, *(one.rpartition("/")[2] for one in paths if "/" in one)]


def _fetches(words: Sequence[str]) -> bool:
    """The command gets, builds or moves something, and starts no program of the table."""
    # stop() { pkill -f sglang.launch_server
    start = next((at + 1 for at, word in enumerate(words[:3]) if word.endswith("{")), 0)
    while start < len(words) and words[start] in _BEFORE:
        start += 1
    words = words[start:]
    first = words[0].rpartition("/")[2].lower().removesuffix(".exe") if words else ""
    if first in _STARTERS:
        return len(words) > 1 and words[1] in _NOT_STARTED
    return first in _FETCH


def of_settings(settings: Mapping[str, Setting]) -> str:
    """The format of a file of settings; empty if it is not known."""
    return next((name for name, one in formats().items() if one.has(settings)), "")


def predict(
    reading: Reading, facts: Facts, findings: Sequence[Finding], wanted: Wanted = ""
) -> Prediction:
    """Predict the phases of a configuration of these formats."""
    one = formats()[reading.format]
    support = BackendSupport(facts, findings, one.via)
    phases: list[Phase] = []
    found: list[Finding] = []
    ignored: list[str] = []
    if one.trains and reading.form == "yaml" and reading.get(one.trains).lower() != "true":
        one = msgspec.structs.replace(one, phases=("inference",))
    chosen = [phase for phase in one.phases if counts(phase, wanted)]
    notes = [f"from the source of {one.title} {one.release}"]
    if reading.image:
        notes.append(f"with {reading.image}, which a container may be started without")
    if not chosen and one.serves_both and wanted:
        chosen = [wanted]
    elif not chosen:
        chosen = [*one.phases]
        notes.append(f"{one.title} is not for {wanted}; this is its {one.phases[0]}")
    for phase in chosen:
        several, passed = _asked(one, reading, facts, phase)
        for asked in several:
            ran, wrong = evaluated(asked, reading, support)
            phases.append(_masked(one, ran, facts, findings))
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
        notes=tuple(notes),
    )


def _masked(one: Format, phase: Phase, facts: Facts, findings: Sequence[Finding]) -> Phase:
    """The phase, with what the program does to the mask of a model that has one."""
    if not one.masks or not phase.backend or phase.state is Readiness.NOT_READY:
        return phase
    support = BackendSupport(facts, findings, one.masks)
    masked = support.answer(phase.backend, AttentionCall(phase="inference", mask="bool"))
    added = tuple(f"with a mask: {each.text}" for each in masked.reasons if each.by == "framework")
    return msgspec.structs.replace(phase, exceptions=(*phase.exceptions, *added[:1]))


def _asked(
    one: Format, reading: Reading, facts: Facts, phase: PhaseName
) -> tuple[list[Asked], list[str]]:
    """What may run in a phase, by its conditions, and settings that do not count."""
    given = [
        (choice, setting)
        for choice in one.choice
        if not choice.phases or phase in choice.phases
        for setting in _every(choice, reading, facts)
    ]
    parts = [
        each
        for choice, setting in given
        if choice.part
        for each in _chosen(one, choice, setting, reading, facts, phase)
    ]
    whole = [each for each in given if not each[0].part]
    if not whole:
        asked = Asked(key="no setting chooses", value="", phase=phase)
        return [*parts, *_variants(one, asked, _by_itself(one, reading), reading, facts)], []
    choice, setting = whole[0]
    if reading.own and reading.form == "toml":
        return [msgspec.structs.replace(_of_setting(setting, phase), undecided=reading.own)], []
    rivals = [each for each in whole if not each[0].apart]
    if one.exclusive and len(rivals) > 1:
        first, second = rivals[0][1], rivals[1][1]
        stops = f"{one.title} stops: {first.name} and {second.name} cannot be given together"
        asked = _of_setting(first, phase)
        return [msgspec.structs.replace(asked, stops=stops)], []
    if one.each:
        nodes = [each for its, at in whole for each in _chosen(one, its, at, reading, facts, phase)]
        return _by_node(nodes), []
    passed = [
        f"{other.name} in {reading.place(other.line)}, because {setting.name} comes first"
        for _, other in whole[1:]
        if other.line != setting.line
    ]
    return [*parts, *_chosen(one, choice, setting, reading, facts, phase)], passed


def _by_node(nodes: list[Asked]) -> list[Asked]:
    """What several nodes of a workflow choose, each for the models that pass it."""
    if len({(each.backend, each.shown, each.undecided) for each in nodes}) == 1:
        return nodes[:1]
    return [
        each
        if each.when
        else msgspec.structs.replace(each, when=f"the model passes {each.key.partition('.')[0]}")
        for each in nodes
    ]


def _of_setting(setting: Setting, phase: PhaseName) -> Asked:
    return Asked(
        key=setting.name,
        value=_value(setting),
        phase=phase,
        line=setting.line,
        instead="the default",
    )


def _chosen(
    one: Format,
    choice: Choice,
    setting: Setting,
    reading: Reading,
    facts: Facts,
    phase: PhaseName,
) -> list[Asked]:
    """What a setting leads to; where its condition does not hold, `other` of the choice."""
    asked = _of_setting(setting, phase)
    found = _values(one, choice, setting, asked, reading, facts)
    condition = choice.part or choice.when
    if condition:
        found = [
            msgspec.structs.replace(
                each, when=f"{condition} and {each.when}" if each.when else condition
            )
            for each in found
        ]
    if choice.other is not None:
        plain = msgspec.structs.replace(asked, value="")
        found += _variants(one, plain, choice.other, reading, facts)
    return found


def _values(
    one: Format,
    choice: Choice,
    setting: Setting,
    asked: Asked,
    reading: Reading,
    facts: Facts,
) -> list[Asked]:
    """What the value of a setting leads to."""
    value = setting.text.lower()
    changed = reading.branched.get(choice.key if choice.variable else setting.text.strip("${}"))
    if changed:
        return [msgspec.structs.replace(asked, undecided=f"branches set {changed}")]
    if "$" in value or "{{" in value or "%" in value:
        reason = f"{setting.text} is not written in this file"
        return [msgspec.structs.replace(asked, undecided=reason)]
    values = choice.values
    if choice.same:
        values = next(each.values for each in one.choice if each.key == choice.same) | values
    beside = reading.get(choice.beside).lower() if choice.beside else ""
    target = values.get(f"{value} {beside}") or values.get(value)
    target = target or values.get("true" if _flag(setting, choice) else "")
    if target is not None:
        found = _variants(one, asked, target, reading, facts)
        unmasked = ("none",) if choice.own else None
        return [msgspec.structs.replace(each, masks=unmasked or each.masks) for each in found]
    if choice.names == "transformers":
        return [implementation(asked, facts)]
    if choice.names == "diffusers":
        return [_dispatched(one, asked)]
    if choice.others:
        return [msgspec.structs.replace(asked, stops=choice.others)]
    reason = f"{setting.text} is not in the table of {one.title} {one.release}"
    return [msgspec.structs.replace(asked, undecided=reason)]


def _variants(
    one: Format, asked: Asked, target: Target, reading: Reading, facts: Facts
) -> list[Asked]:
    """A target with what may run in its place."""
    other = target.other
    if other is None or (target.unless and target.unless in reading.settings):
        return [_filled(one, asked, target)]
    if not target.package:
        return [_filled(one, asked, target), *_variants(one, asked, other, reading, facts)]
    installed = getattr(facts, target.package).installed
    if installed is None:
        reason = f"it depends on whether {target.package} is installed, which is not known here"
        return [msgspec.structs.replace(asked, undecided=reason)]
    if installed:
        return _variants(one, asked, other, reading, facts)
    return [_filled(one, asked, target)]


def _by_itself(one: Format, reading: Reading) -> Target:
    """What runs where no setting chooses."""
    if reading.abridged:
        return Target(undecided="the command is not written in full (`...`)")
    if reading.own:
        return Target(undecided=reading.own)
    if reading.branches:
        return Target(undecided=f"branches set {reading.branches}")
    if reading.unset:
        return Target(undecided=f"{reading.unset} may choose, and what it holds was not followed")
    option = reading.get("config_file")
    named = [option] if option else [word for word in reading.files if one.files]
    if named:
        return Target(undecided=f"{named[0]} may choose: `attn-doctor check --config {named[0]}`")
    return one.default


def _every(choice: Choice, reading: Reading, facts: Facts) -> Iterator[Setting]:
    """The setting of a choice, and those of further nodes of a workflow."""
    first = _given(choice, reading, facts)
    if first is not None:
        yield first
        yield from (
            one for key, one in reading.settings.items() if key.startswith(f"{choice.key} ")
        )


def _given(choice: Choice, reading: Reading, facts: Facts) -> Setting | None:
    """The setting of a choice where it is set to something."""
    if choice.variable:
        own = reading.variables.get(choice.key)
        value = facts.env.get(choice.key, "")
        return own or (Setting(choice.key, value, 0) if value else None)
    setting = reading.settings.get(choice.key)
    if setting is not None and choice.own and setting.text.lower() not in choice.values:
        return None
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
        grouped=asked.grouped if one.via == "diffusers" else None,
        when=target.when,
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
