"""Checks whether attention ran as one fused kernel, which torch reports in warnings at best.

A frame that torch skips runs eagerly and gives right results, with the whole matrix of scores in
memory. Three signs are observed: warnings and log lines, calls of torch's dense reference
implementation with real tensors, and memory as large as the scores.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from typing import Any

#: What torch prints when it gives up compiling and continues.
NO_BFLOAT16 = "does not support bfloat16 compilation natively"
LIMITS = ("hit config.recompile_limit", "hit config.cache_size_limit", "hit config.accumulated_")
UNCOMPILED = ("called without torch.compile", "will use an unfused implementation")
_OF_ONE = "torch reached its limit of recompilations (8) and ran the rest unfused"
#: Text in a warning or log line → what it means.
_SIGNS = {
    NO_BFLOAT16: (
        "this GPU has no bfloat16, so torch skips the compilation and runs unfused; use float16"
    ),
    LIMITS[0]: _OF_ONE,
    LIMITS[1]: _OF_ONE,
    LIMITS[2]: "torch reached its limit of recompilations and ran the rest unfused",
    # A consequence of one of those above is searched for after them.
    UNCOMPILED[0]: "flex_attention ran without torch.compile",
    UNCOMPILED[1]: "flex_attention ran unfused",
}


def switched_off() -> str:
    """Which variable prevents compiling or makes results doubtful, and why; else ""."""
    for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        if os.environ.get(name, "") not in ("", "0"):
            return f"{name}={os.environ[name]} is set: torch.compile does nothing; unset it"
    if os.environ.get("TORCHDYNAMO_SUPPRESS_ERRORS", "") not in ("", "0"):
        return "TORCHDYNAMO_SUPPRESS_ERRORS is set: failures run unfused in silence; unset it"
    if os.environ.get("TORCH_CACHING_PRECOMPILE", "") not in ("", "0"):
        return (
            "TORCH_CACHING_PRECOMPILE is set: torch then reuses a kernel for another mask and "
            "gives wrong results; unset it"
        )
    for name in ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "TORCH_COMPILE_FORCE_DISABLE_CACHES"):
        if os.environ.get(name, "") not in ("", "0"):
            return f"{name} is set: nothing is kept; unset it"
    for name in ("TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_AUTOGRAD_CACHE"):
        if os.environ.get(name) == "0":
            return f"{name}=0 is set: compiled graphs are not kept; unset it"
    return ""


class _Listener(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):  # a line that cannot be formatted says nothing
            self._lines.append(record.getMessage())


class Fused:
    """Observes a compiled call; `reason()` says why it was not fused, or ""."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._lines: list[str] = []
        self._dense = 0
        self._listener = _Listener(self._lines)
        self._warnings: Any = None
        self._undo: tuple[Any, Any] | None = None

    def __enter__(self) -> Fused:  # noqa: PYI034 - Python 3.9 has no Self
        logging.getLogger("torch").addHandler(self._listener)
        logging.getLogger("torch._dynamo").addHandler(self._listener)
        self._warnings = warnings.catch_warnings(record=True)
        self._caught = self._warnings.__enter__()
        warnings.simplefilter("always")
        self._watch_dense()
        return self

    def __exit__(self, *details: object) -> None:
        self._warnings.__exit__(*details)
        for name in ("torch", "torch._dynamo"):
            logging.getLogger(name).removeHandler(self._listener)
        if self._undo is not None:
            module, before = self._undo
            module.math_attention = before
        for one in self._caught:  # the log of this job keeps them
            warnings.showwarning(one.message, one.category, one.filename, one.lineno)

    def _watch_dense(self) -> None:
        """Count calls of the dense reference with real tensors; tracing calls it with fake ones."""
        try:
            from torch._higher_order_ops import flex_attention as module
            from torch._subclasses.fake_tensor import FakeTensor
        except ImportError:
            return
        before = getattr(module, "math_attention", None)
        if before is None:
            return
        traced = (FakeTensor, self._torch._subclasses.functional_tensor.FunctionalTensor)

        def math_attention(*args: Any, **kwargs: Any) -> Any:
            if args and not isinstance(args[0], traced) and not self._is_functional(args[0]):
                self._dense += 1
            return before(*args, **kwargs)

        module.math_attention = math_attention
        self._undo = (module, before)

    def _is_functional(self, tensor: Any) -> bool:
        return bool(self._torch._is_functional_tensor(tensor))

    def reason(self, spec: dict[str, Any], length: int, memory: int | None) -> str:
        """Why the call was not fused; "" if all signs say that it was.

        `memory` is what the call took on the GPU beyond its inputs, in bytes; None: not known.
        """
        lines = self._lines + [str(one.message) for one in self._caught]
        for sign, meaning in _SIGNS.items():
            if any(sign in line for line in lines):
                return meaning
        if self._dense:
            return "torch ran its dense reference implementation in place of a kernel"
        scores = (
            spec.get("batch", 1) * spec["heads"] * length * (spec.get("kv_length") or length) * 2
        )
        sizes = spec["head_dim"] + (spec.get("value_dim") or spec["head_dim"])
        tensors = spec.get("batch", 1) * spec["heads"] * sizes * 4 * (length + 512)
        if memory is not None and scores > 8 * tensors and memory > scores:
            return (
                f"the call took {memory >> 20} MiB, more than its matrix of scores "
                f"({scores >> 20} MiB): it is not fused"
            )
        return ""
