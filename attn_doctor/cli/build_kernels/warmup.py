"""`attn-doctor build-kernels -- COMMAND`: the user's own program as the warm-up."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_doctor.cli.build_kernels.request import How
    from attn_doctor.kernels.builder.program_run import Program
    from attn_doctor.kernels.builder.target import Target
    from attn_doctor.kernels.builder.warmup import Ran
    from attn_doctor.record.lock import Owner
    from attn_doctor.render.build_kernels.artifact import Exported

_THREADS = "TORCHINDUCTOR_COMPILE_THREADS"
_BEGUN = {
    "run": "running it with its kernels kept in {folder}",
    "prove": "running it once more, to see that nothing is compiled again",
}


def run_warmups(argv: list[str], how: How) -> int:
    """Run the program, once for each target, show what came of it, and return the exit code.

    That is the program's own if it failed, else 1 if its kernels are not reused.
    """
    from attn_doctor.cli.build_kernels.request import targets

    found: list[Target | None] = [*targets(how)] if how.targets else [None]
    programs = list(_programs(argv, how, found))
    if how.dry_run or how.check:
        planned = [(program, _outdated(program, how)) for program in programs]
        code = int(how.check and any(why for _, why in planned))
        sys.stdout.write(_planned(planned, code, how))
        return code
    codes: list[int] = []
    rans: list[tuple[Ran, Program, int]] = []
    for program in programs:
        ran = _run(program, how)
        if isinstance(ran, int):
            return ran
        unserved = how.prove and ran.warmup is not None and not ran.warmup.verified
        bad = bool(ran.wrong) or unserved
        codes.append(ran.code or int(bad))
        rans.append((ran, program, codes[-1]))
    code = next((one for one in codes if one), 0)
    packed = None
    if how.artifact is not None and not code:
        from attn_doctor.cli.build_kernels.run import exported

        places = {ran.warmup.device_slot for ran, _, _ in rans if ran.warmup is not None}
        packed = exported(programs[0].folder, how.artifact, places)
    sys.stdout.write(_rendered(rans, packed, how))
    return code


def _planned(found: list[tuple[Program, str]], code: int, how: How) -> str:
    if how.as_json:
        from attn_doctor.render.build_kernels.warmup_json import planned_json

        return planned_json(found, code)
    from attn_doctor.render.build_kernels.warmup_text import planned_text

    return "".join(planned_text(program, why) for program, why in found)


def _outdated(program: Program, how: How) -> str:
    """Why what the program compiles is not known to be in the cache; empty if it is."""
    from attn_doctor.kernels.builder.warmup import outdated

    if how.force:
        return "--force was given"
    return outdated(program, prove=how.prove)


def _run(program: Program, how: How) -> Ran | int:
    """Run one; the exit code if it was interrupted."""
    from msgspec.structs import replace

    from attn_doctor.cli.signals import Signals, TerminatedError
    from attn_doctor.kernels.builder.target import stub_gpu_environ
    from attn_doctor.kernels.builder.warmup import warm_up
    from attn_doctor.render.build_kernels.progress import holder

    said: list[str] = []

    def waiting(owner: Owner | None) -> None:
        if not said:
            said.append(holder(owner))
            _say(f"waiting: {said[0]}")

    if program.target is not None:
        _say(f"for {program.target.title}, on a stub GPU: kernels compile here but do not run")
        environ = stub_gpu_environ(program.target, program.facts, program.environ)
        program = replace(program, environ=environ)
    try:
        with Signals():
            return warm_up(
                program,
                prove=how.prove,
                waiting=waiting,
                begin=lambda phase: _say(_BEGUN[phase].format(folder=program.folder)),
                show=_show,
            )
    except (KeyboardInterrupt, TerminatedError) as error:
        _say("interrupted: nothing is recorded, and what was compiled stays in the cache")
        return int(getattr(error, "code", 130))


def _programs(argv: list[str], how: How, targets: list[Target | None]) -> Iterator[Program]:
    """What to run, for this machine or for each target; remarks on its environment are said."""
    from attn_doctor.cli.build_kernels.request import examined, remarks
    from attn_doctor.kernels.builder.devices import (
        cache_folder,
        children_environment,
        compilable,
        devices,
        owner_remark,
    )
    from attn_doctor.kernels.builder.program_run import Program, program_of
    from attn_doctor.kernels.builder.software_differences import check

    facts = examined(how)
    own = "" if how.targets else devices(facts, how.device or _default(facts.torch.build))[0]
    folder = cache_folder(facts, how.cache_dir)
    compilable(facts, folder, own)
    environ, remark = children_environment(os.environ, str(folder))
    # The program is to run as it always does; only where its kernels go is decided here.
    # On a stub GPU, Inductor's processes were seen to hang when a program ends early: there it
    # compiles in its own process, unless told otherwise.
    if not how.targets:
        environ.pop(_THREADS)
    if _THREADS in os.environ:
        environ[_THREADS] = os.environ[_THREADS]
    command, environ = program_of(argv, facts, how.guarded(environ))
    told = remarks([one for one in targets if one], folder, how) if how.targets else []
    for words in filter(None, [remark, owner_remark(folder), *told]):
        _say(words)
    for target in targets:
        if target is not None:
            check(facts, target)
        yield Program(
            argv=command,
            facts=target.there(facts) if target else facts,
            device=target.devices[0] if target else own,
            folder=folder,
            environ=environ,
            limit=how.timeout,
            output=2 if how.as_json else None,
            target=target,
        )


def _default(build: str | None) -> str:
    return "cpu" if build == "cpu" else ""


def _say(words: str) -> None:
    sys.stderr.write(f"attn-doctor: {words}\n")
    sys.stderr.flush()


def _show(errors: bytes) -> None:
    sys.stderr.buffer.write(errors)
    sys.stderr.buffer.flush()


def _rendered(rans: list[tuple[Ran, Program, int]], packed: Exported | None, how: How) -> str:
    if how.as_json:
        from attn_doctor.render.build_kernels.warmup_json import warmups_json

        return warmups_json(rans, packed)
    from attn_doctor.kernels.builder.report import explained
    from attn_doctor.render.build_kernels.artifact import words
    from attn_doctor.render.build_kernels.warmup_text import warmup_text
    from attn_doctor.render.terminal import Paper

    paper = Paper.of(sys.stdout, dict(os.environ))
    told = []
    for ran, program, _ in rans:
        failed = ran.code and not ran.refused
        found = explained([Path(ran.log)], "", program.facts) if failed else None
        told.append(warmup_text(ran, program, found, paper, packed=packed is not None))
    if packed is not None:
        told.append(f"\n{words(packed)}")
    elif how.artifact is not None:
        told.append(f"{how.artifact} was not written: not every kernel was built and reused\n")
    return "".join(told)
