"""The real transformer block of a model family, built by diffusers with random weights.

A block under `torch.compile` is one graph, norms, projections and attention together, with cache
keys of its own: kernels that were built for the attention alone do not serve it. The model has one
layer of each kind; its width is the real one. A trainer that adds adapters or freezes weights
compiles another graph again. Its inputs are made in `model_inputs.py`, its weights in `weights.py`,
and the attention that it is compared with in `eager_attention.py`.
"""

from __future__ import annotations

import importlib
import inspect
import math
import os
import time
from typing import Any

from attn_doctor.worker.kernels.blocks import eager_attention, gradients, weights
from attn_doctor.worker.kernels.blocks.model_inputs import Feed, number
from attn_doctor.worker.kernels.compile_processes import compile_processes
from attn_doctor.worker.kernels.fusion_check import Fused
from attn_doctor.worker.reference import scaled_dot_product

#: Largest relative error of a block, where less could be had without compiling; by dtype.
_LIMITS = {"bfloat16": 1e-2, "float16": 5e-3}
#: How many times further off a row may be than a row without compiling.
_ROW = 6.0


class BlockError(Exception):
    """Why the block cannot be built here, in one sentence."""


class Block:
    """One family's model with one layer of each kind, its repeated blocks compiled."""

    def __init__(self, torch: Any, job: dict[str, Any], device: str) -> None:
        self.torch = torch
        self.spec: dict[str, Any] = job["spec"]
        self.recipe: dict[str, Any] = job.get("block") or {}
        self.device = device
        self.training = self.spec.get("phase", "training") == "training"
        self.dtype = getattr(torch, self.spec.get("dtype", "bfloat16"))
        self.kind = self._class()
        sizes = dict(self.spec.get("sizes") or {})
        sizes["batch"] = self.spec.get("batch", 1)
        sizes["heads"], sizes["head_dim"] = self.spec["heads"], self.spec["head_dim"]
        sizes["width"] = sizes["heads"] * sizes["head_dim"]
        sizes["length"] = self.spec["lengths"][0]
        self.sizes: dict[str, int] = sizes
        self.width = 0
        """The size of a row of the output."""
        self.outside = 0
        """Attentions of the model that are not in a repeated block."""

    def _class(self) -> Any:
        # Nothing is downloaded from a hub: the weights are random.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        module, _, name = self.recipe.get("class", ":").partition(":")
        try:
            diffusers = importlib.import_module(module)
        except ImportError as error:
            raise BlockError(
                f"--block needs {module} in the environment that is built for: {error}"
            ) from error
        except ValueError:
            raise BlockError(f"no way is known to build a block of {self.spec['block']}") from None
        kind = getattr(diffusers, name, None)
        if kind is None:
            version = getattr(diffusers, "__version__", "of unknown version")
            raise BlockError(f"{module} {version} has no {name}")
        return kind

    def _model(self, dtype: Any, backend: str) -> Any:
        self.torch.manual_seed(0)
        config = {name: number(self.sizes, one) for name, one in self.recipe["config"].items()}
        with self.torch.device(self.device):
            model = self.kind(**config)
        weights.cast(self.torch, model, dtype)
        model.train(self.training)
        if not hasattr(model, "set_attention_backend"):
            raise BlockError("this diffusers has no attention dispatcher; 0.35 has")
        if not getattr(model, "_repeated_blocks", None):
            raise BlockError(
                f"this diffusers names no repeated blocks of {self.kind.__name__}, so that"
                " compile_repeated_blocks() compiles nothing of it"
            )
        model.set_attention_backend(backend)
        if backend == "flex":
            self.outside = weights.plain_outside(model)
        return model

    def _inputs(self, dtype: Any) -> dict[str, Any]:
        feed = Feed(self.torch, self.recipe, self.sizes)
        # The same numbers for every dtype: they are rounded to the narrow one first.
        found = feed.inputs(self.device, dtype, self.dtype)
        if "txt_seq_lens" in inspect.signature(self.kind.forward).parameters:
            batch = self.sizes["batch"]
            found.setdefault("txt_seq_lens", [self.sizes["text"]] * batch)  # diffusers up to 0.36
        return found

    def _step(self, model: Any, inputs: dict[str, Any], kept: bool = True) -> dict[str, Any]:
        """One forward, and in training a backward: the output `out`, and each gradient in `dw`.

        Gradients are left out if they are not to be `kept`.
        """
        torch = self.torch
        with torch.set_grad_enabled(self.training):
            outputs = _tensors(torch, model(**inputs, return_dict=False))
            found = {"out": torch.cat([one.detach().flatten() for one in outputs])}
            self.width = math.gcd(*(one.shape[-1] for one in outputs))
            if self.training:
                sum(one.float().square().mean() for one in outputs).backward()
            if self.training and kept:
                # Weights of a last layer whose output is not used have no gradient, or, where the
                # block was compiled as a whole, a gradient of zeros.
                found["dw"] = {
                    name: torch.zeros_like(one) if one.grad is None else one.grad
                    for name, one in model.named_parameters()
                }
        return found

    def run(self, run: Any) -> None:
        """Compile, run one step, and compare with the same weights in float64."""
        torch = self.torch
        options = {
            name: self.spec[name] for name in ("dynamic", "mode") if self.spec.get(name) is not None
        }
        model = self._model(self.dtype, "flex")
        state: dict[str, Any] = {}
        if run.compares:
            weights.awaken(torch, model)
            state = {
                name: one.detach().to("cpu", copy=True) for name, one in model.state_dict().items()
            }
        model.compile_repeated_blocks(fullgraph=True, **options)
        with Fused(torch) as fused, compile_processes(torch, run.processes):
            start = time.perf_counter()
            found = self._step(model, self._inputs(self.dtype), run.compares)
            run.wait()
            run.seconds += time.perf_counter() - start
        run.unfused = fused.reason(self.spec, self.spec["lengths"][0], None)
        if self.outside:
            run.limits.append(
                f"{self.outside} attention(s) of {self.kind.__name__} lie outside its repeated"
                " blocks: compile_repeated_blocks() leaves them, and with the backend flex they run"
                " unfused"
            )
        if not run.compares:
            return
        start = time.perf_counter()
        found = _off_device(found)
        del model
        plain = _off_device(self._other(state, self.dtype))
        true = self._other(state, torch.float64)
        run.errors["out"] = _error(found["out"], true["out"])
        rounding = _error(plain["out"], true["out"])
        compared = None
        if self.training:
            compared = gradients.compare(found["dw"], plain["dw"], true.pop("dw"))
            run.errors["dw"] = compared.error
            rounding = max(rounding, compared.rounding)
        # A whole block rounds more often than attention alone: twice the error without compiling.
        limit = max(_LIMITS.get(self.spec.get("dtype", "bfloat16"), 3e-3), 2 * rounding)
        outputs = (found["out"], plain["out"], true["out"])
        run.wrong = self._wrong(run.errors, limit, outputs, compared)
        rows = found["out"].numel() // self.width
        run.compared = {"calls": 1, "heads": self.sizes["heads"], "rows": rows, "share": 1.0}
        if not self.training:
            remark = self._insensitive(state, true, limit)
            run.limits += [remark] if remark else []
        run.reference_seconds += time.perf_counter() - start

    def _wrong(
        self,
        errors: dict[str, float],
        limit: float,
        outputs: tuple[Any, Any, Any],
        compared: gradients.Compared | None,
    ) -> str:
        """What is wrong: a result as a whole, a row, or the gradient of one parameter.

        `outputs`: compiled, without compiling, and in float64.
        """
        name = next((name for name, error in errors.items() if not error <= limit), "")
        if name:
            place = compared.where if compared and name == "dw" else ""
            where = f", most in the gradient of {place}" if place else ""
            return (
                f"{name} differs from float64 by {errors[name]:.2g}{where}; {limit:.2g} is allowed"
            )
        row = _worst_row(self.torch, self.width, *outputs)
        if row:
            return row
        if compared and not compared.worst <= 8 * limit:
            return (
                f"the gradient of {compared.where} differs from float64 by {compared.worst:.2g};"
                f" {8 * limit:.2g} is allowed"
            )
        return ""

    def _insensitive(self, state: dict[str, Any], true: dict[str, Any], limit: float) -> str:
        """A limit to report if the output hardly depends on attention; gradients always do."""
        blind = self._other(state, self.torch.float64, eager_attention.nothing)
        share = _error(blind["out"], true["out"])
        if share >= 4 * limit:
            return ""
        return (
            f"attention makes {share:.2g} of the output with random weights, and {limit:.2g} may be"
            " off: only a build for training, with its gradients, shows whether it is right"
        )

    def _other(self, state: dict[str, Any], dtype: Any, attention: Any = None) -> dict[str, Any]:
        """The same step without compiling, by torch's own attention or `attention`, in `dtype`."""
        try:
            return self._eager(state, dtype, attention)
        except self.torch.cuda.OutOfMemoryError as error:
            raise RuntimeError(f"comparing with {dtype} takes more memory: {error}") from None

    def _eager(self, state: dict[str, Any], dtype: Any, attention: Any) -> dict[str, Any]:
        torch = self.torch
        model = self._model(dtype, "native")
        model.load_state_dict(state)
        if attention is None and dtype == torch.float64:
            # Torch's own holds all scores: those of Wan at 720p take 133 GiB in float64.
            attention = eager_attention.open_rows(scaled_dot_product(torch), torch)
        with (
            eager_attention.replaced(torch, attention)
            if attention
            else eager_attention.without_cudnn(torch)
        ):
            return self._step(model, self._inputs(dtype))


def _off_device(found: dict[str, Any]) -> dict[str, Any]:
    """Results with their gradients in the memory of the host, as the next step needs the GPU's."""
    moved = {name: one.cpu() for name, one in found.get("dw", {}).items()}
    return {**found, "dw": moved}


def _tensors(torch: Any, found: Any) -> list[Any]:
    """All tensors that a model returns: its output, or one for each image or stream."""
    if isinstance(found, torch.Tensor):
        return [found]
    parts = found if isinstance(found, (list, tuple)) else ()
    return [tensor for one in parts for tensor in _tensors(torch, one)]


def _worst_row(torch: Any, width: int, seen: Any, eager: Any, true: Any) -> str:
    """Which row of the output is wrong, in a sentence; empty if none is.

    A row is right if it is not much further off than rows are without compiling: a few wrong rows
    do not show in the error of all.
    """
    rows = [one.double().cpu().view(-1, width) for one in (seen, eager, true)]
    off, usual = ((one - rows[2]).norm(dim=1) for one in rows[:2])
    # Rows that round little by chance count as an average one.
    allowed = _ROW * torch.maximum(usual, usual.square().mean().sqrt())
    size = float(rows[2].norm(dim=1).square().mean().sqrt())
    beyond = (off / allowed.clamp_min(1e-300)).nan_to_num(float("inf"))
    worst = int(beyond.argmax())
    if float(beyond[worst]) <= 1:
        return ""
    shares = [float(one[worst]) / size if size else 0.0 for one in (off, allowed)]
    return (
        f"row {worst} of the output differs from float64 by {shares[0]:.2g};"
        f" {shares[1]:.2g} is allowed"
    )


def _error(seen: Any, true: Any) -> float:
    true = true.double().cpu()
    off = (seen.double().cpu() - true).norm()
    return float(off / true.norm().clamp_min(1e-300))
