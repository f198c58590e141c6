"""Verifies a warm-up on its own GPU: runs the program with the cache and with an empty one.

With the cache, every graph of the program must be found. Without it, everything is compiled on this
GPU. Both runs record what each graph computed (`graph_outputs.py`); if the results are equal, the
kernels that were built elsewhere are right. A program whose results vary cannot be compared.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.kernels.builder.plan import BuildRequest
from attn_doctor.kernels.builder.program_run import program_of
from attn_doctor.kernels.builder.progress import Watcher
from attn_doctor.kernels.verify.compare_runs import Compared, compare, runs
from attn_doctor.kernels.verify.entries import verified_in
from attn_doctor.kernels.verify.why import Miss, of_factor, reasons
from attn_doctor.processes import Running
from attn_doctor.record import store
from attn_doctor.record.environment import environment_from_facts
from attn_doctor.record.key_parts import known_keys
from attn_doctor.record.lock import Lock
from attn_doctor.record.manifest import BuildEnvironment, Manifest, Warmup
from attn_doctor.record.trace import Lookup, lookups
from attn_doctor.redact import HIDDEN
from attn_doctor.worker import stub_gpu

#: A stub GPU computes nothing.
STUB_GPU = "ATTN_DOCTOR_STUB_GPU"
OUTPUTS = "ATTN_DOCTOR_OUTPUTS"


class ProgramRuns(Struct, frozen=True, kw_only=True):
    """The result of a program's two runs."""

    argv: tuple[str, ...]
    seconds: float = 0.0
    """The run with the cache."""
    hits: tuple[str, ...] = ()
    """Keys of cache hits."""
    compared: Compared = Compared()
    message: str = ""
    """What is wrong, in one clause; empty if every graph hit and the results are equal."""
    failed: bool = False
    """The program failed by itself, which says nothing about the cache."""
    misses: tuple[Miss, ...] = ()
    real: bool = True
    """It ran on a GPU or a processor, not on a stub GPU."""

    @property
    def verified(self) -> bool:
        """It hit every cache and its results are right."""
        return self.real and not self.message and self.compared.equal


def run_twice(
    argv: Sequence[str],
    request: BuildRequest,
    say: Callable[[str], None] = lambda _: None,
    folder: str | None = None,
) -> ProgramRuns:
    """Run `argv` with the cache and with an empty one, and compare. `say` shows the progress.

    `folder`: its working directory. Raises `AttnDoctorError` if there is no such program.
    """
    title = shlex.join(argv)
    program, environ = program_of(list(argv), request.facts, request.environ)
    with tempfile.TemporaryDirectory(prefix="attn-doctor-verify-") as room:
        say(f"Running {title} with {request.folder} …")
        first = _ran(program, environ, request.folder, Path(room, "cached"), folder)
        ran = _first(tuple(argv), first, request)
        if ran.message or not ran.real:
            return ran
        say(f"Running {title} again with an empty cache, to compare …")
        scratch = Path(room, "scratch")
        second = _ran(program, environ, scratch, Path(room, "fresh"), folder, empty=True)
        if second.code != 0:
            why = f"without the cache it ended with {_code(second.code)}"
            return replace(ran, message=why, failed=True)
        try:
            compared = compare(runs(first.outputs), runs(second.outputs))
        except ValueError as error:  # such as a process that was killed while it wrote
            compared = Compared(doubt=f"the record of its graphs cannot be read: {error}")
        return replace(ran, compared=compared, message=compared.wrong or compared.doubt)


class _Run(Struct, frozen=True):
    code: int
    seconds: float
    found: list[Lookup]
    outputs: Path


def _ran(
    argv: Sequence[str],
    environ: Mapping[str, str],
    cache: Path,
    room: Path,
    cwd: str | None,
    *,
    empty: bool = False,
) -> _Run:
    """Run a program with `cache`, and record its lookups and the results of its graphs."""
    outputs, trace = room / "outputs", room / "trace"
    for one in (outputs, trace, cache):
        one.mkdir(parents=True, exist_ok=True)
    path = [str(Path(stub_gpu.__file__).parent / "site"), environ.get("PYTHONPATH", "")]
    variables = {
        **environ,
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCH_TRACE": str(trace),
        OUTPUTS: str(outputs),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONHASHSEED": environ.get("PYTHONHASHSEED", "0"),
    }
    if empty:
        # Triton's own folder would give this run the kernels of the other run.
        variables.pop("TRITON_CACHE_DIR", None)
        variables["TRITON_HOME"] = str(cache)
    start = time.monotonic()
    with Running(argv, env=variables, cwd=cwd, attached=True, joined=True, output=2) as running:
        code = running.wait()
    seconds = time.monotonic() - start
    code = 1 if code is None else 128 - code if code < 0 else code
    return _Run(code, seconds, lookups(trace), outputs)


def _first(argv: tuple[str, ...], ran: _Run, request: BuildRequest) -> ProgramRuns:
    """The result of the run with the cache."""
    result = ProgramRuns(
        argv=argv,
        seconds=ran.seconds,
        hits=tuple(dict.fromkeys(one.key for one in ran.found if one.what == "hit" and one.key)),
        real=not request.environ.get(STUB_GPU),
    )
    if ran.code != 0:
        return replace(result, message=f"it ended with {_code(ran.code)}", failed=True)
    if not ran.found:
        return replace(result, message="it compiled nothing with torch.compile")
    missed = [one for one in ran.found if one.what != "hit"]
    if not missed:
        return result
    manifest = store.load(request.folder) or store.empty()
    why = reasons(missed, known_keys(manifest, request.folder))
    bypassed = next((one.reason for one in missed if one.what == "bypass"), "")
    message = f"{len(missed)} of {len(ran.found)} lookups missed and were compiled here"
    if bypassed:
        message += f"; torch did not use its cache: {bypassed}"
    factors = (factor for reason in why for factor in reason.factors)
    causes = (of_factor(factor.name, factor.was, factor.now) for factor in factors)
    unique = {cause.what: cause for cause in causes}
    return replace(result, message=message, misses=tuple(unique.values())[:4])


def _code(code: int) -> str:
    return f"exit code {code}"


def covered(manifest: Manifest, ran: ProgramRuns, slots: frozenset[str]) -> tuple[str, ...]:
    """Manifest keys of the unverified warm-ups for `slots` whose graphs the program all hit."""
    hits = set(ran.hits)
    found = []
    for key, one in manifest.warmups.items():
        # A hit of a joint graph includes its parts, which are then not looked up.
        asked = one.keys.get("aotautograd") or one.keys.get("fxgraph") or []
        if one.unverified and one.device_slot in slots and asked and hits.issuperset(asked):
            found.append(key)
    return tuple(found)


def record(request: BuildRequest, ran: ProgramRuns, keys: Iterable[str]) -> None:
    """Record that the warm-ups of these manifest keys are verified on this machine."""
    folder = request.folder
    with Lock(folder, Watcher().waiting) as lock:
        manifest = store.load(folder) or store.empty()
        warmups, environments = dict(manifest.warmups), dict(manifest.environments)
        for key in keys:
            own = warmups.get(key)
            if own is None:
                continue
            warmups[key] = replace(
                own, verified=True, unverified=False, reuse_seconds=ran.seconds, message=""
            )
            was = environments.get(own.device_slot, BuildEnvironment())
            now = environment_from_facts(
                request.facts, own.device_slot.partition(" ")[0], request.environ, was
            )
            environments[own.device_slot] = verified_in(was, now)
        lock.check()
        store.save(folder, replace(manifest, warmups=warmups, environments=environments))


def files_of(warmup: Warmup) -> tuple[str, ...]:
    """The program of a recorded warm-up, its scripts, and the folders that they import from."""
    scripts = [os.path.join(warmup.folder, word) for word in _scripts(warmup)]
    program = shutil.which(warmup.argv[0]) or warmup.argv[0]
    return tuple(dict.fromkeys((program, warmup.folder, *scripts, *map(os.path.dirname, scripts))))


def missing(warmup: Warmup) -> str:
    """Say what is missing to run a recorded program again; empty if nothing is."""
    program = warmup.argv[0]
    if any(HIDDEN in word for word in warmup.argv):
        return "its arguments hold a secret, which is not recorded"
    if not (os.path.isfile(program) or shutil.which(program)):
        return f"{program} is not on this machine"
    if not os.path.isdir(warmup.folder):
        return f"its folder {warmup.folder} is not on this machine"
    for word in _scripts(warmup):
        if not os.path.isfile(os.path.join(warmup.folder, word)):
            return f"{os.path.join(warmup.folder, word)} is not on this machine"
    return ""


def _scripts(warmup: Warmup) -> list[str]:
    return [word for word in warmup.argv[1:] if word.endswith(".py")]
