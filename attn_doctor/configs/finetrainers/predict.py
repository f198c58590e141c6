"""What Finetrainers will do with a command line: which provider serves the transformer.

Follows version 0.2.0, the only release with these options. Modules that are not named keep
FINETRAINERS_ATTN_PROVIDER. Which attention a model asks for was read from its code in Diffusers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.backends import catalogue
from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.framework_source import names_in_source
from attn_doctor.backends.readiness import RequirementResult
from attn_doctor.backends.required import remedy
from attn_doctor.configs.attention_size import head_shape
from attn_doctor.configs.backend_support import (
    MASKS,
    BackendSupport,
    exceptions_of,
    reason_of,
)
from attn_doctor.configs.findings import because, change, config_finding, from_variables
from attn_doctor.configs.prediction import Phase, PhaseName, Prediction, Wanted, counts
from attn_doctor.configs.readers.settings import Reading
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding
from attn_doctor.suggest import nearest

_PHASES: dict[PhaseName, str] = {
    "training": "attn_provider_training",
    "inference": "attn_provider_inference",
}
#: examples/inference/inference.py: one provider for the transformer, without a module.
_ALONE = "attn_provider"
#: Providers of the main branch that can be split over GPUs (`--cp_degree`).
_SPLIT = ("flash", "_native_cudnn", "_native_efficient", "_native_flash")


class _Model(Struct, frozen=True):
    title: str
    preset: str
    mask: str
    on: str = ""


#: What each model asks of attention, by --model_name.
_MODELS = {
    "cogvideox": _Model("CogVideoX", "cogvideox", "none"),
    "cogview4": _Model("CogView4", "", "none"),
    "flux": _Model("FLUX.1", "flux1", "none"),
    "hunyuan_video": _Model("HunyuanVideo", "hunyuanvideo", "varlen", "self-attention"),
    "ltx_video": _Model("LTX-Video", "ltx", "float", "cross-attention"),
    "wan": _Model("Wan", "wan21-1.3b", "none"),
}


def predict(
    reading: Reading, facts: Facts, findings: Sequence[Finding], wanted: Wanted = ""
) -> Prediction:
    """Predict the phases of a run, with the problems of the command line."""
    model = _MODELS.get(reading.get("model_name"))
    support = BackendSupport(facts, findings, "finetrainers")
    phases, found = [], []
    inference: dict[PhaseName, str] = {"inference": _ALONE}
    for phase, key in (inference if _infers(reading) else _PHASES).items():
        if not counts(phase, wanted):
            continue
        one, wrong = _phase(reading, facts, support, model, phase, key)
        phases.append(one)
        found += wrong
    found += _split(reading, phases)
    newest = {one.name: one.newest for one in catalogue.load().frameworks}
    found += from_variables(reading, facts, "finetrainers", newest)
    table = catalogue.load().framework("finetrainers")
    return Prediction(
        reading=reading,
        title=table.title,
        version=facts.finetrainers.version or table.newest,
        installed=facts.finetrainers.installed,
        subject=model.title if model else reading.get("model_name"),
        phases=tuple(phases),
        findings=tuple({one.rule + one.title: one for one in found}.values()),
        notes=tuple(_notes(reading, facts, table.newest)),
    )


def _infers(reading: Reading) -> bool:
    """The script starts examples/inference/inference.py, which has no training phase."""
    return _ALONE in reading.settings or "inference_type" in reading.settings


def _split(reading: Reading, phases: Sequence[Phase]) -> Iterator[Finding]:
    """Context parallelism with a provider that is not made for it."""
    if reading.get("cp_degree", "1") in ("", "0", "1"):
        return
    for phase in phases:
        if (phase.asked or _infers(reading)) and phase.backend not in _SPLIT:
            key = _ALONE if _infers(reading) else _PHASES[phase.phase]
            yield config_finding(
                "diffusers/context-parallel",
                reading,
                key,
                f"{phase.backend} cannot be split over several GPUs: the run stops",
                seen=(because(reading, "cp_degree", "1"), because(reading, key, "flash")),
                fixes=(change(reading, key, _value(key, "flash"), "can be split"),),
            )


def _value(key: str, provider: str) -> str:
    return provider if key == _ALONE else f"transformer:{provider}"


def _providers(reading: Reading, key: str) -> tuple[str, ...]:
    setting = reading.settings.get(key)
    if setting is None:
        return ()
    return setting.value if isinstance(setting.value, tuple) else (setting.text,)


def _phase(
    reading: Reading,
    facts: Facts,
    support: BackendSupport,
    model: _Model | None,
    phase: PhaseName,
    key: str,
) -> tuple[Phase, list[Finding]]:
    table = [one.name for one in catalogue.load().names_of("finetrainers")]
    known = _known(facts, table)
    given = _providers(reading, key)
    if key == _ALONE:
        given = tuple(f"transformer:{one}" for one in given)
    for one in given:
        module, colon, provider = one.partition(":")
        if not colon or provider not in known:
            return _stops(reading, phase, key, one, provider if colon else module, known)
    named = {one.partition(":")[0]: one.partition(":")[2] for one in given}
    provider = named.get("transformer", "")
    why = ""
    if not provider:
        variable = reading.variables.get("FINETRAINERS_ATTN_PROVIDER")
        value = variable.text if variable else facts.env.get("FINETRAINERS_ATTN_PROVIDER", "")
        value = "" if key == _ALONE else value  # its own default is native
        provider = value or "native"
        why = f"FINETRAINERS_ATTN_PROVIDER is {value}" if value else "no provider is named"
    if provider not in known:
        return _stops(reading, phase, key, provider, provider, known)
    if provider not in table:
        why = f"{provider} is in the source of this release, and is not known here"
        base = Phase(phase=phase, asked=provider, backend="", shown=provider, undecided=why)
        return replace(base, why=why, line=reading.line(key)), []
    shape = head_shape(model.preset) if model else None
    compiled = "transformer" in reading.get("compile_modules").split()
    attention = AttentionCall(
        phase=phase,
        mask=model.mask if model else "none",
        dtype=_dtype(reading),
        head_dim=shape[1] if shape else 128,
        compiled=compiled,
        assumed=("seq_len",) if shape else ("seq_len", "head_dim"),
    )
    answer = support.answer(provider, attention)
    faults = support.faults(answer) if provider != "native" else []
    found = [
        _problem(reading, key, provider, model, phase, one)
        for number, one in enumerate(faults)
        if number == 0 or one.rule in MASKS or one.id in ("half-precision", "flex-unfused")
    ]
    fused = compiled if provider == "flex" else provider != "_native_math"
    return (
        Phase(
            phase=phase,
            asked=provider if not why else "",
            backend=provider,
            shown="native (torch's own)" if provider == "native" else provider,
            why=why or f"{reading.place(reading.line(key))}: --{key}",
            line=0 if why else reading.line(key),
            fused=fused,
            state=answer.state,
            reason=reason_of(answer),
            exceptions=exceptions_of(answer),
            dtype=attention.dtype,
            mask=attention.mask,
        ),
        found,
    )


def _known(facts: Facts, table: list[str]) -> list[str]:
    """The providers: those of the source, of a release that the table was not compared with."""
    version = facts.finetrainers.version
    if version is None or version in catalogue.load().framework("finetrainers").compared:
        return table
    return sorted(names_in_source(facts, "finetrainers") or table)


def _dtype(reading: Reading) -> str:
    written = reading.get("transformer_dtype", "bf16")
    return {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(written, written)


def _stops(
    reading: Reading, phase: PhaseName, key: str, given: str, provider: str, known: list[str]
) -> tuple[Phase, list[Finding]]:
    near = next(iter(nearest(provider, known)), "native")
    finding = config_finding(
        "finetrainers/provider-unknown",
        reading,
        key,
        f"Finetrainers stops: --{key} {given} is not MODULE:PROVIDER with a provider that it has",
        why=f"The providers are {', '.join(known)}; the module is that of the trainer, as in"
        " transformer:flash_varlen.",
        seen=(because(reading, key, f"transformer:{near}", seen=given),),
        fixes=(change(reading, key, f"transformer:{near}", "a provider that exists"),),
    )
    why = f"Finetrainers stops at the start: {given} is not a provider"
    return Phase(phase=phase, asked=given, backend="", shown="unknown", why=why), [finding]


def _problem(
    reading: Reading,
    key: str,
    provider: str,
    model: _Model | None,
    phase: PhaseName,
    reason: RequirementResult,
) -> Finding:
    rule, demand, text = reason.rule, reason.id, reason.text
    title = model.title if model else "the model"
    why = f"{text[0].upper()}{text[1:]}."
    if rule in MASKS and model is not None:
        kind = "an additive" if model.mask == "float" else "a boolean"
        return config_finding(
            rule,
            reading,
            key,
            f"{title} gives its {model.on} {kind} mask, which {provider} does not take in {phase}",
            why=why,
            seen=(because(reading, "model_name", ""), because(reading, key, "transformer:native")),
            fixes=(change(reading, key, _native(reading, key), "takes every mask"),),
        )
    if demand == "half-precision":
        return config_finding(
            rule,
            reading,
            "transformer_dtype",
            f"{provider} computes in half precision, and transformer_dtype gives it fp32",
            seen=(because(reading, "transformer_dtype", "bf16"),),
            fixes=(change(reading, "transformer_dtype", "bf16", "queries, keys, values in half"),),
        )
    if demand == "flex-unfused":
        return config_finding(
            rule,
            reading,
            key,
            f"flex runs unfused in {phase}: the transformer is not compiled",
            seen=(because(reading, "compile_modules", "transformer"),),
            fixes=(
                change(reading, "compile_modules", "transformer", "compiles it, flex fused in it"),
                change(reading, key, _native(reading, key), "fused without compiling"),
            ),
        )
    return config_finding(
        rule,
        reading,
        key,
        f"{provider} does not work as configured in {phase}: {text}",
        why=why,
        seen=(because(reading, key, ""),),
        fixes=(
            remedy(reason),
            change(reading, key, _native(reading, key), "runs everywhere, with gradients"),
        ),
    )


def _native(reading: Reading, key: str) -> str:
    """The option's value with the transformer on torch's own attention, other modules kept."""
    if key == _ALONE:
        return "native"
    others = [one for one in _providers(reading, key) if not one.startswith("transformer:")]
    return " ".join(["transformer:native", *others])


def _notes(reading: Reading, facts: Facts, newest: str) -> Iterator[str]:
    if facts.finetrainers.installed is False:
        yield f"Finetrainers is not installed; assumed: {newest}, the newest known release"
    if reading.get("model_name") not in _MODELS:
        name = reading.get("model_name") or "not given in the script"
        yield f"--model_name is {name}: whether its model passes masks is unknown"
