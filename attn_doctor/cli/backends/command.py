"""`attn-doctor backends`: the attention backends that would work here, by name, and why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from attn_doctor.cli import completion
from attn_doctor.cli.attention_options import CallOptions
from attn_doctor.cli.check.formats import Output, deliver
from attn_doctor.cli.common_options import Output as OutputOption
from attn_doctor.cli.result_options import MatrixFormat, MatrixOptions, PageFormat
from attn_doctor.cli.screen import terminal
from attn_doctor.cli.source_options import SourceOptions

if TYPE_CHECKING:
    from attn_doctor.backends.attention_call import AttentionCall
    from attn_doctor.backends.readiness import Matrix
    from attn_doctor.facts import Facts
    from attn_doctor.findings import Diagnosis
    from attn_doctor.render.terminal import Terminal

_LIVE = "Running the backends"


class LiveOptions(Struct, frozen=True, kw_only=True):
    """Options for running the backends."""

    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Run the backends, forward and backward, each in its own process.",
            rich_help_panel=_LIVE,
        ),
    ] = False
    audit: Annotated[
        bool,
        typer.Option(
            "--audit",
            help="With --live: search them for wrong results as well; see attn-doctor audit.",
            rich_help_panel=_LIVE,
        ),
    ] = False
    device: Annotated[
        str,
        typer.Option(
            metavar="cuda:N|cpu",
            help="With --live: the device. cuda:N is torch's GPU number N.",
            show_default=False,
            rich_help_panel=_LIVE,
        ),
    ] = ""
    live_seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="Longest time that one backend may take.",
            rich_help_panel=_LIVE,
        ),
    ] = None
    live_share: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=1,
            metavar="SHARE",
            help="Part of the free GPU memory to use at most.",
            rich_help_panel=_LIVE,
        ),
    ] = None
    live_network: Annotated[
        bool,
        typer.Option(
            "--live-network",
            help="Allow downloads of kernels from the Hugging Face Hub. Default: only cached"
            " kernels run.",
            rich_help_panel=_LIVE,
        ),
    ] = False


def backends(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME…]",
            help="Only these backends. Default: all.",
            show_default=False,
            autocompletion=completion.backends,
        ),
    ] = None,
    why: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=completion.backends,
            help="Show every condition of one backend with the value seen.",
            show_default=False,
        ),
    ] = "",
    source: SourceOptions,
    calls: CallOptions,
    result: MatrixOptions,
    output: OutputOption = "",
    live: LiveOptions,
) -> None:
    """Report which attention backends would work here, by the names that frameworks use.

    Reads files and the driver's answers only: nothing is imported or run, unless with --live. A
    wrong result without an error message counts as not ready.

    Exit codes: 0 evaluated, 1 only with --live: a backend that was named or expected to be ready
    does not work, or one gives wrong numbers, crashes or hangs; 2 wrong usage or unreadable input,
    3 attn-doctor failed.
    """
    wanted = calls.calls(("none",) if live.live else ("none", "bool"))
    if live.live and (source.facts or source.pretend or why):
        raise typer.BadParameter("--live runs the backends here: drop --facts, --pretend and --why")
    form = result.chosen
    if form in (MatrixFormat.html, MatrixFormat.svg) and (live.live or why):
        raise typer.BadParameter(
            f"--format {form.value} shows the whole matrix: drop --live and --why, or use markdown"
        )
    if live.audit and not live.live:
        raise typer.BadParameter("--audit runs the backends: add --live, or use attn-doctor audit")
    from attn_doctor.backends.matrix import framework_of
    from attn_doctor.diagnosis import diagnosis_of

    diagnosis = diagnosis_of(source.read(), None, source.rule_folders)
    framework = framework_of(diagnosis.facts, calls.framework_name)
    chosen = _canonical(names or (), framework)
    code = 0
    if live.live:
        code, text = _live(diagnosis, chosen, calls, wanted, live, PageFormat(form.value), output)
    elif why:
        text = _why(diagnosis, framework, wanted, why, PageFormat(form.value), terminal(output))
    else:
        text = _table(diagnosis, framework, wanted, chosen, form, terminal(output))
    deliver([Output(form.value, output)], lambda _: text)
    raise typer.Exit(code)


def _canonical(names: Sequence[str], framework: str) -> tuple[str, ...]:
    """The canonical names of the backends that these names of a framework mean."""
    from attn_doctor.backends.catalogue import find_name, load

    return tuple(dict.fromkeys(find_name(name, framework, load()).backend for name in names))


def _live(
    diagnosis: Diagnosis,
    names: tuple[str, ...],
    calls: CallOptions,
    wanted: Sequence[AttentionCall],
    live: LiveOptions,
    format: PageFormat,
    output: str,
) -> tuple[int, str]:
    from attn_doctor.backends.live.plan import Workload
    from attn_doctor.cli.backends.live import Options, ran, show

    options = Options(
        names=names,
        workload=Workload(
            phase=calls.phase.value if calls.phase else "",
            mask=wanted[0].mask,
            causal=calls.causal,
            gqa=calls.gqa,
            dtype=calls.dtype.value,
            head_dim=calls.head_dim,
            seq=calls.seq_len,
        ),
        device=live.device,
        seconds=live.live_seconds,
        share=live.live_share,
        network=live.live_network,
        format=format.value,
        path=output,
    )
    found = ran(diagnosis, options)
    code, text = found.code, show(found, diagnosis, options)
    if not live.audit:
        return code, text
    from attn_doctor.backends.audit.plan import Options as Audit
    from attn_doctor.cli.audit.run import added
    from attn_doctor.cli.audit.run import ran as audited

    report = audited(
        diagnosis,
        Audit(
            names=names,
            phases=options.workload.phases,
            dtype=options.workload.torch_dtype,
            device=found.report.device.device,
        ),
    )
    return added(code, text, report, diagnosis, format, output)


def _table(
    diagnosis: Diagnosis,
    framework: str,
    calls: Sequence[AttentionCall],
    names: Sequence[str],
    format: MatrixFormat,
    terminal: Terminal,
) -> str:
    from attn_doctor.backends.matrix import matrix

    facts = diagnosis.facts
    table = matrix(facts, diagnosis.findings, calls, framework, names)
    if format is MatrixFormat.json:
        from attn_doctor.render.backends.json import json

        return json(table, facts)
    if format is not MatrixFormat.text:
        return _page(table, facts, format)
    from attn_doctor.render.backends.text import text

    return text(table, facts, terminal)


def _page(table: Matrix, facts: Facts, format: MatrixFormat) -> str:
    """The matrix in a form that others read."""
    from attn_doctor.anonymize import disclosed
    from attn_doctor.cli.this_machine import anonymous_here

    anonymous = anonymous_here()
    table, facts = disclosed(table, anonymous), disclosed(facts, anonymous)
    if format is MatrixFormat.html:
        from attn_doctor.render.backends.html import html

        return html(table, facts)
    if format is MatrixFormat.svg:
        from attn_doctor.render.backends.svg import svg

        return svg(table, facts)
    from attn_doctor.render.backends.markdown import markdown

    return markdown(table, facts)


def _why(
    diagnosis: Diagnosis,
    framework: str,
    calls: Sequence[AttentionCall],
    name: str,
    format: PageFormat,
    terminal: Terminal,
) -> str:
    from attn_doctor.backends.catalogue import find_name, load
    from attn_doctor.backends.matrix import matrix, requirements

    facts, findings = diagnosis.facts, diagnosis.findings
    name = find_name(name, framework, load()).name
    table = matrix(facts, findings, calls, framework)
    backend, results = requirements(facts, findings, calls, name, framework)
    if format is PageFormat.json:
        from attn_doctor.render.backends.json import why_json

        return why_json(backend, table, name, results, facts)
    if format is PageFormat.markdown:
        from attn_doctor.anonymize import disclosed
        from attn_doctor.cli.this_machine import anonymous_here
        from attn_doctor.render.backends.markdown import why_markdown

        anonymous = anonymous_here()
        shown = [disclosed(one, anonymous) for one in results]
        return why_markdown(
            backend, disclosed(table, anonymous), name, shown, disclosed(facts, anonymous)
        )
    from attn_doctor.render.backends.text import why_text

    return why_text(backend, table, name, results, facts, terminal)
