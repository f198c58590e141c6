"""The phases of a script: whether its lines train a model, run one, or leave that to other code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

from attn_doctor.configs.prediction import PhaseName, Wanted
from attn_doctor.configs.readers.settings import Branch, Call, Reading

#: Names of scripts that train.
_TRAINING = re.compile(r"(?i)(?:^|[_-])(?:train|finetune|fine_tune|dreambooth)(?:[_-]|$)")
_RUNNING = re.compile(
    r"(?i)infer|test|eval|generate|sample|predict|demo|export|convert|merge|prepare|preproc|dataset"
    r"|caption|download|config|util"
)


class Stage(NamedTuple):
    """One phase of a script."""

    name: PhaseName
    given: str = ""
    """Its condition, if no line of the script is certain to say it."""
    said: Call | None = None
    """The line that says it; None if none does."""
    served: bool = False
    """Only vLLM or SGLang runs a model in it, not what the script loads."""


def stages(reading: Reading, wanted: Wanted) -> list[Stage]:
    """The phases that the lines of a script say, or those that code elsewhere may add."""
    if wanted:
        return [Stage(wanted)]
    if reading.form not in ("python", "notebook"):
        return [Stage("inference")]
    found = _stages(reading)
    served = next((one for one in reading.calls if _serves(one)), None)
    loads = any(one.what in ("pipeline", "language model") for one in reading.calls)
    runs = any(one.name == "inference" and one.said for one in found)
    if served is None or (runs and loads):
        return found
    training = [one for one in found if one.name == "training" and (loads or one.said)]
    return [*training, Stage("inference", said=served, served=True)]


def _stages(reading: Reading) -> list[Stage]:
    """The phases of what a script loads itself."""
    trains = [one for one in reading.calls if one.what == "training"]
    runs = [
        one
        for one in reading.calls
        if one.what == "running" and not one.detail.startswith("served")
    ]
    learns = [one for one in trains if not one.detail]
    # A forward pass is a part of a training too, which may be elsewhere.
    alone = not trains and any(one.detail == "prepares" for one in runs)
    certain = [one for one in runs if not one.detail or (one.detail == "forward" and alone)]
    several = [*_said("training", learns), *_said("inference", certain)]
    if several and (learns or not trains):
        # A function that nothing calls is a condition beside what is called.
        return several if len(several) > 1 else [several[0]._replace(given="")]
    if trains:
        further = [Stage("inference", _RUN)] if runs else []
        return [Stage("training", _TRAIN), *(several or further)]
    return _elsewhere(reading, runs)


def _serves(call: Call) -> bool:
    """The line gives vLLM or SGLang a model to run, or a backend for that."""
    named = call.what == "variable" and call.on.startswith(("VLLM_", "SGLANG_"))
    return named or call.what == "vllm" or call.detail.startswith("served")


_TRAIN, _RUN = "code elsewhere trains the model", "code elsewhere runs the model"


def _elsewhere(reading: Reading, runs: Sequence[Call]) -> list[Stage]:
    """The phases of a script that neither trains nor runs what it loads."""
    if named_for_training(reading):
        return [Stage("training", _TRAIN)]
    loads = any(one.what == "pipeline" and "Pipeline" in one.value for one in reading.calls)
    taken = any(one.what == "taken" for one in reading.calls)
    forward = any(one.detail == "forward" for one in runs)
    if not forward and (runs or (loads and not taken)):
        return [Stage("inference", _RUN)]
    return [Stage("training", _TRAIN), Stage("inference", "code elsewhere only runs the model")]


def _said(name: PhaseName, calls: Sequence[Call]) -> Iterator[Stage]:
    """A phase with the first of the lines that say it, one that is called before others."""
    if calls:
        first = min(calls, key=lambda one: (bool(_uncalled(one.when)), one.line))
        function = _uncalled(first.when)
        yield Stage(name, f"`{function}` is called" if function else "", first)


def _uncalled(when: Sequence[Branch]) -> str:
    """The function of the script around a line, if nothing in the script calls it."""
    return next((one.text for one in when if one.kind == "called"), "")


def named_for_training(reading: Reading) -> bool:
    """The name of a script says that it trains."""
    name = PurePath(reading.file).stem
    return bool(_TRAINING.search(name)) and not _RUNNING.search(name)


def trains(reading: Reading) -> bool:
    """A line of the script trains a model, or prepares one for that."""
    return any(one.what == "training" for one in reading.calls)
