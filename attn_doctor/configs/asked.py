"""What every kind of configuration comes to: who asked for which backend, where, and when.

A format only says that. Whether the backend runs here, and the findings, follow here for all.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.readiness import Answer, Readiness, RequirementResult
from attn_doctor.backends.required import remedy
from attn_doctor.configs.backend_support import (
    BackendSupport,
    exceptions_of,
    reason_of,
    wrong_results,
)
from attn_doctor.configs.findings import at_line, config_finding, observed, problem_of, written
from attn_doctor.configs.prediction import Phase, PhaseName
from attn_doctor.configs.readers.settings import Reading
from attn_doctor.findings import Finding, Fix, Safety, Severity

#: Lines that make FlexAttention fused wherever it is called.
COMPILED = (
    "import torch, torch.nn.attention.flex_attention as fa; "
    "fa.flex_attention = torch.compile(fa.flex_attention)"
)
#: Backends of Diffusers 0.42.1 that are not registered for context parallelism.
ALONE = (
    "flash_varlen", "_flash_3", "_flash_varlen_3", "flash_4_hub", "aiter_fa2_hub", "flex",
    "_native_efficient", "_native_math", "_native_xla", "sage_blackwell_hub", "sage_varlen",
    "_sage_qk_int8_pv_fp8_cuda", "_sage_qk_int8_pv_fp8_cuda_sm90", "_sage_qk_int8_pv_fp16_cuda",
    "_sage_qk_int8_pv_fp16_triton", "xformers",
)  # fmt: skip
_UNFUSED = ("flex-unfused", "flex-unfused-memory")
#: Backends that store the scores, or compute them piece by piece.
NOT_FUSED = ("_native_math", "eager", "comfyui_split", "comfyui_sub_quad")


class Asked(Struct, frozen=True, kw_only=True):
    """One place of a configuration that decides the attention of a phase."""

    key: str
    """The setting or the call, as written."""
    value: str
    """The backend, as written; empty if no line names one."""
    backend: str = ""
    """The canonical name; empty if it is unknown or has none."""
    shown: str = ""
    """The name for readers, where that is not the canonical one."""
    phase: PhaseName
    line: int = 0
    """0 if no line asks, and the program's default applies."""
    when: str = ""
    """The condition under which this line is reached, if that is not known."""
    undecided: str = ""
    """Why the backend is not known before the run."""
    stops: str = ""
    """Why the program stops, whatever the machine has."""
    fallback: str = ""
    """What the program does if the backend cannot run; empty if it stops."""
    dtype: str = ""
    """Empty if it is unknown."""
    compiled: bool | None = False
    masks: tuple[str, ...] = ("none",)
    """Masks that the model may give it; empty if they are unknown."""
    head_dim: int = 0
    """0 if it is unknown."""
    tokens: int = 0
    """0 if they are unknown."""
    grouped: bool | None = False
    """Fewer heads of keys than of queries; None if unknown."""
    mask_elements: int = 0
    instead: str = "native"
    """The value that runs everywhere, to propose; empty to remove the setting."""

    def calls(self) -> tuple[AttentionCall, ...]:
        """The calls that the model may make: one for each mask."""
        return tuple(
            AttentionCall(
                phase="training" if self.phase == "training" else "inference",
                mask=mask,
                dtype=self.dtype or "bf16",
                head_dim=self.head_dim or 128,
                seq_len=self.tokens or AttentionCall().seq_len,
                assumed=self._assumed(),
                compiled=self.compiled is not False,
                mask_elements=self.mask_elements,
            )
            for mask in self.masks or ("none", "bool")
        )

    def _assumed(self) -> tuple[str, ...]:
        """What is not known of the calls."""
        known = {
            "dtype": self.dtype,
            "head_dim": self.head_dim,
            "seq_len": self.tokens,
            "gqa": self.grouped is not None,
        }
        return tuple(name for name, value in known.items() if not value)


def evaluated(
    asked: Asked, reading: Reading, support: BackendSupport
) -> tuple[Phase, list[Finding]]:
    """The phase that a place of the configuration leads to, with its problems."""
    where = reading.place(asked.line) if asked.line else ""
    why = f"{where}: {asked.key}" if where else asked.key
    base = Phase(
        phase=asked.phase,
        asked=asked.value,
        backend=asked.backend,
        shown=asked.shown or shown(asked.backend),
        why=why,
        line=asked.line,
        when=asked.when,
        fallback=asked.fallback,
        dtype=asked.dtype,
        mask=asked.masks[0] if len(asked.masks) == 1 else "",
    )
    if asked.stops:
        # A default that only options from elsewhere would change: no line of this file is wrong.
        found = [] if asked.when and not asked.line else [_stopping(asked, reading)]
        return replace(base, why=f"{why}: {asked.stops}", state=Readiness.NOT_READY), found
    if asked.undecided or not asked.backend:
        return replace(
            base,
            undecided=asked.undecided,
            why=f"{why}: {asked.undecided}" if asked.undecided else why,
        ), []
    answer, alike = support.answer_masks(asked.backend, asked.calls())
    state, reason = answer.state, reason_of(answer)
    if not alike:
        state = Readiness.UNKNOWN
        reason = f"whether the model passes a mask is not known; with one: {reason}"
    phase = replace(
        base,
        state=state,
        reason=reason,
        exceptions=exceptions_of(answer),
        fused=asked.compiled if asked.backend == "flex" else asked.backend not in NOT_FUSED,
    )
    wrong = wrong_results(answer)
    if alike and wrong is not None:
        return phase, [_wrong(asked, wrong, reading)]
    # What torch's own attention lacks is said by the rules on the machine.
    if not alike or asked.backend == "native":
        return phase, []
    return phase, _problems(asked, answer, reading, support)


def _problems(
    asked: Asked, answer: Answer, reading: Reading, support: BackendSupport
) -> list[Finding]:
    faults = support.faults(answer)
    if asked.compiled is None:
        faults = [one for one in faults if one.id not in _UNFUSED]
    if faults:
        return [_problem(asked, faults[0], reading, support)]
    if answer.state is Readiness.NOT_READY:
        return [_problem(asked, answer.reasons[0], reading, support)]
    return []


def _problem(
    asked: Asked, reason: RequirementResult, reading: Reading, support: BackendSupport
) -> Finding:
    text, line = reason.text, asked.line
    everywhere = support.answer("native", asked.calls()[0])
    alike = bool(reason.rule) and reason.rule in [one.rule for one in everywhere.reasons]
    # What torch's own attention lacks too is not cured by choosing that.
    instead = at_line(reading, line, _change(asked, reading)) if line and not alike else None
    if reason.id in _UNFUSED:
        title = "flex runs unfused: nothing in this file compiles it"
        compiled = Fix(
            title=f"{reading.file}: add before the first forward pass",
            safety=Safety.MANUAL,
            code=COMPILED,
        )
        fixes: tuple[Fix | None, ...] = (compiled, instead)
    else:
        name = asked.value or asked.shown or shown(asked.backend)
        title = f"{name} does not work as configured in {asked.phase}: {text}"
        fixes = (remedy(reason), instead)
    title = _on_condition(title, asked)
    if asked.fallback and reason.id not in _UNFUSED:
        title += f"; {asked.fallback}"
    found = problem_of(
        reason.rule,
        reading,
        title,
        why="" if reason.id in _UNFUSED else f"{text[0].upper()}{text[1:]}.",
        seen=(observed(asked.key, asked.value, "" if alike else _wanted(asked)), *reason.because),
        fixes=fixes,
        line=line,
        backend=asked.backend,
    )
    return _softened(found, asked)


def _wanted(asked: Asked) -> str:
    return asked.instead or "not given"


def _change(asked: Asked, reading: Reading) -> str:
    """The exact change of a line: `--attn_implementation eager → --attn_implementation sdpa`."""
    if reading.kind != "format" or reading.form == "workflow":
        return f"{asked.value} → {asked.instead}"
    flag = asked.value == asked.key
    if asked.key.startswith("--") and flag:
        return f"{asked.key} → {asked.instead}" if asked.instead else f"remove {asked.key}"
    old = written(reading, asked.key, "true" if flag else asked.value)
    if not asked.instead:
        return f"remove {old}"
    new = (asked.instead, "true") if flag else (asked.key, asked.instead)
    return f"{old} → {written(reading, *new)}"


def _on_condition(title: str, asked: Asked) -> str:
    return f"If {asked.when}: {title}" if asked.when else title


def _softened(found: Finding, asked: Asked) -> Finding:
    """An error that needs a condition is a warning."""
    soft = found.severity is Severity.ERROR and asked.when
    return replace(found, severity=Severity.WARNING) if soft else found


def _wrong(asked: Asked, reason: RequirementResult, reading: Reading) -> Finding:
    """A known fault without an error message, which every call of this configuration has."""
    name = asked.value or asked.shown or shown(asked.backend)
    return config_finding(
        reason.rule,
        reading,
        "",
        f"{name} gives {reason.text}, as configured in {asked.phase}",
        seen=reason.because,
        severity=Severity.ERROR,
        line=asked.line or 1,
    )


def _stopping(asked: Asked, reading: Reading) -> Finding:
    """The program stops, as it has no such backend, or does not take this combination."""
    found = problem_of(
        "transformers/switch-unknown",
        reading,
        _on_condition(f"{asked.key} {asked.value}: {asked.stops}", asked),
        why=f"{asked.stops[0].upper()}{asked.stops[1:]}.",
        seen=(observed(asked.key, asked.value, _wanted(asked)),),
        fixes=(at_line(reading, asked.line, _change(asked, reading)),),
        line=asked.line,
    )
    return _softened(found, asked)


def shown(backend: str) -> str:
    """A canonical name for readers."""
    return {"": "unknown", "native": "native (torch's own)"}.get(backend, backend)
