"""Runs an audit with progress, and shows its result: for `audit` and for `backends --live`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from attn_doctor.cli.result_options import PageFormat
from attn_doctor.cli.screen import terminal
from attn_doctor.suggest import hint

if TYPE_CHECKING:
    from attn_doctor.backends.audit.outcome import AuditReport
    from attn_doctor.backends.audit.plan import Options
    from attn_doctor.findings import Diagnosis


def device_name(words: str) -> str:
    """The name of a device in torch. Raises `typer.BadParameter`."""
    if words.isdigit():
        return f"cuda:{words}"
    if words in ("", "cpu", "cuda", "mps") or words.removeprefix("cuda:").isdigit():
        return words
    raise typer.BadParameter(f"--device {words}: write cuda:0 (the number of the GPU) or cpu")


def named(names: Sequence[str], known: Mapping[str, str]) -> tuple[str, ...]:
    """The backends of these names. Raises `typer.BadParameter` for one that cannot be run."""
    for name in names:
        if name not in known:
            raise typer.BadParameter(
                f"audit cannot run {name}{hint(name, known)}; it can run {', '.join(known)}"
            )
    return tuple(dict.fromkeys(names))


def ran(diagnosis: Diagnosis, options: Options) -> AuditReport:
    """Audit the backends of the interpreter that `diagnosis` is about."""
    from attn_doctor.backends.audit.run import run
    from attn_doctor.errors import AttnDoctorError
    from attn_doctor.render.audit.progress import found, line
    from attn_doctor.render.progress import progress

    if not diagnosis.facts.python.path:
        raise AttnDoctorError("audit runs the backends: it needs a machine, not a snapshot")
    with progress(found, line) as shown:
        return run(diagnosis, options, progress=shown)


def exit_code(report: AuditReport) -> int:
    """0 no fault, 1 a fault or a named backend that did not run, 4 no fault so far."""
    unable = report.failure is not None or any(one.failure for one in report.results)
    if report.faulty or unable or report.absent:
        return 1
    return 0 if report.complete else 4


def show(
    report: AuditReport, diagnosis: Diagnosis, form: PageFormat, output: str, *, top: bool = True
) -> tuple[int, str]:
    """The exit code and the result in a format."""
    code = exit_code(report)
    if form is PageFormat.json:
        from attn_doctor.render.audit.json import json

        return code, json(report, code)
    if form is PageFormat.markdown:
        from attn_doctor.anonymize import anonymous
        from attn_doctor.host.local import LocalHost
        from attn_doctor.render.audit.markdown import markdown

        return code, markdown(report, anonymous(LocalHost()))
    from attn_doctor.render.audit.text import text

    return code, text(report, diagnosis.facts, terminal(output), top=top)


def added(
    code: int,
    written: str,
    report: AuditReport,
    diagnosis: Diagnosis,
    form: PageFormat,
    output: str,
) -> tuple[int, str]:
    """The exit code and the text of a live run with those of an audit added."""
    own = exit_code(report)
    code = code or own
    if form is PageFormat.json:
        from attn_doctor.json_files import decode
        from attn_doctor.render.audit.json import as_data
        from attn_doctor.render.json_text import json_text

        return code, json_text(
            {**decode(written.encode()), "exit_code": code, "audit": as_data(report)}
        )
    _, text = show(report, diagnosis, form, output, top=False)
    return code, f"{written}\n{text}"
