"""What a Python script, or the environment alone, makes Diffusers and Transformers do.

A script is read, not run: which line is reached, and with which model, is the reader's to know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from attn_doctor.backends import catalogue
from attn_doctor.configs.asked import ALONE, Asked, evaluated
from attn_doctor.configs.attention_size import DEMAND, elements
from attn_doctor.configs.backend_support import BackendSupport
from attn_doctor.configs.diffusers.branches import condition, covered, holds
from attn_doctor.configs.diffusers.objects import Target, target_of
from attn_doctor.configs.diffusers.pipelines import Model, model_of
from attn_doctor.configs.diffusers.script_sizes import size_of, too_large
from attn_doctor.configs.findings import at_line, config_finding, observed
from attn_doctor.configs.prediction import Phase, PhaseName, Prediction, Wanted
from attn_doctor.configs.readers.settings import Call, Reading
from attn_doctor.configs.transformers import implementation
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding, Fix, Safety
from attn_doctor.suggest import nearest

#: What chooses a backend of Diffusers' dispatcher.
_DISPATCHER = ("set_attention_backend", "attention_backend", "DIFFUSERS_ATTN_BACKEND")
#: Everything that was looked for.
_CHOICES = (
    *_DISPATCHER, "attention_provider", "attn_implementation", "xformers", "set_attn_processor",
    "sdpa_kernel", "sdpa switch", "sdpa replaced", "vllm", "variable", "unparsed",
)  # fmt: skip
#: Those that choose for a model of Transformers or vLLM, not for a pipeline.
_OF_MODELS = ("attn_implementation", "vllm")
_BY_UNSLOTH = "Unsloth replaces the model's attention, and chooses by what is installed"
#: What has to hold where a language model is loaded in this way, so that its default counts.
_IF_LOADED = {
    "own code": "the model's repository has no code of its own",
    "open": "arguments that are not written in the call choose nothing",
}
_MODEL = re.compile(r"UNet\w*ConditionModel|\w*Transformer[23]DModel")
#: Names of scripts that train.
_TRAINING = re.compile(r"(?i)(?:^|[_-])(?:train|finetune|fine_tune|dreambooth)(?:[_-]|$)")
_RUNNING = re.compile(
    r"(?i)infer|test|eval|generate|sample|predict|demo|export|convert|merge|prepare|preproc|dataset"
    r"|caption|download|config|util"
)
#: Words of functions that replace torch's own, and the backend behind them.
_REPLACEMENTS = {
    "sage": "sage",
    "flash_attn": "flash",
    "flash3": "_flash_3",
    "xformers": "xformers",
}


def predict(
    reading: Reading, facts: Facts, findings: Sequence[Finding], wanted: Wanted = ""
) -> Prediction:
    """Predict the backend of each line that chooses one, with the problems."""
    script = _Script(reading, facts, findings)
    phases: list[Phase] = []
    found = [*_helpers(reading)]
    notes: list[str] = []
    for name, given in phases_of(reading, wanted):
        several, wrong, said = script.phase(name, given)
        phases += several
        titles = {each.title for each in found}
        found += [one for one in wrong if one.title not in titles]
        notes += said
    found += script.parallel()
    table = catalogue.load().framework("diffusers")
    uses = _uses_diffusers(reading)
    return Prediction(
        reading=reading,
        title=table.title if uses else "Python script",
        version=(facts.diffusers.version or table.newest) if uses else "",
        installed=facts.diffusers.installed if uses else None,
        subject=", ".join(dict.fromkeys(_pipelines(reading))),
        phases=tuple(phases),
        findings=tuple(found),
        notes=(*dict.fromkeys(notes), *_notes(reading, facts, table.newest)),
    )


def _uses_diffusers(reading: Reading) -> bool:
    return (
        reading.form not in ("python", "notebook")
        or any(one.what == "import" for one in reading.calls)
        or any(one.what in ("set_attention_backend", "attention_backend") for one in reading.calls)
        or any("Pipeline" in one for one in _pipelines(reading))
    )


def _choices(reading: Reading) -> Iterator[Call]:
    """Everything that chooses a backend: the variable first, then calls in their order."""
    found = [*_written(reading)]
    last = {one.on.partition(".")[0]: at for at, one in enumerate(found) if _sets(one)}
    for at, call in enumerate(found):
        if not _sets(call) or last[call.on.partition(".")[0]] == at:
            yield call


def _sets(call: Call) -> bool:
    """The call replaces all attention processors of a model, and is certain to be reached."""
    return call.what in ("xformers", "set_attn_processor") and not call.when


def _written(reading: Reading) -> Iterator[Call]:
    """Every line that chooses, also those that a later one replaces."""
    variable = reading.variables.get("DIFFUSERS_ATTN_BACKEND")
    if variable is not None and variable.text:
        yield Call("DIFFUSERS_ATTN_BACKEND", variable.text, "", variable.line)
    set_here = [one for one in reading.calls if one.what == "variable"]
    for call in set_here:
        if call.on == "DIFFUSERS_ATTN_BACKEND" and not _late(reading, call):
            yield replace(call, what="DIFFUSERS_ATTN_BACKEND", on="")
        elif call.on == "FINETRAINERS_ATTN_PROVIDER":
            yield replace(call, what="attention_provider", on="")
        elif call.on in ("VLLM_ATTENTION_BACKEND", "SGLANG_ATTENTION_BACKEND"):
            yield replace(call, what="vllm", on=call.on)
    for call in reading.calls:
        ignored = call.what == "variable" or (call.what == "sdpa switch" and call.on == "True")
        if call.what in _CHOICES and not ignored:
            yield call


def _late(reading: Reading, call: Call) -> bool:
    """The script sets the variable after it imported Diffusers, which reads it at import."""
    first = next((one.line for one in reading.calls if one.what == "import"), 0)
    return bool(first and first < call.line)


def _pipelines(reading: Reading) -> list[str]:
    """The pipelines that the script loads; the denoising models if it loads no pipeline."""
    foreign = _foreign(reading)
    loaded = [one for one in _loaded(reading) if one not in foreign]
    return [one for one in loaded if "Pipeline" in one] or [
        one for one in loaded if "Transformer" in one or "UNet" in one
    ]


def _loaded(reading: Reading) -> list[str]:
    return [one.value for one in reading.calls if one.what == "pipeline" and one.value]


def _is_model(name: str) -> bool:
    """A denoising model of Diffusers by its name."""
    return _MODEL.fullmatch(name) is not None


def _foreign(reading: Reading) -> dict[str, str]:
    """Pipelines and models that are not of Diffusers, with the package of each."""
    return {one.value: one.on for one in reading.calls if one.what == "foreign"}


def _named(call: Call) -> str:
    return call.value or call.what


def phases_of(reading: Reading, wanted: Wanted) -> list[tuple[PhaseName, str]]:
    """The phases of a script, each with its condition if no line of the script says it."""
    if wanted:
        return [(wanted, "")]
    if reading.form not in ("python", "notebook"):
        return [("inference", "")]
    trains = [one.detail for one in reading.calls if one.what == "training"]
    runs = [one.detail for one in reading.calls if one.what == "running"]
    if "" in trains or (trains and not runs):
        return [("training", "")]
    if "" in runs and not trains:
        return [("inference", "")]
    if named_for_training(reading):
        return [("training", "")]
    # vLLM and Diffusers' pipelines run without gradients.
    servers = any(one.on.startswith(("VLLM_", "SGLANG_")) for one in reading.calls)
    pipelines = any("Pipeline" in one for one in _pipelines(reading))
    if not trains and (runs or servers or pipelines):
        return [("inference", "")]
    return [
        ("training", "code elsewhere trains the model"),
        ("inference", "code elsewhere only runs the model"),
    ]


def _says_phase(reading: Reading) -> Call | None:
    """The line that says the phase of a script; None if none does, or only its name."""
    several = phases_of(reading, "")
    what = "training" if several[0][0] == "training" else "running"
    found = [one for one in reading.calls if one.what == what]
    if len(several) > 1 or not found:
        return None
    return min(found, key=lambda one: bool(one.detail))


def named_for_training(reading: Reading) -> bool:
    """The name of a script says that it trains."""
    name = PurePath(reading.file).stem
    return bool(_TRAINING.search(name)) and not _RUNNING.search(name)


def _trains(reading: Reading) -> bool:
    return any(one.what == "training" for one in reading.calls)


class _Script:
    """One script with what is the same for all its lines."""

    def __init__(self, reading: Reading, facts: Facts, findings: Sequence[Finding]) -> None:
        self._reading, self._facts = reading, facts
        self._support = BackendSupport(facts, findings, "diffusers")
        self._others = BackendSupport(facts, findings, "")
        self._finetrainers = BackendSupport(facts, findings, "finetrainers")
        self._phase: PhaseName = "inference"
        self._given = ""
        """The condition of the phase, if the script does not say it."""

    def phase(self, name: PhaseName, given: str) -> tuple[list[Phase], list[Finding], list[str]]:
        """What each line chooses in a phase, the problems, and notes on lines without effect."""
        self._phase, self._given = name, given
        phases: list[Phase] = []
        found: list[Finding] = []
        notes: list[str] = []
        taken: list[tuple[Call, Phase]] = []
        for call in _choices(self._reading):
            where = self._reading.place(call.line)
            if call.detail == "sliced" and self._unsliced():
                notes.append(f"{where}: this pipeline has no sliced attention")
                continue
            if holds(call.when, self._facts) is False:
                notes.append(f"{where}: {_named(call)} is not reached here")
                continue
            one, wrong = self._chosen(call, self._support_of(call))
            phases.append(one)
            taken.append((call, one))
            found += wrong
        return [*phases, *self._otherwise(taken)], found, notes

    def _support_of(self, call: Call) -> BackendSupport:
        if call.what == "attention_provider":
            return self._finetrainers
        return self._support if call.what in _DISPATCHER else self._others

    def _has_unet(self) -> bool:
        """The models of all pipelines are known."""
        return all(model_of(one, self._facts).classes for one in _pipelines(self._reading))

    def _unsliced(self) -> bool:
        """The models of all pipelines are known, and none can compute attention in slices."""
        models = [model_of(one, self._facts).classes for one in _pipelines(self._reading)]
        sliced = ("UNet2DConditionModel", "UNet3DConditionModel")
        return (
            bool(models)
            and all(models)
            and not any(one in sliced for each in models for one in each)
        )

    def _chosen(self, call: Call, support: BackendSupport) -> tuple[Phase, list[Finding]]:
        """The phase and the problems of one line."""
        asked = self._asked(call)
        if call.what in _DISPATCHER and asked.value and not asked.undecided:
            idle = self._idle(call)
            if idle:
                return self._without_effect(asked, call, idle)
            if asked.backend == "":
                return self._unknown(asked, call)
        if asked.backend == "flex" and call.what in _DISPATCHER:
            size = size_of(self._reading)
            if size is not None:
                asked = replace(asked, mask_elements=elements(size.tokens))
                phase, found = evaluated(asked, self._reading, support)
                answer = support.answer("flex", asked.calls()[0])
                if any(one.id == DEMAND for one in support.faults(answer)[:1]):
                    found = [
                        too_large(self._reading, call, asked.value, size, asked.phase, support)
                    ]
                return phase, found
        return evaluated(asked, self._reading, support)

    def _asked(self, call: Call) -> Asked:
        when = condition(call.when, self._reading, self._facts)
        base = Asked(
            key=call.what,
            value=call.value,
            phase=self._phase,
            line=call.line,
            when=" and ".join(filter(None, (self._given, when))),
        )
        further = self._conditions(call)
        if further:
            base = replace(base, when=" and ".join(filter(None, (base.when, *further))))
        if call.what == "unparsed":
            return replace(base, key=call.on, undecided="this part of the script cannot be parsed")
        if call.what in _DISPATCHER:
            return self._dispatched(base, call)
        if call.what == "attn_implementation" and call.detail == "none":
            shown = "sdpa of Transformers, or eager if the model has no sdpa"
            return replace(base, backend="native", shown=shown)
        if call.detail == "unsloth":
            return replace(base, undecided=_BY_UNSLOTH)
        if call.what == "attn_implementation" and call.detail == "option" and not call.value:
            reason = "an option of the same name decides, and Transformers where it is not given"
            return replace(base, undecided=reason)
        if call.what == "attn_implementation":
            return implementation(base, self._facts)
        return replace(base, **_other(call))

    def _conditions(self, call: Call) -> list[str]:
        """What else must hold for a line to have its effect."""
        found = []
        if call.detail == "sliced" and not self._has_unet():
            found.append("the model is a U-Net of Stable Diffusion")
        if _trains(self._reading) and call.what in ("xformers", "set_attn_processor"):
            # The pipeline may be one for samples, beside the model that is trained.
            classes = target_of(self._reading, call.on).classes
            alone = "pipe" in call.on.lower() and "." not in call.on.removeprefix("self.")
            if alone and classes and all("Pipeline" in one for one in classes):
                found.append(f"what is trained is the model of `{call.on}`")
        if call.on == "VLLM_ATTENTION_BACKEND":
            found.append("vLLM is older than 0.15, which reads the variable")
        return found

    def _dispatched(self, base: Asked, call: Call) -> Asked:
        if not call.value:
            return replace(base, undecided="the name is not written here, so it cannot be read")
        names = [one.name for one in catalogue.load().names_of("diffusers")]
        target, model = self._target(call)
        if model.chooses:
            reason = "the model names flex for a part of its attention in its own code"
            return replace(base, undecided=reason)
        return replace(
            base,
            backend=call.value if call.value in names else "",
            dtype=target.dtype or ("" if target.unknown_dtype else "bf16"),
            compiled=target.compiled,
            masks=model.masks if model.classes else ("none",),
            head_dim=model.head_dim,
        )

    def _target(self, call: Call) -> tuple[Target, Model]:
        target = target_of(self._reading, call.on)
        if len(target.classes) != 1:
            return target, Model(classes=target.classes)
        return target, model_of(target.classes[0], self._facts)

    def _idle(self, call: Call) -> str:
        """The pipeline, if all that the script loads never reach the dispatcher."""
        classes = target_of(self._reading, call.on).classes
        if classes and all(model_of(one, self._facts).routed is False for one in classes):
            return classes[0]
        return ""

    def _without_effect(
        self, asked: Asked, call: Call, pipeline: str
    ) -> tuple[Phase, list[Finding]]:
        where = self._reading.place(call.line)
        phase = Phase(
            phase=asked.phase,
            asked=asked.value,
            backend="native",
            shown="native (torch's own)",
            line=call.line,
            when=asked.when,
            why=f"{where}: {asked.value} has no effect: {pipeline} does not go through the"
            " dispatcher",
        )
        found = config_finding(
            "simpletuner/backend-not-routed",
            self._reading,
            "",
            f"{call.what}({asked.value!r}) has no effect on {pipeline}: its model does not go"
            " through the dispatcher",
            why="The models of this pipeline keep attention processors that call torch's own"
            " function.",
            seen=(observed(call.what, asked.value, "native"),),
            fixes=(at_line(self._reading, call.line, "remove the call"),),
            line=call.line,
        )
        return phase, [found]

    def _unknown(self, asked: Asked, call: Call) -> tuple[Phase, list[Finding]]:
        names = [one.name for one in catalogue.load().names_of("diffusers")]
        near = next(iter(nearest(asked.value, names)), "native")
        finding = config_finding(
            "diffusers/backend-name-unknown",
            self._reading,
            call.what,
            f"Diffusers has no attention backend {asked.value!r}",
            seen=(observed(call.what, asked.value, f"one of {', '.join(names)}"),),
            fixes=(at_line(self._reading, call.line, f"{asked.value} → {near}"),),
            line=call.line,
        )
        why = f"{self._reading.place(call.line)}: Diffusers raises an error"
        phase = Phase(
            phase=asked.phase,
            asked=asked.value,
            backend="",
            shown="stops",
            why=why,
            line=call.line,
            when=asked.when,
        )
        return phase, [finding]

    def _otherwise(self, taken: Sequence[tuple[Call, Phase]]) -> list[Phase]:
        """What runs where no line is certain to choose: the variable of the machine, or torch's."""
        loaded = [*dict.fromkeys(_pipelines(self._reading))]
        # A model alone, as scripts that train load it, runs where something says the phase.
        alone = not self._given
        classes = [one for one in loaded if "Pipeline" in one or (alone and _is_model(one))]
        of_pipelines = [one for one in taken if one[0].what not in _OF_MODELS]
        if not classes:
            return self._language_models(taken)
        if self._decided(of_pipelines):
            return []
        asked = Asked(
            key="otherwise" if of_pipelines else "no line chooses",
            value="",
            backend="native",
            phase=self._phase,
            when=self._given,
        )
        if taken and not of_pipelines:
            asked = replace(asked, key=f"no line chooses for {', '.join(classes)}")
        reason = self._own_attention(classes)
        if reason:
            asked = replace(asked, backend="", undecided=reason)
            return [evaluated(asked, self._reading, self._support)[0]]
        variable = self._facts.env.get("DIFFUSERS_ATTN_BACKEND", "")
        names = [one.name for one in catalogue.load().names_of("diffusers")]
        if variable in names:
            model = model_of(classes[0], self._facts)
            if model.routed and len(classes) == 1:
                key = f"DIFFUSERS_ATTN_BACKEND is {variable} in the environment"
                asked = replace(
                    asked, key=key, backend=variable, masks=model.masks, head_dim=model.head_dim
                )
            else:
                reason = f"DIFFUSERS_ATTN_BACKEND is {variable} in the environment"
                asked = replace(asked, backend="", undecided=reason)
        return [evaluated(asked, self._reading, self._support)[0]]

    def _decided(self, taken: Sequence[tuple[Call, Phase]]) -> bool:
        """On every way through the script a line chooses."""
        ways = [
            tuple(one for one in call.when if holds((one,), self._facts) is not True)
            for call, _ in taken
            if not self._conditions(call)
        ]
        return covered(ways) or any(one.undecided and not call.when for call, one in taken)

    def _language_models(self, taken: Sequence[tuple[Call, Phase]]) -> list[Phase]:
        """The default of Transformers for language models that are loaded without a choice."""
        loaded = [one for one in self._reading.calls if one.what == "language model"]
        if not loaded or taken:
            return []
        first = loaded[0]
        asked = Asked(
            key=f"no line chooses for {first.value} in {self._reading.place(first.line)}",
            value="",
            backend="native",
            shown="sdpa of Transformers, or eager if the model has no sdpa",
            phase=self._phase,
            when=self._given,
        )
        details = {one.detail for one in loaded}
        open_ = [said for detail, said in _IF_LOADED.items() if detail in details]
        asked = replace(asked, when=" and ".join(filter(None, (asked.when, *open_))))
        imported = [one.value for one in self._reading.calls if one.what == "acceleration"]
        if imported:
            reason = f"{imported[0]}, which the script imports, may replace the model's attention"
            asked = replace(asked, backend="", shown="", undecided=reason)
        return [evaluated(asked, self._reading, self._others)[0]]

    def _own_attention(self, classes: Sequence[str]) -> str:
        """Why torch's own attention is not certain although no line chooses, or empty."""
        foreign = _foreign(self._reading)
        other = next((one for one in _loaded(self._reading) if one in foreign), "")
        if other:
            return f"{other} is of {foreign[other]}, whose code decides"
        named = next((one for one in classes if model_of(one, self._facts).chooses), "")
        if named:
            return f"the model of {named} chooses flex for a part of its attention itself"
        elsewhere = named_for_training(self._reading) and not _trains(self._reading)
        if self._phase == "training" and elsewhere:
            return "the name says that this file trains, and the code that does is elsewhere"
        calls = self._reading.calls
        changes = next((one.value for one in calls if one.what == "acceleration"), "")
        if changes:
            return f"{changes}, which the script imports, may replace the model's attention"
        handed = next((one for one in calls if one.what == "handed over"), None)
        if handed is not None:
            where = self._reading.place(handed.line)
            return f"{handed.value} of {handed.on} gets the model in {where}, and may change it"
        own = next((one for one in calls if one.what == "own code"), None)
        if own is not None:
            return f"{own.value} in {self._reading.place(own.line)} brings code of its own"
        if "ModularPipeline" in classes:
            return "the model of a ModularPipeline follows from its repository"
        return ""

    def parallel(self) -> Iterator[Finding]:
        """Context parallelism with a backend that is not made for it."""
        call = next((one for one in self._reading.calls if one.what == "context parallel"), None)
        if call is None:
            return
        for one in _choices(self._reading):
            if one.what in _DISPATCHER and one.value in ALONE:
                yield config_finding(
                    "diffusers/context-parallel",
                    self._reading,
                    "",
                    f"{one.value} cannot be split over several GPUs, and"
                    f" {self._reading.place(call.line)} asks for that ({call.value})",
                    seen=(observed(one.what, one.value, "native, flash or _native_cudnn"),),
                    fixes=(at_line(self._reading, one.line, f"{one.value} → _native_cudnn"),),
                    line=one.line,
                )


def _other(call: Call) -> dict[str, object]:
    """What lines outside Diffusers' dispatcher and Transformers choose."""
    what, value = call.what, call.value
    if what.startswith("sdpa"):
        return _torch(call)
    if what == "xformers":
        return {"backend": "xformers", "masks": (), "key": "xformers' attention processor"}
    if what == "vllm":
        return {"key": call.on or "attention_backend", "shown": f"{value} of vLLM or SGLang"}
    if value and call.detail != "sliced":
        return {"backend": value, "masks": ()}
    if what == "set_attn_processor" and call.detail == "sliced":
        shown = "sliced attention of Diffusers, not fused"
        return {"backend": "_native_math", "shown": shown, "key": "attention slicing"}
    if what == "set_attn_processor":
        return {"undecided": "this attention processor is not a known one"}
    return {"undecided": "the name is not written here, so it cannot be read"}


def _torch(call: Call) -> dict[str, object]:
    """What lines that change torch's own attention choose."""
    value = call.value
    if call.what == "sdpa switch":
        shown = f"native (torch's own) without {value}"
        return {"backend": "native", "value": f"no {value}", "shown": shown, "key": "switched off"}
    if call.what == "sdpa replaced":
        backend = next((one for word, one in _REPLACEMENTS.items() if word in value), "")
        key = "torch's scaled_dot_product_attention is replaced"
        if not backend:
            return {"key": key, "undecided": f"{value or 'what replaces it'} is not known"}
        return {"key": key, "backend": backend, "masks": (), "instead": "torch's own function"}
    if not value:
        return {"undecided": "the kernels are not written here"}
    if " " in value:
        return {"backend": "native", "shown": f"native, held to {value.replace(' ', ', ')}"}
    return {"backend": value, "masks": ()}


def _helpers(reading: Reading) -> Iterator[Finding]:
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


def _notes(reading: Reading, facts: Facts, newest: str) -> Iterator[str]:
    said = _says_phase(reading)
    if said is not None:
        does = "trains a model" if said.what == "training" else "runs a model"
        yield f"{reading.place(said.line)}: {said.value} says that the script {does}"
    if facts.diffusers.installed is False and _uses_diffusers(reading):
        yield f"Diffusers is not installed; assumed: {newest}, the newest known release"
    for call in reading.calls:
        if call.what == "no effect":
            yield (
                f"{reading.place(call.line)}: {call.value} has no effect: Transformers reads"
                " _attn_implementation of a configuration"
            )
        if call.what == "variable" and call.on == "DIFFUSERS_ATTN_BACKEND" and _late(reading, call):
            yield (
                f"{reading.place(call.line)} sets DIFFUSERS_ATTN_BACKEND after Diffusers was"
                " imported, which read it then: it has no effect"
            )
    several = sum(one.what == "set_attention_backend" for one in reading.calls)
    if several > 1:
        yield (
            "set_attention_backend is called more than once: from Diffusers 0.37 on each call also"
            " changes the default of the whole process"
        )
    for first, last, reason in reading.unread:
        lines = f"lines {first} to {last}" if last > first else f"line {first}"
        yield (f"{lines} cannot be parsed by this Python ({reason}): searched for names alone")
    if not [*_choices(reading)]:
        yield (
            "no line of this file chooses a backend in a way that is known here; code that it"
            " imports was not read"
        )
