"""What runs for the models of a script where no line is certain to choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from attn_doctor.backends import catalogue
from attn_doctor.configs.asked import Asked, evaluated
from attn_doctor.configs.backend_support import BackendSupport
from attn_doctor.configs.diffusers.branches import holds
from attn_doctor.configs.diffusers.loaded import foreign, is_model, loaded, pipelines
from attn_doctor.configs.diffusers.phases import Stage, named_for_training, trains
from attn_doctor.configs.diffusers.pipelines import model_of
from attn_doctor.configs.prediction import Phase
from attn_doctor.configs.readers.settings import Call, Reading
from attn_doctor.configs.transformers import by_itself
from attn_doctor.facts import Facts

#: Those that choose for a model of Transformers or vLLM, not for a pipeline.
OF_MODELS = ("attn_implementation", "vllm")
#: What a phase does with a model.
DOES = {"training": "trained", "validation": "run", "inference": "run"}
#: What has to hold where a language model is loaded in this way, so that its default counts.
_IF_LOADED = {
    "own code": "the model's repository has no code of its own",
    "open": "arguments that are not written in the call choose nothing",
}


class Defaults(NamedTuple):
    """What runs by itself in one phase of a script."""

    reading: Reading
    facts: Facts
    stage: Stage
    support: BackendSupport
    """For Diffusers."""
    others: BackendSupport
    several: bool
    """The script has other phases too."""

    def phases(self, taken: Sequence[tuple[Call, Phase]], decided: bool) -> list[Phase]:
        """The variable of the machine, or what the libraries take by themselves.

        `taken`: the lines that choose. `decided`: on every way one of them chooses for a pipeline.
        """
        if self.stage.served and self.stage.said is not None:
            return [self._of_server(self.stage.said)]
        classes = self._classes()
        if not classes:
            return self._language_models(taken)
        return [] if decided else [self._of_pipelines(classes, taken)]

    def _of_server(self, call: Call) -> Phase:
        """What vLLM or SGLang takes by itself."""
        asked = Asked(
            key=f"no argument chooses in {self.reading.place(call.line)}",
            value="",
            shown=f"what {call.on} chooses for the GPU and the model",
            phase=self.stage.name,
            when=_IF_LOADED["open"] if call.detail.endswith("open") else "",
        )
        return evaluated(asked, self.reading, self.others)[0]

    def _classes(self) -> list[str]:
        """Pipelines, and denoising models alone, as scripts that train load them."""
        found = dict.fromkeys(pipelines(self.reading))
        # A model alone runs where something says the phase.
        alone = not self.stage.given
        return [one for one in found if "Pipeline" in one or (alone and is_model(one))]

    def _of_pipelines(self, classes: Sequence[str], taken: Sequence[tuple[Call, Phase]]) -> Phase:
        of_pipelines = [one for one in taken if one[0].what not in OF_MODELS]
        asked = Asked(
            key="otherwise" if of_pipelines else "no line chooses",
            value="",
            backend="native",
            phase=self.stage.name,
            when=" and ".join(filter(None, (self.stage.given, self._open()))),
        )
        if taken and not of_pipelines:
            asked = replace(asked, key=f"no line chooses for {', '.join(classes)}")
        reason = self._own_attention(classes)
        if reason:
            asked = replace(asked, backend="", undecided=reason)
            return evaluated(asked, self.reading, self.support)[0]
        variable = self.facts.env.get("DIFFUSERS_ATTN_BACKEND", "")
        names = [one.name for one in catalogue.load().names_of("diffusers")]
        if variable in names:
            model = model_of(classes[0], self.facts)
            if model.routed and len(classes) == 1:
                key = f"DIFFUSERS_ATTN_BACKEND is {variable} in the environment"
                asked = replace(
                    asked, key=key, backend=variable, masks=model.masks, head_dim=model.head_dim
                )
            else:
                reason = f"DIFFUSERS_ATTN_BACKEND is {variable} in the environment"
                asked = replace(asked, backend="", undecided=reason)
        return evaluated(asked, self.reading, self.support)[0]

    def _open(self) -> str:
        """What must hold where a pipeline is loaded with arguments that are not written."""
        loads = (one for one in self.reading.calls if one.what == "pipeline")
        open_ = any(one.detail == "open" and "Pipeline" in one.value for one in loads)
        return _IF_LOADED["open"] if open_ else ""

    def _language_models(self, taken: Sequence[tuple[Call, Phase]]) -> list[Phase]:
        """The default of Transformers for language models that are loaded without a choice."""
        loads = [one for one in self.reading.calls if one.what == "language model"]
        if not loads or (taken and not self.several):
            return []
        first = loads[0]
        where = self.reading.place(first.line)
        details = {one.detail for one in loads}
        open_ = [said for detail, said in _IF_LOADED.items() if detail in details]
        if taken:
            open_ = [f"the model of {where} is {DOES[self.stage.name]}", *open_]
        asked = Asked(
            key=f"no line chooses for {first.value} in {where}",
            value="",
            phase=self.stage.name,
            when=" and ".join(filter(None, (self.stage.given, *open_))),
        )
        asked = by_itself(asked, [one.value for one in loads], self.facts)
        reason = self._replaced()
        if reason:
            asked = replace(asked, backend="", shown="", undecided=reason)
        return [evaluated(asked, self.reading, self.others)[0]]

    def _own_attention(self, classes: Sequence[str]) -> str:
        """Why torch's own attention is not certain although no line chooses, or empty."""
        packages = foreign(self.reading)
        other = next((one for one in loaded(self.reading) if one in packages), "")
        if other:
            return f"{other} is of {packages[other]}, whose code decides"
        named = next((one for one in classes if model_of(one, self.facts).chooses), "")
        if named:
            return f"the model of {named} chooses flex for a part of its attention itself"
        elsewhere = named_for_training(self.reading) and not trains(self.reading)
        if self.stage.name == "training" and elsewhere:
            return "the name says that this file trains, and the code that does is elsewhere"
        calls = self.reading.calls
        replaced = self._replaced()
        if replaced:
            return replaced
        handed = next((one for one in calls if one.what == "handed over"), None)
        if handed is not None:
            where = self.reading.place(handed.line)
            return f"{handed.value} of {handed.on} gets the model in {where}, and may change it"
        if "ModularPipeline" in classes:
            return "the model of a ModularPipeline follows from its repository"
        return ""

    def _replaced(self) -> str:
        """Why a package or code of the user may have replaced the attention, or empty."""
        calls = self.reading.calls
        changes = next((one.value for one in calls if one.what == "acceleration"), "")
        if changes:
            return f"{changes}, which the script imports, may replace the model's attention"
        own = (one for one in calls if one.what == "own code")
        reached = next((one for one in own if holds(one.when, self.facts) is not False), None)
        if reached is None:
            return ""
        return f"{reached.value} in {self.reading.place(reached.line)} brings code of its own"
