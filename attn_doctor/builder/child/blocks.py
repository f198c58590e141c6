"""The real transformer block of a model family, built by diffusers with random weights.

A block under `torch.compile` is one graph, norms, projections and attention together, with cache
keys of its own: kernels that were built for the attention alone do not serve it. The model has one
layer of each kind; its width is the real one. A trainer that adds adapters or freezes weights
compiles another graph again.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import time
from collections.abc import Iterator
from typing import Any

from attn_doctor.builder.child.fused import Fused
from attn_doctor.builder.child.reference import scaled_dot_product

__all__ = ["Block", "BlockError"]


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
        self.sizes: dict[str, int] = sizes
        self.weights: dict[str, int] = {}
        """Numbers in each parameter, in the order of the gradients."""

    def _class(self) -> Any:
        # Nothing is fetched from a hub: the weights are random.
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

    def _number(self, text: Any) -> Any:
        """A size by its name, such as `rows*2`; anything else as it is."""
        if not isinstance(text, str):
            return text
        name, _, factor = text.partition("*")
        return self.sizes[name] * int(factor or 1) if name in self.sizes else text

    def _model(self, dtype: Any, backend: str) -> Any:
        self.torch.manual_seed(0)
        config = {name: self._number(one) for name, one in self.recipe["config"].items()}
        with self.torch.device(self.device):
            model = self.kind(**config)
        model = model.to(dtype=dtype).train(self.training)
        if not hasattr(model, "set_attention_backend"):
            raise BlockError("this diffusers has no attention dispatcher; 0.35 has")
        model.set_attention_backend(backend)
        return model

    def _inputs(self, dtype: Any) -> dict[str, Any]:
        torch = self.torch
        generator = torch.Generator(device="cpu").manual_seed(1)

        def tensor(name: str, shape: list[Any]) -> Any:
            sizes = [self._number(one) for one in shape]
            if name in ("timestep", "t", "guidance"):
                return torch.full(sizes, 0.5, device=self.device)
            if name.endswith("_mask"):
                mask = torch.ones(sizes, device=self.device, dtype=torch.int64)
                mask[..., sizes[-1] - sizes[-1] // 4 :] = 0
                return mask
            if name.endswith("_ids"):
                return torch.zeros(sizes, device=self.device)
            # The same numbers for every dtype: rounded to the narrow one before.
            made = torch.randn(sizes, generator=generator).to(self.dtype)
            return made.to(device=self.device, dtype=dtype)

        found = {name: tensor(name, shape) for name, shape in self.recipe["inputs"].items()}
        for name, shape in self.recipe.get("lists", {}).items():
            found[name] = [tensor(name, shape) for _ in range(self.sizes["batch"])]
        for name, size in self.recipe.get("numbers", {}).items():
            found[name] = self._number(size)
        batch = self.sizes["batch"]
        if "shapes" in self.recipe:
            shape = (self.sizes["frames"], self.sizes["rows"], self.sizes["columns"])
            found[self.recipe["shapes"]] = [[shape]] * batch
        if "txt_seq_lens" in inspect.signature(self.kind.forward).parameters:
            found.setdefault("txt_seq_lens", [self.sizes["text"]] * batch)  # diffusers up to 0.36
        return found

    def _step(self, model: Any, inputs: dict[str, Any], kept: bool = True) -> dict[str, Any]:
        """One forward, and in training a backward; the output and all gradients as one vector.

        Nothing is brought from the GPU if it is not to be `kept`.
        """
        torch = self.torch
        with torch.set_grad_enabled(self.training):
            out = _first(torch, model(**inputs, return_dict=False))
            found = {"out": out.detach()}
            if self.training:
                out.float().square().mean().backward()
            if self.training and kept:
                # Weights of a last layer whose output nobody reads have no gradient, or, where the
                # block was compiled as a whole, one of zeros.
                grads = {
                    name: torch.zeros_like(one) if one.grad is None else one.grad
                    for name, one in model.named_parameters()
                }
                found["dw"] = torch.cat([one.flatten().cpu() for one in grads.values()])
                self.weights = {name: one.numel() for name, one in grads.items()}
        return found

    def run(self, run: Any) -> None:
        """Compile, run one step, and compare with the same weights in float64."""
        torch = self.torch
        options = {
            name: self.spec[name] for name in ("dynamic", "mode") if self.spec.get(name) is not None
        }
        model = self._model(self.dtype, "flex")
        weights = model.state_dict() if run.compares else {}
        state = {name: one.detach().cpu().clone() for name, one in weights.items()}
        model.compile_repeated_blocks(fullgraph=True, **options)
        with Fused(torch) as fused:
            start = time.perf_counter()
            found = self._step(model, self._inputs(self.dtype), run.compares)
            run.wait()
            run.seconds += time.perf_counter() - start
        run.unfused = fused.reason(self.spec, self.spec["lengths"][0], None)
        if not run.compares:
            return
        del model
        eager = self._other(state, self.dtype)
        true = self._other(state, torch.float64)
        rounding = 0.0
        for name, one in found.items():
            run.errors[name] = _error(one, true[name])
            rounding = max(rounding, _error(eager[name], true[name]))
        # A whole block rounds more often than attention does: as much again as without compiling.
        run.error_limit = max(run.error_limit, 2 * rounding)
        if "dw" in found:
            worst, name = self._worst(found["dw"], eager["dw"], true["dw"])
            run.worst["dw"], run.places["dw"] = worst, f"the gradient of {name}" if name else ""

    def _worst(self, seen: Any, eager: Any, true: Any) -> tuple[float, str]:
        """The largest relative error of a parameter's gradient, and the parameter.

        A small parameter that is all wrong would not show in the norm of all. Only those count that
        are far worse than without compiling: the gradients of some cancel nearly, and round much.
        """
        # Where nothing is left of a gradient, any rounding would look large.
        floor = float(true.double().norm()) * 1e-3 / max(1, len(self.weights)) ** 0.5
        worst, where, start = 0.0, "", 0
        for name, count in self.weights.items():
            parts = [one[start : start + count].double() for one in (seen, eager, true)]
            start += count
            size = float(parts[2].norm()) + floor
            off, rounding = (float((one - parts[2]).norm()) / size for one in parts[:2])
            if off != off:
                return off, name
            if off > max(4 * rounding, worst):
                worst, where = off, name
        return worst, where

    def _other(self, state: dict[str, Any], dtype: Any) -> dict[str, Any]:
        """The same step without compiling, by torch's own attention, in `dtype`."""
        try:
            return self._eager(state, dtype)
        except self.torch.cuda.OutOfMemoryError as error:
            raise RuntimeError(f"comparing with {dtype} takes more memory: {error}") from None

    def _eager(self, state: dict[str, Any], dtype: Any) -> dict[str, Any]:
        model = self._model(dtype, "native")
        model.load_state_dict(state)
        exact = dtype == self.torch.float64
        with _in_rows(self.torch) if exact else _without_cudnn(self.torch):
            return self._step(model, self._inputs(dtype))


@contextlib.contextmanager
def _in_rows(torch: Any) -> Iterator[None]:
    """With attention that does not hold all scores: of Wan at 720p they take 133 GiB in float64."""
    functional = torch.nn.functional
    before = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = scaled_dot_product(torch)
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = before


@contextlib.contextmanager
def _without_cudnn(torch: Any) -> Iterator[None]:
    """Not with the attention of cuDNN, which torch prefers on Hopper: some sizes fail in backward.

    Seen with torch 2.11 on an H200: "Expected mha_graph.execute(…).is_good()".
    """
    cuda = torch.backends.cuda
    if not hasattr(cuda, "enable_cudnn_sdp"):  # before torch 2.5 there is none
        yield
        return
    before = cuda.cudnn_sdp_enabled()
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        cuda.enable_cudnn_sdp(before)


def _first(torch: Any, found: Any) -> Any:
    """The first tensor in what a model returns."""
    while not isinstance(found, torch.Tensor):
        found = found[0]
    return found


def _error(seen: Any, true: Any) -> float:
    true = true.double().cpu()
    off = (seen.double().cpu() - true).norm()
    return float(off / true.norm().clamp_min(1e-300))
