"""Computes constants of a compilation on the CPU, or refuses them.

Inductor replaces values that are the same everywhere by constants, and computes them on the graph's
own device. On a stub GPU they would all come out as what the memory held before, mostly 0, and the
block mask that FlexAttention makes for "no mask" would mask everything out: measured as gradients
that are 100% wrong. Here they are computed on the CPU. A constant may then differ from the GPU's in
its last bit. Other passes keep the tensors they compute on the device; they are refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attn_doctor.worker.stub_gpu import import_hooks

if TYPE_CHECKING:
    from attn_doctor.worker.stub_gpu.guard import Guard


def install(guard: Guard) -> None:
    """Change the passes of torch that compute constants, when they are imported."""
    import_hooks.when("torch._inductor.fx_passes.joint_graph", functools.partial(_uniform, guard))
    for name in ("torch._inductor.constant_folding", "torch._export.passes.constant_folding"):
        import_hooks.when(name, functools.partial(_other, guard))


def _uniform(guard: Guard, module: Any) -> None:
    folder = module.UniformValueConstantFolder
    for name in ("__init__", "run"):
        # `run` is inherited: the change must not reach the other folders.
        if name not in vars(folder):
            setattr(folder, name, _inherited(folder, name))
        import_hooks.changed(folder, name, _on_cpu)
    import_hooks.changed(folder, "_deduce_value", functools.partial(_or_unknown, guard))


def _inherited(kind: Any, name: str) -> Callable[..., Any]:
    before = getattr(kind, name)
    # Beneath what `_other` has put there: that refuses.
    before = getattr(before, "__wrapped__", before)

    def inherited(self: Any, *args: Any, **kwargs: Any) -> Any:
        return before(self, *args, **kwargs)

    return functools.wraps(before)(inherited)


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map

    class OnCpu(TorchDispatchMode):  # type: ignore[misc]
        """Run every operation on the CPU, on any device that it names."""

        def __torch_dispatch__(
            self, func: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*tree_map(_moved, args), **tree_map(_moved, kwargs or {}))

    def on_cpu(*args: Any, **kwargs: Any) -> Any:
        with OnCpu():
            return function(*args, **kwargs)

    return on_cpu


def _moved(value: Any) -> Any:
    """A device or a tensor on the CPU; copying a tensor that a kernel has written is refused."""
    import torch

    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if type(value) in (torch.Tensor, torch.nn.Parameter) and value.is_cuda:
        return value.cpu()
    return value


def _or_unknown(guard: Guard, function: Callable[..., Any]) -> Callable[..., Any]:
    def deduced(self: Any, node: Any) -> Any:
        try:
            return function(self, node)
        except (NotImplementedError, RuntimeError) as error:
            if guard.refused:
                raise
            # Some operations have no CPU kernel for a narrow dtype. What is not folded is computed
            # when the graph runs, and is as right.
            guard.note(f"{node.target} was not folded: {str(error).splitlines()[0][:120]}")
            return self.unknown_value

    return deduced


def _other(guard: Guard, module: Any) -> None:
    import_hooks.changed(module.ConstantFolder, "run", functools.partial(_refused, guard))


def _refused(guard: Guard, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        # With names of constants alone nothing is computed: the graph is only divided.
        if getattr(self, "lifted_constant_names", None) is None and _on_gpu(self.module):
            raise guard.refuse(
                "folding",
                "this pass computes constants with the GPU's kernels while compiling (freezing, "
                "export or quantisation); no kernel runs on a GPU that is not there",
            )
        return function(self, *args, **kwargs)

    return run


def _on_gpu(graph_module: Any) -> bool:
    """Whether any value of a graph lies on a GPU."""
    import torch

    tensors = [node.meta.get("val") for node in graph_module.graph.nodes]
    tensors += [*graph_module.parameters(), *graph_module.buffers()]
    tensors += [one for one in vars(graph_module).values() if isinstance(one, torch.Tensor)]
    devices = [
        one
        for node in graph_module.graph.nodes
        for one in (*node.args, *node.kwargs.values())
        if isinstance(one, torch.device)
    ]
    return any(isinstance(one, torch.Tensor) and one.is_cuda for one in tensors) or any(
        one.type == "cuda" for one in devices
    )
