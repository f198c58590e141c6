"""Whether kernels fit a GPU's shared memory, told on any machine by compiling them for it.

Triton itself is the judge: it holds every kernel against the limit of the GPU that it compiles for,
so the stub GPU gets the other one's limit, and a kernel that asks for more fails here as it would
there. For one that does, smaller settings are compiled until one fits. All of it happens in a
folder of its own, which is removed. It cannot know how fast the smaller settings are.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.kernels.builder import items
from attn_doctor.kernels.builder.devices import children_environment
from attn_doctor.kernels.builder.refusals import refusal
from attn_doctor.kernels.builder.scheduler import job_of
from attn_doctor.kernels.builder.tile_sizes import Tried, ladder, seen
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


class Fit(Struct, frozen=True, kw_only=True):
    """Whether one spec fits."""

    spec: KernelSpec
    first: Tried
    """As it stands."""
    smaller: tuple[Tried, ...] = ()
    """Settings that were compiled because it did not fit, in their order."""

    @property
    def fits(self) -> bool | None:
        """As it stands; None: it could not be told."""
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
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Fit, ...]:
    """Compile `specs` for a GPU that need not be here, and say of each whether it fits.

    `limit`: seconds that one compile may take. `tell` gets a line before each. Raises
    `AttnDoctorError` if the stub GPU cannot be made here, torch cannot be imported or the GPU's
    limit is not known, and `DeviceError` if a variable makes compiling pointless.
    """
    from attn_doctor.kernels.gpus import stub

    if descriptor.shared_memory_per_block_optin is None:
        raise AttnDoctorError(
            f"--target {descriptor.id}: how much shared memory a block of an {descriptor.name} may"
            " take is not known, so --fit has nothing to hold kernels against"
        )
    library = stub.make(facts)
    scratch = Path(tempfile.mkdtemp(prefix="attn-doctor-fit-"))
    try:
        children, _ = children_environment(environ, str(scratch / "cache"))
        children["TRITON_CACHE_DIR"] = str(scratch / "cache" / "triton")
        children["ATTN_DOCTOR_STUB_GPU_REPORT"] = str(scratch / "report")
        (scratch / "report").mkdir()
        env = stub.environment(library, _filled(descriptor, children), 1, children)
        number = items.workers(facts, "cpu", jobs)[0]
        with Pool(facts.python.path or "", env, scratch) as pool:
            return fitted(
                pool, specs, descriptor, facts.torch.version or "",
                sys_path=sys_path, limit=limit, jobs=number, tell=tell,
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
    tell: Callable[[str], None] = lambda _: None,
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
            tell(one.line(descriptor))
            log = pool.logs / f"fit-{number}.log"
            job = job_of(one.tried_spec, _DEVICE, "build", sys_path)
            pool.start(Task(id=number, job=job, log=log, limit=limit))
        for outcome in pool.wait(1.0):
            if outcome.task.id == 0:
                _same(outcome, descriptor)
                known = True
                continue
            one = active.pop(outcome.task.id)
            if one.goes_on(seen(outcome, one.options)):
                waiting.insert(0, one)
    return tuple(
        Fit(spec=one.spec, first=one.tried[0], smaller=tuple(one.tried[1:])) for one in open_
    )


def _same(outcome: Outcome, descriptor: Descriptor) -> None:
    told = (outcome.result or {}).get("environment") or {}
    if (told.get("device"), told.get("sm")) == (descriptor.name, descriptor.sm):
        return
    why = (outcome.result or {}).get("failure") or {}
    what = told.get("device") or why.get("message") or outcome.reason
    raise AttnDoctorError(
        f"--fit: in place of an {descriptor.name} torch sees {what}, so nothing can be told"
    )


class _Open:
    """A spec that is not done with: what was tried, and what is tried next."""

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

    def goes_on(self, tried: Tried) -> bool:
        """Write down what came of it; True if something smaller is to be tried."""
        self.tried.append(tried)
        # A block's options are the model's own, and out of reach.
        if tried.fits is not False or len(self.tried) > _TRIES or self.spec.block:
            return False
        rung = next(self._ladders[tried.kernel], None)
        if rung is None:
            return False
        self.options = {**self.options, **rung}
        return True
