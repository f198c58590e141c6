"""A program of the user's own as the warm-up: run unchanged, with what it compiles recorded.

It runs in the examined environment with the caches in the cache folder. Its cache lookups come from
torch's structured trace, which a variable turns on; what was written is seen in the folder. Run a
second time, it has to hit every cache and write nothing. Kernels that it compiles without a cache,
and programs that do something else on each run, cannot be told from a cache that does not work.

For a GPU of another machine it runs on a stub GPU. What was compiled after the program had
looked at values that no GPU had computed is refused, and what such a run compiled is removed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.kernels.builder.cross_build_residue import leavings
from attn_doctor.kernels.builder.items import missing
from attn_doctor.kernels.builder.plan import leave_alone
from attn_doctor.kernels.builder.program_run import (
    Program,
    Run,
    position,
    rewind,
    run,
)
from attn_doctor.kernels.builder.unfused import unfused
from attn_doctor.kernels.caches.deletion import ClearedFile, Deletions, existing
from attn_doctor.record import store
from attn_doctor.record.environment import slot_name, slot_of
from attn_doctor.record.lock import FOLDER, Lock, Owner
from attn_doctor.record.manifest import NOT_ASKED, Manifest, Warmup
from attn_doctor.record.trace import (
    Lookup,
    counted,
    differing,
    without_gradients,
)
from attn_doctor.worker.kernels import cache_keys as parts

NOTHING = "nothing was compiled by torch.compile, so there is nothing to reuse"
_INFERENCE = (
    "attention was compiled without gradients, as under torch.no_grad(): training compiles another"
    " kernel, so for training warm up with a backward pass"
)
#: Files that come and go without anything being compiled.
_IDLE = (FOLDER, "locks")


class Ran(Struct, frozen=True, kw_only=True):
    """What came of it."""

    code: int
    """Exit code of the program, 128 + n for signal n; 1 if it ended well and was refused."""
    late: bool = False
    warmup: Warmup | None = None
    """None: the program failed, or was refused."""
    log: str = ""
    """What it printed as errors."""
    added: int = 0
    """Files that the first run wrote."""
    first: dict[str, int] = {}
    """Its cache lookups."""
    cleared: tuple[ClearedFile, ...] = ()
    """Stale files that were removed before, and what a refused run had compiled."""
    kept: dict[str, str] = {}
    """Files that could not be removed → why."""
    refused: tuple[str, ...] = ()
    """Why nothing of it may be used, with the lines of the program; only on a stub GPU."""
    notes: tuple[str, ...] = ()
    """What else the stub GPU's guard told, and the program's own output."""
    wrong: str = ""
    """Why what it did cannot be built ahead, whether or not it is reused."""


def warm_up(
    program: Program,
    *,
    prove: bool,
    waiting: Callable[[Owner | None], None] = lambda _: None,
    begin: Callable[[str], None] = lambda _: None,
    show: Callable[[bytes], None] = lambda _: None,
) -> Ran:
    """Run the program once, and to prove reuse once more; write the manifest.

    What compiled nothing, or ran unfused, is not written down: no cache can serve it.
    `begin` is told `run` and `prove`; `show` gets what the program writes as errors. The program's
    own failure is in `Ran.code`.
    """
    folder = program.folder
    with Lock(folder, waiting) as lock:
        logs = folder / FOLDER / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        cleared, kept = _clear_stale(program)
        before = _files(folder)
        others = {str(Path(one.path).relative_to(folder)) for one in leavings(folder)}
        place_in_input = position()
        begin("run")
        first = run(program, logs / f"warmup-{program.id}.log", "run", show)
        after = _files(folder)
        added = {name: size for name, size in after.items() if before.get(name) != size}
        ran = Ran(
            code=first.code,
            late=first.late,
            log=str(first.log),
            cleared=cleared,
            kept=kept,
            notes=first.heard.notes,
        )
        if first.heard.refused:
            return _refused(ran, first, folder, added)
        if first.code != 0:
            return ran
        wrong, remark = unfused(first.log)
        wrong = wrong or ("" if first.found else NOTHING)
        told = [remark] if remark else []
        if program.device != "cpu" and without_gradients(first.found):
            told.append(_INFERENCE)
        ran = replace(ran, wrong=wrong, notes=(*ran.notes, *told))
        warmup = Warmup(
            argv=program.argv,
            folder=os.getcwd(),
            device_slot=_place(program),
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seconds=first.seconds,
            files={**added, **_used(after, first.found)},
            keys=_keys(first.found),
            hits=counted(first.found),
            unverified=program.target is not None,
            message=wrong or ("" if prove else NOT_ASKED),
        )
        if prove and not wrong:
            begin("prove")
            rewind(place_in_input)
            again = run(program, logs / f"warmup-{program.id}-prove.log", "prove")
            if again.heard.refused:
                return _refused(ran, again, folder, added)
            warmup = _verified(warmup, first, again, after, _files(folder))
        if program.target is not None:
            deletions = Deletions(str(folder))
            deletions.delete(leavings(folder, others))
            away = {str(Path(file.path).relative_to(folder)) for file in deletions.cleared}
            left = {name: size for name, size in warmup.files.items() if name not in away}
            warmup = replace(warmup, files=left)
        lock.check()
        if wrong:
            _forget(program)
        else:
            _write_down(program, warmup, first.found)
    return replace(ran, warmup=warmup, added=len(added), first=counted(first.found))


def outdated(program: Program, *, prove: bool = True) -> str:
    """Why what the program compiles is not known to be in the cache; empty if it is.

    `prove`: it has to be known that a second run found everything.
    """
    from attn_doctor.kernels.caches import stale as drift

    manifest = store.load(program.folder) or store.empty()
    known = manifest.warmups.get(program.id)
    if known is None:
        return "it was not run for this cache yet"
    now = program.environment_of(manifest.environments.get(known.device_slot))
    stale = drift.stale(manifest, known.device_slot, now, str(program.folder)).warmups
    gone = missing(program.folder, known.files)
    lost = f"{gone[0]} is gone or has another size" if gone else ""
    unknown = "" if known.verified or not prove else known.message
    return stale.get(program.id) or lost or known.fault or unknown


def _refused(ran: Ran, run: Run, folder: Path, added: Mapping[str, int]) -> Ran:
    """Nothing that a refused run has compiled may be found by another."""
    why = "compiled by a run that was refused"
    deletions = Deletions(str(folder))
    deletions.delete(existing(folder, added, why))
    return replace(
        ran,
        code=run.code or 1,
        refused=run.heard.refused,
        cleared=(*ran.cleared, *deletions.cleared),
        kept={**ran.kept, **deletions.kept},
    )


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


def _verified(
    warmup: Warmup, first: Run, again: Run, before: Mapping[str, int], after: Mapping[str, int]
) -> Warmup:
    """The warm-up with what its second run showed."""
    message = _missed(first, again, [name for name in after if before.get(name) != after[name]])
    return replace(
        warmup,
        reuse_seconds=again.seconds,
        hits=counted(again.found),
        verified=not message,
        message=message,
    )


def _missed(first: Run, again: Run, written: list[str]) -> str:
    """What the second run did not find in the caches; empty if it found everything."""
    if again.code != 0:
        return f"the second run ended with exit code {again.code}"
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


def _clear_stale(program: Program) -> tuple[tuple[ClearedFile, ...], dict[str, str]]:
    """What was built for other versions goes first, as in any build."""
    from attn_doctor.kernels.caches import stale as drift

    folder, place = program.folder, _place(program)
    manifest = store.load(folder) or store.empty()
    now = program.environment_of(manifest.environments.get(place))
    stale = drift.stale(manifest, place, now, str(folder))
    if program.target is not None:
        leave_alone(manifest, place, stale, folder)
    if not stale.specs and not stale.warmups:
        return (), {}
    deletions = Deletions(str(folder))
    deletions.delete(stale.files)
    entries = {name: one for name, one in manifest.entries.items() if name not in stale.specs}
    warmups = {name: one for name, one in manifest.warmups.items() if name not in stale.warmups}
    surroundings = {**manifest.environments, place: now}
    store.save(
        folder,
        replace(manifest, entries=entries, warmups=warmups, environments=surroundings),
    )
    return tuple(deletions.cleared), deletions.kept


def _place(program: Program) -> str:
    return slot_of(program.facts, program.device) or slot_name(program.device, "")


def _write_down(program: Program, warmup: Warmup, found: list[Lookup]) -> None:
    folder = program.folder
    manifest: Manifest = store.load(folder) or store.empty()
    store.flush(folder, warmup.files)
    surroundings = dict(manifest.environments)
    if warmup.device_slot not in surroundings:
        surroundings[warmup.device_slot] = program.environment_of()
    warmups = {**manifest.warmups, program.id: warmup}
    parts.save(str(folder), program.id, _parts(found))
    store.save(folder, replace(manifest, warmups=warmups, environments=surroundings))


def _forget(program: Program) -> None:
    """What it did before says nothing of what it does now."""
    manifest = store.load(program.folder)
    if manifest is not None and program.id in manifest.warmups:
        rest = {name: one for name, one in manifest.warmups.items() if name != program.id}
        store.save(program.folder, replace(manifest, warmups=rest))


def _parts(found: list[Lookup]) -> dict[str, list[dict[str, object]]]:
    """The parts of the keys, by which a later miss can be explained."""
    kinds = dict.fromkeys(one.kind for one in found)
    return {
        kind: [
            {"key": one.key, "lines": list(one.components)}
            for one in found
            if one.kind == kind and one.key
        ]
        for kind in kinds
    }
