"""What a Python script, or the environment alone, makes Diffusers and Transformers do.

A script is read, not run: which line is reached, and with which model, is the reader's to know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_doctor.backends import catalogue
from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.readiness import RequirementResult
from attn_doctor.backends.required import remedy
from attn_doctor.configs.attention_size import DEMAND, elements
from attn_doctor.configs.backend_support import BackendSupport
from attn_doctor.configs.diffusers.script_sizes import size_of, too_large
from attn_doctor.configs.findings import at_line, config_finding, observed
from attn_doctor.configs.prediction import Phase, PhaseName, Prediction
from attn_doctor.configs.readers.settings import Call, Reading
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding, Fix, Safety
from attn_doctor.suggest import nearest

_COMPILED = (
    "import torch, torch.nn.attention.flex_attention as fa; "
    "fa.flex_attention = torch.compile(fa.flex_attention)"
)
_CHOICES = ("set_attention_backend", "attention_backend", "xformers")
#: Pipelines whose models never reach the dispatcher, by the beginning of their names.
_UNROUTED = (
    "StableDiffusion", "CogVideoX", "CogView4", "PixArt", "Lumina2", "OmniGen", "HiDream",
    "AuraFlow", "Kolors", "StableCascade",
)  # fmt: skip
#: Values of attn_implementation, and the backend they lead to.
_IMPLEMENTATIONS = {
    "sdpa": "native",
    "eager": "_native_math",
    "flex_attention": "flex",
    "flash_attention_2": "flash",
    "flash_attention_3": "_flash_3",
    "flash_attention_4": "flash_4_hub",
}


def predict(reading: Reading, facts: Facts, findings: Sequence[Finding]) -> Prediction:
    """Predict the backend of each line that chooses one, with the problems."""
    support = BackendSupport(facts, findings, "diffusers")
    phases: list[Phase] = []
    found = [*_helpers(reading)]
    for call in _choices(reading):
        one, wrong = _chosen(reading, call, support)
        phases.append(one)
        found += wrong
    table = catalogue.load().framework("diffusers")
    return Prediction(
        reading=reading,
        title=table.title,
        version=facts.diffusers.version or table.newest,
        installed=facts.diffusers.installed,
        subject=", ".join(dict.fromkeys(_pipelines(reading))),
        phases=tuple(phases),
        findings=tuple(found),
        notes=tuple(_notes(reading, facts, table.newest)),
    )


def _choices(reading: Reading) -> Iterator[Call]:
    """Everything that chooses a backend: the variable first, then calls in their order."""
    variable = reading.variables.get("DIFFUSERS_ATTN_BACKEND")
    if variable is not None and variable.text and not _late(reading):
        yield Call("DIFFUSERS_ATTN_BACKEND", variable.text, "", variable.line)
    for call in reading.calls:
        if call.what in (*_CHOICES, "attn_implementation"):
            yield call


def _late(reading: Reading) -> bool:
    """The script sets the variable after it imported Diffusers, which reads it at import."""
    variable = reading.variables.get("DIFFUSERS_ATTN_BACKEND")
    first = next((one.line for one in reading.calls if one.what == "import"), 0)
    return bool(variable and reading.form == "python" and first and first < variable.line)


def _pipelines(reading: Reading) -> list[str]:
    return [one.value for one in reading.calls if one.what == "pipeline" and one.value]


def _chosen(reading: Reading, call: Call, support: BackendSupport) -> tuple[Phase, list[Finding]]:
    names = [one.name for one in catalogue.load().names_of("diffusers")]
    trains = any(one.what == "training" for one in reading.calls)
    phase: PhaseName = "training" if trains else "inference"
    where = f"line {call.line}"
    value = "xformers" if call.what == "xformers" else call.value
    if not value:
        why = f"{where}: the name is not written in {call.what}, so it cannot be read"
        return Phase(phase=phase, asked="", backend="", shown="unknown", why=why), []
    backend = _IMPLEMENTATIONS.get(value, "") if call.what == "attn_implementation" else value
    if call.what == "attn_implementation" and not backend:
        why = f"{where}: attn_implementation {value} is not in the table"
        return Phase(phase=phase, asked=value, backend="", shown="unknown", why=why), []
    if backend not in names:
        return _unknown(reading, call, value, names, phase)
    transformers = call.what == "attn_implementation"
    compiled = transformers or any(
        one.what in ("compile", "flex compiled") for one in reading.calls
    )
    dtype = next((one.value for one in reading.calls if one.what == "dtype" and one.value), "bf16")
    size = size_of(reading) if backend == "flex" else None
    attention = AttentionCall(
        phase=phase,
        dtype=dtype,
        compiled=compiled,
        mask_elements=elements(size.tokens) if size else 0,
    )
    answer = support.answer(backend, attention)
    idle = _idle(reading) if call.what in ("set_attention_backend", "attention_backend") else ""
    if idle:
        why = f"{where}: {value} has no effect: {idle} does not go through the dispatcher"
        ran = Phase(
            phase=phase, asked=value, backend="native", shown="native (torch's own)", why=why
        )
        return ran, [_without_effect(reading, call, value, idle)]
    fused = compiled if backend == "flex" else backend != "_native_math"
    faults = support.faults(answer) if backend != "native" else []
    reason = answer.reasons[0] if answer.reasons else None
    found = [
        too_large(reading, call, value, size, phase, support)
        if size and one.id == DEMAND
        else _problem(reading, call, value, one, phase)
        for one in faults[:1]
    ]
    return (
        Phase(
            phase=phase,
            asked=value,
            backend=backend,
            shown=backend if not transformers else f"{value} of Transformers",
            why=f"{where}: {call.what}" if call.what != "DIFFUSERS_ATTN_BACKEND" else call.what,
            fused=fused,
            state=answer.state,
            reason=reason.text if reason else "",
            dtype=dtype,
        ),
        found,
    )


def _idle(reading: Reading) -> str:
    """The pipeline, if all that the script loads never reach the dispatcher."""
    pipelines = [one for one in _pipelines(reading) if "Pipeline" in one]
    if pipelines and all(one.startswith(_UNROUTED) for one in pipelines):
        return pipelines[0]
    return ""


def _without_effect(reading: Reading, call: Call, value: str, pipeline: str) -> Finding:
    return config_finding(
        "simpletuner/backend-not-routed",
        reading,
        "",
        f"{call.what}({value!r}) has no effect on {pipeline}: its model does not go through the"
        " dispatcher",
        why="The models of this pipeline keep attention processors that call torch's own function.",
        seen=(observed(call.what, value, "native"),),
        fixes=(at_line(reading, call.line, "remove the call"),),
        line=call.line,
    )


def _unknown(
    reading: Reading, call: Call, value: str, names: list[str], phase: PhaseName
) -> tuple[Phase, list[Finding]]:
    near = next(iter(nearest(value, names)), "native")
    finding = config_finding(
        "diffusers/backend-name-unknown",
        reading,
        call.what,
        f"Diffusers has no attention backend {value!r}",
        seen=(observed(call.what, value, f"one of {', '.join(names)}"),),
        fixes=(at_line(reading, call.line, f"{value} → {near}"),),
        line=call.line,
    )
    why = f"line {call.line}: Diffusers raises an error"
    return Phase(phase=phase, asked=value, backend="", shown="unknown", why=why), [finding]


def _problem(
    reading: Reading, call: Call, value: str, reason: RequirementResult, phase: PhaseName
) -> Finding:
    rule, text = reason.rule, reason.text
    native = at_line(reading, call.line, f"{value} → native")
    unfused = reason.id in ("flex-unfused", "flex-unfused-memory")
    if unfused:
        title = "flex runs unfused: nothing in this file compiles it"
        fixes: tuple[Fix, ...] = (
            Fix(
                title=f"{reading.file}: add before the first forward pass",
                safety=Safety.MANUAL,
                code=_COMPILED,
            ),
            native,
        )
    else:
        title = f"{value} does not work as written in {phase}: {text}"
        own = remedy(reason)
        fixes = (own, native) if own else (native,)
    return config_finding(
        rule,
        reading,
        call.what,
        title,
        why="" if unfused else f"{text[0].upper()}{text[1:]}.",
        seen=(observed(call.what, value, ""),),
        fixes=fixes,
        line=call.line,
    )


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
    if facts.diffusers.installed is False:
        yield f"Diffusers is not installed; assumed: {newest}, the newest known release"
    if _late(reading):
        line = reading.variables["DIFFUSERS_ATTN_BACKEND"].line
        yield (
            f"line {line} sets DIFFUSERS_ATTN_BACKEND after Diffusers was imported, which read it"
            " then: it has no effect"
        )
    several = sum(one.what == "set_attention_backend" for one in reading.calls)
    if several > 1:
        yield (
            "set_attention_backend is called more than once: from Diffusers 0.37 on each call also"
            " changes the default of the whole process"
        )
    if not any(one.what in (*_CHOICES, "attn_implementation") for one in reading.calls) and (
        "DIFFUSERS_ATTN_BACKEND" not in reading.variables
    ):
        yield "nothing in this file chooses a backend: torch's own attention runs"
