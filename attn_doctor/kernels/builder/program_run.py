"""A user's own program as a warm-up: its identity, one run of it, and what its output says.

Programs of the examined environment come first. Cache lookups come from torch's structured trace,
which a variable turns on. On a stub GPU, a guard reports every decision that depended on memory
that no kernel had computed; a program may swallow the exception with which the guard refuses, so
each of its processes writes a report into a folder, and the reports count.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
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
from attn_doctor.files import open_binary
from attn_doctor.kernels.builder.target import Target, environment_for
from attn_doctor.processes import GRACE, Running
from attn_doctor.record.lock import FOLDER
from attn_doctor.record.manifest import BuildEnvironment
from attn_doctor.record.trace import Lookup, lookups
from attn_doctor.worker.kernels.fusion_check import LIMITS, NO_BFLOAT16, UNCOMPILED
from attn_doctor.worker.stub_gpu import program_environment, report
from attn_doctor.worker.stub_gpu.report import Verdict

_log = logging.getLogger(__name__)

#: Variable that turns `attn_doctor.require_hit()` off, where it is `off`.
REQUIRE_HIT = "ATTN_DOCTOR_REQUIRE_HIT"
#: Seconds that an interrupted program has to end by itself.
END_SECONDS = 5.0
#: Bytes of a program's errors that are kept for an explanation, and of either end of a log that
#: are searched for signs of unfused attention.
_KEPT = _SEARCHED = 1 << 20
_FUNCTION = re.compile(r"function: '(?P<name>[^']*)' \((?P<location>[^)]*)\)")
#: The verdict on a program that ran without a stub GPU.
_NO_VERDICT = Verdict((), (), 0, 0)


class Program(Struct, frozen=True, kw_only=True):
    """A program to run, and where its kernels go."""

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

    def environment_of(self, recorded: BuildEnvironment | None = None) -> BuildEnvironment:
        """Today's build environment as far as the facts know."""
        return environment_for(self.facts, self.device, self.environ, self.target, recorded)


def program_of(
    argv: list[str], facts: Facts, environ: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command line with its program found, and the environment that it runs in.

    `attn_doctor.require_hit()` does nothing there: the kernels that it requires are being built.
    Programs of the examined environment come first, so that `python`, `torchrun` and `accelerate`
    are those of that environment. Raises `AttnDoctorError` if the program does not exist.
    """
    environment = {**environ, REQUIRE_HIT: "off"}
    if facts.python.path:
        folder = os.path.dirname(facts.python.path)
        environment["PATH"] = os.pathsep.join([folder, environment.get("PATH", os.defpath)])
        if facts.python.environment == "venv" and facts.python.prefix:
            environment["VIRTUAL_ENV"] = facts.python.prefix
    program = shutil.which(argv[0], path=environment.get("PATH"))
    if program is None and os.path.isfile(argv[0]):
        words = f"python {argv[0]}" if argv[0].endswith(".py") else f"sh {argv[0]}"
        raise AttnDoctorError(
            f"{argv[0]} is a file that cannot be run as a program: name what runs it, as in"
            f" -- {words}"
        )
    if program is None:
        raise AttnDoctorError(
            f"{argv[0]}: no such program in {os.path.dirname(facts.python.path or '')} or on PATH"
        )
    return (program, *argv[1:]), environment


class Run(Struct, frozen=True):
    """How a run ended, and its cache lookups."""

    code: int
    """Exit code, 128 + n for signal n."""
    late: bool
    seconds: float
    lookups: list[Lookup]
    log: Path
    verdict: Verdict = _NO_VERDICT
    """What the guard of a stub GPU reported."""


def run(
    program: Program, log: Path, phase: str, show: Callable[[bytes], None] | None = None
) -> Run:
    """Run a program; its lookups are read from the trace, which is removed afterwards.

    With `show`, it runs as a shell would start it, and `show` gets its errors. Otherwise all of its
    output goes to the log.
    """
    trace = program.folder / FOLDER / f"trace-{os.getpid()}-{phase}"
    trace.mkdir(parents=True, exist_ok=True)
    reports = program.folder / FOLDER / f"guard-{os.getpid()}-{phase}"
    environ = {**program.environ, "TORCH_TRACE": str(trace)}
    if program.target is not None:
        reports.mkdir(parents=True, exist_ok=True)
        environ = program_environment.environment(environ, str(reports))
    _log.debug("%s: %s", phase, program.argv)
    log.touch(0o600)  # a program may print its secrets
    log.chmod(0o600)
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
                running.wait(END_SECONDS)
                raise
            late = code is None
            if code is None:
                code = running.kill() or 1
            seconds = time.monotonic() - start
            if relay is not None:
                relay.join(GRACE)
        verdict = report.read(str(reports)) if program.target is not None else _NO_VERDICT
        code = 128 - code if code < 0 else code
        return Run(code, late, seconds, lookups(trace), log, verdict)
    finally:
        shutil.rmtree(trace, ignore_errors=True)
        shutil.rmtree(reports, ignore_errors=True)


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


def input_position() -> int | None:
    """The position of standard input, if it is a file that can be read again."""
    try:
        return os.lseek(0, 0, os.SEEK_CUR) if _replayable() else None
    except OSError:
        return None


def rewind_input(position: int | None) -> None:
    """Set standard input back to a position that `input_position` returned."""
    if position is not None:
        os.lseek(0, position, os.SEEK_SET)


def _replayable() -> bool:
    try:
        return stat.S_ISREG(os.fstat(0).st_mode)
    except OSError:
        return False


def unfused(log: Path) -> tuple[str, str]:
    """Why attention of the program that wrote `log` ran unfused, and a remark; both may be "".

    torch says so in a warning or a log line and goes on: results are right, the whole matrix of
    scores is in memory, and none of it can be built ahead. A program that silences warnings does
    not show it, nor does torch before 2.9 within a compiled block. The remark is for signs that
    need not concern attention.
    """
    text = _ends(log)
    if NO_BFLOAT16 in text:
        return "this GPU has no bfloat16, so torch ran attention unfused; use float16", ""
    limit = next((sign for sign in LIMITS if sign in text), "")
    uncompiled = any(sign in text for sign in UNCOMPILED)
    if limit:
        match = _FUNCTION.search(text, text.index(limit))
        name = f" for {match['name']}" if match else ""
        words = f"torch reached its limit of recompilations{name} and ran the rest uncompiled"
        ours = match is not None and "flex_attention" in match["name"] + match["location"]
        return (f"{words}, attention unfused", "") if ours or uncompiled else ("", words)
    if uncompiled:
        return "", "flex_attention was also called without torch.compile, which builds nothing"
    return "", ""


def _ends(log: Path) -> str:
    """Both ends of a log; "" if it cannot be read."""
    try:
        with open_binary(log) as file:
            start = file.read(_SEARCHED)
            file.seek(max(len(start), log.stat().st_size - _SEARCHED))
            return (start + file.read(_SEARCHED)).decode("utf-8", "replace")
    except OSError:
        return ""
