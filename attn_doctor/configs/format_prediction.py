"""Predicts what the configurations of many programs do, as their tables say (`formats.py`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.readiness import Readiness
from attn_doctor.configs.asked import Asked, evaluated
from attn_doctor.configs.backend_support import BackendSupport
from attn_doctor.configs.formats import OFF, Choice, Format, Target, formats
from attn_doctor.configs.prediction import Phase, PhaseName, Prediction, Wanted, counts
from attn_doctor.configs.readers.commands import ARGUMENTS
from attn_doctor.configs.readers.settings import Reading, Setting
from attn_doctor.configs.readers.workflow import OTHER
from attn_doctor.configs.transformers import by_itself, implementation
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding

#: Settings of the configuration of a model, which Transformers itself reads.
_OF_A_MODEL = ("architectures", "model_type", "transformers_version")
#: Settings, and names of scripts, that say whether a program trains.
_OF_TRAINING = re.compile(
    r"(?i)training|train|train_args|learning_rate|lr|lr_scheduler\w*|(?:num_)?(?:train_)?epochs"
    r"|(?:per_device_)?train_batch_size|gradient_accumulation_steps|grad_accum\w*|optim(?:izer)?"
    r"|warmup_(?:steps|ratio)|\w*lora_(?:alpha|r|rank|dropout)|max_train_steps"
    r"|(?:\w+[_-])?(?:train|finetune|sft|dpo|grpo|pretrain)\w*\.py"
)
_OF_INFERENCE = re.compile(
    r"(?i)max_new_tokens|temperature|top_p|num_beams|generation_config|do_sample"
    r"|(?:\w+[_-])?(?:infer|inference|generate|eval|evaluate|demo|serve|chat|predict|sample)\w*\.py"
)
#: The share of settings that a program may not know, and the least number that it has to know.
_FOREIGN, _FEWEST = 0.25, 2
#: Files of settings, which any program may read.
_DATA = ("json", "toml", "yaml")


def _of_a_model(reading: Reading) -> bool:
    """The settings are those of a model, as Transformers saves them."""
    return reading.form == "json" and any(key in reading.settings for key in _OF_A_MODEL)


def _own_script(one: Format) -> str:
    """The condition of a file that scripts of the user may read too."""
    return f"a script of {one.title} reads it, not one of the user"


def _phases_of(one: Format, reading: Reading) -> dict[PhaseName, str]:
    """The phases of a configuration, each with its condition if nothing in it says so."""
    if not one.serves_both:
        return dict.fromkeys(one.phases, "")
    both: tuple[PhaseName, PhaseName] = ("training", "inference")
    if _of_a_model(reading):
        return dict.fromkeys(both, "")
    words = [*reading.settings, *(reading.program.name.split("/")[-1:] if reading.program else [])]
    if any(_OF_TRAINING.fullmatch(word) for word in words):
        return {"training": ""}
    if any(_OF_INFERENCE.fullmatch(word) for word in words):
        return {"inference": ""}
    return dict(zip(both, ("its program trains", "its program only runs the model"), strict=True))


def _said_by(reading: Reading) -> str:
    """Which word or setting says whose configuration it is: `; line 2: stage`."""
    said = reading.program
    return f"; {reading.place(said.line)}: {said.name}" if said is not None and said.line else ""


def _doubt(one: Format, reading: Reading) -> str:
    """Why another program may read it: settings that this one does not know; empty if none may."""
    if not one.known or reading.own or (reading.started and not reading.loose):
        return ""
    own, foreign = one.doubt(reading.settings)
    # Extensions of web UIs add options of their own.
    variable = reading.program is not None and reading.program.name in ARGUMENTS
    strange = not own if variable else len(foreign) > _FOREIGN * (own + len(foreign))
    if foreign and strange:
        first = foreign[0]
        others = f" and {len(foreign) - 1} others are" if len(foreign) > 1 else " is"
        return (
            f"{first.name} in {reading.place(first.line)}{others} unknown to {one.title}, so"
            " another program may read it"
        )
    if not reading.started and own < _FEWEST:
        return f"{own} settings of {one.title} are too few to be sure that it reads them"
    return ""


def _doubted(asked: Asked, doubt: str) -> Asked:
    return msgspec.structs.replace(asked, backend="", shown="", stops="", undecided=doubt)


def predict(
    reading: Reading, facts: Facts, findings: Sequence[Finding], wanted: Wanted = ""
) -> Prediction:
    """Predict the phases of a configuration of these formats."""
    one = formats()[reading.format]
    support = BackendSupport(facts, findings, one.via)
    phases: list[Phase] = []
    found: list[Finding] = []
    ignored: list[str] = []
    if one.trains and reading.form == "yaml" and reading.get(one.trains).lower() in OFF:
        one = msgspec.structs.replace(one, phases=("inference",))
    phases_here = _phases_of(one, reading)
    chosen = [phase for phase in phases_here if counts(phase, wanted)]
    notes = [f"from the source of {one.title} {one.release}{_said_by(reading)}"]
    doubt = _doubt(one, reading)
    if reading.image:
        notes.append(f"with {reading.image}, which a container may be started without")
    if not chosen and one.serves_both and wanted:
        chosen = [wanted]
    elif not chosen:
        chosen = [*one.phases]
        notes.append(f"{one.title} is not for {wanted}; this is its {one.phases[0]}")
    for phase in chosen:
        several, passed = _asked(one, reading, facts, phase)
        if doubt:
            several = [_doubted(several[0], doubt)]
        for asked in several:
            where = " and ".join(filter(None, (phases_here.get(phase, ""), reading.when)))
            ran, wrong = evaluated(_under(asked, where), reading, support)
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
        others = _of_other_nodes(reading, phase)
        if others:
            return others, []
        asked = Asked(key="no setting chooses", value="", phase=phase)
        found = _variants(one, asked, _by_itself(one, reading, phase), reading, facts)
        named = next(filter(None, map(reading.get, one.classes)), "")
        if named and found[0].backend == "native":
            found = [by_itself(found[0], [named], facts)]
        adds = f"{reading.unset} adds no option for attention" if reading.unset else ""
        if one.shared and reading.form in _DATA:
            adds = _own_script(one)
        return [*parts, *(_under(each, adds) for each in found)], []
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
        return [*_by_node(nodes), *_of_other_nodes(reading, phase)], []
    passed = [
        f"{other.name} in {reading.place(other.line)}, because {setting.name} comes first"
        for _, other in whole[1:]
        if other.line != setting.line
    ]
    return [*parts, *_chosen(one, choice, setting, reading, facts, phase)], passed


def _of_other_nodes(reading: Reading, phase: PhaseName) -> list[Asked]:
    """Nodes of a workflow that name attention, and that are not in the table."""
    return [
        msgspec.structs.replace(
            _of_setting(one, phase), undecided=f"the node {one.name} is not in the table"
        )
        for key, one in reading.settings.items()
        if key.startswith(OTHER)
    ]


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
        instead="",
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
    asked = msgspec.structs.replace(
        _of_setting(setting, phase), instead=_instead(one, choice, setting)
    )
    if _flag(setting, choice):  # words behind it are not its value
        asked = msgspec.structs.replace(asked, value=setting.name)
    found = _values(one, choice, setting, asked, reading, facts)
    condition = choice.part or choice.when
    if reading.script and not choice.variable:
        own = not any(each.names == "transformers" for each in one.choice)
        does = f"is one of {one.title}" if own else "hands it to Transformers"
        condition = f"{reading.script} {does}"
    elif one.names_of_others and reading.form in _DATA and not _of_a_model(reading):
        condition = "the program that reads this file hands it to Transformers"
    elif one.shared and reading.form in _DATA:
        condition = _own_script(one)
    found = [_under(each, condition) for each in found]
    if choice.other is not None:
        plain = msgspec.structs.replace(asked, value="")
        found += _variants(one, plain, choice.other, reading, facts)
    return found


def _instead(one: Format, choice: Choice, setting: Setting) -> str:
    """The value of a setting that runs everywhere, or the flag in its place; empty for neither."""
    if choice.names == "diffusers":
        return "native"
    names = {choice.key, choice.same}
    values = {
        key: value for each in one.choice if each.key in names for key, value in each.values.items()
    }
    plain = (
        key
        for key, each in values.items()
        if each.backend == "native" and key != "true" and not (each.stops or each.other)
    )
    flags = (
        each.key.replace("_", "-") if "-" in setting.name.lstrip("-") else each.key
        for each in one.choice
        if each.values.keys() == {"true"}
        and each.values["true"].backend == "native"
        and not (each.when or each.part or each.values["true"].other)
    )
    flag = next(flags, "") if choice.values.keys() == {"true"} else ""
    spelled = "_" not in flag or "_" in setting.name
    dashes = "--" if setting.name.startswith("--") else ""
    return next(plain, f"{dashes}{flag}" if flag and spelled else "")


def _under(asked: Asked, condition: str) -> Asked:
    """The same under a further condition, if there is one."""
    both = " and ".join(filter(None, (condition, asked.when)))
    return msgspec.structs.replace(asked, when=both)


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
    given = _flag(setting, choice) and setting.name.startswith("--")
    if not given and ("$" in value or "{{" in value or "%" in value):
        written = "the value of an expression" if value == "$(code)" else setting.text
        reason = f"{written} is not written in this file"
        return [msgspec.structs.replace(asked, undecided=reason)]
    values = choice.values
    if choice.same:
        values = next(each.values for each in one.choice if each.key == choice.same) | values
    beside = reading.get(choice.beside).lower() if choice.beside else ""
    target = values.get(f"{value} {beside}") or values.get(value)
    target = target or values.get("true" if _flag(setting, choice) else "")
    if target is not None and _neither(setting, choice, reading):
        reason = f"{setting.text} is neither true nor false"
        return [msgspec.structs.replace(asked, undecided=reason)]
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


def _by_itself(one: Format, reading: Reading, phase: PhaseName) -> Target:
    """What runs where no setting chooses."""
    if reading.abridged:
        return Target(undecided="the command is not written in full (`...`)")
    if reading.own:
        return Target(undecided=reading.own)
    if reading.script:
        return Target(undecided=f"{reading.script} may be a script of the user, whose code decides")
    if reading.branches:
        return Target(undecided=f"branches set {reading.branches}")
    option = reading.get("config_file")
    named = [option] if option else [word for word in reading.files if one.files]
    if named:
        return Target(undecided=f"{named[0]} may choose: `attn-doctor check --config {named[0]}`")
    foreign = one.foreign(reading.settings)
    if foreign is not None:
        where = reading.place(foreign.line)
        if any(each.key.startswith(f"{foreign.key}.") for each in one.choice):
            return Target(undecided=f"the value of {foreign.name} in {where} may choose")
        return Target(
            undecided=f"{foreign.name} in {where} is not a setting of {one.title} {one.release}"
        )
    return one.defaults.get(phase, one.default)


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
    if setting is not None and not choice.counts(setting.text):
        return None
    if setting is not None and choice.own and setting.text.lower() not in choice.values:
        return None
    if setting is None or setting.text.lower() in OFF:
        known = setting is not None and setting.text.lower() in choice.values
        return setting if known and setting is not None and setting.text else None
    return setting


def _flag(setting: Setting, choice: Choice) -> bool:
    """A flag that is given; words behind it belong to the command."""
    return "true" in choice.values and len(choice.values) == 1 and bool(setting.text)


def _neither(setting: Setting, choice: Choice, reading: Reading) -> bool:
    """A switch in a file of settings has another value: `flash_attention: auto`."""
    switch = _flag(setting, choice) and reading.form in _DATA and not setting.name.startswith("--")
    return switch and setting.text.lower() == "auto"


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
