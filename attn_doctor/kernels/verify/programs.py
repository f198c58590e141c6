"""The proof of a warm-up on its own GPU: the program itself, run with the cache and without.

With the cache, every graph that it compiles must be found. Without, everything is compiled on this
GPU. Both runs write down what each graph computed (`graph_outputs.py`); where that is the
same, what was built elsewhere is right. It cannot judge a program that computes something else
each time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.kernels.builder.plan import BuildRequest
from attn_doctor.kernels.builder.program_run import program_of
from attn_doctor.kernels.builder.watcher import Watcher
from attn_doctor.kernels.verify.compare_runs import Compared, compare, runs
from attn_doctor.kernels.verify.entries import stamped
from attn_doctor.kernels.verify.misses import Miss, of_factor
from attn_doctor.kernels.verify.why import reasons
from attn_doctor.processes import Running
from attn_doctor.record import store
from attn_doctor.record.environment import environment_from_facts
from attn_doctor.record.key_parts import known_keys
from attn_doctor.record.lock import Lock
from attn_doctor.record.manifest import BuildEnvironment, Manifest, Warmup
from attn_doctor.record.trace import Lookup, lookups
from attn_doctor.worker import stub_gpu

#: A stub GPU computes nothing.
STUB_GPU = "ATTN_DOCTOR_STUB_GPU"
OUTPUTS = "ATTN_DOCTOR_OUTPUTS"


class Judged(Struct, frozen=True, kw_only=True):
    """What came of a program's two runs."""

    argv: tuple[str, ...]
    seconds: float = 0.0
    """The run with the cache."""
    hits: tuple[str, ...] = ()
    """Keys that were found."""
    compared: Compared = Compared()
    message: str = ""
    """What is wrong, in one clause; empty if all hit and computes the same."""
    ended: bool = False
    """It failed by itself, which says nothing of the cache."""
    misses: tuple[Miss, ...] = ()
    real: bool = True
    """It ran on a GPU, or a processor, that computes."""
    warmups: tuple[str, ...] = ()
    """Manifest keys of the warm-ups that this proves."""

    @property
    def verified(self) -> bool:
        """It hit every cache and computes what it should."""
        return self.real and not self.message and self.compared.equal


def judge(
    argv: Sequence[str],
    request: BuildRequest,
    begin: Callable[[str], None] = lambda _: None,
    folder: str | None = None,
) -> Judged:
    """Run `argv` with the cache and with an empty one, and compare. `begin` is told which.

    `folder`: its working directory. Raises `AttnDoctorError` if there is no such program.
    """
    program, environ = program_of(list(argv), request.facts, request.environ)
    with tempfile.TemporaryDirectory(prefix="attn-doctor-verify-") as room:
        begin("cache")
        first = _ran(program, environ, request.folder, Path(room, "cached"), folder)
        judged = _first(tuple(argv), first, request)
        if judged.message or not judged.real:
            return judged
        begin("empty")
        scratch = Path(room, "scratch")
        second = _ran(program, environ, scratch, Path(room, "fresh"), folder, empty=True)
        if second.code != 0:
            why = f"without the cache it ended with {_code(second.code)}"
            return replace(judged, message=why, ended=True)
        compared = compare(runs(first.outputs), runs(second.outputs))
        return replace(judged, compared=compared, message=compared.wrong or compared.doubt)


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
    """Run a program with `cache`, with its lookups and the results of its graphs written down."""
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
        # Triton's own folder would bring this run the kernels of the other.
        variables.pop("TRITON_CACHE_DIR", None)
        variables["TRITON_HOME"] = str(cache)
    start = time.monotonic()
    with Running(argv, env=variables, cwd=cwd, attached=True, joined=True, output=2) as running:
        code = running.wait()
    seconds = time.monotonic() - start
    code = 1 if code is None else 128 - code if code < 0 else code
    return _Run(code, seconds, lookups(trace), outputs)


def _first(argv: tuple[str, ...], ran: _Run, request: BuildRequest) -> Judged:
    """What the run with the cache tells by itself."""
    judged = Judged(
        argv=argv,
        seconds=ran.seconds,
        hits=tuple(dict.fromkeys(one.key for one in ran.found if one.what == "hit" and one.key)),
        real=not request.environ.get(STUB_GPU),
    )
    if ran.code != 0:
        return replace(judged, message=f"it ended with {_code(ran.code)}", ended=True)
    if not ran.found:
        return replace(judged, message="it compiled nothing with torch.compile")
    missed = [one for one in ran.found if one.what != "hit"]
    if not missed:
        return judged
    manifest = store.load(request.folder) or store.empty()
    why = reasons(missed, known_keys(manifest, request.folder))
    factors = [each for one in why for each in one.factors]
    bypassed = next((one.reason for one in missed if one.what == "bypass"), "")
    message = f"{len(missed)} of {len(ran.found)} lookups missed and were compiled here"
    if bypassed:
        message += f"; torch did not use its cache: {bypassed}"
    told = {one.what: one for each in factors for one in [of_factor(each.name, each.was, each.now)]}
    return replace(judged, message=message, misses=tuple(told.values())[:4])


def _code(code: int) -> str:
    return f"exit code {code}"


def covered(manifest: Manifest, judged: Judged, places: frozenset[str]) -> tuple[str, ...]:
    """Manifest keys of the unverified warm-ups for `places` whose graphs the program all hit."""
    hits = set(judged.hits)
    found = []
    for key, one in manifest.warmups.items():
        # A whole graph that is found brings those it is made of along, without a lookup of theirs.
        asked = one.keys.get("aotautograd") or one.keys.get("fxgraph") or []
        if one.unverified and one.device_slot in places and asked and hits.issuperset(asked):
            found.append(key)
    return tuple(found)


def write_down(request: BuildRequest, judged: Judged) -> None:
    """Record that warm-ups are verified on this machine."""
    folder = request.folder
    with Lock(folder, Watcher().waiting) as lock:
        manifest = store.load(folder) or store.empty()
        warmups, surroundings = dict(manifest.warmups), dict(manifest.environments)
        for key in judged.warmups:
            own = warmups.get(key)
            if own is None:
                continue
            warmups[key] = replace(
                own, verified=True, unverified=False, reuse_seconds=judged.seconds, message=""
            )
            was = surroundings.get(own.device_slot, BuildEnvironment())
            now = environment_from_facts(
                request.facts, own.device_slot.partition(" ")[0], request.environ, was
            )
            surroundings[own.device_slot] = stamped(was, now)
        lock.check()
        store.save(folder, replace(manifest, warmups=warmups, environments=surroundings))


def lacking(warmup: Warmup) -> str:
    """What of a recorded program is not where it was; empty if it can be run again as it is."""
    program = warmup.argv[0]
    if not (os.path.isfile(program) or shutil.which(program)):
        return f"{program} is not here"
    if not os.path.isdir(warmup.folder):
        return f"its folder {warmup.folder} is not here"
    for word in warmup.argv[1:]:
        if word.endswith(".py") and not os.path.isfile(os.path.join(warmup.folder, word)):
            return f"{os.path.join(warmup.folder, word)} is not here"
    return ""
