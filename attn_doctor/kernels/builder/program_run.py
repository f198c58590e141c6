"""A program of the user's own: which one it is, and one run of it with its cache lookups.

The examined environment's programs come first. Lookups come from torch's structured trace, which a
variable turns on. On a stub GPU, whatever was decided by memory that nothing had
computed is told by a report beside it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.kernels.builder.stub_gpu_guard import heard, unheard, watched
from attn_doctor.kernels.builder.target import Target
from attn_doctor.processes import GRACE, Running
from attn_doctor.record.environment import environment_from_facts
from attn_doctor.record.lock import FOLDER
from attn_doctor.record.manifest import BuildEnvironment
from attn_doctor.record.trace import Lookup, lookups
from attn_doctor.worker.stub_gpu.report import Verdict

#: Variable that turns `attn_doctor.require_hit()` off, where it is `off`.
REQUIRE_HIT = "ATTN_DOCTOR_REQUIRE_HIT"
#: Seconds that an interrupted program has to end by itself.
FAREWELL = 5.0
#: Bytes of a program's errors that are kept for an explanation.
_KEPT = 1 << 20


class Program(Struct, frozen=True, kw_only=True):
    """What to run."""

    argv: tuple[str, ...]
    facts: Facts
    device: str
    folder: Path
    """The cache folder."""
    environ: dict[str, str]
    limit: float | None = None
    """Seconds that it may take."""
    output: int | None = None
    """Descriptor that its output goes to instead of our own."""
    target: Target | None = None
    """The GPU of another machine that it is run for; `facts` and `environ` are then those of its
    stub GPU."""

    @property
    def id(self) -> str:
        """Twelve hex digits for this command line in this folder on this device."""
        there = [self.target.name] if self.target is not None else []
        text = "\0".join([*self.argv, os.getcwd(), self.device, *there])
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]

    def environment_of(self, was: BuildEnvironment | None = None) -> BuildEnvironment:
        """Today's surroundings as far as the facts tell, those of the target if there is one."""
        target = self.target
        if target is not None:
            return target.told(
                environment_from_facts(self.facts, self.device, target.environment, was)
            )
        return environment_from_facts(self.facts, self.device, self.environ, was)


def program_of(
    argv: list[str], facts: Facts, environ: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command line with its program found, and the environment it runs in.

    `attn_doctor.require_hit()` lets it pass: what it asks for is just being built, or looked at.
    The examined environment's programs come first, so that `python`, `torchrun` and `accelerate`
    are those of that environment. Raises `AttnDoctorError` if the program is not there.
    """
    found = {**environ, REQUIRE_HIT: "off"}
    if facts.python.path:
        folder = os.path.dirname(facts.python.path)
        found["PATH"] = os.pathsep.join([folder, found.get("PATH", os.defpath)])
        if facts.python.environment == "venv" and facts.python.prefix:
            found["VIRTUAL_ENV"] = facts.python.prefix
    program = shutil.which(argv[0], path=found.get("PATH"))
    if program is None and os.path.isfile(argv[0]):
        words = f"python {argv[0]}" if argv[0].endswith(".py") else f"sh {argv[0]}"
        raise AttnDoctorError(
            f"{argv[0]} is a file that cannot be run as a program: say what runs it, as in"
            f" -- {words}"
        )
    if program is None:
        raise AttnDoctorError(
            f"{argv[0]}: no such program in {os.path.dirname(facts.python.path or '')} or on PATH"
        )
    return (program, *argv[1:]), found


class Run(Struct, frozen=True):
    """How a run ended, and what it looked up."""

    code: int
    late: bool
    seconds: float
    found: list[Lookup]
    log: Path
    heard: Verdict = unheard
    """What the guard of a stub GPU told."""


def run(
    program: Program, log: Path, phase: str, show: Callable[[bytes], None] | None = None
) -> Run:
    """Run it; its lookups are read from the trace, which is removed afterwards.

    `show`: it runs as a shell would start it, and this gets its errors. Without, all of its output
    goes to the log.
    """
    trace = program.folder / FOLDER / f"trace-{os.getpid()}-{phase}"
    trace.mkdir(parents=True, exist_ok=True)
    report = program.folder / FOLDER / f"guard-{os.getpid()}-{phase}"
    environ = {**program.environ, "TORCH_TRACE": str(trace)}
    if program.target is not None:
        report.mkdir(parents=True, exist_ok=True)
        environ = watched(environ, report)
    start = time.monotonic()
    try:
        with (
            log.open("wb") as file,
            Running(
                program.argv,
                env=environ,
                attached=show is not None or _replayable(),
                output=program.output if show else file.fileno(),
                joined=show is None,
            ) as running,
        ):
            relay = None
            if show is not None and running.err is not None:
                relay = _relayed(running.err, file, show)
            try:
                code = running.wait(program.limit)
            except BaseException:
                # Ctrl-C has reached it too: it may want to save something before it is killed.
                running.wait(FAREWELL)
                raise
            late = code is None
            if code is None:
                code = running.kill() or 1
            seconds = time.monotonic() - start
            if relay is not None:
                relay.join(GRACE)
        told = heard(report) if program.target is not None else unheard
        code = 128 - code if code < 0 else code
        return Run(code, late, seconds, lookups(trace), log, told)
    finally:
        shutil.rmtree(trace, ignore_errors=True)
        shutil.rmtree(report, ignore_errors=True)


def _relayed(pipe: IO[bytes], log: IO[bytes], show: Callable[[bytes], None]) -> threading.Thread:
    """Show the program's errors as they come, and keep them for an explanation."""

    def relay() -> None:
        kept = 0
        with suppress(OSError, ValueError):  # closed while a grandchild still held it
            while chunk := os.read(pipe.fileno(), 1 << 16):
                show(chunk)
                if kept < _KEPT:
                    kept += log.write(chunk)

    thread = threading.Thread(target=relay, daemon=True)
    thread.start()
    return thread


def position() -> int | None:
    """Where standard input stands, if it is a file that can be read again."""
    try:
        return os.lseek(0, 0, os.SEEK_CUR) if _replayable() else None
    except OSError:
        return None


def _replayable() -> bool:
    try:
        return stat.S_ISREG(os.fstat(0).st_mode)
    except OSError:
        return False


def rewind(place: int | None) -> None:
    """Go back to where standard input stood."""
    if place is not None:
        os.lseek(0, place, os.SEEK_SET)
