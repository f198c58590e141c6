"""The options of `backends` and `check` for the attention calls to evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from attn_doctor.cli.option import Option

if TYPE_CHECKING:
    from attn_doctor.backends.attention_call import AttentionCall

_PANEL = "Attention calls"


class Framework(str, Enum):
    """Frameworks with names for backends."""

    diffusers = "diffusers"
    finetrainers = "finetrainers"
    simpletuner = "simpletuner"
    transformers = "transformers"
    comfyui = "comfyui"


class Phase(str, Enum):
    """Training needs gradients."""

    training = "training"
    inference = "inference"


class Dtype(str, Enum):
    """Number types of queries, keys and values."""

    bf16 = "bf16"
    fp16 = "fp16"
    fp32 = "fp32"


class CallOptions(Struct, frozen=True, kw_only=True):
    """Options that describe attention calls, and the framework that makes them."""

    framework: Annotated[
        Framework | None,
        Option(
            metavar="NAME",
            help="Use the names of this framework: diffusers, finetrainers, simpletuner,"
            " transformers or comfyui. Default: the installed trainer, else diffusers.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None
    phase: Annotated[
        Phase | None,
        Option(
            "--for",
            metavar="PHASE",
            help="training or inference. Default: both.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None
    mask: Annotated[
        str,
        Option(
            "--mask",
            metavar="MASK,…",
            autocompletion="masks",
            help="none; varlen (boolean over keys, padding at the end); bool (boolean, padding"
            " anywhere); float (added to the scores).",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = ""
    causal: Annotated[
        bool, Option("--causal", help="The call sets is_causal.", rich_help_panel=_PANEL)
    ] = False
    gqa: Annotated[
        bool,
        Option(
            "--gqa",
            help="Grouped queries: fewer heads of keys and values than of queries.",
            rich_help_panel=_PANEL,
        ),
    ] = False
    kv_heads: Annotated[
        int | None,
        Option(
            "--kv-heads",
            min=1,
            max=1024,
            metavar="N",
            help="Heads of keys and values, as some faults need it. Default: not known.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None
    dtype: Annotated[
        Dtype,
        Option(
            "--dtype",
            metavar="DTYPE",
            help="Type of queries, keys and values: bf16, fp16 or fp32.",
            rich_help_panel=_PANEL,
        ),
    ] = Dtype.bf16
    head_dim: Annotated[
        int | None,
        Option(
            min=1,
            max=4096,
            metavar="N",
            help="Size of a head. Default: 128.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None
    seq_len: Annotated[
        int | None,
        Option(
            min=1,
            metavar="TOKENS",
            help="Tokens. Default: 4608, an image of 1024×1024 in Flux.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None
    compiled: Annotated[
        bool,
        Option("--compiled", help="The model runs under torch.compile.", rich_help_panel=_PANEL),
    ] = False

    @property
    def framework_name(self) -> str:
        """The framework, or an empty text for the default."""
        return self.framework.value if self.framework else ""

    def calls(self, masks: Sequence[str]) -> tuple[AttentionCall, ...]:
        """The calls: each phase with each kind of mask, by default with each of `masks`."""
        from attn_doctor.backends.attention_call import MASKS, PHASES, AttentionCall

        kinds = split(self.mask)
        for kind in kinds:
            if kind not in MASKS:
                import typer

                raise typer.BadParameter(
                    f"{kind!r} is not a kind of mask; choose from {', '.join(MASKS)}",
                    param_hint="--mask",
                )
        usual = AttentionCall()
        return tuple(
            AttentionCall(
                phase=phase,
                mask=mask,
                causal=self.causal,
                gqa=self.gqa,
                kv_heads=self.kv_heads,
                dtype=self.dtype.value,
                head_dim=self.head_dim or usual.head_dim,
                seq_len=self.seq_len or usual.seq_len,
                compiled=self.compiled,
                assumed=tuple(
                    name for name in ("head_dim", "seq_len") if getattr(self, name) is None
                ),
            )
            for phase in ((self.phase.value,) if self.phase else PHASES)
            for mask in kinds or masks
        )


def split(words: str) -> tuple[str, ...]:
    """The items of a list with commas, each once."""
    return tuple(dict.fromkeys(word.strip() for word in words.split(",") if word.strip()))
