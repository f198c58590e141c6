"""Replaces libraries that do not work on a stub GPU by code that computes nothing.

cuDNN launches its kernels by ways of its own and takes the process down. Convolutions then take
torch's own kernels, which are not run either. The attention of cuDNN, which torch prefers on
Hopper, stays in every graph; only its call makes outputs of the right shape and does no more.
"""

from __future__ import annotations

import atexit
import warnings
from typing import Any

from attn_doctor.worker.stub_gpu import import_hooks

_ATTENTION = ("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward")
#: Registrations last as long as the object that made them.
_kept: list[Any] = []


def change(torch: Any) -> None:
    """Turn off what does not work. It enters neither graphs nor keys."""
    torch._C._set_cudnn_enabled(False)
    library = torch.library.Library("aten", "IMPL")
    _kept.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells that a kernel is replaced
        for name in _ATTENTION:
            operator = getattr(torch.ops.aten, name, None)
            if operator is not None:
                library.impl(name, import_hooks.unseen(_empty(torch, operator.default)), "CUDA")
    import_hooks.when("torch._inductor.compile_fx", _no_recording)
    import_hooks.when("torch._inductor.async_compile", _at_the_end)


def _empty(torch: Any, operator: Any) -> Any:
    """A kernel that computes nothing: its outputs have the shapes that the operator declares."""
    from torch.utils._pytree import tree_map

    def on_meta(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty_strided(
                value.size(), value.stride(), dtype=value.dtype, device="meta"
            )
        return value

    def call(*args: Any, **kwargs: Any) -> Any:
        device = next(one.device for one in args if isinstance(one, torch.Tensor))

        def made(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return torch.empty_strided(
                    value.size(), value.stride(), dtype=value.dtype, device=device
                )
            return value

        return tree_map(made, operator(*tree_map(on_meta, args), **tree_map(on_meta, kwargs)))

    return call


def _no_recording(module: Any) -> None:
    """CUDA graphs are recorded by the target when it runs; no entry holds one."""

    def direct(_function: Any) -> Any:
        def cudagraphify(model: Any, *_args: Any, **_kwargs: Any) -> Any:
            return model

        return cudagraphify

    import_hooks.changed(module, "cudagraphify", direct)


def _at_the_end(module: Any) -> None:
    """End Inductor's side process with the program if it is not ready yet.

    If it is asked to end before that, it waits for itself on Python 3.12, and the program waits
    five minutes for it; threads can no longer be started to do better. It has done nothing so far:
    torch gives it work only once it is up. Runs before torch's own end, as it was registered later.
    """

    def end() -> None:
        future = getattr(module.AsyncCompile, "_ready_future", None)
        if future is None or future.done():
            return
        for pool in list(getattr(module, "_pool_set", ())):
            process = getattr(pool, "process", None)
            if process is not None:
                pool.running = False  # torch does not wait for it then
                process.kill()

    atexit.register(end)
