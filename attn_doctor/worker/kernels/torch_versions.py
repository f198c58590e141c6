"""What each release of torch reuses of a compiled FlexAttention, measured and read in its source.

2.5 bypasses the graph cache for every higher-order operator; 2.6 caches the forward graph, 2.10 the
backward graph and, in training, AOTAutograd's result. Newer releases are assumed to do what 2.10
does; the verification of a kernel then shows whether that holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class Reuse(NamedTuple):
    """What a fresh process must find, and what it cannot."""

    aotautograd: bool
    fxgraph: bool
    limits: list[str]

    def missed(self, counters: dict[str, int], compilers: int, programs: Sequence[str] = ()) -> str:
        """What was not reused, in one clause; "" if everything was that can be.

        `compilers`: the `programs` that were started, and the kernels that Triton lowered.
        """
        if compilers:
            ran = list(dict.fromkeys(programs))
            lowered = compilers - len(programs)
            if programs and lowered:
                ran.append("1 Triton kernel" if lowered == 1 else f"{lowered} Triton kernels")
            named = f": {', '.join(ran)}" if ran else ""
            many = "1 compiler" if compilers == 1 else f"{compilers} compilers"
            return f"{many} ran in a fresh process{named}"
        if self.aotautograd:
            hits = counters.get("aot_autograd.autograd_cache_hit", 0)
            misses = counters.get("aot_autograd.autograd_cache_miss", 0)
            passed = counters.get("aot_autograd.autograd_cache_bypass", 0)
            if misses or passed or not hits:
                return f"AOTAutograd: {hits} hits, {misses} misses, {passed} bypassed"
        if self.fxgraph:
            hits = counters.get("inductor.fxgraph_cache_hit", 0)
            misses = counters.get("inductor.fxgraph_cache_miss", 0)
            if misses or not (hits or self.aotautograd):
                return f"FX graph: {hits} hits, {misses} misses"
        return ""


def minor(version: str) -> tuple[int, int]:
    """(2, 11) for 2.11.0+cu130; (0, 0) for a text that is not a version."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def reuse(version: str, training: bool, device: str) -> Reuse:
    """What torch `version` reuses of a forward (and, in training, backward) on a device."""
    release = minor(version)
    name = f"torch {release[0]}.{release[1]}"
    kernels = "the compiled kernels are reused" if device != "cpu" else "the C++ code is reused"
    if release >= (2, 10):
        return Reuse(True, True, [])
    if release < (2, 6):
        limit = f"{name} caches no graph of FlexAttention: each process lowers it again; {kernels}"
        return Reuse(False, False, [limit])
    if training:
        limit = f"{name} lowers the backward again in every process; {kernels}"
        return Reuse(False, True, [limit])
    if release >= (2, 8):
        return Reuse(True, True, [])
    return Reuse(False, True, [f"{name} traces FlexAttention again in every process; {kernels}"])
