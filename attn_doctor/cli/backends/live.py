"""`--live` of `check` and `backends`: run the backends and show the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from attn_doctor.backends.live.plan import NAMES, Limits, Workload
from attn_doctor.cli.audit.run import device_name
from attn_doctor.cli.screen import terminal

if TYPE_CHECKING:
    from attn_doctor.backends.live.outcome import LiveReport
    from attn_doctor.backends.live.static_disagreements import Disagreement
    from attn_doctor.backends.readiness import Matrix
    from attn_doctor.findings import Diagnosis


class Options(Struct, frozen=True, kw_only=True):
    """Options of a live run; None and empty values mean the default."""

    names: tuple[str, ...] = ()
    """Canonical names of backends; none: all."""
    workload: Workload = Workload()
    device: str = ""
    """A number, as torch counts its GPUs, or `cpu`."""
    seconds: float | None = None
    share: float | None = None
    network: bool = False
    format: str = "text"
    """`text`, `json` or `markdown`."""
    verbose: bool = False
    quiet: bool = False
    top: bool = True
    """Text begins with the examined interpreter."""
    path: str = ""
    """The output file; empty for standard output."""

    def written_as(self, format: str, path: str) -> Options:
        """The same in another format."""
        import msgspec

        return msgspec.structs.replace(self, format=format, path=path)


class Ran(Struct, frozen=True, kw_only=True):
    """A run, and where it differs from the static evaluation."""

    report: LiveReport
    differing: tuple[Disagreement, ...]
    code: int


def added(written: str, found: Ran, diagnosis: Diagnosis, options: Options) -> str:
    """Add the results of a run to what `check` has written in a format.

    Formats of CI services hold findings only and stay unchanged; the exit code has the result.
    """
    if options.format == "json":
        import msgspec

        from attn_doctor.render.backends.live_json import as_data
        from attn_doctor.render.json_text import json_text

        data = msgspec.json.decode(written.encode())
        data["live"] = as_data(found.report, found.differing)
        return json_text(data)
    if options.format in ("text", "markdown"):
        return f"{written}\n{show(found, diagnosis, options)}"
    return written


def ran(diagnosis: Diagnosis, options: Options) -> Ran:
    """Run the backends in the interpreter that `diagnosis` is about, with progress."""
    from attn_doctor.backends.live.run import run
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.render.backends.live_progress import ended
    from attn_doctor.render.progress import progress

    facts = diagnosis.facts
    if not facts.python.path:
        raise AttnDoctorError("--live runs the backends: it needs a machine, not a snapshot")
    strange = [name for name in options.names if name not in NAMES]
    if strange:
        raise AttnDoctorError(
            f"--live cannot run {', '.join(strange)}; it can run {', '.join(NAMES)}"
        )
    with progress(ended, ended, left=lambda step: step.left, quiet=options.quiet) as shown:
        report = run(
            facts,
            options.names,
            options.workload,
            _limits(options),
            device_name(options.device),
            shown,
        )
    from attn_doctor.backends.live.static_disagreements import disagreements, with_advisories

    static = _static(diagnosis, options.workload)
    report = with_advisories(report, static)
    differing = disagreements(report, static)
    return Ran(report=report, differing=differing, code=exit_code(report, differing, options.names))


def _limits(options: Options) -> Limits:
    usual = Limits()
    return Limits(
        seconds=options.seconds or usual.seconds,
        share=options.share or usual.share,
        network=options.network,
    )


def _static(diagnosis: Diagnosis, workload: Workload) -> Matrix:
    """What the facts say of the same calls. Several sizes are run, so none is taken as stated."""
    from attn_doctor.backends.attention_call import AttentionCall
    from attn_doctor.backends.matrix import matrix

    usual = AttentionCall()
    calls = [
        AttentionCall(
            phase=phase,
            mask=workload.mask,
            causal=workload.causal,
            gqa=workload.gqa,
            dtype=workload.dtype,
            head_dim=workload.head_dim or usual.head_dim,
            seq_len=workload.seq or usual.seq_len,
            assumed=("head_dim", "seq_len"),
        )
        for phase in workload.phases
    ]
    return matrix(diagnosis.facts, diagnosis.findings, calls, "diffusers")


def exit_code(
    report: LiveReport,
    differing: Sequence[Disagreement],
    names: Sequence[str] = (),
    *,
    chosen: bool = False,
) -> int:
    """0 if the run shows no problem, else 1.

    Problems: nothing could run, the `chosen` device cannot be used, one of `names` does not work,
    or a backend that was expected to be ready does not. A backend that refuses to run here is a
    problem only if it was named; a crash, a hang or wrong numbers always are.
    """
    from attn_doctor.backends.live.outcome import Verdict

    if report.failure is not None or (report.device.failure is not None and chosen):
        return 1
    named = [report.of(name) for name in names]
    if any(one is None or not one.verdict.works for one in named):
        return 1
    bad = (Verdict.WRONG, Verdict.CRASHED, Verdict.HUNG)
    return int(
        any(one.verdict in bad for one in report.results) or any(one.broken for one in differing)
    )


def show(found: Ran, diagnosis: Diagnosis, options: Options) -> str:
    """The result in the requested format."""
    facts, report, differing = diagnosis.facts, found.report, found.differing
    if options.format == "json":
        from attn_doctor.render.backends.live_json import json

        return json(report, differing, found.code)
    if options.format == "markdown":
        from attn_doctor.anonymize import anonymous
        from attn_doctor.host.local import LocalHost
        from attn_doctor.render.backends.live_markdown import markdown

        return markdown(report, facts, differing, anonymous(LocalHost()))
    from attn_doctor.render.backends.live_text import text

    shown = terminal(options.path)
    return text(report, facts, shown, differing, verbose=options.verbose, top=options.top)
