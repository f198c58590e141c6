"""`attn-doctor backends`: which attention backends would work here, by name, and why not."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.attention_options import (
    Causal,
    Compiled,
    Dtype,
    DtypeOption,
    For,
    FrameworkOption,
    Gqa,
    HeadDim,
    Masks,
    Seq,
    wanted,
)
from attn_doctor.cli.facts_source import Pretend, examined
from attn_doctor.cli.rules_option import Folders, rule_folders

if TYPE_CHECKING:
    from attn_doctor.backends.attention_call import AttentionCall
    from attn_doctor.findings import Diagnosis

_LIVE = "Running them"


class Format(str, Enum):
    """How the table is written."""

    text = "text"
    json = "json"
    markdown = "markdown"


def backends(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME…]", help="Only these backends. Default: all.", show_default=False
        ),
    ] = None,
    why: Annotated[
        str,
        typer.Option(metavar="NAME", help="Every condition of one backend with the value seen."),
    ] = "",
    framework: FrameworkOption = None,
    phase: For = None,
    masks: Masks = "",
    causal: Causal = False,
    gqa: Gqa = False,
    dtype: DtypeOption = Dtype.bf16,
    head_dim: HeadDim = None,
    seq: Seq = None,
    compiled: Compiled = False,
    pretend: Pretend = None,
    python: Annotated[
        str,
        typer.Option(metavar="PATH", help="Interpreter or environment to examine, as in check."),
    ] = "",
    facts: Annotated[
        str,
        typer.Option(
            "--facts", metavar="FILE", help="Judge a snapshot (- for stdin), not this machine."
        ),
    ] = "",
    rules: Folders = None,
    format: Annotated[Format, typer.Option(help="How to write the result.")] = Format.text,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, metavar="SECONDS", help="Longest time the examination may take."),
    ] = 4.0,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Run them, forward and backward, each in a process of its own.",
            rich_help_panel=_LIVE,
        ),
    ] = False,
    device: Annotated[
        str,
        typer.Option(metavar="N|cpu", help="The GPU, as torch counts them.", rich_help_panel=_LIVE),
    ] = "",
    live_seconds: Annotated[
        float | None,
        typer.Option(
            min=1, metavar="SECONDS", help="Longest time one may take.", rich_help_panel=_LIVE
        ),
    ] = None,
    live_share: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1,
            metavar="SHARE",
            help="Part of the free GPU memory to use at most.",
            rich_help_panel=_LIVE,
        ),
    ] = None,
    live_network: Annotated[
        bool,
        typer.Option(
            "--live-network",
            help="Let kernels of the Hugging Face Hub be downloaded; only cached ones run else.",
            rich_help_panel=_LIVE,
        ),
    ] = False,
) -> None:
    """Say which attention backends would work here, by the names that frameworks use.

    Judged from files and the driver's answers alone: nothing is imported or run, unless with
    --live. A wrong result without an error message counts as not ready.

    Exit codes: 0 judged, 1 only with --live: a backend that was named or foretold as ready does not
    work, or one gives wrong numbers, crashes or hangs; 2 wrong usage or unreadable input, 3
    attn-doctor failed.
    """
    calls = wanted(
        phase,
        masks,
        ("none",) if live else ("none", "bool"),
        causal=causal,
        gqa=gqa,
        dtype=dtype,
        head_dim=head_dim,
        seq=seq,
        compiled=compiled,
    )
    if live and (facts or pretend or why):
        raise typer.BadParameter("--live runs the backends here: drop --facts, --pretend and --why")
    from attn_doctor.diagnosis import diagnose

    diagnosis = diagnose(examined(facts, python, timeout, pretend), None, rule_folders(rules))
    from attn_doctor.backends.matrix import framework_of

    chosen = framework_of(diagnosis.facts, framework.value if framework else "")
    if live:
        from attn_doctor.backends.live.plan import Workload
        from attn_doctor.cli.backends.live import Options
        from attn_doctor.cli.backends.live import live as run

        options = Options(
            names=_canonical(names or (), chosen),
            workload=Workload(
                phase=phase.value if phase else "",
                mask=calls[0].mask,
                causal=causal,
                gqa=gqa,
                dtype=dtype.value,
                head_dim=head_dim,
                seq=seq,
            ),
            device=device,
            seconds=live_seconds,
            share=live_share,
            network=live_network,
            format=format.value,
        )
        raise typer.Exit(run(diagnosis, options))
    if why:
        sys.stdout.write(_why(diagnosis, chosen, calls, why, format))
    else:
        sys.stdout.write(_table(diagnosis, chosen, calls, names or (), format))


def _canonical(names: Sequence[str], framework: str) -> tuple[str, ...]:
    """The backends that names of a framework lead to, by their canonical names."""
    from attn_doctor.backends.catalogue import find_name, load

    return tuple(dict.fromkeys(find_name(name, framework, load()).backend for name in names))


def _table(
    diagnosis: Diagnosis,
    framework: str,
    calls: Sequence[AttentionCall],
    names: Sequence[str],
    format: Format,
) -> str:
    from attn_doctor.backends.matrix import matrix
    from attn_doctor.render.terminal import Paper

    facts = diagnosis.facts
    table = matrix(facts, diagnosis.findings, calls, framework, _canonical(names, framework))
    if format is Format.json:
        from attn_doctor.render.backends.json import json

        return json(table, facts)
    if format is Format.markdown:
        from attn_doctor.render.backends.markdown import markdown

        return markdown(table, facts)
    from attn_doctor.render.backends.text import text

    return text(table, facts, Paper.of(sys.stdout, dict(os.environ)))


def _why(
    diagnosis: Diagnosis, framework: str, calls: Sequence[AttentionCall], name: str, format: Format
) -> str:
    from attn_doctor.backends.catalogue import find_name, load
    from attn_doctor.backends.matrix import matrix, requirements

    facts, findings = diagnosis.facts, diagnosis.findings
    name = find_name(name, framework, load()).name
    table = matrix(facts, findings, calls, framework)
    backend, told = requirements(facts, findings, calls, name, framework)
    if format is Format.json:
        from attn_doctor.render.backends.json import why_json

        return why_json(backend, table, name, told, facts)
    if format is Format.markdown:
        from attn_doctor.render.backends.markdown import why_markdown

        return why_markdown(backend, table, name, told, facts)
    from attn_doctor.render.backends.text import why_text
    from attn_doctor.render.terminal import Paper

    paper = Paper.of(sys.stdout, dict(os.environ))
    return why_text(backend, table, name, told, facts, paper)
