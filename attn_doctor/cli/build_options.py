"""The options of `attn-doctor build-kernels`, as the command line shows them."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

__all__: list[str] = []  # everything here is taken as `options.Name`

_SPEC, _TARGET = "What to build", "A GPU of another machine"
_BUILD, _SHOW = "How to build", "What to show"


class Format(str, Enum):
    """How the result is written."""

    text = "text"
    json = "json"


Program = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[-- COMMAND…]",
        help="Your own warm-up, run unchanged with the caches recorded, and once more to prove"
        " that it hits.",
        show_default=False,
    ),
]
Preset = Annotated[
    list[str] | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="A model family such as flux1 or wan21-14b; may be repeated.",
        rich_help_panel=_SPEC,
        show_default=False,
    ),
]
ListPresets = Annotated[
    bool, typer.Option("--list-presets", help="Show the presets.", rich_help_panel=_SPEC)
]
Spec = Annotated[
    list[Path] | None,
    typer.Option(
        "--spec",
        metavar="FILE",
        help="A TOML file of specs; may be repeated.",
        rich_help_panel=_SPEC,
        show_default=False,
    ),
]
Heads = Annotated[
    str,
    typer.Option(
        metavar="N",
        help="Query heads. A value may be a list, 24,40: lists multiply.",
        rich_help_panel=_SPEC,
    ),
]
KvHeads = Annotated[
    str,
    typer.Option(
        metavar="N",
        help="Key and value heads, in grouped-query attention.",
        rich_help_panel=_SPEC,
    ),
]
HeadDim = Annotated[
    str,
    typer.Option(
        metavar="N",
        help="Size of each head.",
        rich_help_panel=_SPEC,
    ),
]
ValueDim = Annotated[
    str,
    typer.Option(
        metavar="N",
        help="Size of each value head, where it differs.",
        rich_help_panel=_SPEC,
    ),
]
Length = Annotated[
    list[str] | None,
    typer.Option(
        "--length",
        metavar="TOKENS",
        help="Query length. 1024+2048: one program sees both, in this order; 1024,2048: two"
        " programs do.",
        rich_help_panel=_SPEC,
        show_default=False,
    ),
]
KvLength = Annotated[
    str,
    typer.Option(
        metavar="TOKENS",
        help="Key length, in cross-attention.",
        rich_help_panel=_SPEC,
    ),
]
Batch = Annotated[
    str,
    typer.Option(
        metavar="N",
        help="Batch size.",
        rich_help_panel=_SPEC,
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        metavar="DTYPE",
        help="bf16 (default), fp16 or fp32.",
        rich_help_panel=_SPEC,
    ),
]
Mask = Annotated[
    str,
    typer.Option(
        metavar="MASK",
        help="none (default), causal, document, sliding-window, bool, float, or your own"
        " module:function.",
        rich_help_panel=_SPEC,
    ),
]
Window = Annotated[
    str,
    typer.Option(
        metavar="TOKENS",
        help="How far a sliding window looks back.",
        rich_help_panel=_SPEC,
    ),
]
MaskRows = Annotated[
    str,
    typer.Option(
        metavar="true|false",
        help="A bool or float mask differs by query row.",
        rich_help_panel=_SPEC,
    ),
]
PerHead = Annotated[
    str,
    typer.Option(
        metavar="true|false",
        help="The block mask has rows for each batch and head, as Diffusers makes it.",
        rich_help_panel=_SPEC,
    ),
]
Phase = Annotated[
    str,
    typer.Option(
        metavar="PHASE",
        help="training, inference or both. Default: training, on the CPU inference.",
        rich_help_panel=_SPEC,
    ),
]
Layout = Annotated[
    str,
    typer.Option(
        metavar="LAYOUT",
        help="Memory of q, k, v: bhsd (default), bshd (as Diffusers makes it), fused-qkv or"
        " fused-v.",
        rich_help_panel=_SPEC,
    ),
]
FusedWidth = Annotated[
    str,
    typer.Option(
        metavar="N",
        help="Elements per token of the fused projection.",
        rich_help_panel=_SPEC,
    ),
]
Scale = Annotated[
    str,
    typer.Option(
        metavar="X",
        help="Softmax scale, if your program gives one.",
        rich_help_panel=_SPEC,
    ),
]
Dynamic = Annotated[
    str,
    typer.Option(
        metavar="true|false",
        help="torch.compile(dynamic=…), if your program gives it.",
        rich_help_panel=_SPEC,
    ),
]
Mode = Annotated[
    str,
    typer.Option(
        metavar="MODE",
        help="torch.compile(mode=…), if your program gives it.",
        rich_help_panel=_SPEC,
    ),
]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="One of flex_attention's kernel_options; may be repeated.",
        rich_help_panel=_SPEC,
        show_default=False,
    ),
]
Block = Annotated[
    bool,
    typer.Option(
        "--block",
        help="Build a preset's real transformer block, compiled as a whole; needs diffusers.",
        rich_help_panel=_SPEC,
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="NAME|FILE",
        help="Build for this GPU, which need not be here: a known name such as h200, or a file that"
        " `attn-doctor describe-gpu` wrote where it is. May be a list, or repeated.",
        rich_help_panel=_TARGET,
        show_default=False,
    ),
]
ListTargets = Annotated[
    bool, typer.Option("--list-targets", help="Show the known GPUs.", rich_help_panel=_TARGET)
]
Devices = Annotated[
    int | None,
    typer.Option(
        "--devices",
        min=1,
        max=64,
        metavar="N",
        help="For cuda:0 to cuda:N-1 of the target; a kernel is for one index. Default: 1.",
        rich_help_panel=_TARGET,
        show_default=False,
    ),
]
Artifact = Annotated[
    Path | None,
    typer.Option(
        "--artifact",
        metavar="FILE",
        help="Then write all that was built to one file, for `attn-doctor cache import`.",
        rich_help_panel=_TARGET,
        show_default=False,
    ),
]
Docker = Annotated[
    bool,
    typer.Option(
        "--docker",
        help="Build nothing: print the stage of a Dockerfile that does.",
        rich_help_panel=_TARGET,
    ),
]
Unpadded = Annotated[
    bool,
    typer.Option(
        "--unpadded",
        help="Build matrix products of odd sizes as they are: whether padding is quicker, only a"
        " GPU can time. Without, they are refused.",
        rich_help_panel=_TARGET,
    ),
]
Fit = Annotated[
    bool,
    typer.Option(
        "--fit",
        help="With --dry-run: compile each spec, keep nothing, and tell whether it fits the"
        " target's shared memory.",
        rich_help_panel=_TARGET,
    ),
]
CacheDir = Annotated[
    str,
    typer.Option(
        metavar="DIR",
        help="Cache folder. Default: TORCHINDUCTOR_CACHE_DIR, else torch's own. For a target: its"
        " path there, which the kernels hold.",
        rich_help_panel=_BUILD,
    ),
]
Python = Annotated[
    str,
    typer.Option(
        metavar="PATH",
        help="Interpreter or environment to build with, as in check.",
        rich_help_panel=_BUILD,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="DEVICE",
        help="cuda, cuda:N, all (a kernel is for one GPU index), or cpu. Default: cuda:0.",
        rich_help_panel=_BUILD,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        metavar="N",
        help="Processes at once. Default: what cores, memory and GPU memory allow.",
        rich_help_panel=_BUILD,
        show_default=False,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=1.0,
        metavar="SECONDS",
        help="Longest time for one spec. Default: 600, for a warm-up none.",
        rich_help_panel=_BUILD,
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Build what is up to date as well.", rich_help_panel=_BUILD),
]
Prove = Annotated[
    bool,
    typer.Option(
        "--prove/--no-prove",
        help="Run a warm-up a second time and require that it compiles nothing.",
        rich_help_panel=_BUILD,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        "-n",
        help="Show what would be cleared and built, and how long it takes.",
        rich_help_panel=_SHOW,
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Build nothing; exit with 1 if anything would be built.",
        rich_help_panel=_SHOW,
    ),
]
Output = Annotated[Format, typer.Option(help="How to write the result.", rich_help_panel=_SHOW)]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="List every file.", rich_help_panel=_SHOW)
]
