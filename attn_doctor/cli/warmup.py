"""`attn-doctor build-kernels -- COMMAND`: the user's own program as the warm-up."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_doctor.builder.lock import Owner
    from attn_doctor.builder.warmup import Program, Ran
    from attn_doctor.facts import Facts

__all__ = ["run_warmup"]

_BEGUN = {
    "run": "running it with its kernels kept in {folder}",
    "prove": "running it once more, to see that nothing is compiled again",
}


def run_warmup(
    argv: list[str],
    facts: Facts,
    device: str,
    cache_dir: str,
    *,
    prove: bool,
    limit: float | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run the program, show what came of it, and return the exit code.

    That is the program's own if it failed, else 1 if its kernels are not reused.
    """
    from attn_doctor.builder.warmup import warm_up
    from attn_doctor.cli.signals import Signals, TerminatedError
    from attn_doctor.render.build_progress import holder

    program, remark = _program(argv, facts, device, cache_dir, limit, as_json)
    if dry_run:
        import shlex

        sys.stdout.write(
            f"would run, with TORCHINDUCTOR_CACHE_DIR={program.folder}:\n"
            f"  {shlex.join(program.argv)}\n"
        )
        return 0
    said: list[str] = []

    def waiting(owner: Owner | None) -> None:
        if not said:
            said.append(holder(owner))
            _say(f"waiting: {said[0]}")

    if remark:
        _say(remark)
    try:
        with Signals():
            ran = warm_up(
                program,
                prove=prove,
                waiting=waiting,
                begin=lambda phase: _say(_BEGUN[phase].format(folder=program.folder)),
                show=_show,
            )
    except (KeyboardInterrupt, TerminatedError) as error:
        _say("interrupted: nothing is recorded, and what was compiled stays in the cache")
        return int(getattr(error, "code", 130))
    code = ran.code or int(prove and ran.warmup is not None and not ran.warmup.proven)
    sys.stdout.write(_rendered(ran, program, code, as_json))
    return code


def _program(
    argv: list[str], facts: Facts, device: str, cache_dir: str, limit: float | None, as_json: bool
) -> tuple[Program, str]:
    """What to run, and a remark on what was changed in its environment."""
    from attn_doctor.builder.devices import cache_folder, children_environment, devices
    from attn_doctor.builder.warmup import Program, program_of

    target = devices(facts, device or ("cpu" if facts.torch.build == "cpu" else ""))[0]
    folder = cache_folder(facts, cache_dir)
    environ, remark = children_environment(os.environ, str(folder))
    # The program is to run as it always does; only where its kernels go is decided here.
    environ.pop("TORCHINDUCTOR_COMPILE_THREADS")
    if "TORCHINDUCTOR_COMPILE_THREADS" in os.environ:
        environ["TORCHINDUCTOR_COMPILE_THREADS"] = os.environ["TORCHINDUCTOR_COMPILE_THREADS"]
    command, environ = program_of(argv, facts, environ)
    program = Program(
        argv=command,
        facts=facts,
        device=target,
        folder=folder,
        environ=environ,
        limit=limit,
        output=2 if as_json else None,
    )
    return program, remark


def _say(words: str) -> None:
    sys.stderr.write(f"attn-doctor: {words}\n")
    sys.stderr.flush()


def _show(errors: bytes) -> None:
    sys.stderr.buffer.write(errors)
    sys.stderr.buffer.flush()


def _rendered(ran: Ran, program: Program, code: int, as_json: bool) -> str:
    if as_json:
        from attn_doctor.render.warmup_json import warmup_json

        return warmup_json(ran, program, code)
    from attn_doctor.builder.outcome import explained
    from attn_doctor.render.paper import Paper
    from attn_doctor.render.warmup_text import warmup_text

    paper = Paper.of(sys.stdout, dict(os.environ))
    found = explained([Path(ran.log)], "", program.facts) if ran.code else None
    return warmup_text(ran, program, found, paper)
