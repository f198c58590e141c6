"""A program of the user's own as the warm-up: run unchanged, with what it compiles recorded.

It runs in the examined environment with the caches in the cache folder. Its cache lookups come from
torch's structured trace, which a variable turns on; what was written is seen in the folder. Run a
second time, it has to hit every cache and write nothing. Kernels that it compiles without a cache,
and programs that do something else on each run, cannot be told from a cache that does not work.
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
from msgspec.structs import replace

from attn_doctor.builder import stamp
from attn_doctor.builder.clearing import Cleared, clear
from attn_doctor.builder.lock import FOLDER, Lock, Owner
from attn_doctor.builder.manifest import Manifest, Warmup
from attn_doctor.builder.surroundings import place_of, place_with, seen
from attn_doctor.builder.trace import Lookup, counted, differing, lookups
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.processes import GRACE, Running

__all__ = ["Program", "Ran", "program_of", "warm_up"]

#: Files that come and go without anything being compiled.
_IDLE = (FOLDER, "locks")
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

    @property
    def id(self) -> str:
        """Twelve hex digits for this command line in this folder on this device."""
        text = "\0".join([*self.argv, os.getcwd(), self.device])
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


class Ran(Struct, frozen=True, kw_only=True):
    """What came of it."""

    code: int
    """Exit code of the program, 128 + n for signal n."""
    late: bool = False
    warmup: Warmup | None = None
    """None: the program failed."""
    log: str = ""
    """What it printed as errors."""
    added: int = 0
    """Files that the first run wrote."""
    first: dict[str, int] = {}
    """Its cache lookups."""
    cleared: tuple[Cleared, ...] = ()
    """Stale files that were removed before."""
    kept: dict[str, str] = {}
    """Stale files that could not be → why."""


def program_of(
    argv: list[str], facts: Facts, environ: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command line with its program found, and the environment it runs in.

    The examined environment's programs come first, so that `python`, `torchrun` and `accelerate`
    are those of that environment. Raises `AttnDoctorError` if the program is not there.
    """
    found = dict(environ)
    if facts.python.path:
        folder = os.path.dirname(facts.python.path)
        found["PATH"] = os.pathsep.join([folder, found.get("PATH", os.defpath)])
        if facts.python.environment == "venv" and facts.python.prefix:
            found["VIRTUAL_ENV"] = facts.python.prefix
    program = shutil.which(argv[0], path=found.get("PATH"))
    if program is None:
        raise AttnDoctorError(
            f"{argv[0]}: no such program in {os.path.dirname(facts.python.path or '')} or on PATH"
        )
    return (program, *argv[1:]), found


def warm_up(
    program: Program,
    *,
    prove: bool,
    waiting: Callable[[Owner | None], None] = lambda _: None,
    begin: Callable[[str], None] = lambda _: None,
    show: Callable[[bytes], None] = lambda _: None,
) -> Ran:
    """Run the program once, and to prove reuse once more; write the manifest.

    `begin` is told `run` and `prove`; `show` gets what the program writes as errors. The program's
    own failure is in `Ran.code`.
    """
    folder = program.folder
    with Lock(folder, waiting) as lock:
        logs = folder / FOLDER / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        cleared, kept = _clear_stale(program)
        before = _files(folder)
        place_in_input = _position()
        begin("run")
        first = _run(program, logs / f"warmup-{program.id}.log", "run", show)
        if first.code != 0:
            return Ran(
                code=first.code, late=first.late, log=str(first.log), cleared=cleared, kept=kept
            )
        after = _files(folder)
        added = {name: size for name, size in after.items() if before.get(name) != size}
        warmup = Warmup(
            argv=program.argv,
            folder=os.getcwd(),
            place=_place(program),
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seconds=first.seconds,
            files={**added, **_used(after, first.found)},
            keys=_keys(first.found),
            hits=counted(first.found),
            message="" if prove else "not proven: --no-prove was given",
        )
        if prove:
            begin("prove")
            _rewind(place_in_input)
            again = _run(program, logs / f"warmup-{program.id}-prove.log", "prove")
            warmup = _proven(warmup, first, again, after, _files(folder))
        lock.check()
        _write_down(program, warmup)
    return Ran(
        code=0,
        warmup=warmup,
        log=str(first.log),
        added=len(added),
        first=counted(first.found),
        cleared=cleared,
        kept=kept,
    )


class _Run(Struct, frozen=True):
    code: int
    late: bool
    seconds: float
    found: list[Lookup]
    log: Path


def _run(
    program: Program, log: Path, phase: str, show: Callable[[bytes], None] | None = None
) -> _Run:
    """Run it; its lookups are read from the trace, which is removed afterwards.

    `show`: it runs as a shell would start it, and this gets its errors. Without, all of its output
    goes to the log.
    """
    trace = program.folder / FOLDER / f"trace-{os.getpid()}-{phase}"
    trace.mkdir(parents=True, exist_ok=True)
    environ = {**program.environ, "TORCH_TRACE": str(trace)}
    start = time.monotonic()
    try:
        with (
            log.open("wb") as file,
            Running(
                program.argv,
                env=environ,
                log=None if show else file,
                attached=show is not None or _replayable(),
                to=program.output if show else file.fileno(),
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
        return _Run(128 - code if code < 0 else code, late, seconds, lookups(trace), log)
    finally:
        shutil.rmtree(trace, ignore_errors=True)


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


def _position() -> int | None:
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


def _rewind(position: int | None) -> None:
    if position is not None:
        os.lseek(0, position, os.SEEK_SET)


# What it left


def _files(folder: Path) -> dict[str, int]:
    """Files of the cache, by their path below `folder`, with their sizes."""
    found: dict[str, int] = {}
    pending = [folder]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue
        for entry in entries:
            name = Path(entry.path).relative_to(folder).as_posix()
            if name.partition("/")[0] in _IDLE or entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                found[name] = entry.stat(follow_symlinks=False).st_size
    return found


def _used(files: Mapping[str, int], found: list[Lookup]) -> dict[str, int]:
    """Files of the entries that were looked up."""
    keys = {one.key for one in found if one.key}
    return {name: size for name, size in files.items() if keys.intersection(name.split("/")[1:-1])}


def _keys(found: list[Lookup]) -> dict[str, list[str]]:
    keys: dict[str, list[str]] = {}
    for one in found:
        known = keys.setdefault(one.kind, [])
        if one.key and one.key not in known:
            known.append(one.key)
    return keys


def _proven(
    warmup: Warmup, first: _Run, again: _Run, before: Mapping[str, int], after: Mapping[str, int]
) -> Warmup:
    """The warm-up with what its second run showed."""
    message = _missed(first, again, [name for name in after if before.get(name) != after[name]])
    return replace(
        warmup,
        reuse_seconds=again.seconds,
        hits=counted(again.found),
        proven=not message,
        message=message,
    )


def _missed(first: _Run, again: _Run, written: list[str]) -> str:
    """What the second run did not find in the caches; empty if it found everything."""
    if again.code != 0:
        return f"the second run ended with exit code {again.code}"
    if not first.found:
        return "nothing was compiled by torch.compile, so there is nothing to reuse"
    missed = [one for one in again.found if one.what == "miss"]
    for one in missed:
        named = differing(one, first.found)
        if named:
            return f"{len(missed)} graphs were compiled again; differs: {'; '.join(named[:3])}"
    if missed:
        return f"{len(missed)} graphs were compiled again, with keys that the first run had not"
    bypassed = [one.reason for one in again.found if one.what == "bypass"]
    if bypassed:
        return f"{len(bypassed)} graphs cannot be cached: {bypassed[0] or 'torch gives no reason'}"
    if written:
        more = f" and {len(written) - 1} more files" if len(written) > 1 else ""
        return f"the second run wrote {written[0]}{more}"
    return ""


def _clear_stale(program: Program) -> tuple[tuple[Cleared, ...], dict[str, str]]:
    """What was built for other versions goes first, as in any build."""
    from attn_doctor.caches import drift

    folder, place = program.folder, _place(program)
    manifest = stamp.load(folder) or stamp.empty()
    now = seen(program.facts, program.device, program.environ, manifest.surroundings.get(place))
    stale = drift.stale(manifest, place, now, str(folder))
    if not stale.specs and not stale.warmups:
        return (), {}
    wanted = [
        Cleared(path=str(Path(one.root, one.path)), bytes=one.bytes, why=one.why)
        for one in stale.files
    ]
    done, kept = clear(wanted, [str(folder)])
    entries = {name: one for name, one in manifest.entries.items() if name not in stale.specs}
    warmups = {name: one for name, one in manifest.warmups.items() if name not in stale.warmups}
    surroundings = {**manifest.surroundings, place: now}
    stamp.save(
        folder,
        replace(manifest, entries=entries, warmups=warmups, surroundings=surroundings),
    )
    return done, kept


def _place(program: Program) -> str:
    return place_of(program.facts, program.device) or place_with(program.device, "")


def _write_down(program: Program, warmup: Warmup) -> None:
    folder = program.folder
    manifest: Manifest = stamp.load(folder) or stamp.empty()
    stamp.flush(folder, warmup.files)
    surroundings = dict(manifest.surroundings)
    if warmup.place not in surroundings:
        surroundings[warmup.place] = seen(program.facts, program.device, program.environ)
    warmups = {**manifest.warmups, program.id: warmup}
    stamp.save(folder, replace(manifest, warmups=warmups, surroundings=surroundings))
