"""One configuration as a release of SimpleTuner reads it: mechanism, family, precision, sizes.

Follows `helpers/training/attention_backend.py::apply`, `cmd_args.py` and the families' own code at
each release; see `rules/tables/families.toml`.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace
from packaging.version import Version

from attn_doctor.backends import catalogue
from attn_doctor.backends.attention_call import AttentionCall
from attn_doctor.backends.catalogue_entries import Name
from attn_doctor.backends.framework_source import names_in_source
from attn_doctor.configs.attention_size import Sized, elements
from attn_doctor.configs.prediction import PhaseName
from attn_doctor.configs.readers.settings import Reading
from attn_doctor.configs.simpletuner.families import (
    Family,
    Release,
    family,
    installed_release,
    newest,
)
from attn_doctor.configs.simpletuner.kohaku import EXTRA, KOHAKU, lacking
from attn_doctor.facts import Facts

#: What SimpleTuner's phases are called here and in attention calls.
PHASES: dict[PhaseName, str] = {"training": "training", "validation": "inference"}
#: Mechanisms that replace torch's own function, so that every family has them.
_HOOKS = ("sla", "metal_flash", "metal_flash_int8", "metal_flash_int4", "kohaku_fa")
_HELD = ("_native_cudnn", "_native_flash", "_native_efficient", "_native_math")


class Run(Struct, frozen=True, kw_only=True):
    """One configuration as SimpleTuner of one release understands it."""

    reading: Reading
    release: Release
    family: Family | None
    mechanism: str
    """As SimpleTuner takes it: the setting, or the release's default."""
    name: Name | None
    """The mechanism in the catalogue; None if this release does not have it."""
    preset: str
    heads: int
    """Heads of the chosen size; 0 if they are not known."""
    dtype: str
    compiled: bool
    diffusers: str
    """Version of Diffusers; empty if it is not known."""
    variable: str
    """DIFFUSERS_ATTN_BACKEND, of the configuration or of the machine's environment."""
    listed: bool
    """The release has the mechanism in its own list, which is newer than the catalogue."""
    lacks: str | None
    """What KohakuFA's packages lack here; empty if nothing, None if that is not known."""
    sm: int | None
    """Compute capability ×10 of the best GPU here; None if it is not known."""

    @property
    def routed(self) -> bool | None:
        """The family goes through the dispatcher; None where this was not looked at."""
        source = self.release.source
        if self.family is not None and source is not None:
            return source.routed(self.family.name)
        if self.family is None or not self.release.known:
            return None
        return self.family.routed_in(self.release.version)

    @property
    def packs(self) -> bool:
        """The family has packed FlashAttention in this release."""
        if self.family is None or not self.release.looked_at:
            return False
        source = self.release.source
        if source is not None:
            return source.packs(self.family.name)
        return self.family.packed_in(self.release.version)

    @property
    def refused(self) -> str:
        """Why KohakuFA does not go with this configuration; empty if it does."""
        if self.reading.get("context_parallel_size", "1") not in ("", "0", "1"):
            return "KohakuFA does not support context parallelism"
        if self.reading.get("minimax_h3_sparse_attention", "disabled") != "disabled":
            return "KohakuFA does not support minimax_h3_sparse_attention"
        return ""

    @property
    def keeps(self) -> bool:
        """This release can keep compiled artifacts (`dynamo_cache_export`)."""
        return self.release.known and Version(self.release.version) >= Version("4.9.0")


def understood(reading: Reading, facts: Facts) -> Run:
    """A configuration with all that follows from it before a phase is looked at."""
    this = installed_release(facts)
    one = family(reading.get("model_family"))
    if one is not None and one.name == "qwen_image" and _newer_qwen(reading, this):
        # transformer_21.py: 32 heads, no mask unless captions are padded.
        one = replace(one, title="Qwen-Image 2.1", mask="bool", heads=32, preset="")
    mechanism = reading.get("attention_mechanism", this.default).lower()
    looked_at = this.version if this.known else newest()
    size = one.flavour_in(looked_at, reading.get("model_flavour")) if one else None
    return Run(
        reading=reading,
        release=this,
        family=one,
        mechanism=mechanism,
        name=next((each for each in choices(this.version) if each.name == mechanism), None),
        listed=_listed(this, facts, mechanism),
        preset=size.preset if size else "",
        heads=(size.heads or one.heads) if size and one else 0,
        dtype=weight_dtype(reading),
        compiled=reading.get("dynamo_backend").lower() == "inductor",
        diffusers=facts.diffusers.version or "",
        variable=_variable(reading, facts),
        lacks=lacking(facts),
        sm=facts.driver.best_sm,
    )


def _listed(this: Release, facts: Facts, mechanism: str) -> bool:
    """The source of a release that was not looked at has a mechanism."""
    return this.source is not None and mechanism in (names_in_source(facts, "simpletuner") or ())


def _newer_qwen(reading: Reading, this: Release) -> bool:
    """Qwen-Image 2.1, which is the default flavour in 4.9.3 and newer."""
    flavour = reading.get("model_flavour")
    return flavour == "v2.1" or (
        not flavour and this.known and Version(this.version) >= Version("4.9.3")
    )


def choices(version: str) -> tuple[Name, ...]:
    """The mechanisms that a release accepts."""
    try:
        this = Version(version)
    except ValueError:  # also a number of more digits than Python converts
        this = Version(newest())
    names = catalogue.load().names_of("simpletuner")
    return tuple(one for one in names if Version(one.since) <= this)


def weight_dtype(reading: Reading) -> str:
    """What queries, keys and values are in (`cmd_args.py`, `weight_dtype`)."""
    precision = reading.get("mixed_precision", "bf16").lower()
    quantised = reading.get("base_model_precision", "no_change") != "no_change"
    if precision == "bf16" or (quantised and reading.get("base_model_default_dtype") == "bf16"):
        return "bf16"
    return "fp16" if precision == "fp16" else "fp32"


def effective(run: Run, phase: PhaseName) -> tuple[str, str]:
    """The canonical backend that runs in a phase, and why it is not the configured one.

    An empty name: unknown, or the run stops.
    """
    name = run.name
    if name is None and run.listed:
        return "", f"SimpleTuner {run.release.version} has {run.mechanism}, which is not known here"
    if name is None:
        return "", f"SimpleTuner stops at the start: it has no attention_mechanism {run.mechanism}"
    unlisted = run.reading.get("model_family") if run.family is None else ""
    if unlisted:
        return "", f"the model family {unlisted} is not in the table"
    return _of_family(run, phase, name.backend)


def _of_family(run: Run, phase: PhaseName, backend: str) -> tuple[str, str]:
    """The backend that runs where the release has the mechanism."""
    title = run.family.title if run.family else "this family"
    if run.family and run.family.name == "mageflow":
        return "packed", f"{title} uses packed attention of its own"
    if backend.startswith("st_sage"):
        return _sage(run, phase, backend)
    if backend == "kohaku_fa_auto":
        return _automatic(run, phase)
    if backend == "kohaku_fa" and run.refused:
        return "", f"SimpleTuner stops at the start: {run.refused}"
    if backend in _HOOKS:
        return backend, ""
    if backend == "st_xformers":
        if run.family and run.family.unet:
            return backend, ""
        # It gives every `Attention` of Diffusers a processor that is written for U-Nets.
        return "", f"what xformers does in {title}, which has no U-Net, is not known here"
    if backend == "native":
        return _plain(run)
    return _dispatched(run, backend, title)


def packed_kernel(run: Run) -> str:
    """The backend whose kernel packed attention calls (Mage-Flow's own code, 4.10.1)."""
    if run.family is None or run.family.name != "mageflow":
        return run.name.backend if run.name else ""
    for part, kernel in (("4", "flash_4_hub"), ("3", "_flash_3_varlen_hub")):
        if run.mechanism.startswith("flash") and part in run.mechanism:
            return kernel
    if run.mechanism.startswith("flash") or run.sm is None or run.sm < 90:
        return "flash_varlen_hub"
    return "flash_4_hub" if run.sm >= 100 else "_flash_3_varlen_hub"


def _sage(run: Run, phase: PhaseName, backend: str) -> tuple[str, str]:
    usage = run.reading.get("sageattention_usage", "inference").lower()
    if run.family and run.family.name == "sana":
        return "native", "SimpleTuner switches SageAttention off for Sana"
    if phase == "training" and "training" not in usage:
        return "native", f"sageattention_usage is {usage}, so SageAttention stays out of training"
    if phase == "validation" and "inference" not in usage:
        return "native", f"sageattention_usage is {usage}, so SageAttention stays out of validation"
    return backend, ""


def _automatic(run: Run, phase: PhaseName) -> tuple[str, str]:
    """KohakuFA if all that it needs is there; otherwise SimpleTuner restores the default."""
    if phase != "training":
        reason = "kohaku-fa-auto is for training alone"
    elif run.refused:
        reason = run.refused
    elif run.sm is not None and run.sm not in (89, 90):
        reason = "kohaku-fa-auto takes KohakuFA on compute capability 8.9 and 9.0 alone"
    elif run.dtype == "fp32":
        reason = "KohakuFA takes half precision alone"
    elif run.lacks is None:
        packages = " and ".join(KOHAKU)
        return "", (
            f"KohakuFA if {packages} are installed, which `{EXTRA}` brings; torch's own otherwise"
        )
    elif run.lacks:
        reason = f"{run.lacks}, so KohakuFA is not taken (`{EXTRA}` brings it)"
    else:
        return "kohaku_fa_auto", ""
    backend, why = _plain(run)
    return backend, why or reason


def _variable(reading: Reading, facts: Facts) -> str:
    own = reading.variables.get("DIFFUSERS_ATTN_BACKEND")
    return own.text if own is not None else facts.env.get("DIFFUSERS_ATTN_BACKEND", "")


def _plain(run: Run) -> tuple[str, str]:
    """Without a mechanism Diffusers' own variable decides, where its dispatcher is reached."""
    if run.routed and run.variable in {one.name for one in _dispatchers()}:
        return run.variable, f"DIFFUSERS_ATTN_BACKEND is {run.variable}"
    return "native", ""


def _dispatchers() -> tuple[Name, ...]:
    return catalogue.load().names_of("diffusers")


def _dispatched(run: Run, backend: str, title: str) -> tuple[str, str]:
    lacking = _since(run, backend)
    if lacking:
        return "native", (
            f"Diffusers {run.diffusers} has no {backend} (since {lacking}), and SimpleTuner then"
            " keeps plain attention without a word"
        )
    packed = run.reading.get("fuse_qkv_projections") == "true"
    if packed and run.mechanism.startswith("flash") and run.packs:
        return "packed", "fuse_qkv_projections uses packed FlashAttention"
    if run.routed:
        return backend, ""
    if backend in _HELD and run.release.looked_at and run.release.holds_sdpa:
        return backend, ""
    version = run.release.version
    if run.family is None:
        return "", f"model_family is not set here, and it decides whether {run.mechanism} acts"
    if run.release.source is not None and run.routed is None:
        return "", f"the source of SimpleTuner {version} does not say whether {title} is routed"
    if not run.release.looked_at:
        return "", f"SimpleTuner {version} is newer than {newest()}, the last that was looked at"
    known = run.family.routed and run.release.known
    since = f", and reaches it since {run.family.routed}" if known else ""
    return "native", (
        f"{run.mechanism} has no effect: in SimpleTuner {version} {title} does not go through"
        f" Diffusers' dispatcher{since}"
    )


def _since(run: Run, backend: str) -> str:
    """The first Diffusers with a backend, if the one here is older."""
    if not run.diffusers:
        return ""
    for one in _dispatchers():
        if one.name == backend and Version(run.diffusers) < Version(one.since):
            return one.since
    return ""


def attention_call(run: Run, phase: PhaseName, backend: str, tokens: int) -> AttentionCall:
    """What the family asks of its attention in a phase."""
    known = run.family
    mask = (known.mask if known else "") or "none"
    if mask == "rows":
        mask = "bool"
    if known is not None and known.title == "Qwen-Image 2.1" and backend == "flex":
        mask = "none"  # QwenImage21FlexAttnProcessor makes a BlockMask of it
    wrapped = known is not None and known.name == "ltxvideo2" and backend.endswith("varlen_hub")
    if wrapped and Version(run.release.version) >= Version("4.4.0"):
        mask = "bool"  # a wrapper of SimpleTuner's turns it into one
    found = AttentionCall(
        phase=PHASES[phase],
        mask=mask,
        causal=bool(known and known.causal),
        gqa=bool(known and known.kv_heads),
        dtype=run.dtype,
        head_dim=(known.head_dim if known else 0) or 128,
        compiled=run.compiled,
    )
    if not tokens:
        return replace(found, assumed=("seq_len",))
    dense = known is not None and run.release.known and known.dense_in(run.release.version)
    rows = elements(tokens, batch_of(run.reading, phase)) if dense else 0
    return replace(found, seq_len=tokens, mask_elements=rows)


def largest(reading: Reading, preset: str, phase: PhaseName) -> Sized:
    """The size with the most tokens; its `tokens` are 0 if they cannot be family."""
    asked = _validation if phase == "validation" else _training
    found = max(asked(reading, preset), key=lambda one: one.tokens, default=None)
    if phase == "validation" or (found is not None and found.tokens):
        return found or Sized(preset=preset, resolution="")
    return Sized(
        preset=preset,
        resolution=reading.get("resolution", "1024"),
        resolution_type=reading.get("resolution_type", "pixel_area"),
        key="resolution",
        line=_line(reading, "resolution"),
    )


def batch_of(reading: Reading, phase: PhaseName) -> int:
    """Samples of one call: those of training, and at least one elsewhere."""
    asked = reading.get("train_batch_size", "1") if phase == "training" else "1"
    return max(1, _whole(asked))


def _training(reading: Reading, preset: str) -> Iterator[Sized]:
    """The datasets with sizes of their own."""
    for dataset in reading.datasets:
        yield Sized(
            preset=preset,
            resolution=dataset.resolution,
            resolution_type=dataset.resolution_type,
            frames=dataset.frames,
            key="data_backend_config",
            line=_line(reading, "data_backend_config"),
        )


def _validation(reading: Reading, preset: str) -> Iterator[Sized]:
    for size in reading.get("validation_resolution", "256").split(","):
        yield Sized(
            preset=preset,
            resolution=size.strip(),
            frames=_whole(reading.get("validation_num_video_frames", "0")),
            key="validation_resolution",
            line=_line(reading, "validation_resolution"),
        )


def _line(reading: Reading, key: str) -> int:
    """The line of a setting; 0 where it is not set."""
    return reading.line(key) if key in reading.settings else 0


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 7 else 0
