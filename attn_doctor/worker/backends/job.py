"""Runs one backend in a process of its own: import, run, compare, measure, and report each step.

Every step is reported before it begins, so that the place of a crash or a hang is known, and every
figure at once, so that none is lost. What it cannot know: whether another program on the same GPU
disturbed the times.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import math
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from attn_doctor.worker.backends import calls, timing
from attn_doctor.worker.backends import device as devices
from attn_doctor.worker.proof.calls import Call, Proof, prove
from attn_doctor.worker.proof.rounding import rounding
from attn_doctor.worker.wire import Emit, die_with

#: Modules whose presence decides what can be run.
_PACKAGES = (
    "torch", "triton", "flash_attn", "flash_attn_interface", "sageattention", "xformers",
    "diffusers", "kernels",
)  # fmt: skip


def prepare(modules: list[str], emit: Emit) -> None:
    """Import what many jobs need."""
    for module in modules:
        emit("stage", stage="import", module=module)
        start = time.perf_counter()
        importlib.import_module(module)
        emit("imported", module=module, seconds=round(time.perf_counter() - start, 3))


def describe() -> dict[str, Any]:
    """The version of torch, and which packages are there: `torch`, `packages`."""
    return {"torch": str(torch.__version__), "packages": _packages()}


def _packages() -> dict[str, bool]:
    """Which packages could be imported. Finding a top-level module executes nothing of it."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            # It is there, but in a state in which it cannot say so.
            found[name] = name in sys.modules
    return found


def warm_up(device: str) -> None:
    """Do nothing: each job opens its device itself and says so."""


def run_job(job: dict[str, Any], emit: Emit) -> dict[str, Any]:
    """Run one job: `import`, `device`, `attend` or `audit`. Failures are reported, not raised."""
    _be_killed_first()
    # A library that hangs and holds the interpreter lock stops the thread that watches our parent.
    die_with(os.getppid())
    # A hang then leaves in the log where it happened, shortly before the job is killed.
    limit: float = job["seconds"]
    faulthandler.dump_traceback_later(max(0.2, limit - max(0.5, 0.05 * limit)))
    emit("stage", stage="import")
    actions = {"import": _import, "device": _device, "attend": _attend, "audit": _audit}
    action = actions[job["action"]]
    try:
        action(job, emit)
    except BaseException as error:
        _failed(error, emit)
    faulthandler.cancel_dump_traceback_later()
    return {"ok": True}


def _audit(job: dict[str, Any], emit: Emit) -> None:
    from attn_doctor.worker.audit.job import audit

    audit(job, emit)


def _be_killed_first() -> None:
    """If memory runs out, the kernel is to kill this process and no other."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass


def _failed(error: BaseException, emit: Emit, **more: Any) -> None:
    traceback.print_exception(type(error), error, error.__traceback__)
    kinds = [kind.__name__ for kind in type(error).__mro__]
    emit("failed", type=kinds[0], kinds=kinds, message=str(error)[:4000], **more)


def _import(job: dict[str, Any], emit: Emit) -> None:
    start = time.perf_counter()
    module = importlib.import_module(job["module"])
    seconds = time.perf_counter() - start
    route = calls.Route(lambda: None, job["package"], module)
    emit("imported", version=route.version, file=route.file, seconds=round(seconds, 3))


def _device(job: dict[str, Any], emit: Emit) -> None:
    emit("stage", stage="device")
    emit("device", **devices.describe(job["device"]))


def _attend(job: dict[str, Any], emit: Emit) -> None:
    """Every phase and shape of one backend."""
    start = time.perf_counter()
    route = calls.find(job["name"], job["route"])
    seconds = round(time.perf_counter() - start, 3)
    emit("imported", version=route.version, file=route.file, seconds=seconds)
    emit("stage", stage="device")
    device = devices.open(job["device"], job["share"])
    several = len(job["phases"]) > 1
    for phase in job["phases"]:
        for shape in job["shapes"]:
            if route.compiled and phase == "inference" and shape["kv_length"] and several:
                # Each shape is compiled anew; training calls this one forward as well.
                continue
            part = {"phase": phase, "shape": shape["name"]}
            need = _need(shape, job, phase)
            memory = devices.free_memory(device, job["share"])
            if memory is not None and need > memory["allowed"]:
                emit("refused", need=need, **memory, **part)
                continue
            try:
                _measure(route, shape, phase, job, device, emit, part)
            except BaseException as error:
                _failed(error, emit, **part)
                # A second shape would fail in the same way, or find the GPU unusable.
                break


def _need(shape: dict[str, Any], job: dict[str, Any], phase: str) -> int:
    """Bytes that a shape takes, roughly: tensors, and scores if the backend stores them."""
    rows, dim = shape["length"], shape["head_dim"]
    keys = shape["kv_length"] or rows
    size = torch.empty((), dtype=getattr(torch, job["dtype"])).element_size()
    tensors = shape["batch"] * shape["heads"] * 2 * (rows + keys) * dim * size
    scores = shape["batch"] * shape["heads"] * rows * keys * job["score_bytes"][phase]
    # The inputs, their copies, and in training the gradients and theirs; then noise in float32.
    copies = 6 if phase == "training" else 3
    exact = 8 * (10 * min(rows * keys, 1 << 23) + 12 * (rows + keys) * dim)
    return int(tensors * copies + 4 * tensors / size + scores + exact)


def _measure(
    route: calls.Route,
    shape: dict[str, Any],
    phase: str,
    job: dict[str, Any],
    device: Any,
    emit: Emit,
    part: dict[str, str],
) -> None:
    """Run one shape in one phase, prove it against float64, and time it."""
    if route.compiled:
        # Head sizes do not change within a model: no kernel is to be made for several of them.
        torch.compiler.reset()
    training = phase == "training"
    inputs, visible = _inputs(shape, job, device, training=training)
    mask = _additive(visible, inputs[0].dtype) if job["mask"] == "float" else visible
    gqa = inputs[0].shape[2] != inputs[1].shape[2]
    causal = bool(job["causal"])

    def forward() -> Any:
        with torch.set_grad_enabled(training):
            return route.call(*inputs, mask, causal, gqa)

    seen = _Seen(device)
    call = Call(
        torch=torch,
        device=str(device),
        inputs=inputs,
        run=forward,
        turned=True,
        adjust=_hiding(visible, causal),
        scale=1 / math.sqrt(shape["head_dim"]),
        training=training,
        rounding=rounding(job["rounding"], job["dtype"], str(device)),
        wait=lambda: devices.wait(device),
        seed=job.get("seed", 0),
    )
    proof = prove(call, stage=lambda stage: emit("stage", stage=stage, **part), around=seen.watch)
    figures = {**_figures(proof), "warnings": seen.messages, "peak_bytes": seen.peak}
    # Reported before anything is timed, so that a crash loses no figure.
    emit("measured", milliseconds=None, **figures, **part)
    if not proof.results:
        return
    emit("stage", stage="timing", **part)
    backward = training and not proof.wrong
    upstream = torch.randn_like(inputs[0])

    def step() -> Any:
        return torch.autograd.grad(forward(), inputs, upstream)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Calls this slow need no repetition.
        milliseconds = None if proof.wrong else _slow(proof, job["timing_seconds"])
        if milliseconds is None:
            whole = step if backward else forward
            milliseconds = timing.median(whole, device, job["timing_seconds"])
    flops = _flops(shape, causal, backward=backward)
    emit(
        "measured",
        milliseconds=milliseconds,
        tflops=flops / milliseconds / 1e9,
        **figures,
        **part,
    )


def _slow(proof: Proof, seconds: float) -> float | None:
    """Milliseconds of the proof's calls without the first, if each took more than `seconds`."""
    times = proof.seconds[1:]
    return statistics.median(times) * 1e3 if times and min(times) > seconds else None


class _Seen:
    """What the first call showed besides its results: warnings, and memory."""

    def __init__(self, device: Any) -> None:
        self.messages: list[str] = []
        self.peak: int | None = None
        self._device = device

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Watch what is done within."""
        base = devices.start_counting(self._device)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        self.messages = sorted({str(warning.message)[:500] for warning in caught})
        self.peak = devices.peak(self._device, base)


def _figures(proof: Proof) -> dict[str, Any]:
    """What a proof showed, as JSON can hold it: a number that is not finite is None."""

    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    errors = {
        name: {"error": number(one.error), "worst": number(one.worst),
               "allowed": number(one.allowed)}
        for name, one in proof.results.items()
    }  # fmt: skip
    margins = {name: number(one.margin) for name, one in proof.results.items()}
    return {
        "errors": errors,
        "margins": margins,
        "wrong": proof.wrong,
        "compared": proof.compared,
    }


def _inputs(
    shape: dict[str, Any], job: dict[str, Any], device: Any, *, training: bool
) -> tuple[tuple[Any, Any, Any], Any]:
    """Queries, keys and values, (batch, length, heads, size), and the mask.

    With `fused`, they are slices of one projection, as models with a single matrix for them have.
    """
    dtype = getattr(torch, job["dtype"])
    batch, length, dim = shape["batch"], shape["length"], shape["head_dim"]
    keys, heads, kv_heads = shape["kv_length"] or length, shape["heads"], shape["kv_heads"]

    def tensor(rows: int, heads: int) -> Any:
        return torch.zeros(batch, rows, heads, dim, dtype=dtype, device=device)

    if shape["fused"] and keys == length:
        whole = tensor(length, heads + 2 * kv_heads)
        inputs = whole.split([heads, kv_heads, kv_heads], dim=2)
    elif shape["fused"]:
        # Heads before the length, and keys and values of one projection.
        query = tensor(heads, length).transpose(1, 2)
        inputs = (query, *tensor(keys, 2 * kv_heads).split(kv_heads, dim=2))
    else:
        inputs = tensor(length, heads), tensor(keys, kv_heads), tensor(keys, kv_heads)
    for one in inputs:
        one.requires_grad_(training)
    mask = _mask(job["mask"], batch, keys, device)
    if mask is not None and keys != length:
        # A sample without text: no row of it sees a key, and all its results are zero.
        mask[-1] = False
    return (inputs[0], inputs[1], inputs[2]), mask


def _mask(kind: str, batch: int, length: int, device: Any) -> Any:
    """A boolean mask over keys, as models pass it: (batch, 1, 1, keys), true if a key is seen."""
    if kind == "none":
        return None
    mask = torch.ones(batch, 1, 1, length, dtype=torch.bool, device=device)
    for item in range(batch):
        # Different for each sample, and never a whole block.
        hidden = length // 4 + 3 * item + 1
        if kind == "varlen":
            mask[item, ..., length - hidden :] = False
        else:
            # Padded text between the valid text and the image.
            first = length // 8
            mask[item, ..., first : first + hidden] = False
    return mask


def _additive(visible: Any, dtype: Any) -> Any:
    """The same mask as models add it to scores: 0 if a key is seen, else minus infinity."""
    return torch.zeros_like(visible, dtype=dtype).masked_fill(~visible, -math.inf)


def _hiding(visible: Any, causal: bool) -> Any:
    """Hides scores in float64 as the mask and the causal flag do."""

    def adjust(scores: Any, batch: int, _head: int, rows: Any) -> Any:
        if visible is not None:
            scores = scores.masked_fill(~visible[batch, 0].to(scores.device), -math.inf)
        if causal:
            columns = torch.arange(scores.shape[1], device=scores.device)
            scores = scores.masked_fill(columns > rows[:, None], -math.inf)
        return scores

    return adjust


def _flops(shape: dict[str, Any], causal: bool, *, backward: bool) -> float:
    """Floating-point operations as they are usually counted: two products, backward five."""
    pairs = float(shape["batch"] * shape["heads"]) * shape["length"]
    pairs *= shape["kv_length"] or shape["length"]
    forward: float = 4 * pairs * shape["head_dim"] * (0.5 if causal else 1)
    return forward * (3.5 if backward else 1)
