"""Runs a build for `build-kernels`: its progress, its end, and its report."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from attn_doctor.cli.build_kernels.options import BuildOptions
from attn_doctor.cli.build_kernels.request import Requests, requests_of
from attn_doctor.cli.signals import Signals, TerminatedError
from attn_doctor.errors import AttnDoctorError
from attn_doctor.kernels.builder import plan as plans
from attn_doctor.kernels.builder import report as reports
from attn_doctor.kernels.builder.plan import BuildRequest, Plan
from attn_doctor.kernels.builder.report import Report
from attn_doctor.kernels.builder.session import BuildSession
from attn_doctor.kernels.builder.target import stub_gpu_environ
from attn_doctor.kernels.bundle.pack import Exported, export
from attn_doctor.pool.pool import PoolError
from attn_doctor.record import store
from attn_doctor.record.lock import LockLostError
from attn_doctor.render.terminal import Terminal


def run(options: BuildOptions) -> int:
    """Build what was asked for, show the report, and return the exit code.

    Raises `AttnDoctorError` and `DeviceError` as `requests_of`, and if the folder cannot be
    written.
    """
    wanted = requests_of(options)
    manifest = store.load(wanted.requests[0].folder) or store.empty()
    planned = [(request, plans.plan_build(request, manifest)) for request in wanted.requests]
    if options.dry_run or options.check:
        plan = plans.joined([plan for _, plan in planned])
        code = int(options.check and bool(plan.todo))
        sys.stdout.write(_plan(plan, wanted, options, code))
        return code
    return _built(planned, wanted.notes, options)


def _built(
    planned: Sequence[tuple[BuildRequest, Plan]], notes: Sequence[str], options: BuildOptions
) -> int:
    from attn_doctor.render.build_kernels.progress import Bar, Lines

    first, terminal = planned[0][0], terminal_of(sys.stderr)
    interrupted = 0
    stopped: PoolError | LockLostError | None = None
    bar = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    with (Bar if bar else Lines)(terminal) as watcher:
        sessions = [
            BuildSession(_with_stub_gpu(request) if plan.todo else request, watcher, plan)
            for request, plan in planned
        ]
        sessions[0].notes += notes
        try:
            with Signals():
                # One after another: the processes of each target see another GPU.
                for session in sessions:
                    if session.plan.todo or session.plan.unknown:
                        session.run()
        except (KeyboardInterrupt, TerminatedError) as error:
            interrupted = getattr(error, "code", 130)
        except (PoolError, LockLostError) as error:
            stopped = error
        except OSError as error:
            # Whatever was finished before a disk ran full is written down.
            raise AttnDoctorError(
                f"{error.filename or first.folder}: {error.strerror or error}; name another"
                " --cache-dir"
            ) from None
    if stopped is not None:
        return _stopped(stopped, first, terminal)
    report = reports.joined([session.report() for session in sessions])
    code = interrupted or int(bool(report.failed))
    exported = None
    if options.artifact is not None and not code:
        slots = {result.kernel.device_slot for result in report.results}
        exported = export(first.folder, options.artifact, frozenset(slots))
    sys.stdout.write(_report(report, exported, options, code))
    return code


def _with_stub_gpu(request: BuildRequest) -> BuildRequest:
    """The request with the environment of its target's stub GPU, whose compiling takes a moment."""
    if request.target is None:
        return request
    environ = stub_gpu_environ(request.target, request.facts, request.environ)
    return replace(request, environ=environ)


def _stopped(error: PoolError | LockLostError, request: BuildRequest, terminal: Terminal) -> int:
    """Say why the build could not go on: torch cannot be imported, or the lock was lost."""
    from attn_doctor.render.explanation.text import text

    if isinstance(error, LockLostError):
        sys.stderr.write(
            f"attn-doctor: this build was suspended for so long that another one took over"
            f" {request.folder}; what was finished before is kept\n"
        )
        return 1
    sys.stderr.write(f"attn-doctor: torch cannot be imported: {error.message}\n")
    explanation = reports.explained([error.log], error.message, request.facts)
    if explanation is not None:
        sys.stdout.write(text(explanation, terminal))
    sys.stderr.write(f"log: {error.log}\n")
    return 1


def terminal_of(stream: Any) -> Terminal:
    """The terminal or file behind a stream."""
    return Terminal.of(stream, dict(os.environ))


def _plan(plan: Plan, wanted: Requests, options: BuildOptions, code: int) -> str:
    request = wanted.requests[0]
    folder = str(request.folder)
    if options.as_json:
        from attn_doctor.render.build_kernels.json import plan_json

        return plan_json(plan, folder, code, wanted.notes)
    from attn_doctor.render.build_kernels.text import plan_text

    return plan_text(
        plan,
        folder,
        request.facts,
        terminal_of(sys.stdout),
        verbose=bool(options.verbose),
        notes=wanted.notes,
    )


def _report(report: Report, exported: Exported | None, options: BuildOptions, code: int) -> str:
    if options.as_json:
        from attn_doctor.render.build_kernels.json import report_json

        return report_json(report, code, exported)
    from attn_doctor.render.build_kernels.text import report_text

    terminal = terminal_of(sys.stdout)
    text = report_text(report, terminal, verbose=bool(options.verbose), exported=exported)
    if options.artifact is not None and exported is None:
        words = f"{options.artifact} was not written: not every kernel was built and reused"
        text += terminal.page([words])
    return text
