"""Carrying out a build for `build-kernels`: its progress, its end, and what is said of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attn_doctor.cli.build_kernels.request import How, Wanted
    from attn_doctor.kernels.builder.plan import BuildRequest, Plan
    from attn_doctor.kernels.builder.report import Report
    from attn_doctor.render.build_kernels.artifact import Exported
    from attn_doctor.render.terminal import Paper


def run(wanted: Wanted, how: How) -> int:
    """Build what is wanted, show what came of it, and return the exit code."""
    from attn_doctor.kernels.builder.plan import joined, plan_build
    from attn_doctor.record import store

    requests = wanted.requests
    manifest = store.load(requests[0].folder) or store.empty()
    plans = [plan_build(request, manifest) for request in requests]
    if how.dry_run or how.check:
        plan = joined(plans)
        code = int(how.check and bool(plan.todo))
        sys.stdout.write(_plan(plan, wanted, how, code))
        return code
    # Compiling a stub GPU takes a moment, which what is up to date need not wait for.
    ready = [
        _stood_in(request) if plan.todo else request
        for request, plan in zip(requests, plans, strict=True)
    ]
    return _built(ready, wanted.notes, how)


def _stood_in(request: BuildRequest) -> BuildRequest:
    """The request with the environment of its target's stub GPU."""
    from msgspec.structs import replace

    from attn_doctor.kernels.builder.target import stub_gpu_environ

    if request.target is None:
        return request
    return replace(
        request, environ=stub_gpu_environ(request.target, request.facts, request.environ)
    )


def _built(requests: Sequence[BuildRequest], notes: Sequence[str], how: How) -> int:
    from attn_doctor.cli.signals import Signals, TerminatedError
    from attn_doctor.kernels.builder.report import joined
    from attn_doctor.kernels.builder.session import Build

    paper = paper_of(sys.stderr)
    interrupted = 0
    stopped: Exception | None = None
    with _watcher(paper) as watcher:
        builds = [Build(request, watcher) for request in requests]
        builds[0].notes += notes
        try:
            with Signals():
                # One after another: the processes of each target see another GPU.
                for build in builds:
                    if build.plan.todo or build.plan.unknown:
                        build.run()
        except (KeyboardInterrupt, TerminatedError) as error:
            interrupted = getattr(error, "code", 130)
        except _stops() as error:
            stopped = error
        except OSError as error:
            # Whatever was finished before a disk ran full is written down.
            raise unwritable(requests[0].folder, error) from None
    if stopped is not None:
        return _stopped(stopped, requests[0], paper)
    report = joined([build.report() for build in builds])
    code = interrupted or int(bool(report.failed))
    packed = None
    if how.artifact is not None and not code:
        places = {one.item.device_slot for one in report.results}
        packed = exported(requests[0].folder, how.artifact, places)
    sys.stdout.write(_report(report, packed, how, code))
    return code


def exported(folder: Path, file: Path, places: Collection[str]) -> Exported:
    """Write what was built for `places` to one file. Raises `ArtifactError`."""
    from attn_doctor.kernels.bundle.pack import choose, pack
    from attn_doctor.render.build_kernels.artifact import Exported

    choice = choose(folder, frozenset(places))
    artifact, digest = pack(folder, choice, file)
    return Exported(
        artifact=artifact,
        file=file,
        digest=digest,
        bytes=file.stat().st_size,
        left_out=dict(choice.left_out),
    )


def unwritable(folder: Path, error: OSError) -> Exception:
    """What to say of a folder that cannot be written."""
    from attn_doctor.errors import AttnDoctorError

    what = error.filename or folder
    return AttnDoctorError(f"{what}: {error.strerror or error}; name another --cache-dir")


def _stops() -> tuple[type[Exception], ...]:
    from attn_doctor.pool.pool import PoolError
    from attn_doctor.record.lock import LockLostError

    return (PoolError, LockLostError)


def _stopped(error: Exception, request: BuildRequest, paper: Paper) -> int:
    """The build could not go on at all: torch cannot be imported, or the lock was lost."""
    from attn_doctor.kernels.builder.report import explained
    from attn_doctor.pool.pool import PoolError
    from attn_doctor.render.explanation.text import text

    if not isinstance(error, PoolError):
        sys.stderr.write(
            f"attn-doctor: this build stood still for so long that another one took over"
            f" {request.folder}; what was finished before is kept\n"
        )
        return 1
    sys.stderr.write(f"attn-doctor: torch cannot be imported: {error.message}\n")
    found = explained([error.log], error.message, request.facts)
    if found is not None:
        sys.stdout.write(text(found, paper))
    sys.stderr.write(f"log: {error.log}\n")
    return 1


def _watcher(paper: Paper) -> Any:
    from attn_doctor.render.build_kernels.progress import Bar, Lines

    return Bar(paper) if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" else Lines(paper)


def paper_of(stream: Any) -> Paper:
    """The paper behind a stream."""
    from attn_doctor.render.terminal import Paper

    return Paper.of(stream, dict(os.environ))


def _plan(plan: Plan, wanted: Wanted, how: How, code: int) -> str:
    request = wanted.requests[0]
    folder = str(request.folder)
    if how.as_json:
        from attn_doctor.render.build_kernels.json import plan_json

        return plan_json(plan, folder, code, wanted.notes)
    from attn_doctor.render.build_kernels.text import plan_text

    paper = paper_of(sys.stdout)
    return plan_text(plan, folder, request.facts, paper, verbose=how.verbose, notes=wanted.notes)


def _report(report: Report, packed: Exported | None, how: How, code: int) -> str:
    if how.as_json:
        from attn_doctor.render.build_kernels.json import report_json

        return report_json(report, code, packed)
    from attn_doctor.render.build_kernels.text import report_text

    paper = paper_of(sys.stdout)
    text = report_text(report, paper, verbose=how.verbose, packed=packed)
    if how.artifact is not None and packed is None:
        text += f"{how.artifact} was not written: not every kernel was built and reused\n"
    return text
