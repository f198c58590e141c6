"""Runs a user's own program, unchanged, as a warm-up, and records what it compiled.

It runs in the examined environment with the caches in the cache folder. Its cache lookups come from
torch's structured trace, which a variable turns on; the files that it wrote are seen in the folder.
Run a second time, it has to hit every cache and write nothing. Kernels that it compiles without a
cache look the same as a cache that does not work, and so do programs that do something else on each
run.

For a GPU of another machine it runs on a stub GPU. What was compiled after the program read values
that no GPU had computed is refused, and what such a run compiled is removed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.kernels.builder.plan import keep_real_kernels, missing
from attn_doctor.kernels.builder.program_run import (
    Program,
    Run,
    input_position,
    rewind_input,
    run,
    unfused,
)
from attn_doctor.kernels.builder.target import cross_build_residue, relative_names
from attn_doctor.kernels.caches.deletion import ClearedFile, Deletions, existing
from attn_doctor.record import store
from attn_doctor.record.environment import slot_name, slot_of
from attn_doctor.record.lock import FOLDER, Lock, Owner
from attn_doctor.record.manifest import NOT_REQUESTED, Manifest, Warmup
from attn_doctor.record.trace import Lookup, counted, differing, without_gradients
from attn_doctor.redact import redact_arguments
from attn_doctor.worker.kernels import cache_keys

NOTHING = "nothing was compiled by torch.compile, so there is nothing to reuse"
_INFERENCE = (
    "attention was compiled without gradients, as under torch.no_grad(): training compiles another"
    " kernel, so for training warm up with a backward pass"
)
#: Files that come and go without anything being compiled.
_IDLE = (FOLDER, "locks")

Phase = Literal["run", "verify"]


class WarmupResult(Struct, frozen=True, kw_only=True):
    """What a warm-up did."""

    code: int
    """Exit code of the program, 128 + n for signal n; 1 if it ended well and was refused."""
    late: bool = False
    warmup: Warmup | None = None
    """None: the program failed, or was refused."""
    log: str = ""
    """The file with its errors."""
    added: int = 0
    """Files that the first run wrote."""
    first: dict[str, int] = {}
    """Its cache lookups."""
    cleared: tuple[ClearedFile, ...] = ()
    """Stale files that were removed before, and what a refused run had compiled."""
    kept: dict[str, str] = {}
    """Files that could not be removed → why."""
    refused: tuple[str, ...] = ()
    """Why its kernels may not be used, with the lines of the program; only on a stub GPU."""
    notes: tuple[str, ...] = ()
    """Other remarks of the stub GPU's guard and on the program's output."""
    wrong: str = ""
    """Why what it did cannot be built ahead, whether or not it is reused."""


def warm_up(
    program: Program,
    *,
    verify: bool,
    waiting: Callable[[Owner | None], None] = lambda _: None,
    begin: Callable[[Phase], None] = lambda _: None,
    show: Callable[[bytes], None] = lambda _: None,
) -> WarmupResult:
    """Run the program once, and once more to verify reuse; write the manifest.

    A program that compiled nothing, or ran unfused, is not recorded: no cache can serve it. `begin`
    gets the phase that begins, and `show` the program's errors. The program's own failure is in
    the result's `code`.
    """
    folder = program.folder
    with Lock(folder, waiting) as lock:
        logs = folder / FOLDER / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        cleared, kept = _clear_stale(program)
        before = _files(folder)
        foreign = relative_names(cross_build_residue(folder), folder)
        start = input_position()
        begin("run")
        first = run(program, logs / f"warmup-{program.id}.log", "run", show)
        after = _files(folder)
        added = {name: size for name, size in after.items() if before.get(name) != size}
        result = WarmupResult(
            code=first.code,
            late=first.late,
            log=str(first.log),
            cleared=cleared,
            kept=kept,
            notes=first.verdict.notes,
        )
        if first.verdict.refused:
            return _refused(result, first, folder, added)
        if first.code != 0:
            return result
        wrong, remark = unfused(first.log)
        wrong = wrong or ("" if first.lookups else NOTHING)
        remarks = [remark] if remark else []
        if program.device != "cpu" and without_gradients(first.lookups):
            remarks.append(_INFERENCE)
        result = replace(result, wrong=wrong, notes=(*result.notes, *remarks))
        warmup = Warmup(
            argv=tuple(redact_arguments(program.argv)),
            folder=os.getcwd(),
            device_slot=_slot(program),
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            seconds=first.seconds,
            files={**added, **_used(after, first.lookups)},
            keys=_keys(first.lookups),
            hits=counted(first.lookups),
            unverified=program.target is not None,
            message=wrong or ("" if verify else NOT_REQUESTED),
        )
        if verify and not wrong:
            begin("verify")
            rewind_input(start)
            again = run(program, logs / f"warmup-{program.id}-verify.log", "verify")
            if again.verdict.refused:
                return _refused(result, again, folder, added)
            now = _files(folder)
            message = _missed(first, again, [name for name in now if after.get(name) != now[name]])
            warmup = replace(
                warmup,
                reuse_seconds=again.seconds,
                hits=counted(again.lookups),
                verified=not message,
                message=message,
            )
        if program.target is not None:
            deletions = Deletions(str(folder))
            deletions.delete(cross_build_residue(folder, foreign))
            gone = relative_names(deletions.cleared, folder)
            files = {name: size for name, size in warmup.files.items() if name not in gone}
            warmup = replace(warmup, files=files)
        lock.check()
        if wrong:
            _forget(program)
        else:
            _write_down(program, warmup, first.lookups)
    return replace(result, warmup=warmup, added=len(added), first=counted(first.lookups))


def outdated(program: Program, *, verify: bool = True) -> str:
    """Why what the program compiles is not known to be in the cache; empty if it is.

    `verify`: a second run must have found everything.
    """
    from attn_doctor.kernels.caches.stale_builds import stale

    manifest = store.load(program.folder) or store.empty()
    known = manifest.warmups.get(program.id)
    if known is None:
        return "it was not run for this cache yet"
    now = program.environment_of(manifest.environments.get(known.device_slot))
    changed = stale(manifest, known.device_slot, now, str(program.folder)).warmups
    gone = missing(program.folder, known.files)
    lost = f"{gone[0]} is missing or has another size" if gone else ""
    unknown = "" if known.verified or not verify else known.message
    return changed.get(program.id) or lost or known.fault or unknown


def _refused(
    result: WarmupResult, run: Run, folder: Path, added: Mapping[str, int]
) -> WarmupResult:
    """Remove all that a refused run has compiled: no other program may find it."""
    why = "compiled by a run that was refused"
    deletions = Deletions(str(folder))
    deletions.delete(existing(folder, added, why))
    return replace(
        result,
        code=run.code or 1,
        refused=run.verdict.refused,
        cleared=(*result.cleared, *deletions.cleared),
        kept={**result.kept, **deletions.kept},
    )


# Files, lookups and keys


def _files(folder: Path) -> dict[str, int]:
    """Files of the cache, by their path below `folder`, with their sizes."""
    sizes: dict[str, int] = {}
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
                sizes[name] = entry.stat(follow_symlinks=False).st_size
    return sizes


def _used(files: Mapping[str, int], lookups: list[Lookup]) -> dict[str, int]:
    """Files of the entries that were looked up."""
    keys = {lookup.key for lookup in lookups if lookup.key}
    return {name: size for name, size in files.items() if keys.intersection(name.split("/")[1:-1])}


def _keys(lookups: list[Lookup]) -> dict[str, list[str]]:
    """Cache kind → keys that were looked up, each once."""
    keys: dict[str, list[str]] = {}
    for lookup in lookups:
        known = keys.setdefault(lookup.kind, [])
        if lookup.key and lookup.key not in known:
            known.append(lookup.key)
    return keys


def _key_parts(lookups: list[Lookup]) -> dict[str, list[dict[str, object]]]:
    """The components of the keys by kind, by which a later miss can be explained."""
    parts: dict[str, list[dict[str, object]]] = {lookup.kind: [] for lookup in lookups}
    for lookup in lookups:
        if lookup.key:
            parts[lookup.kind].append({"key": lookup.key, "lines": list(lookup.components)})
    return parts


def _missed(first: Run, again: Run, written: list[str]) -> str:
    """What the second run did not find in the caches; empty if it found everything."""
    if again.code != 0:
        return f"the second run ended with exit code {again.code}"
    missed = [lookup for lookup in again.lookups if lookup.what == "miss"]
    for lookup in missed:
        named = differing(lookup, first.lookups)
        if named:
            return f"{len(missed)} graphs were compiled again; differs: {'; '.join(named[:3])}"
    if missed:
        return f"{len(missed)} graphs were compiled again, with keys that the first run had not"
    bypassed = [lookup.reason for lookup in again.lookups if lookup.what == "bypass"]
    if bypassed:
        return f"{len(bypassed)} graphs cannot be cached: {bypassed[0] or 'torch gives no reason'}"
    if written:
        more = f" and {len(written) - 1} more files" if len(written) > 1 else ""
        return f"the second run wrote {written[0]}{more}"
    return ""


# The manifest


def _clear_stale(program: Program) -> tuple[tuple[ClearedFile, ...], dict[str, str]]:
    """Remove what was built for other versions, as before any build."""
    from attn_doctor.kernels.caches.stale_builds import stale

    folder, slot = program.folder, _slot(program)
    manifest = store.load(folder) or store.empty()
    now = program.environment_of(manifest.environments.get(slot))
    found = stale(manifest, slot, now, str(folder))
    if program.target is not None:
        keep_real_kernels(manifest, slot, found, folder)
    if not found.specs and not found.warmups:
        return (), {}
    deletions = Deletions(str(folder))
    deletions.delete(found.files)
    manifest = replace(
        manifest,
        entries={name: one for name, one in manifest.entries.items() if name not in found.specs},
        warmups={name: one for name, one in manifest.warmups.items() if name not in found.warmups},
        environments={**manifest.environments, slot: now},
    )
    store.save(folder, manifest)
    return tuple(deletions.cleared), deletions.kept


def _slot(program: Program) -> str:
    return slot_of(program.facts, program.device) or slot_name(program.device, "")


def _write_down(program: Program, warmup: Warmup, lookups: list[Lookup]) -> None:
    folder = program.folder
    manifest: Manifest = store.load(folder) or store.empty()
    store.flush(folder, warmup.files)
    environments = dict(manifest.environments)
    if warmup.device_slot not in environments:
        environments[warmup.device_slot] = program.environment_of()
    warmups = {**manifest.warmups, program.id: warmup}
    cache_keys.save(str(folder), program.id, _key_parts(lookups))
    store.save(folder, replace(manifest, warmups=warmups, environments=environments))


def _forget(program: Program) -> None:
    """Remove the record of an earlier run, which does the same no more."""
    manifest = store.load(program.folder)
    if manifest is not None and program.id in manifest.warmups:
        rest = {name: one for name, one in manifest.warmups.items() if name != program.id}
        store.save(program.folder, replace(manifest, warmups=rest))
