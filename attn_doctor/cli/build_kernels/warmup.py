"""`attn-doctor build-kernels -- COMMAND`: the user's own program as the warm-up."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from attn_doctor.cli.build_kernels.options import BuildOptions
from attn_doctor.cli.build_kernels.request import examined, workplace
from attn_doctor.cli.build_kernels.run import terminal_of
from attn_doctor.cli.signals import Signals, TerminatedError
from attn_doctor.kernels.builder.devices import compilable, devices
from attn_doctor.kernels.builder.program_run import Program, program_of
from attn_doctor.kernels.builder.report import explained
from attn_doctor.kernels.builder.software_differences import check
from attn_doctor.kernels.builder.target import stub_gpu_environ
from attn_doctor.kernels.builder.warmup import WarmupResult, outdated, warm_up
from attn_doctor.kernels.bundle.pack import Exported, export
from attn_doctor.record.lock import Owner
from attn_doctor.render.caches.bundle import exported_text

_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"
_BEGUN = {
    "run": "running it with its kernels kept in {folder}",
    "verify": "running it once more, to see that nothing is compiled again",
}


def run_warmups(options: BuildOptions) -> int:
    """Run the program, once for each target, show its result, and return the exit code.

    That is the program's own if it failed, else 1 if its kernels are not reused.
    """
    programs = list(_programs(options))
    if options.dry_run or options.check:
        return _show_plan(programs, options)
    results: list[tuple[WarmupResult, Program, int]] = []
    for program in programs:
        result = _run(program, options)
        if isinstance(result, int):
            return result
        missed = options.verify and result.warmup is not None and not result.warmup.verified
        results.append((result, program, result.code or int(bool(result.wrong) or missed)))
    code = next((own for _, _, own in results if own), 0)
    exported = None
    if options.artifact is not None and not code:
        slots = {result.warmup.device_slot for result, _, _ in results if result.warmup is not None}
        exported = export(programs[0].folder, options.artifact, frozenset(slots))
    sys.stdout.write(_rendered(results, exported, options))
    return code


def _show_plan(programs: list[Program], options: BuildOptions) -> int:
    """Show which programs would be run, and why."""

    def why(program: Program) -> str:
        return "--force was given" if options.force else outdated(program, verify=options.verify)

    planned = [(program, why(program)) for program in programs]
    code = int(options.check and any(reason for _, reason in planned))
    if options.as_json:
        from attn_doctor.render.build_kernels.warmup_json import planned_json

        sys.stdout.write(planned_json(planned, code))
    else:
        from attn_doctor.render.build_kernels.warmup_text import planned_text

        terminal = terminal_of(sys.stdout)
        sys.stdout.write("".join(planned_text(*one, terminal) for one in planned))
    return code


def _run(program: Program, options: BuildOptions) -> WarmupResult | int:
    """Run one program; the exit code if it was interrupted."""
    from attn_doctor.render.build_kernels.progress import holder

    shown: list[str] = []

    def waiting(owner: Owner | None) -> None:
        if not shown:
            shown.append(holder(owner))
            _say(f"waiting: {shown[0]}")

    if program.target is not None:
        _say(f"for {program.target.title}, on a stub GPU: no kernel runs here")
        environ = stub_gpu_environ(program.target, program.facts, program.environ)
        program = replace(program, environ=environ)
    try:
        with Signals():
            return warm_up(
                program,
                verify=options.verify,
                waiting=waiting,
                begin=lambda phase: _say(_BEGUN[phase].format(folder=program.folder)),
                show=_show,
            )
    except (KeyboardInterrupt, TerminatedError) as error:
        _say("interrupted: nothing is recorded, and what was compiled stays in the cache")
        return int(getattr(error, "code", 130))


def _programs(options: BuildOptions) -> Iterator[Program]:
    """The program for this machine or for each target; remarks on its environment are shown."""
    targets = options.targets
    facts = examined(options)
    default = "cpu" if facts.torch.build == "cpu" else ""
    own = "" if targets else devices(facts, options.device or default)[0]
    place = workplace(options, facts, targets)
    compilable(facts, place.folder, own)
    environ = place.environ
    # The program has to run as usual; only the folder of its kernels is decided here. On a stub
    # GPU, Inductor's processes were seen to hang when a program ends early: there it compiles in
    # its own process, unless the variable is set.
    if not targets:
        environ.pop(_THREADS)
    if _THREADS in os.environ:
        environ[_THREADS] = os.environ[_THREADS]
    argv, environ = program_of(list(options.program or ()), facts, environ)
    for note in place.notes:
        _say(note)
    for target in targets or (None,):
        if target is not None:
            check(facts, target)
        yield Program(
            argv=argv,
            facts=target.there(facts) if target else facts,
            device=target.devices[0] if target else own,
            folder=place.folder,
            environ=environ,
            limit=options.timeout,
            output=2 if options.as_json else None,
            target=target,
        )


def _say(words: str) -> None:
    sys.stderr.write(f"attn-doctor: {words}\n")
    sys.stderr.flush()


def _show(errors: bytes) -> None:
    sys.stderr.buffer.write(errors)
    sys.stderr.buffer.flush()


def _rendered(
    results: list[tuple[WarmupResult, Program, int]],
    exported: Exported | None,
    options: BuildOptions,
) -> str:
    if options.as_json:
        from attn_doctor.render.build_kernels.warmup_json import warmups_json

        return warmups_json(results, exported)
    from attn_doctor.render.build_kernels.warmup_text import warmup_text

    terminal = terminal_of(sys.stdout)
    texts = []
    for result, program, _ in results:
        failed = result.code and not result.refused
        cause = explained([Path(result.log)], "", program.facts) if failed else None
        texts.append(warmup_text(result, program, cause, terminal, exported=exported is not None))
    if exported is not None:
        texts.append(f"\n{exported_text(exported, terminal)}")
    elif options.artifact is not None:
        words = f"{options.artifact} was not written: not every kernel was built and reused"
        texts.append(terminal.page([words]))
    return "".join(texts)
