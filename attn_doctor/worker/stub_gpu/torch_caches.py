"""Keeps torch's caches clean: after a refusal nothing is kept, and a choice by timing never is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attn_doctor.worker.stub_gpu import import_hooks

if TYPE_CHECKING:
    from attn_doctor.worker.stub_gpu.guard import Guard


def install(guard: Guard) -> None:
    """Change the code that writes to torch's caches, when it is imported."""
    kept = functools.partial(_unless_refused, guard)
    import_hooks.when(
        "torch._inductor.codecache",
        lambda one: import_hooks.changed(one.FxGraphCache, "_save_graph", kept),
    )
    import_hooks.when(
        "torch._functorch._aot_autograd.autograd_cache",
        lambda one: import_hooks.changed(one.AOTAutogradCache, "save", kept),
    )
    import_hooks.when(
        "torch.compiler", lambda one: import_hooks.changed(one, "save_cache_artifacts", kept)
    )
    import_hooks.when(
        "torch._inductor.runtime.autotune_cache",
        lambda one: import_hooks.changed(
            one.AutotuneCache, "save", functools.partial(_never, guard)
        ),
    )
    import_hooks.when("torch._dynamo.package", functools.partial(_packages, kept))
    import_hooks.when("torch._inductor.triton_bundler", _bundles)
    import_hooks.when("triton.runtime.autotuner", functools.partial(_triton, guard))


def _unless_refused(guard: Guard, function: Callable[..., Any]) -> Callable[..., Any]:
    def kept(*args: Any, **kwargs: Any) -> Any:
        return None if guard.refused else function(*args, **kwargs)

    return kept


def _never(guard: Guard, _function: Callable[..., Any]) -> Callable[..., Any]:
    """Do nothing, in place of `AutotuneCache.save`; kernels are pickled with it by its name."""

    def save(*_args: Any, **_kwargs: Any) -> None:
        guard.note("a choice by timing was not kept: the target makes it")

    return save


def _packages(kept: Callable[[Any], Any], module: Any) -> None:
    """Since torch 2.8 whole functions can be kept with all their graphs."""
    if hasattr(module, "DynamoStore"):
        import_hooks.changed(module.DynamoStore, "save_package", kept)


def _bundles(module: Any) -> None:
    """From torch 2.13 on an entry may be narrowed to the configuration that was fastest."""

    def ignored(_function: Callable[..., Any]) -> Callable[..., Any]:
        def put_winner(*_args: Any, **_kwargs: Any) -> None:
            return None

        return put_winner

    if hasattr(module.TritonBundler, "put_winner"):
        import_hooks.changed(module.TritonBundler, "put_winner", ignored)


def _triton(guard: Guard, module: Any) -> None:
    """Triton's own autotuner: every configuration is compiled, none is timed, no choice is kept."""

    def chosen(_function: Callable[..., Any]) -> Callable[..., Any]:
        def check_disk_cache(_self: Any, _key: Any, _configs: Any, bench: Any) -> bool:
            bench()
            return False

        return check_disk_cache

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def _bench(self: Any, *args: Any, **kwargs: Any) -> Any:
            def once(call: Any, **_options: Any) -> list[float]:
                call()
                return [1.0, 1.0, 1.0]

            self.__dict__["do_bench"] = once
            guard.note("a kernel of Triton's autotuner took its first configuration, untimed")
            return function(self, *args, **kwargs)

        return _bench

    import_hooks.changed(module.Autotuner, "_bench", timed)
    if hasattr(module.Autotuner, "check_disk_cache"):
        import_hooks.changed(module.Autotuner, "check_disk_cache", chosen)
