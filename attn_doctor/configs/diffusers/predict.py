"""What a Python script, or the environment alone, makes Diffusers and Transformers do.

A script is read, not run: which line is reached, and with which model, is the reader's to know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from attn_doctor.backends import catalogue
from attn_doctor.configs.asked import ALONE, Asked, evaluated
from attn_doctor.configs.attention_size import DEMAND, elements
from attn_doctor.configs.backend_support import BackendSupport
from attn_doctor.configs.diffusers.branches import condition, covered, holds
from attn_doctor.configs.diffusers.choices import DISPATCHER, choices, outside
from attn_doctor.configs.diffusers.defaults import DOES, OF_MODELS, Defaults
from attn_doctor.configs.diffusers.loaded import pipelines, uses_diffusers
from attn_doctor.configs.diffusers.notes import helpers, notes
from attn_doctor.configs.diffusers.objects import Target, target_of
from attn_doctor.configs.diffusers.phases import Stage, stages
from attn_doctor.configs.diffusers.pipelines import Model, model_of
from attn_doctor.configs.diffusers.script_sizes import size_of, too_large
from attn_doctor.configs.findings import at_line, config_finding, observed
from attn_doctor.configs.prediction import Phase, Prediction, Wanted
from attn_doctor.configs.readers.settings import Call, Reading
from attn_doctor.configs.transformers import EITHER, implementation
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding
from attn_doctor.suggest import nearest

#: Those that choose for the object that they are called on.
_ON_OBJECTS = ("set_attention_backend", "xformers", "set_attn_processor", "attn_implementation")
_BY_UNSLOTH = "Unsloth replaces the model's attention, and chooses by what is installed"


def predict(
    reading: Reading, facts: Facts, findings: Sequence[Finding], wanted: Wanted = ""
) -> Prediction:
    """Predict the backend of each line that chooses one, with the problems."""
    several = stages(reading, wanted)
    found = [*helpers(reading)]
    answers: list[Phase] = []
    said: list[str] = []
    certain = sum(one.said is not None for one in several)
    for stage in several:
        one = _Script(reading, facts, findings, stage, certain > 1)
        phases, wrong, without_effect = one.phases()
        answers += phases
        titles = {each.title for each in found}
        found += [each for each in wrong if each.title not in titles]
        said += without_effect
    found += _parallel(reading)
    table = catalogue.load().framework("diffusers")
    uses = uses_diffusers(reading)
    return Prediction(
        reading=reading,
        title=table.title if uses else "Python script",
        version=(facts.diffusers.version or table.newest) if uses else "",
        installed=facts.diffusers.installed if uses else None,
        subject=", ".join(dict.fromkeys(pipelines(reading))),
        phases=tuple(answers),
        findings=tuple(found),
        notes=(*dict.fromkeys(said), *notes(reading, several, facts, table.newest)),
    )


def _named(call: Call) -> str:
    return call.value or call.what


class _Script:
    """One phase of a script, with what is the same for all its lines."""

    def __init__(
        self,
        reading: Reading,
        facts: Facts,
        findings: Sequence[Finding],
        stage: Stage,
        several: bool,
    ) -> None:
        """`several`: the script has other phases too."""
        self._reading, self._facts = reading, facts
        self._stage, self._several = stage, several
        self._support = BackendSupport(facts, findings, "diffusers")
        self._others = BackendSupport(facts, findings, "")
        self._finetrainers = BackendSupport(facts, findings, "finetrainers")

    def phases(self) -> tuple[list[Phase], list[Finding], list[str]]:
        """What each line chooses, the problems, and notes on lines without effect."""
        phases: list[Phase] = []
        found: list[Finding] = []
        said: list[str] = []
        taken: list[tuple[Call, Phase]] = []
        sliced = False if self._unsliced() else True if self._has_unet() else None
        for call in choices(self._reading, sliced):
            if not self._concerns(call):
                continue
            where = self._reading.place(call.line)
            if call.detail == "sliced" and self._unsliced():
                said.append(f"{where}: this pipeline has no sliced attention")
                continue
            if holds(call.when, self._facts) is False:
                said.append(f"{where}: {_named(call)} is not reached here")
                continue
            one, wrong = self._chosen(call, self._support_of(call))
            phases.append(one)
            taken.append((call, one))
            found += wrong
        if self._stage.served and taken:
            return phases, found, said
        defaults = Defaults(
            self._reading, self._facts, self._stage, self._support, self._others, self._several
        )
        decided = self._decided([one for one in taken if one[0].what not in OF_MODELS])
        return [*phases, *defaults.phases(taken, decided)], found, said

    def _concerns(self, call: Call) -> bool:
        """The line can choose in this phase: vLLM and SGLang only run models."""
        if self._stage.served:
            return call.what == "vllm"
        return call.what != "vllm" or self._stage.name == "inference"

    def _support_of(self, call: Call) -> BackendSupport:
        if call.what == "attention_provider":
            return self._finetrainers
        return self._support if call.what in DISPATCHER else self._others

    def _has_unet(self) -> bool:
        """The models of all pipelines are known."""
        return all(model_of(one, self._facts).classes for one in pipelines(self._reading))

    def _unsliced(self) -> bool:
        """The models of all pipelines are known, and none can compute attention in slices."""
        models = [model_of(one, self._facts).classes for one in pipelines(self._reading)]
        sliced = ("UNet2DConditionModel", "UNet3DConditionModel")
        return (
            bool(models)
            and all(models)
            and not any(one in sliced for each in models for one in each)
        )

    def _chosen(self, call: Call, support: BackendSupport) -> tuple[Phase, list[Finding]]:
        """The phase and the problems of one line."""
        asked = self._asked(call)
        if call.what in DISPATCHER and asked.value and not asked.undecided:
            idle = self._idle(call)
            if idle:
                return self._without_effect(asked, call, idle)
            if asked.backend == "":
                return self._unknown(asked, call)
        if asked.backend == "flex" and call.what in DISPATCHER:
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
        further = self._conditions(call)
        base = Asked(
            key=call.what,
            value=call.value,
            phase=self._stage.name,
            line=call.line,
            when=" and ".join(dict.fromkeys(filter(None, (self._stage.given, when, *further)))),
        )
        if call.what == "unparsed":
            return replace(base, key=call.on, undecided="this part of the script cannot be parsed")
        if call.what in DISPATCHER:
            return self._dispatched(base, call)
        if call.what == "attn_implementation" and call.detail == "none":
            return replace(base, backend="native", shown=EITHER)
        if call.detail == "unsloth":
            return replace(base, undecided=_BY_UNSLOTH)
        if call.what == "attn_implementation" and call.detail == "option" and not call.value:
            reason = "an option of the same name decides, and Transformers where it is not given"
            return replace(base, undecided=reason)
        if call.what == "attn_implementation":
            return implementation(base, self._facts)
        return replace(base, **outside(call))

    def _conditions(self, call: Call) -> list[str]:
        """What else must hold for a line to have its effect."""
        found = []
        if call.detail == "sliced" and not self._has_unet():
            found.append("the model is a U-Net of Stable Diffusion")
        if self._stage.name == "training" and call.what in _ON_OBJECTS:
            # The pipeline may be one for samples, beside the model that is trained.
            classes = target_of(self._reading, call.on).classes
            alone = "pipe" in call.on.lower() and "." not in call.on.removeprefix("self.")
            if alone and classes and all("Pipeline" in one for one in classes):
                found.append(f"what is trained is the model of `{call.on}`")
        if self._several:
            found += self._of_this_phase(call)
        if call.on == "VLLM_ATTENTION_BACKEND":
            found.append("vLLM is older than 0.15, which reads the variable")
        return found

    def _of_this_phase(self, call: Call) -> list[str]:
        """Whether a line that chooses is for what this phase of several trains or runs."""
        calls = self._reading.calls
        name = self._stage.name
        if call.what == "attn_implementation" and not call.on:
            others = any(one.what == "language model" for one in calls)
            where = self._reading.place(call.line)
            return [f"the model of {where} is {DOES[name]}"] if others else []
        if name == "training" or call.what not in _ON_OBJECTS or not call.on:
            return []
        running = {one.on for one in calls if one.what == "running" and not one.detail}
        mine = any(call.on == one or call.on.startswith(f"{one}.") for one in running)
        return [] if mine else [f"the model of `{call.on}` is run"]

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

    def _decided(self, taken: Sequence[tuple[Call, Phase]]) -> bool:
        """On every way through the script a line chooses."""
        ways = [
            tuple(one for one in call.when if holds((one,), self._facts) is not True)
            for call, _ in taken
            if not self._conditions(call)
        ]
        return covered(ways) or any(one.undecided and not call.when for call, one in taken)


def _parallel(reading: Reading) -> Iterator[Finding]:
    """Context parallelism with a backend that is not made for it."""
    call = next((one for one in reading.calls if one.what == "context parallel"), None)
    if call is None:
        return
    for one in choices(reading):
        if one.what in DISPATCHER and one.value in ALONE:
            yield config_finding(
                "diffusers/context-parallel",
                reading,
                "",
                f"{one.value} cannot be split over several GPUs, and"
                f" {reading.place(call.line)} asks for that ({call.value})",
                seen=(observed(one.what, one.value, "native, flash or _native_cudnn"),),
                fixes=(at_line(reading, one.line, f"{one.value} → _native_cudnn"),),
                line=one.line,
            )
