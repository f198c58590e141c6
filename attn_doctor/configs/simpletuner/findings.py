"""Findings about a configuration of SimpleTuner, each with the change that helps.

They concern settings by themselves, and what the model gives the backend that runs: precision,
masks, sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_doctor.backends.readiness import Readiness, RequirementResult
from attn_doctor.backends.required import remedy
from attn_doctor.configs.asked import ALONE
from attn_doctor.configs.attention_size import (
    DEMAND,
    NATIVE,
    beyond,
    most_samples,
    taking,
)
from attn_doctor.configs.backend_support import CONFIGURED, MASKS, BackendSupport
from attn_doctor.configs.findings import at_line, because, change, config_finding, problem_of
from attn_doctor.configs.prediction import Phase
from attn_doctor.configs.simpletuner.run import (
    Run,
    attention_call,
    batch_of,
    choices,
    largest,
    packed_kernel,
)
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding, Fix, Safety, Severity
from attn_doctor.suggest import nearest

KEY = "attention_mechanism"
#: Backends that misread a mask of two dimensions.
_ROWS_MISREAD = ("flex",)
#: Names that other programs have for what SimpleTuner calls otherwise.
_MEANT = {
    "flash": "flash-attn", "flash_attention_2": "flash-attn", "flash2": "flash-attn",
    "flash3": "flash-attn-3", "_flash_3": "flash-attn-3", "flash_varlen": "flash-attn-2",
    "flash_hub": "flash-attn-hub", "sage": "sageattention", "sdpa": "diffusers",
    "flex_attention": "flex", "flex-attn": "flex", "_native_cudnn": "cudnn",
    "native": "diffusers", "sageattn": "sageattention",
}  # fmt: skip


def found(
    run: Run, phases: Sequence[Phase], support: BackendSupport, facts: Facts
) -> Iterator[Finding]:
    """Every problem of a configuration, the gravest kinds first."""
    yield from _mechanism(run)
    yield from _precision(run)
    yield from _routing(run, phases)
    yield from _sage(run)
    yield from _parallel(run, phases)
    yield from _env(run)
    reported: set[str] = set()
    for phase in phases:
        for finding in _inputs(run, phase, support, facts):
            if finding.rule not in reported:
                reported.add(finding.rule)
                yield finding


def _mechanism(run: Run) -> Iterator[Finding]:
    if run.name is not None:
        return
    version = run.release.version
    if run.listed or not run.release.known:
        return  # a newer release may have a name that is not in the table
    names = [one.name for one in choices(version)]
    meant = _MEANT.get(run.mechanism, run.mechanism.removesuffix("-hub"))
    near = meant if meant in names else next(iter(nearest(run.mechanism, names)), "")
    yield config_finding(
        "simpletuner/mechanism-unknown",
        run.reading,
        KEY,
        f"SimpleTuner {version} does not accept attention_mechanism {run.mechanism}, and stops",
        seen=(because(run.reading, KEY, f"one of {', '.join(names)}"),),
        fixes=(change(run.reading, KEY, near or "diffusers", "a name that this release has"),),
    )


def _precision(run: Run) -> Iterator[Finding]:
    """What SimpleTuner refuses by itself."""
    reading = run.reading
    quantised = reading.get("base_model_precision", "no_change")
    if run.mechanism.startswith("sageattention") and quantised == "nf4-bnb":
        yield config_finding(
            "simpletuner/sage-with-nf4",
            reading,
            "base_model_precision",
            "SimpleTuner stops: SageAttention is not combined with nf4-bnb",
            seen=(because(reading, "base_model_precision", "int8-quanto or fp8-quanto"),),
            fixes=(
                change(reading, "base_model_precision", "int8-quanto", "keeps SageAttention"),
                change(reading, KEY, "diffusers", "keeps the precision"),
            ),
        )
    fp8 = reading.get("mixed_precision").lower() == "fp8"
    if fp8 and quantised not in ("no_change", "fp8-torchao"):
        yield config_finding(
            "simpletuner/fp8-precision",
            reading,
            "mixed_precision",
            f"SimpleTuner stops: mixed_precision fp8 with a base model in {quantised}",
            seen=(
                because(reading, "mixed_precision", "bf16"),
                because(reading, "base_model_precision", "no_change"),
            ),
            fixes=(change(reading, "mixed_precision", "bf16", "keeps the quantised base model"),),
        )


def _routing(run: Run, phases: Sequence[Phase]) -> Iterator[Finding]:
    name = run.name
    if name is None or name.backend in ("native", "kohaku_fa_auto"):
        return
    if name.backend.startswith("st_sage"):
        return
    idle = [one for one in phases if one.backend in ("native", "packed") and one.why]
    if len(idle) < len(phases):
        return
    own = run.family is not None and run.family.name == "mageflow"
    if own and run.mechanism.startswith("flash"):
        return  # it takes the generation from the name
    lacking = idle[0].why.startswith("Diffusers ")
    packed = idle[0].backend == "packed" and not own
    if packed:
        return
    rule = "mechanism-ignored" if own or lacking else "backend-not-routed"
    title = run.family.title if run.family else "this family"
    yield config_finding(
        f"simpletuner/{rule}",
        run.reading,
        KEY,
        f"attention_mechanism {run.mechanism} has no effect on {title} in SimpleTuner"
        f" {run.release.version}: torch's own attention runs"
        if not own
        else f"attention_mechanism {run.mechanism} has no effect: {idle[0].why}",
        why=f"{idle[0].why[0].upper()}{idle[0].why[1:]}.",
        severity=Severity.WARNING if not own else Severity.INFO,
        seen=(
            because(run.reading, KEY, "diffusers, which is what runs"),
            because(run.reading, "model_family", _where(run)),
        ),
        fixes=tuple(_acting(run)),
    )


def _where(run: Run) -> str:
    since = run.family.routed if run.family else ""
    return f"SimpleTuner {since} or newer, which routes it" if since else "a family that is routed"


def _acting(run: Run) -> Iterator[Fix]:
    """What acts on a family that is not routed."""
    older = run.release.known and run.release.source is None
    if run.family and run.family.routed and not run.routed and older:
        yield Fix(
            title=f"Update SimpleTuner to {run.family.routed} or newer, where {run.mechanism} acts",
            safety=Safety.ASK,
            run=(("pip", "install", "--upgrade", f"simpletuner>={run.family.routed}"),),
        )
    yield change(run.reading, KEY, "diffusers", "what runs anyway, and fused where torch can")
    if run.release.looked_at and run.release.holds_sdpa:
        yield change(run.reading, KEY, "cudnn", "acts on every family since 4.9.3")
    if run.packs and run.mechanism.startswith("flash"):
        yield change(run.reading, "fuse_qkv_projections", "true", "brings packed FlashAttention")


def _parallel(run: Run, phases: Sequence[Phase]) -> Iterator[Finding]:
    """Context parallelism with a backend that is not made for it."""
    if run.name is None or run.reading.get("context_parallel_size", "1") in ("", "0", "1"):
        return
    backends = {one.backend for one in phases}
    if run.name.backend != "kohaku_fa" and not backends & {*ALONE}:
        return
    yield config_finding(
        "diffusers/context-parallel",
        run.reading,
        "context_parallel_size",
        f"{run.mechanism} cannot be split over several GPUs: the run stops",
        seen=(because(run.reading, "context_parallel_size", "1"), because(run.reading, KEY, "")),
        fixes=(
            change(run.reading, KEY, "diffusers", "can be split"),
            change(run.reading, "context_parallel_size", "1", "keeps the mechanism"),
        ),
    )


def _sage(run: Run) -> Iterator[Finding]:
    if run.name is None or not run.name.backend.startswith("st_sage"):
        return
    reading = run.reading
    usage = reading.get("sageattention_usage", "inference").lower()
    if usage not in ("inference", "training", "training+inference"):
        yield config_finding(
            "simpletuner/mechanism-unknown",
            reading,
            "sageattention_usage",
            f"SimpleTuner stops: sageattention_usage {usage} is not a mode",
            seen=(because(reading, "sageattention_usage", "inference"),),
            fixes=(change(reading, "sageattention_usage", "inference", "validation alone"),),
        )
    elif "training" in usage:
        yield config_finding(
            "sage/no-gradients",
            reading,
            "sageattention_usage",
            "SageAttention in training leaves the attention layers untrained",
            seen=(because(reading, "sageattention_usage", "inference"),),
            fixes=(change(reading, "sageattention_usage", "inference", "trains all layers"),),
        )
    else:
        yield config_finding(
            "simpletuner/sage-validation-only",
            reading,
            KEY,
            "SageAttention serves validation alone; training keeps torch's own attention",
            seen=(because(reading, "sageattention_usage", "", seen=usage),),
        )


def _env(run: Run) -> Iterator[Finding]:
    reading = run.reading
    if reading.form != "env" or "ATTENTION_MECHANISM" not in reading.variables:
        return
    written = reading.variables["ATTENTION_MECHANISM"]
    yield config_finding(
        "simpletuner/mechanism-ignored",
        reading,
        "ATTENTION_MECHANISM",
        f"SimpleTuner does not read ATTENTION_MECHANISM from config.env: {run.mechanism} runs",
        why="Only listed variables of config.env become arguments, and this one is not among them.",
        severity=Severity.WARNING,
        fixes=(
            at_line(
                reading,
                written.line,
                f"ATTENTION_MECHANISM={written.text} → TRAINER_EXTRA_ARGS+="
                f'" --attention_mechanism={written.text}": is passed on',
            ),
        ),
    )


def _inputs(run: Run, phase: Phase, support: BackendSupport, facts: Facts) -> Iterator[Finding]:
    """Problems of the backend that runs with the precision and masks of the model."""
    # Torch's own attention lacks only what the rules on the machine say.
    if phase.backend == "packed":
        yield from _packed(run, phase, support)
    if phase.backend in ("", "packed", "native"):
        return
    if phase.backend in _ROWS_MISREAD and phase.mask == "rows":
        yield _rows(run, phase, support)
    wanted = attention_call(run, phase.phase, phase.backend, phase.tokens)
    answer = support.answer(phase.backend, wanted)
    for reason in answer.reasons:
        if not reason.rule or reason.state is Readiness.UNKNOWN or reason.id == "st-sage-training":
            continue
        if reason.id in CONFIGURED or reason.rule in MASKS:
            yield _configured(run, phase, reason.id, reason.rule, reason.text, support, facts)
        elif reason is answer.reasons[0] and not support.known(reason.rule):
            yield _machine(run, phase, reason)


def _packed(run: Run, phase: Phase, support: BackendSupport) -> Iterator[Finding]:
    """The kernel of packed attention does not run here."""
    kernel = packed_kernel(run)
    answer = support.answer(kernel, attention_call(run, phase.phase, kernel, phase.tokens))
    if answer.state is Readiness.NOT_READY:
        reason = answer.reasons[0]
        yield problem_of(
            reason.rule,
            run.reading,
            f"packed attention needs {kernel}, which does not work here: {reason.text}",
            why=f"{reason.text[0].upper()}{reason.text[1:]}.",
            seen=(because(run.reading, KEY, "", seen=run.mechanism), *reason.because),
            fixes=(remedy(reason),),
            line=run.reading.line(KEY),
            backend=kernel,
        )


def _configured(
    run: Run, phase: Phase, demand: str, rule: str, text: str, support: BackendSupport, facts: Facts
) -> Finding:
    reading = run.reading
    if demand == DEMAND:
        return _beyond(run, phase, support)
    if demand in ("half-precision", "flash-sdpa-precision"):
        half = "bf16" if (facts.driver.best_sm or 80) >= 80 else "fp16"
        return config_finding(
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
    best = _instead(run, phase, support)
    when = " where captions are padded" if run.family and run.family.masked == "padded" else ""
    title = run.family.title if run.family else "this family"
    gives = "a causal flag" if demand == "flex-causal" else f"a {_kind(phase.mask)} mask{when}"
    return config_finding(
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
    return config_finding(
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


def _rows(run: Run, phase: Phase, support: BackendSupport) -> Finding:
    return config_finding(
        "flex/mask-two-dimensions",
        run.reading,
        KEY,
        f"{run.family.title if run.family else 'this family'} passes a mask of two dimensions,"
        " which flex reads as one over the queries",
        seen=(because(run.reading, "model_family", ""), because(run.reading, KEY, "")),
        fixes=(change(run.reading, KEY, _instead(run, phase, support), "reads it as it is meant"),),
    )


def _beyond(run: Run, phase: Phase, support: BackendSupport) -> Finding:
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
            _lengths(run, phase, support),
            change(run.reading, KEY, "diffusers", NATIVE),
            change(run.reading, "train_batch_size", str(fewer), "keeps the size")
            if batch > 1 and fewer
            else None,
        ),
    )


def _lengths(run: Run, phase: Phase, support: BackendSupport) -> Fix | None:
    """A mechanism of this release that takes padding as lengths, best one that is ready."""
    if run.family is None or run.family.mask != "varlen":
        return None
    wanted = attention_call(run, phase.phase, "flash_varlen", phase.tokens)
    able = [
        (one.name, answer)
        for one in choices(run.release.version)
        if one.name in _PACKED
        for answer in [support.answer(one.backend, wanted)]
        if all(reason.rule not in MASKS for reason in answer.reasons)
    ]
    able.sort(key=lambda one: one[1].state is not Readiness.READY)
    return next((change(run.reading, KEY, *taking(*one)) for one in able), None)


def _machine(run: Run, phase: Phase, reason: RequirementResult) -> Finding:
    return config_finding(
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


def _instead(run: Run, phase: Phase, support: BackendSupport) -> str:
    """A mechanism of this release that takes what the family gives; torch's own at the least."""
    able = [one for one in choices(run.release.version) if one.name in _SAFE]
    wanted = attention_call(run, phase.phase, "native", phase.tokens)
    for one in able:
        if one.backend.endswith("_hub") and support.answer(one.backend, wanted).state is (
            Readiness.READY
        ):
            return one.name
    return "diffusers"


#: Mechanisms to propose instead of one that takes no mask.
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
