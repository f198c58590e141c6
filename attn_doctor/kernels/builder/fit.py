"""Finds whether kernels fit a GPU's shared memory, on any machine, by compiling them for it.

Triton compares every kernel with the limit of the GPU that it compiles for. The stub GPU gets the
limit of the other one, so a kernel that needs more fails here as it would there. For such a kernel,
smaller settings are compiled until one fits. The numbers are Triton's own, from the message with
which it gives a kernel up. All of it happens in a folder of its own, which is removed. How fast the
smaller settings are, and whether a later kernel of the same graph needs too much as well, stays
unknown.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.files import DATA, read_text
from attn_doctor.kernels.builder.devices import children_environment
from attn_doctor.kernels.builder.plan import workers
from attn_doctor.kernels.builder.scheduler import job_of
from attn_doctor.kernels.builder.spec_refusals import refusal
from attn_doctor.kernels.gpus.descriptor import Descriptor
from attn_doctor.pool.pool import Pool, PoolError
from attn_doctor.pool.task import Outcome, Task
from attn_doctor.record.spec import KernelSpec, Option
from attn_doctor.worker.env_vars import kept

_DEVICE = "cuda:0"
#: Compiles that are spent on one spec besides the first.
_TRIES = 5
#: Substitutes for unread values of a GPU. torch chooses FlexAttention's tiles by compute
#: capability, type and head size (`get_flex_attn_fwd_configs`, torch 2.11), by none of these.
_ASSUMED = {
    "multi_processor_count": 100,
    "total_memory": 64 << 30,
    "L2_cache_size": 32 << 20,
}


_OVER = re.compile(
    r"out of resource: (?P<what>shared memory|\S+?),? ?Required: ?(?P<needed>\d+),? ?"
    r"Hardware limit(?:ation)?: ?(?P<limit>\d+)"
)
#: Settings that take less and less, by kernel. Fewer stages first: they keep the tiles.
_FORWARD: tuple[dict[str, Option], ...] = (
    {"num_stages": 1},
    {"num_stages": 1, "BLOCK_M": 32, "BLOCK_N": 32},
    {"num_stages": 1, "BLOCK_M": 16, "BLOCK_N": 16},
)
_BACKWARD: tuple[dict[str, Option], ...] = (
    {"num_stages": 1},
    {"num_stages": 1, "BLOCK_M1": 32, "BLOCK_N1": 32, "BLOCK_M2": 32, "BLOCK_N2": 32},
    {"num_stages": 1, "BLOCK_M1": 16, "BLOCK_N1": 16, "BLOCK_M2": 16, "BLOCK_N2": 16},
)


class Tried(Struct, frozen=True, kw_only=True):
    """The result of compiling a spec with some settings."""

    options: dict[str, Option] = {}
    """kernel_options besides the spec's own."""
    fits: bool | None
    """None: unknown, since something else failed."""
    kernel: str = ""
    """`forward` or `backward`: the one that asks for too much; empty: none, or unknown."""
    needed: int | None = None
    """Bytes of shared memory a block that it asks for."""
    limit: int | None = None
    """Bytes that the GPU has for one."""
    why: str = ""
    """What torch refuses, or what failed, where it was not shared memory."""
    seconds: float = 0.0


class Fit(Struct, frozen=True, kw_only=True):
    """Whether one spec fits."""

    spec: KernelSpec
    first: Tried
    """With the spec's own settings."""
    smaller: tuple[Tried, ...] = ()
    """Settings that were compiled because it did not fit, in their order."""

    @property
    def fits(self) -> bool | None:
        """As it stands; None: unknown."""
        return self.first.fits

    @property
    def remedy(self) -> dict[str, Option] | None:
        """kernel_options that make it fit, where it does not and some were found."""
        return next((one.options for one in self.smaller if one.fits), None)


def fit(
    descriptor: Descriptor,
    specs: Sequence[KernelSpec],
    facts: Facts,
    environ: Mapping[str, str],
    *,
    sys_path: Sequence[str] = (),
    limit: float = 600.0,
    jobs: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Fit, ...]:
    """Compile `specs` for a GPU of any machine, and find whether each fits.

    `limit`: seconds that one compile may take. `progress` gets a line before each. Raises
    `AttnDoctorError` if the stub GPU cannot be made here, torch cannot be imported or the GPU's
    limit is not known, and `DeviceError` if a variable makes compiling pointless.
    """
    from attn_doctor.kernels.gpus import stub

    if descriptor.shared_memory_per_block_optin is None:
        raise AttnDoctorError(
            f"--target {descriptor.id}: how much shared memory a block of an {descriptor.name} may"
            " take is not known, so --fit has no limit to compare kernels with"
        )
    library = stub.make(facts)
    scratch = Path(tempfile.mkdtemp(prefix="attn-doctor-fit-"))
    try:
        children, _ = children_environment(environ, str(scratch / "cache"))
        children["TRITON_CACHE_DIR"] = str(scratch / "cache" / "triton")
        children["ATTN_DOCTOR_STUB_GPU_REPORT"] = str(scratch / "report")
        (scratch / "report").mkdir()
        env = stub.environment(library, _filled(descriptor, children), 1, children)
        number = workers(facts, "cpu", jobs)[0]
        with Pool(facts.python.path or "", env, scratch) as pool:
            return fitted(
                pool, specs, descriptor, facts.torch.version or "",
                sys_path=sys_path, limit=limit, jobs=number, progress=progress,
            )  # fmt: skip
    except PoolError as error:
        place = facts.python.path or "the examined environment"
        raise AttnDoctorError(f"torch cannot be imported in {place}: {error.message}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _filled(descriptor: Descriptor, environ: Mapping[str, str]) -> Descriptor:
    """The same with substitutes for what does not decide whether a kernel fits.

    A GPU without a machine takes over the variables of this one.
    """
    filled: dict[str, Any] = {
        name: value for name, value in _ASSUMED.items() if getattr(descriptor, name) is None
    }
    if not descriptor.own:
        filled["environment"] = {name: environ[name] for name in kept(environ, ())}
    return msgspec.structs.replace(descriptor, **filled)


def fitted(
    pool: Pool,
    specs: Sequence[KernelSpec],
    descriptor: Descriptor,
    torch: str,
    *,
    sys_path: Sequence[str] = (),
    limit: float = 600.0,
    jobs: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[Fit, ...]:
    """The same with a pool whose processes see the stub GPU; `torch` is their torch's version.

    Raises `AttnDoctorError` if they see another GPU: what fits that one says nothing.
    """
    open_ = [_Open(spec, torch) for spec in specs]
    waiting = []
    for one in open_:
        why = refusal(one.spec, torch, _DEVICE, descriptor.sm)
        if why:
            one.tried.append(Tried(fits=False, why=why))
        else:
            waiting.append(one)
    active: dict[int, _Open] = {}
    number = 0
    known = not waiting
    if waiting:
        job = {"action": "environment", "device": _DEVICE}
        pool.start(Task(id=number, job=job, log=pool.logs / "fit-gpu.log", limit=limit))
    while waiting or active or not known:
        while waiting and len(active) < jobs:
            one, number = waiting.pop(0), number + 1
            active[number] = one
            progress(one.line(descriptor))
            log = pool.logs / f"fit-{number}.log"
            job = job_of(one.tried_spec, _DEVICE, "build", sys_path)
            pool.start(Task(id=number, job=job, log=log, limit=limit))
        for outcome in pool.wait(1.0):
            if outcome.task.id == 0:
                _same(outcome, descriptor)
                known = True
                continue
            one = active.pop(outcome.task.id)
            if one.continues(result_of(outcome, one.options)):
                waiting.insert(0, one)
    return tuple(
        Fit(spec=one.spec, first=one.tried[0], smaller=tuple(one.tried[1:])) for one in open_
    )


def _same(outcome: Outcome, descriptor: Descriptor) -> None:
    seen = (outcome.result or {}).get("environment") or {}
    if (seen.get("device"), seen.get("sm")) == (descriptor.name, descriptor.sm):
        return
    why = (outcome.result or {}).get("failure") or {}
    what = seen.get("device") or why.get("message") or outcome.reason
    raise AttnDoctorError(
        f"--fit: in place of an {descriptor.name} torch sees {what}, so its limit is unknown"
    )


class _Open:
    """A spec that is not finished: what was tried, and what is tried next."""

    def __init__(self, spec: KernelSpec, torch: str) -> None:
        self.spec = spec
        self.tried: list[Tried] = []
        self.options: dict[str, Option] = {}
        self._ladders = {name: ladder(name, torch) for name in ("forward", "backward", "")}

    @property
    def tried_spec(self) -> KernelSpec:
        """The spec with what is tried now."""
        options = {**self.spec.kernel_options, **self.options}
        return msgspec.structs.replace(self.spec, kernel_options=options)

    def line(self, descriptor: Descriptor) -> str:
        """What is being compiled, in a line."""
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{descriptor.name}: {self.spec.title}" + (f" with {options}" if options else "")

    def continues(self, tried: Tried) -> bool:
        """Note a result; return whether something smaller is to be tried."""
        self.tried.append(tried)
        # A block's options are the model's own, and out of reach.
        if tried.fits is not False or len(self.tried) > _TRIES or self.spec.block:
            return False
        rung = next(self._ladders[tried.kernel], None)
        if rung is None:
            return False
        self.options = {**self.options, **rung}
        return True


def ladder(kernel: str, torch: str) -> Iterator[dict[str, Option]]:
    """Settings for a kernel, each smaller than the one before. "": it is unknown which."""
    # Prefixes for one of the two kernels came with torch 2.7.
    old = [int(part) for part in re.findall(r"\d+", torch)[:2]] < [2, 7]
    if kernel == "" or old:
        for forward, backward in zip(_FORWARD, _BACKWARD, strict=True):
            yield {**forward, **backward}
        return
    prefix, rungs = ("fwd_", _FORWARD) if kernel == "forward" else ("bwd_", _BACKWARD)
    for rung in rungs:
        yield {f"{prefix}{name}": value for name, value in rung.items()}


def result_of(outcome: Outcome, options: Mapping[str, Option]) -> Tried:
    """The result of one compile."""
    result: Mapping[str, Any] = outcome.result or {}
    common: dict[str, Any] = {"options": dict(options), "seconds": outcome.seconds}
    if result.get("ok"):
        return Tried(fits=True, **common)
    message = str((result.get("failure") or {}).get("message") or outcome.reason)
    over = _OVER.search(message) or _last_in(outcome.task.log)
    if over is None:
        return Tried(fits=None, why=message, **common)
    what = over["what"]
    kernel = "" if what == "shared memory" else "backward" if "backward" in what else "forward"
    return Tried(
        fits=False,
        kernel=kernel,
        needed=int(over["needed"]),
        limit=int(over["limit"]),
        **common,
    )


def _last_in(log: Path) -> re.Match[str] | None:
    """The last such message in what a process printed."""
    try:
        found = list(_OVER.finditer(read_text(log, DATA, cut=True)))
    except OSError:
        return None
    return found[-1] if found else None
