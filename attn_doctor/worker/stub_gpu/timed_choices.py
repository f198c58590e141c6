"""Handles choices by timing: refused while compiling, else left to the target GPU.

Small kernels with several configurations are timed at their first launch. The entry that ships
holds all of them, so here the first one is taken without timing, and the target times for itself.
What is timed while compiling would be written into the entry.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attn_doctor.worker.stub_gpu import import_hooks, source_lines

if TYPE_CHECKING:
    from attn_doctor.worker.stub_gpu.guard import Guard

#: Set to 1 by a user who takes products of odd sizes unpadded rather than not at all.
UNPADDED = "ATTN_DOCTOR_UNPADDED"
_NONE = "and a GPU that is not there has no times"


def install(guard: Guard) -> None:
    """Change the code that times kernels, when it is imported."""
    import_hooks.when("torch._inductor.runtime.benchmarking", functools.partial(_benchmarks, guard))
    import_hooks.when(
        "torch._inductor.runtime.triton_heuristics", functools.partial(_launches, guard)
    )
    import_hooks.when("torch._inductor.select_algorithm", functools.partial(_algorithms, guard))
    import_hooks.when("torch._inductor.fx_passes.pad_mm", functools.partial(_padding, guard))


def _benchmarks(guard: Guard, module: Any) -> None:
    def refused(function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if guard.compiling:
                raise guard.refuse("timing", f"torch times kernels while compiling, {_NONE}")
            return function(*args, **kwargs)

        return timed

    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == module.__name__:
            for name in [one for one in vars(kind) if one.startswith("benchmark_gpu")]:
                import_hooks.changed(kind, name, refused)


def _launches(guard: Guard, module: Any) -> None:
    def untimed(_function: Callable[..., Any]) -> Callable[..., Any]:
        def bench(*_args: Any, **_kwargs: Any) -> float:
            if guard.compiling:
                raise guard.refuse("timing", f"torch times kernels while compiling, {_NONE}")
            guard.note("a kernel took its first configuration, untimed: the target times them")
            return 1.0

        return bench

    import_hooks.changed(module.CachingAutotuner, "bench", untimed)


def _algorithms(guard: Guard, module: Any) -> None:
    def refused(_function: Callable[..., Any]) -> Callable[..., Any]:
        def chosen(_self: Any, name: Any, *_args: Any, **_kwargs: Any) -> Any:
            what = f" for {name}" if isinstance(name, str) else ""
            sentence = f"torch chooses among kernels{what} by timing them, {_NONE}"
            raise guard.refuse("autotune", sentence, _node())

        return chosen

    cache = module.AlgorithmSelectorCache
    # Up to torch 2.8 the former is a function inside another one, and makes the latter.
    name = "do_autotuning" if hasattr(cache, "do_autotuning") else "make_benchmark_fn"
    import_hooks.changed(cache, name, refused)


def _node() -> source_lines.Place:
    """The line of the operation that is being lowered."""
    try:
        from torch._inductor.virtualized import V

        return source_lines.of_trace(V.graph.current_node.stack_trace)
    except Exception:
        return source_lines.here()


def _padding(guard: Guard, module: Any) -> None:
    """Matrix products of odd sizes: whether they are padded is decided by timing both.

    What torch decides without timing, by size, setting or an earlier decision of a real GPU, holds
    for the target as well and is left alone. Either way the result is right; it is about speed.
    """
    asked: list[tuple[Any, Any, Any]] = []

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def should_pad(match: Any, mat1: Any, mat2: Any, *args: Any, **kwargs: Any) -> Any:
            asked.append((match, mat1, mat2))
            try:
                return function(match, mat1, mat2, *args, **kwargs)
            finally:
                asked.pop()

        return should_pad

    def decided(function: Callable[..., Any]) -> Callable[..., Any]:
        def get_cached_should_pad(key: Any) -> Any:
            known = function(key)
            if known is not None or not asked:
                return known
            match, mat1, mat2 = asked[-1]
            sizes = " by ".join("×".join(map(str, one.shape)) for one in (mat1, mat2))
            product = f"the product of {sizes} ({str(mat1.dtype)[6:]})"
            if os.environ.get(UNPADDED) == "1":
                guard.note(f"{product} is not padded, untimed: on the target torch would time both")
                return False
            sentence = (
                f"torch decides by timing whether it pads {product}, {_NONE}; use sizes that are "
                "multiples of 8, or set torch._inductor.config.shape_padding = False in the "
                f"program, there and here, or build it unpadded, which is right but may be slower: "
                f"{UNPADDED}=1"
            )
            trace = getattr(match.output_node(), "stack_trace", None)
            raise guard.refuse("padding", sentence, source_lines.of_trace(trace))

        return get_cached_should_pad

    # The extra checks of the patterns call it by this name (the former up to torch 2.7); it asks
    # for a decision before it times.
    name = "should_pad_bench" if hasattr(module, "should_pad_bench") else "should_pad"
    import_hooks.changed(module, name, noted)
    import_hooks.changed(module, "get_cached_should_pad", decided)
