"""What the backend that runs says to what SimpleTuner's model gives it: precision, masks."""

from __future__ import annotations

from collections.abc import Iterator

from attn_doctor.backends.readiness import Readiness, RequirementResult
from attn_doctor.configs.backend_support import CONFIGURED, MASKS, Judge
from attn_doctor.configs.dense_masks import (
    DEMAND,
    NATIVE,
    beyond,
    most_samples,
    taking,
)
from attn_doctor.configs.findings import (
    because,
    change,
    remedy,
    tell,
)
from attn_doctor.configs.prediction import Phase
from attn_doctor.configs.simpletuner.run import Run, attention_call, choices
from attn_doctor.configs.simpletuner.sizes import batch_of, largest
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding, Fix, Safety

KEY = "attention_mechanism"
#: Backends of which a mask of two dimensions is misread.
_ROWS_MISREAD = ("flex",)


def inputs(run: Run, phase: Phase, judge: Judge, facts: Facts) -> Iterator[Finding]:
    """What the backend that runs says to what the model gives it."""
    # Torch's own attention lacks only what the rules on the machine say.
    if phase.backend in ("", "packed", "native"):
        return
    if phase.backend in _ROWS_MISREAD and phase.mask == "rows":
        yield _rows(run, phase, judge)
    wanted = attention_call(run, phase.phase, phase.backend, phase.tokens)
    answer = judge.answer(phase.backend, wanted)
    for reason in answer.reasons:
        if not reason.rule or reason.state is Readiness.UNKNOWN or reason.id == "st-sage-training":
            continue
        if reason.id in CONFIGURED or reason.rule in MASKS:
            yield _configured(run, phase, reason.id, reason.rule, reason.text, judge, facts)
        elif reason is answer.reasons[0] and not judge.known(reason.rule):
            yield _machine(run, phase, reason)


def _configured(
    run: Run, phase: Phase, demand: str, rule: str, text: str, judge: Judge, facts: Facts
) -> Finding:
    reading = run.reading
    if demand == DEMAND:
        return _beyond(run, phase, judge)
    if demand in ("half-precision", "flash-sdpa-precision"):
        half = "bf16" if (facts.driver.best_sm or 80) >= 80 else "fp16"
        return tell(
            rule,
            reading,
            "mixed_precision",
            f"{run.mechanism} computes in half precision, and mixed_precision"
            f" {reading.get('mixed_precision')} gives it fp32",
            seen=(because(reading, "mixed_precision", half),),
            fixes=(
                change(reading, "mixed_precision", half, "queries, keys and values in half"),
                change(reading, KEY, "diffusers", "takes fp32"),
            ),
        )
    if demand in ("flex-unfused", "flex-unfused-memory"):
        return _unfused(run, phase)
    if demand == "flex-causal":
        keys: tuple[str, ...] = ("model_family",)
    else:
        keys = ("model_family", KEY)
    best = _instead(run, phase, judge)
    when = " where captions are padded" if run.family and run.family.masked == "padded" else ""
    title = run.family.title if run.family else "this family"
    gives = "a causal flag" if demand == "flex-causal" else f"a {_kind(phase.mask)} mask{when}"
    return tell(
        rule,
        reading,
        KEY,
        f"{title} gives its attention {gives}, which {run.mechanism} does not take",
        why=f"{text[0].upper()}{text[1:]}.",
        seen=tuple(because(reading, key, "") for key in keys),
        fixes=(change(reading, KEY, best, "takes what this family gives"),),
    )


def _unfused(run: Run, phase: Phase) -> Finding:
    reading = run.reading
    cost = f", about {phase.mib} MiB for each layer" if phase.mib else ""
    return tell(
        "flex/unfused",
        reading,
        "dynamo_backend" if "dynamo_backend" in reading.settings else KEY,
        f"flex runs unfused: dynamo_backend is {reading.get('dynamo_backend') or 'not set'}{cost}",
        seen=(because(reading, "dynamo_backend", "inductor"),),
        fixes=(
            change(reading, "dynamo_backend", "inductor", "compiles the model, flex fused in it"),
            change(reading, KEY, "diffusers", "fused without compiling"),
        ),
    )


def _rows(run: Run, phase: Phase, judge: Judge) -> Finding:
    return tell(
        "flex/mask-two-dimensions",
        run.reading,
        KEY,
        f"{run.family.title if run.family else 'this family'} passes a mask of two dimensions,"
        " which flex reads as one over the queries",
        seen=(because(run.reading, "model_family", ""), because(run.reading, KEY, "")),
        fixes=(change(run.reading, KEY, _instead(run, phase, judge), "reads it as it is meant"),),
    )


def _beyond(run: Run, phase: Phase, judge: Judge) -> Finding:
    """A mask with a row for each query that is too large for flex."""
    title = run.family.title if run.family else "this family"
    since = run.family.dense if run.family and run.family.dense != "always" else ""
    update = Fix(
        title=f"Update SimpleTuner to {since} or newer, where this mask is over the keys alone",
        safety=Safety.ASK,
        run=(("pip", "install", "--upgrade", f"simpletuner>={since}"),),
    )
    size = largest(run.reading, run.preset, phase.phase)
    batch = batch_of(run.reading, phase.phase)
    fewer = most_samples(size.tokens)
    return beyond(
        run.reading,
        KEY,
        title,
        run.mechanism,
        size,
        phase=phase.phase,
        batch=batch,
        fixes=(
            update if since else None,
            _lengths(run, phase, judge),
            change(run.reading, KEY, "diffusers", NATIVE),
            change(run.reading, "train_batch_size", str(fewer), "keeps the size")
            if batch > 1 and fewer
            else None,
        ),
    )


def _lengths(run: Run, phase: Phase, judge: Judge) -> Fix | None:
    """A mechanism of this release that takes padding as lengths, best one that is ready."""
    if run.family is None or run.family.mask != "varlen":
        return None
    wanted = attention_call(run, phase.phase, "flash_varlen", phase.tokens)
    able = [
        (one.name, answer)
        for one in choices(run.release.version)
        if one.name in _PACKED
        for answer in [judge.answer(one.backend, wanted)]
        if all(reason.rule not in MASKS for reason in answer.reasons)
    ]
    able.sort(key=lambda one: one[1].state is not Readiness.READY)
    return next((change(run.reading, KEY, *taking(*one)) for one in able), None)


def _machine(run: Run, phase: Phase, reason: RequirementResult) -> Finding:
    return tell(
        reason.rule,
        run.reading,
        KEY,
        f"{run.mechanism} does not work as configured in {phase.phase}: {reason.text}",
        seen=(because(run.reading, KEY, ""),),
        fixes=(
            remedy(reason),
            change(run.reading, KEY, "diffusers", "torch's own attention runs everywhere"),
        ),
    )


def _instead(run: Run, phase: Phase, judge: Judge) -> str:
    """A mechanism of this release that takes what the family gives; torch's own at the least."""
    able = [one for one in choices(run.release.version) if one.name in _SAFE]
    wanted = attention_call(run, phase.phase, "native", phase.tokens)
    for one in able:
        if one.backend.endswith("_hub") and judge.answer(one.backend, wanted).state is (
            Readiness.READY
        ):
            return one.name
    return "diffusers"


#: Mechanisms to propose in place of one that takes no mask.
_SAFE = ("flash-attn-varlen-hub", "native-efficient", "diffusers")
#: Those that make lengths of a boolean mask.
_PACKED = ("flash-attn-2", "flash-attn-varlen-hub")


def _kind(mask: str) -> str:
    return {
        "rows": "two-dimensional",
        "float": "additive",
        "varlen": "boolean",
        "bool": "boolean",
    }.get(mask, "boolean")
