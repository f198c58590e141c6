"""Runs one backend in a process of its own: import, run, compare, measure, and report each step.

Every step is reported before it begins, so that the place of a crash or a hang is known, and every
figure at once, so that none is lost. What it cannot know: whether another program on the same GPU
disturbed the times.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import math
import os
import sys
import time
import traceback
import warnings
from typing import Any

import torch

from attn_doctor.worker.backends import calls, comparison, timing
from attn_doctor.worker.backends import device as devices
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
    """Run one job: `import`, `device` or `attend`. Failures are reported, not raised."""
    _be_killed_first()
    # A library that hangs and holds the interpreter lock stops the thread that watches our parent.
    die_with(os.getppid())
    # A hang then leaves in the log where it happened, shortly before the job is killed.
    limit: float = job["seconds"]
    faulthandler.dump_traceback_later(max(0.2, limit - max(0.5, 0.05 * limit)))
    emit("stage", stage="import")
    action = {"import": _import, "device": _device, "attend": _attend}[job["action"]]
    try:
        action(job, emit)
    except BaseException as error:
        _failed(error, emit)
    faulthandler.cancel_dump_traceback_later()
    return {"ok": True}


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
    for phase in job["phases"]:
        for shape in job["shapes"]:
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
    rows, keys, dim = shape["length"], shape["length"], shape["head_dim"]
    size = torch.empty((), dtype=getattr(torch, job["dtype"])).element_size()
    tensors = 4 * shape["batch"] * rows * shape["heads"] * dim * size
    scores = shape["batch"] * shape["heads"] * rows * keys * job["score_bytes"][phase]
    copies = 3 if phase == "training" else 1
    return int(tensors * copies + scores + comparison.scratch_bytes(rows, keys, dim))


def _measure(
    route: calls.Route,
    shape: dict[str, Any],
    phase: str,
    job: dict[str, Any],
    device: Any,
    emit: Emit,
    part: dict[str, str],
) -> None:
    """Run one shape in one phase, compare it with float64, and time it."""
    if route.compiled:
        # Head sizes do not change within a model: no kernel is to be made for several of them.
        torch.compiler.reset()
    training = phase == "training"
    inputs, visible, upstream = _inputs(shape, job, device)
    mask = _additive(visible, inputs[0].dtype) if job["mask"] == "float" else visible
    gqa = inputs[0].shape[2] != inputs[1].shape[2]
    causal = bool(job["causal"])
    for tensor in inputs:
        tensor.requires_grad_(training)

    def forward() -> Any:
        with torch.set_grad_enabled(training):
            return route.call(*inputs, mask, causal, gqa)

    def step() -> Any:
        return torch.autograd.grad(forward(), inputs, upstream)

    emit("stage", stage="forward", **part)
    base = devices.start_counting(device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = forward()
        devices.wait(device)
    messages = sorted({str(warning.message)[:500] for warning in caught})
    wrong = _unlike(out, inputs)
    gradients, comparable = None, not wrong
    if training and comparable:
        if out.grad_fn is None:
            wrong = "the output has no grad_fn: no gradient reaches queries, keys and values"
        else:
            emit("stage", stage="backward", **part)
            gradients = torch.autograd.grad(out, inputs, upstream, allow_unused=True)
            devices.wait(device)
            lost = [name for name, tensor in zip("qkv", gradients) if tensor is None]  # noqa: B905
            if lost:
                wrong = f"no gradient for {', '.join(lost)}"
                gradients = None
    peak = devices.peak(device, base)
    errors: dict[str, Any] = {}
    emit("stage", stage="reference", **part)
    if comparable:
        errors = comparison.compare(
            inputs, out, mask=visible, causal=causal, upstream=upstream, gradients=gradients
        )
    figures = {"errors": errors, "wrong": wrong, "warnings": messages, "peak_bytes": peak}
    # Reported before anything is timed, so that a crash loses no figure.
    emit("measured", milliseconds=None, **figures, **part)
    del out, gradients
    emit("stage", stage="timing", **part)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = step if training and not wrong else forward
        milliseconds = timing.median(whole, device, job["timing_seconds"])
    flops = _flops(shape, causal, backward=whole is step)
    emit(
        "measured",
        milliseconds=milliseconds,
        tflops=flops / milliseconds / 1e9,
        **figures,
        **part,
    )


def _inputs(shape: dict[str, Any], job: dict[str, Any], device: Any) -> tuple[Any, Any, Any]:
    """Queries, keys and values, the mask, and the gradient of the output."""
    dtype = getattr(torch, job["dtype"])
    generator = torch.Generator(device).manual_seed(1234)
    batch, length, dim = shape["batch"], shape["length"], shape["head_dim"]

    def tensor(heads: int) -> Any:
        size = (batch, length, heads, dim)
        return torch.randn(size, generator=generator, device=device).to(dtype)

    heads, kv_heads = shape["heads"], shape["kv_heads"]
    inputs = (tensor(heads), tensor(kv_heads), tensor(kv_heads))
    return inputs, _mask(job["mask"], batch, length, device), tensor(heads)


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


def _unlike(out: Any, inputs: tuple[Any, Any, Any]) -> str:
    """Why the output cannot be that of attention, by type and shape; empty if it can."""
    query = inputs[0]
    if not isinstance(out, torch.Tensor):
        return f"it returned {type(out).__name__}, not a tensor"
    if out.shape != query.shape:
        return f"the output has shape {tuple(out.shape)}, not {tuple(query.shape)}"
    if out.dtype != query.dtype:
        return f"the output is {out.dtype}, the input {query.dtype}"
    return ""


def _flops(shape: dict[str, Any], causal: bool, *, backward: bool) -> float:
    """Floating-point operations as they are usually counted: two products, backward five."""
    pairs = float(shape["batch"] * shape["heads"]) * math.pow(shape["length"], 2)
    forward: float = 4 * pairs * shape["head_dim"] * (0.5 if causal else 1)
    return forward * (3.5 if backward else 1)
