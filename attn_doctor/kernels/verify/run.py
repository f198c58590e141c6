"""Runs what is in the records of caches, and says of each kernel and program whether it is reused.

Kernels run one by one in fresh processes, programs twice: with the cache and with an empty one.
What is verified thereby is recorded.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.kernels.builder.devices import DeviceError, children_environment
from attn_doctor.kernels.builder.plan import BuildRequest, mask_folders
from attn_doctor.kernels.caches.file_tree import read_tree
from attn_doctor.kernels.caches.survey import Survey
from attn_doctor.kernels.verify import entries, programs
from attn_doctor.kernels.verify.why import Miss, misses
from attn_doctor.ownership import require
from attn_doctor.pool.pool import PoolError
from attn_doctor.record import store
from attn_doctor.record.environment import environment_from_facts
from attn_doctor.record.manifest import Entry, Manifest
from attn_doctor.shell import commands

_log = logging.getLogger(__name__)

#: Parts of the cache that only a compilation adds; Triton's files may also come out of a graph.
_COMPILED = ("fxgraph/", "aotautograd/")
_NEEDS_TO_WRITE = (
    "torch writes the results of its autotuning there, and the first backward ends with OSError"
    " where it cannot; mount the folder writable, at least until the kernels are verified"
)

#: Shows a message about progress.
Say = Callable[[str], None]


class Verification(Struct, frozen=True, kw_only=True):
    """The result of running one kernel or program or, without a key, of a cache as a whole."""

    folder: str
    title: str
    hit: bool
    """Every cache hit and no compiler ran."""
    key: str = ""
    """Its key in the builder's record; `program` for a program."""
    device_slot: str = ""
    seconds: float | None = None
    """The first call."""
    errors: dict[str, float] = {}
    """Relative error against a float64 reference: out, and in training dq, dk, dv."""
    message: str = ""
    """What was not reused, or why nothing was run."""
    state: str = ""
    """`built` (reused, and right), `unverified` (reused where nothing can be computed), otherwise
    what is wrong, as in the builder's record."""
    previous_state: str = ""
    """The state in the record before."""
    program_failed: bool = False
    """It is a program that failed by itself, which says nothing about the cache."""
    misses: tuple[Miss, ...] = ()
    """What differs, in words, where that is known."""


def request_for(folder: Path, facts: Facts, built: Iterable[Entry] = ()) -> BuildRequest:
    """Return what the worker processes are started with. Raises `AttnDoctorError`.

    The masks of `built` are looked up in the folders where they were found before.
    """
    try:
        environ, _ = children_environment(os.environ, str(folder))
    except DeviceError as error:
        raise AttnDoctorError(str(error)) from None
    return BuildRequest(
        specs=(),
        devices=(),
        facts=facts,
        folder=folder,
        environ=environ,
        sys_path=(*mask_folders(built), os.getcwd()),
    )


# Kernels


def verify_kernels(
    surveys: Sequence[Survey], facts: Facts, say: Say, *, everything: bool
) -> list[Verification]:
    """Run the kernels for this machine that the records of these caches hold.

    `everything`: all built kernels, and `AttnDoctorError` if no record has one for this machine;
    otherwise only unverified kernels.
    """
    results: list[Verification] = []
    for survey in surveys:
        if survey.manifest is not None:
            results += _kernels_of(survey, survey.manifest, facts, say, everything=everything)
    if everything and not results:
        folders = ", ".join(one.location.path for one in surveys if one.location.kind == "inductor")
        others = dict.fromkeys(
            str(built.device_slot) for one in surveys for built in one.built if built.device_slot
        )
        only = f", only for {', '.join(others)}" if others else ""
        raise AttnDoctorError(
            f"nothing was built for this machine in {folders or 'any cache'}{only}, so nothing can"
            " hit: build first (attn-doctor build-kernels), or name the folder of the kernels"
            " (attn-doctor cache verify --cache-dir DIR --require-hit)"
        )
    return results


def _kernels_of(
    survey: Survey, manifest: Manifest, facts: Facts, say: Say, *, everything: bool
) -> list[Verification]:
    slots, folder = _slots_here(survey), _folder(survey)
    if not everything:
        return _run(folder, entries.unverified(manifest, slots), facts, say)
    here = {key: one for key, one in manifest.entries.items() if one.device_slot in slots}
    results = [
        _of_entry(folder, key, entry, entry.message or "it is not built")
        for key, entry in here.items()
        if entry.build is None
    ]
    results += [
        _unverified_program(
            folder,
            key,
            " ".join(warmup.argv),
            warmup.device_slot,
            "its results were not compared on this GPU yet: "
            + commands.verify(folder, facts, warmup.argv),
        )
        for key, warmup in manifest.warmups.items()
        if warmup.unverified and warmup.device_slot in slots
    ]
    built = {key: entry for key, entry in here.items() if entry.build is not None}
    return results + _run(folder, built, facts, say)


def _run(folder: Path, built: Mapping[str, Entry], facts: Facts, say: Say) -> list[Verification]:
    if not built:
        return []
    request = request_for(folder, facts, built.values())
    if obstacle := entries.unwritable(folder):
        return [_cache(folder, f"{folder} cannot be written ({obstacle}): {_NEEDS_TO_WRITE}")]
    count = "1 kernel" if len(built) == 1 else f"{len(built)} kernels"
    say(f"Running {count} of {folder}, each in a fresh process …")
    before = read_tree(str(folder)).nodes
    try:
        ran = entries.run_in_fresh_processes(request, built)
    except PoolError as error:
        raise AttnDoctorError(f"{facts.python.path} cannot run kernels: {error.message}") from None
    after = read_tree(str(folder)).nodes
    if first := {key: one for key, one in ran.items() if built[key].state == "unverified"}:
        entries.record(request, first)
    results = [
        _of_run(folder, key, entry, ran[key], request)
        if key in ran
        else _of_entry(folder, key, entry, "it was not reached")
        for key, entry in built.items()
    ]
    new = [
        path
        for path, node in after.items()
        if node.kind == "file" and path not in before and path.startswith(_COMPILED)
    ]
    _log.debug("%d kernels of %s ran, %d new compiled graphs", len(ran), folder, len(new))
    if new:
        message = f"{len(new)} compiled graphs were missing and have been added, such as {new[0]}"
        results.append(_cache(folder, message))
    return results


def _of_run(folder: Path, key: str, was: Entry, now: Entry, request: BuildRequest) -> Verification:
    """The result of one entry that was run; a miss with its reasons."""
    reasons: tuple[Miss, ...] = ()
    if now.state == "not-reused":
        manifest = store.load(folder)
        built_in = manifest.environments.get(was.device_slot) if manifest else None
        device = was.device_slot.partition(" ")[0]
        here = environment_from_facts(request.facts, device, request.environ, built_in)
        reasons = misses(now.message, built_in, here)
    return replace(
        _of_entry(folder, key, now, now.message),
        hit=now.state in ("built", "unverified"),
        previous_state=was.state,
        misses=reasons,
    )


def _of_entry(folder: Path, key: str, entry: Entry, message: str) -> Verification:
    build = entry.build
    return Verification(
        folder=str(folder),
        key=key,
        title=entry.spec.title,
        device_slot=entry.device_slot,
        hit=False,
        seconds=None if build is None else build.reuse_seconds,
        errors={} if build is None else build.errors,
        message=message,
        state=entry.state,
        previous_state=entry.state,
    )


def _cache(folder: Path, message: str) -> Verification:
    return Verification(folder=str(folder), title="the cache itself", hit=False, message=message)


# Programs


def verify_programs(
    surveys: Sequence[Survey], facts: Facts, program: Sequence[str], say: Say
) -> list[Verification]:
    """Verify `program`; without one, each recorded warm-up that is unverified.

    Raises `AttnDoctorError` if there is no cache of torch.compile to verify it with, or no such
    program.
    """
    caches = [one for one in surveys if one.location.kind == "inductor"]
    if not caches:
        raise AttnDoctorError(
            "there is no cache of torch.compile here: name its folder, `cache verify --cache-dir"
            " DIR -- COMMAND`, or set TORCHINDUCTOR_CACHE_DIR"
        )
    if program:
        return [_of_program(caches[0], facts, program, None, say)]
    return [result for one in caches for result in _recorded_programs(one, facts, say)]


def _recorded_programs(survey: Survey, facts: Facts, say: Say) -> list[Verification]:
    results = []
    folder = _folder(survey)
    for key, warmup in survey.manifest.warmups.items() if survey.manifest else ():
        if not warmup.unverified or warmup.device_slot not in _slots_here(survey):
            continue
        if lacks := programs.missing(warmup):
            command = commands.verify(folder, facts, ("COMMAND",))
            message = f"{lacks}: {command}, with the command of the program on this machine"
            title = shlex.join(warmup.argv)
            results.append(_unverified_program(folder, key, title, warmup.device_slot, message))
        else:
            for path in programs.files_of(warmup):
                require(path)
            say(f"{folder} records this program in {warmup.folder}: {shlex.join(warmup.argv)}")
            results.append(_of_program(survey, facts, warmup.argv, warmup.folder, say))
    return results


def _unverified_program(
    folder: Path, key: str, title: str, device_slot: str, message: str
) -> Verification:
    return Verification(
        folder=str(folder),
        key=key,
        title=title,
        device_slot=device_slot,
        hit=False,
        state="unverified",
        previous_state="unverified",
        message=message,
    )


def _of_program(
    survey: Survey, facts: Facts, argv: Sequence[str], cwd: str | None, say: Say
) -> Verification:
    folder, title = _folder(survey), shlex.join(argv)
    request = request_for(folder, facts)
    ran = programs.run_twice(argv, request, say, cwd)
    manifest = store.load(folder) or store.empty()
    message, verified = ran.message, False
    if ran.verified:
        verified = bool(keys := programs.covered(manifest, ran, _slots_here(survey)))
        if verified:
            programs.record(request, ran, keys)
        elif any(warmup.unverified for warmup in manifest.warmups.values()):
            message = "it uses other graphs than every recorded warm-up, so it verifies none"
    graphs = ran.compared.graphs
    return Verification(
        folder=str(folder),
        key="program",
        title=title,
        hit=not ran.message,
        seconds=ran.seconds,
        errors={f"{graphs} graphs": ran.compared.worst} if graphs else {},
        message=message,
        state="built" if ran.verified else "unverified",
        previous_state="unverified" if verified else "",
        misses=ran.misses,
        program_failed=ran.failed,
    )


def _slots_here(survey: Survey) -> frozenset[str]:
    """Device slots of the record that this machine has, or may have."""
    return frozenset(
        str(built.device_slot) for built in survey.built if built.device_present is not False
    )


def _folder(survey: Survey) -> Path:
    return Path(survey.real or survey.location.path)
