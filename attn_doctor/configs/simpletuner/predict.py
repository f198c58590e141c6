"""Predicts which attention SimpleTuner runs in training and validation with a configuration.

What it cannot know: the attention of ControlNets and of text encoders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from attn_doctor.backends.readiness import Readiness
from attn_doctor.configs.attention_size import head_shape, memory
from attn_doctor.configs.backend_support import BackendSupport, exceptions_of
from attn_doctor.configs.prediction import Phase, PhaseName, Prediction, Wanted, counts
from attn_doctor.configs.readers.settings import Reading
from attn_doctor.configs.simpletuner.families import newest, release
from attn_doctor.configs.simpletuner.findings import found
from attn_doctor.configs.simpletuner.run import (
    PHASES,
    Run,
    attention_call,
    batch_of,
    effective,
    largest,
    packed_kernel,
    understood,
)
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding


def predict(
    reading: Reading, facts: Facts, findings: Sequence[Finding], wanted: Wanted = ""
) -> Prediction:
    """Predict the phases of a run, with the problems of the configuration."""
    run = understood(reading, facts)
    support = BackendSupport(facts, findings, "simpletuner")
    # `--for inference` asks of a validation that this configuration does without.
    without = reading.get("validation_disable").lower() == "true" and wanted != "inference"
    phases = tuple(
        _phase(run, phase, support)
        for phase in PHASES
        if counts(phase, wanted) and not (without and phase == "validation")
    )
    return Prediction(
        reading=reading,
        title="SimpleTuner",
        version=run.release.version,
        installed=facts.simpletuner.installed,
        subject=run.family.title if run.family else reading.get("model_family"),
        phases=phases,
        findings=tuple(found(run, phases, support, facts)),
        ignored=tuple(_ignored(run)),
        notes=tuple(_notes(run, facts)),
    )


def _phase(run: Run, phase: PhaseName, support: BackendSupport) -> Phase:
    backend, why = effective(run, phase)
    tokens = largest(run.reading, run.preset, phase).tokens
    shape = head_shape(run.preset) or (
        (run.heads, run.family.head_dim) if run.family and run.heads else None
    )
    fused = _fused(run, backend)
    setting = run.reading.settings.get("attention_mechanism")
    asked = setting is not None and bool(setting.text)
    if run.reading.unset and not asked:
        why = f"{run.reading.unset} may choose, and what it holds was not followed"
        return Phase(phase=phase, asked="", backend="", shown="unknown", why=why, undecided=why)
    line = setting.line if setting is not None and asked else 0
    base = Phase(
        phase=phase,
        asked=run.mechanism if asked else "",
        backend=backend,
        shown=_shown(backend),
        why=why or (f"{run.reading.place(line)}: attention_mechanism" if line else ""),
        line=line,
        last=_last(run, phase) if not backend and run.name else "",
        fused=fused,
        dtype=run.dtype,
        mask=run.family.mask if run.family else "",
        tokens=tokens,
        mib=memory(
            backend,
            PHASES[phase],
            shape,
            tokens,
            batch_of(run.reading, phase),
            fused=bool(fused),
        )
        if fused is not None
        else None,
    )
    if not backend:
        return replace(base, undecided="" if run.name is None and not run.listed else why)
    if backend == "packed":
        # Packed attention is that of a kernel, which has to be there.
        backend = packed_kernel(run)
    answer = support.answer(backend, attention_call(run, phase, backend, tokens))
    # That SageAttention trains nothing is a finding of its own.
    reasons = [one for one in answer.reasons if one.id != "st-sage-training"]
    if not reasons or reasons[0].state is Readiness.READY:
        return replace(base, state=Readiness.READY, exceptions=exceptions_of(answer))
    return replace(base, state=reasons[0].state, reason=reasons[0].text)


def _last(run: Run, phase: PhaseName) -> str:
    """What ran in the last release that was looked at, where this one is newer."""
    if run.release.looked_at or run.family is None:
        return ""
    before, _ = effective(replace(run, release=release(newest())), phase)
    return f"{_shown(before)} in {newest()}" if before else ""


def _shown(backend: str) -> str:
    if not backend:
        return "unknown"
    return {"native": "native (torch's own)", "packed": "packed attention"}.get(backend, backend)


def _fused(run: Run, backend: str) -> bool | None:
    if backend in ("", "packed"):
        return None
    if backend == "_native_math":
        return False
    return run.compiled if backend == "flex" else True


def _ignored(run: Run) -> Iterator[str]:
    reading = run.reading
    if reading.form == "env" and "ATTENTION_MECHANISM" in reading.variables:
        yield "ATTENTION_MECHANISM, which SimpleTuner does not read from config.env"
    mechanism = reading.settings.get("attention_mechanism")
    if mechanism is None or run.name is None or run.name.backend in ("native", "kohaku_fa_auto"):
        return
    own = run.family is not None and run.family.name == "mageflow"
    if own and run.mechanism.startswith("flash"):
        return
    if own or all(effective(run, phase)[0] == "native" for phase in PHASES):
        yield f"{mechanism.name} = {mechanism.text}"


def _notes(run: Run, facts: Facts) -> Iterator[str]:
    if facts.simpletuner.installed is False:
        yield f"SimpleTuner is not installed; assumed: {newest()}, the newest known release"
    if run.release.source is not None:
        yield f"from the source of SimpleTuner {run.release.version}, which is not in the table"
    if run.mechanism == "flash-attn-2":
        yield "flash-attn-2 means FlashAttention of variable length, not FlashAttention 2"
    held = run.name is not None and run.name.backend in ("_native_flash", "_native_cudnn")
    if held and run.release.holds_sdpa:
        yield (
            f"{run.mechanism} holds the VAE to that kernel too, which fails in fp32 or with heads"
            " of 512: cache latents first, or take native-efficient"
        )
    if run.compiled and "dynamo_cache_export" not in run.reading.settings and run.keeps:
        yield "SimpleTuner can keep what it compiled for later runs: dynamo_cache_export"
    if run.family is not None and run.family.note:
        yield f"{run.family.title}: {run.family.note}"
