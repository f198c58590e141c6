"""What is wrong with a configuration of SimpleTuner, each with the change that helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_doctor.configs.backend_support import Judge
from attn_doctor.configs.findings import because, change, tell
from attn_doctor.configs.prediction import Phase
from attn_doctor.configs.simpletuner.model_inputs import KEY, inputs
from attn_doctor.configs.simpletuner.run import Run, choices
from attn_doctor.facts import Facts
from attn_doctor.findings import Finding, Fix, Safety, Severity
from attn_doctor.suggest import nearest

#: Names that other programs have for what SimpleTuner calls otherwise.
_MEANT = {
    "flash": "flash-attn", "flash_attention_2": "flash-attn", "flash2": "flash-attn",
    "flash3": "flash-attn-3", "_flash_3": "flash-attn-3", "flash_varlen": "flash-attn-2",
    "flash_hub": "flash-attn-hub", "sage": "sageattention", "sdpa": "diffusers",
    "flex_attention": "flex", "flex-attn": "flex", "_native_cudnn": "cudnn",
    "native": "diffusers", "sageattn": "sageattention",
}  # fmt: skip


def found(run: Run, phases: Sequence[Phase], judge: Judge, facts: Facts) -> Iterator[Finding]:
    """Every problem of a configuration, the gravest kinds first."""
    yield from _mechanism(run)
    yield from _precision(run)
    yield from _routing(run, phases)
    yield from _sage(run)
    yield from _env(run)
    told: set[str] = set()
    for phase in phases:
        for finding in inputs(run, phase, judge, facts):
            if finding.rule not in told:
                told.add(finding.rule)
                yield finding


def _mechanism(run: Run) -> Iterator[Finding]:
    if run.name is not None:
        return
    version = run.release.version
    if not run.release.known:
        return  # a newer release may have a name that is not in the table
    names = [one.name for one in choices(version)]
    meant = _MEANT.get(run.mechanism, run.mechanism.removesuffix("-hub"))
    near = meant if meant in names else next(iter(nearest(run.mechanism, names)), "")
    yield tell(
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
        yield tell(
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
        yield tell(
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
    yield tell(
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
    if run.family and run.family.routed and not run.routed and run.release.known:
        yield Fix(
            title=f"Update SimpleTuner to {run.family.routed} or newer, where {run.mechanism} acts",
            safety=Safety.ASK,
            run=(("pip", "install", "--upgrade", f"simpletuner>={run.family.routed}"),),
        )
    yield change(run.reading, KEY, "diffusers", "what runs anyway, and fused where torch can")
    if run.release.known and run.release.holds_sdpa:
        yield change(run.reading, KEY, "cudnn", "acts on every family since 4.9.3")
    if run.packs and run.mechanism.startswith("flash"):
        yield change(run.reading, "fuse_qkv_projections", "true", "brings packed FlashAttention")


def _sage(run: Run) -> Iterator[Finding]:
    if run.name is None or not run.name.backend.startswith("st_sage"):
        return
    reading = run.reading
    usage = reading.get("sageattention_usage", "inference").lower()
    if usage not in ("inference", "training", "training+inference"):
        yield tell(
            "simpletuner/mechanism-unknown",
            reading,
            "sageattention_usage",
            f"SimpleTuner stops: sageattention_usage {usage} is no mode",
            seen=(because(reading, "sageattention_usage", "inference"),),
            fixes=(change(reading, "sageattention_usage", "inference", "validation alone"),),
        )
    elif "training" in usage:
        yield tell(
            "sage/no-gradients",
            reading,
            "sageattention_usage",
            "SageAttention in training leaves the attention layers untrained",
            seen=(because(reading, "sageattention_usage", "inference"),),
            fixes=(change(reading, "sageattention_usage", "inference", "trains all layers"),),
        )
    else:
        yield tell(
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
    yield tell(
        "simpletuner/mechanism-ignored",
        reading,
        "ATTENTION_MECHANISM",
        f"SimpleTuner does not read ATTENTION_MECHANISM from config.env: {run.mechanism} runs",
        why="Only listed variables of config.env become arguments, and this one is not among them.",
        severity=Severity.WARNING,
        fixes=(
            Fix(
                title=f"{reading.file}, line {written.line}: ATTENTION_MECHANISM={written.text} →"
                f' TRAINER_EXTRA_ARGS+=" --attention_mechanism={written.text}": is passed on',
                safety=Safety.MANUAL,
            ),
        ),
    )
