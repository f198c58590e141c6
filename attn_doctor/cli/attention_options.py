"""The options that say what attention is wanted, for `backends` and `check` alike."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from attn_doctor.backends.attention_call import AttentionCall

_PANEL = "What attention is wanted"


class Framework(str, Enum):
    """Whose names are judged."""

    diffusers = "diffusers"
    finetrainers = "finetrainers"
    simpletuner = "simpletuner"


class Phase(str, Enum):
    """What it is for."""

    training = "training"
    inference = "inference"


class Dtype(str, Enum):
    """Numbers that queries, keys and values are in."""

    bf16 = "bf16"
    fp16 = "fp16"
    fp32 = "fp32"


FrameworkOption = Annotated[
    Framework | None,
    typer.Option(
        "--framework",
        help="Whose names to judge. Default: the trainer that is installed, else Diffusers.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
For = Annotated[
    Phase | None,
    typer.Option("--for", help="Default: both.", show_default=False, rich_help_panel=_PANEL),
]
Masks = Annotated[
    str,
    typer.Option(
        "--masks",
        metavar="KIND,…",
        help="none; varlen (boolean over keys, padding at the end); bool (padding anywhere); float"
        " (added to the scores).",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
Causal = Annotated[bool, typer.Option("--causal", help="With is_causal.", rich_help_panel=_PANEL)]
Gqa = Annotated[
    bool,
    typer.Option(
        "--gqa", help="Fewer heads of keys and values than of queries.", rich_help_panel=_PANEL
    ),
]
DtypeOption = Annotated[
    Dtype,
    typer.Option("--dtype", help="Numbers that attention computes in.", rich_help_panel=_PANEL),
]
HeadDim = Annotated[
    int | None,
    typer.Option(
        "--head-dim",
        min=1,
        max=4096,
        help="Size of a head.",
        show_default="128",
        rich_help_panel=_PANEL,
    ),
]
Seq = Annotated[
    int | None,
    typer.Option(
        "--seq",
        min=1,
        help="Tokens; those of an image of 1024² in Flux by default.",
        show_default="4608",
        rich_help_panel=_PANEL,
    ),
]
Compiled = Annotated[
    bool,
    typer.Option("--compiled", help="The model runs under torch.compile.", rich_help_panel=_PANEL),
]


def wanted(
    phase: Phase | None,
    masks: str,
    default: Sequence[str],
    *,
    causal: bool,
    gqa: bool,
    dtype: Dtype,
    head_dim: int | None,
    seq: int | None,
    compiled: bool,
) -> tuple[AttentionCall, ...]:
    """The calls that the options describe: each phase with each kind of mask."""
    from attn_doctor.backends.attention_call import MASKS, PHASES, AttentionCall

    kinds = tuple(dict.fromkeys(one.strip() for one in masks.split(",") if one.strip()))
    for kind in kinds:
        if kind not in MASKS:
            raise typer.BadParameter(
                f"{kind!r} is no kind of mask; one of {', '.join(MASKS)}", param_hint="--masks"
            )
    usual = AttentionCall()
    return tuple(
        AttentionCall(
            phase=one,
            mask=mask,
            causal=causal,
            gqa=gqa,
            dtype=dtype.value,
            head_dim=head_dim or usual.head_dim,
            seq_len=seq or usual.seq_len,
            compiled=compiled,
        )
        for one in ((phase.value,) if phase else PHASES)
        for mask in kinds or tuple(default)
    )
