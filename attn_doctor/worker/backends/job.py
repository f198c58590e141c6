"""One job in a process of its own: import, run, compare, measure, and say each step at once.

Every step is told before it begins, so that a crash or a hang is known by where it happened, and
every figure as soon as it stands, so that none is lost. What it cannot know: whether another
program on the same GPU disturbed the times.
"""

from __future__ import annotations

import importlib
import math
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch

from attn_doctor.worker.backends import (
    calls,
    comparison,
    timing,
)
from attn_doctor.worker.backends import (
    device as devices,
)

Say = Callable[..., None]


def run(job: dict[str, Any], say: Say) -> None:
    """Do one job: `import`, `device` or `attend`. Failures are told, not raised."""
    say("stage", stage="import")
    action = {"import": _import, "device": _device, "attend": _attend}[job["action"]]
    try:
        action(job, say)
    except BaseException as error:
        _failed(error, say)


def _failed(error: BaseException, say: Say, **more: Any) -> None:
    traceback.print_exception(type(error), error, error.__traceback__)
    kinds = [kind.__name__ for kind in type(error).__mro__]
    say("failed", type=kinds[0], kinds=kinds, message=str(error)[:4000], **more)


def _import(job: dict[str, Any], say: Say) -> None:
    start = time.perf_counter()
    module = importlib.import_module(job["module"])
    seconds = time.perf_counter() - start
    name = calls.Route(lambda: None, job["package"], module)
    say("imported", version=name.version, file=name.file, seconds=round(seconds, 3))


def _device(job: dict[str, Any], say: Say) -> None:
    say("stage", stage="device")
    say("device", **devices.describe(job["device"]))


def _attend(job: dict[str, Any], say: Say) -> None:
    """Every phase and shape of one backend."""
    start = time.perf_counter()
    route = calls.find(job["name"], job["route"])
    seconds = round(time.perf_counter() - start, 3)
    say("imported", version=route.version, file=route.file, seconds=seconds)
    say("stage", stage="device")
    device = devices.open(job["device"], job["share"])
    for phase in job["phases"]:
        for shape in job["shapes"]:
            place = {"phase": phase, "shape": shape["name"]}
            need = _need(shape, job, phase)
            room = devices.room(device, job["share"])
            if room is not None and need > room["allowed"]:
                say("refused", need=need, **room, **place)
                continue
            try:
                _one(route, shape, phase, job, device, say, place)
            except BaseException as error:
                _failed(error, say, **place)
                # A second shape would fail likewise, or find the GPU unusable.
                break


def _need(shape: dict[str, Any], job: dict[str, Any], phase: str) -> int:
    """Bytes of memory that a shape takes, about: tensors, scores where a backend stores them."""
    rows, keys, dim = shape["length"], shape["length"], shape["head_dim"]
    size = torch.empty((), dtype=getattr(torch, job["dtype"])).element_size()
    tensors = 4 * shape["batch"] * rows * shape["heads"] * dim * size
    scores = shape["batch"] * shape["heads"] * rows * keys * job["score_bytes"][phase]
    copies = 3 if phase == "training" else 1
    return int(tensors * copies + scores + comparison.scratch_bytes(rows, keys, dim))


def _one(
    route: calls.Route,
    shape: dict[str, Any],
    phase: str,
    job: dict[str, Any],
    device: Any,
    say: Say,
    place: dict[str, str],
) -> None:
    """One shape in one phase."""
    if route.compiled:
        # Head sizes do not change within a model: no kernel shall be made for several of them.
        torch.compiler.reset()
    training = phase == "training"
    inputs, visible, upstream = _inputs(shape, job, device)
    mask = _additive(visible, inputs[0].dtype) if job["mask"] == "float" else visible
    gqa = inputs[0].shape[2] != inputs[1].shape[2]
    causal = bool(job["causal"])
    for one in inputs:
        one.requires_grad_(training)

    def forward() -> Any:
        with torch.set_grad_enabled(training):
            return route.call(*inputs, mask, causal, gqa)

    def step() -> Any:
        return torch.autograd.grad(forward(), inputs, upstream)

    say("stage", stage="forward", **place)
    base = devices.start_counting(device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        out = forward()
        devices.wait(device)
    told = sorted({str(one.message)[:500] for one in caught})
    wrong = _unlike(out, inputs)
    gradients, same = None, not wrong
    if training and same:
        if out.grad_fn is None:
            wrong = "the output has no grad_fn: no gradient reaches queries, keys and values"
        else:
            say("stage", stage="backward", **place)
            gradients = torch.autograd.grad(out, inputs, upstream, allow_unused=True)
            devices.wait(device)
            lost = [name for name, one in zip("qkv", gradients) if one is None]  # noqa: B905
            if lost:
                wrong = f"no gradient for {', '.join(lost)}"
                gradients = None
    peak = devices.peak(device, base)
    errors: dict[str, Any] = {}
    say("stage", stage="reference", **place)
    if same:
        errors = comparison.compare(
            inputs, out, mask=visible, causal=causal, upstream=upstream, gradients=gradients
        )
    figures = {"errors": errors, "wrong": wrong, "warnings": told, "peak_bytes": peak}
    # Told before anything is timed: a figure that stands is not lost to a crash.
    say("measured", milliseconds=None, **figures, **place)
    del out, gradients
    say("stage", stage="timing", **place)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = step if training and not wrong else forward
        milliseconds = timing.median(whole, device, job["timing_seconds"])
    flops = _flops(shape, causal, backward=whole is step)
    say(
        "measured",
        milliseconds=milliseconds,
        tflops=flops / milliseconds / 1e9,
        **figures,
        **place,
    )


def _inputs(shape: dict[str, Any], job: dict[str, Any], device: Any) -> tuple[Any, Any, Any]:
    """Queries, keys and values, the mask, and the gradient that comes from above."""
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
    """A boolean mask over keys, as models pass it: (batch, 1, 1, keys), true where to look."""
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
    """The same mask as models add it to scores: 0 where to look, else minus infinity."""
    return torch.zeros_like(visible, dtype=dtype).masked_fill(~visible, -math.inf)


def _unlike(out: Any, inputs: tuple[Any, Any, Any]) -> str:
    """How the output cannot be an attention output at all, or empty text."""
    query = inputs[0]
    if not isinstance(out, torch.Tensor):
        return f"it returned {type(out).__name__}, not a tensor"
    if out.shape != query.shape:
        return f"the output has shape {tuple(out.shape)}, not {tuple(query.shape)}"
    if out.dtype != query.dtype:
        return f"the output is {out.dtype}, the input {query.dtype}"
    return ""


def _flops(shape: dict[str, Any], causal: bool, *, backward: bool) -> float:
    """Operations of the two products, as they are usually counted; backward has five."""
    pairs = float(shape["batch"] * shape["heads"]) * math.pow(shape["length"], 2)
    forward: float = 4 * pairs * shape["head_dim"] * (0.5 if causal else 1)
    return forward * (3.5 if backward else 1)
