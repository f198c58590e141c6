"""Compiles one spec on one device, runs it, compares it with float64, and evaluates the result.

torch's counters are torch's own account; `compiler_watch.py` observes which compilers ran and which
files were used. It does not know what other processes do in the same cache folder.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from typing import Any

from attn_doctor.worker.kernels import cache_keys, spec_inputs, torch_builder
from attn_doctor.worker.kernels.compiler_watch import (
    files_below,
    mapped,
    vector_checks,
    watching,
)
from attn_doctor.worker.kernels.fusion_check import Fused
from attn_doctor.worker.kernels.torch_versions import Reuse, reuse
from attn_doctor.worker.proof.calls import Call, Proof, prove
from attn_doctor.worker.proof.rounding import rounding
from attn_doctor.worker.stub_gpu import guard

#: Makes one kernel wrong on purpose, for tests: "1", or the id of a spec.
WRONG = "ATTN_DOCTOR_TEST_WRONG"
#: Query lengths below it may be served by another kernel.
_DECODE = 128
#: Modes of torch.compile whose results the next call overwrites.
_GRAPHS = ("reduce-overhead", "max-autotune")


class RefusedError(Exception):
    """A spec cannot be built, for the reason in the message."""

    def __init__(self, message: str, unfused: str = "") -> None:
        super().__init__(message)
        self.unfused = unfused


class Attempt:
    """One spec on one device: its calls in order, what they compiled, and their errors."""

    def __init__(self, torch: Any, job: dict[str, Any], device: str) -> None:
        self.torch = torch
        self.job = job
        self.spec: dict[str, Any] = job["spec"]
        self.device = device
        self.training = self.spec.get("phase", "training") == "training"
        self.verifying = job["action"] == "verify"
        #: No kernel runs, so there is nothing to compare with float64.
        self.unverified = guard.active()
        #: Whether results are compared with float64.
        self.compares: bool = job.get("compare", True) and not self.unverified
        #: How many processes may compile at once. The stub GPU watches this one alone.
        self.processes = 1 if guard.active() else int(job.get("processes", 1))
        self.reuse: Reuse = reuse(torch.__version__, self.training, device)
        self.seconds = 0.0
        self.reference_seconds = 0.0
        self.errors: dict[str, float] = {}
        #: How much was compared: `calls`, `heads`, `rows` and `share`.
        self.compared: dict[str, float] = {}
        #: What is wrong with the results, in a sentence.
        self.wrong = ""
        self.unfused = ""
        self.via = "torch.compile"
        self.limits = list(self.reuse.limits)
        short = [length for length in self.spec["lengths"] if length < _DECODE]
        if short and device.startswith("cuda"):
            self.limits.append(
                f"length {short[0]} is below {_DECODE}: torch may take its kernel for decoding, "
                "which longer sequences do not use"
            )
        self.mask_source = ""

    def result(self) -> dict[str, Any]:
        """Compile and run all lengths, and return the result."""
        user = None
        if ":" in self.spec.get("mask", "none"):
            try:
                user = spec_inputs.own_mask(self.spec["mask"])
            except ValueError as error:
                raise RefusedError(str(error)) from error
            self.mask_source = user.source
        return self.watched(lambda: self._calls(user))

    def watched(self, calls: Any) -> dict[str, Any]:
        """Run `calls` with everything observed, and put the result together."""
        torch = self.torch
        torch._dynamo.reset()
        counters = torch._dynamo.utils.counters
        counters.clear()
        # Each of our workers would start as many of Inductor's own; their number is not in any key.
        torch._inductor.config.compile_threads = 1
        watch = watching()
        lowered = _count_lowered()
        with cache_keys.KeyParts() as parts:
            calls()
        self.seconds -= parts.seconds
        folder = _cache_folder()
        counted = {
            f"{group}.{name}": int(number)
            for group in ("aot_autograd", "inductor")
            for name, number in counters.get(group, {}).items()
            if isinstance(number, int) and ("cache" in name or "bundler" in name)
        }
        names = parts.names()
        needed = watch.touched | mapped()
        if not self.device.startswith("cuda"):
            needed |= vector_checks(folder)
        files = files_below(folder, needed)
        watch.written(folder, files)
        names["triton"] = sorted(
            {path.split(os.sep)[-2] for path in files if path.endswith((".cubin", ".hsaco"))}
        )
        moved: list[str] = []
        if self.verifying:
            moved = cache_keys.difference(cache_keys.load(folder, self._parts()), parts.keys)
        else:
            cache_keys.save(folder, self._parts(), parts.keys)
        if watch.preprocessed and self.verifying:
            self.limits.append(
                "torch runs the C++ preprocessor over its headers in every process that loads a "
                "kernel for the CPU"
            )
        result = {
            "ok": True,
            "seconds": self.seconds,
            "reference_seconds": self.reference_seconds,
            # JSON has no number for NaN; the failure says it in words.
            "errors": {name: one for name, one in self.errors.items() if math.isfinite(one)},
            "compared": self.compared,
            "counters": counted,
            "keys": names,
            "files": files,
            "compilers": len(watch.compilers) + lowered[0],
            "programs": watch.compilers,
            "fused": not self.unfused,
            "limits": self.limits,
            "via": self.via,
            "mask_source": self.mask_source,
            "moved": moved,
            "unverified": self.unverified,
            "failure": None,
        }
        return self._evaluated(result)

    def _id(self) -> str:
        return str(self.job.get("spec_id") or "spec")

    def _parts(self) -> str:
        """The name under which the components of its keys are kept; each device has its own."""
        return str(self.job.get("parts") or self._id())

    def _calls(self, user: Any) -> None:
        from torch.nn.attention.flex_attention import flex_attention

        self._ask_torch()
        # Like a program that compiles the function once and calls it with each length.
        options = {
            name: self.spec[name] for name in ("dynamic", "mode") if self.spec.get(name) is not None
        }
        compiled = self.torch.compile(flex_attention, **options)
        for length in self.spec["lengths"]:
            self._one(compiled, length, user)

    def _one(self, compiled: Any, length: int, user: Any) -> None:
        torch, spec = self.torch, self.spec
        made = spec_inputs.make(torch, spec, length, self.device, user)
        arguments = self._arguments(made)
        watch = _FirstCall(self)
        proof = prove(
            Call(
                torch=torch,
                device=self.device,
                inputs=(made.query, made.key, made.value),
                run=lambda: compiled(made.query, made.key, made.value, **arguments),
                turned=False,
                adjust=spec_inputs.adjusting(torch, made),
                scale=spec.get("scale") or spec["head_dim"] ** -0.5,
                training=self.training,
                rounding=rounding("fused", spec.get("dtype", "bfloat16"), self.device),
                wait=self.wait,
                keeps=spec.get("mode") not in _GRAPHS,
                seed=self.job.get("seed", 0),
            ),
            around=watch.watch,
            compares=self.compares,
        )
        if not self.unfused:
            reason = watch.fused.reason(spec, length, watch.memory)
            self.unfused = f"length {length}: {reason}" if reason else ""
        self._add(proof, length)

    def _add(self, proof: Proof, length: int) -> None:
        """Add the proof of one length to those before it."""
        self.seconds += proof.seconds[0]
        self.reference_seconds += proof.reference_seconds
        if proof.wrong and not self.wrong:
            several = len(self.spec["lengths"]) > 1
            self.wrong = f"{f'length {length}: ' if several else ''}{proof.wrong}"
        for name, one in proof.results.items():
            self.errors[name] = _larger(self.errors.get(name, 0.0), one.error)
        share = self.compared.get("share", 1.0)
        for name, number in proof.compared.items():
            before = self.compared.get(name, 0)
            self.compared[name] = max(before, number) if name == "heads" else before + number
        self.compared["share"] = min(share, proof.compared["share"])

    def _arguments(self, call: spec_inputs.Call) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        if call.block_mask is not None:
            arguments["block_mask"] = call.block_mask
        if call.score_mod is not None:
            arguments["score_mod"] = call.score_mod
        if self.spec.get("scale") is not None:
            arguments["scale"] = self.spec["scale"]
        if self.spec.get("kv_heads") not in (None, self.spec["heads"]):
            arguments["enable_gqa"] = True
        if self.spec.get("kernel_options"):
            arguments["kernel_options"] = dict(self.spec["kernel_options"])
        if os.environ.get(WRONG) in ("1", self._id()):
            arguments["scale"] = 1.25 * (self.spec.get("scale") or self.spec["head_dim"] ** -0.5)
        return arguments

    def _ask_torch(self) -> None:
        if self.verifying:
            return
        start = time.perf_counter()
        built, limit = torch_builder.ask(self.torch, self.spec, self.device)
        self.limits += [limit] if limit else []
        if built:
            self.wait()
            self.seconds += time.perf_counter() - start
            self.via = "build_flex_attention_kernels"

    def memory(self, reset: bool = False) -> Any:
        """Bytes on the GPU: the most since the last `reset`, or those in use now; else None."""
        if not self.device.startswith("cuda"):
            return None
        if reset:
            self.torch.cuda.synchronize()
            self.torch.cuda.reset_peak_memory_stats()
            return self.torch.cuda.memory_allocated()
        return self.torch.cuda.max_memory_allocated()

    def wait(self) -> None:
        """Wait until the GPU has finished everything."""
        if self.device.startswith("cuda"):
            self.torch.cuda.synchronize()

    def _evaluated(self, result: dict[str, Any]) -> dict[str, Any]:
        """`result`, marked as failed if it ran unfused, is wrong, or reused nothing."""
        failure = None
        if self.unfused:
            failure = ("Unfused", self.unfused)
        elif self.wrong or (self.compares and not self.compared.get("rows")):
            failure = ("Wrong", self.wrong or "nothing of its results was compared with float64")
        elif self.verifying:
            missed = self.reuse.missed(result["counters"], result["compilers"], result["programs"])
            if missed:
                moved = result["moved"]
                names = "; ".join(moved[:3]) + (f"; {len(moved) - 3} more" if moved[3:] else "")
                failure = ("NotReused", f"{missed}; differs: {names}" if moved else missed)
        if failure is not None:
            result["ok"] = False
            unfused = self.unfused if failure[0] == "Unfused" else ""
            result["failure"] = {
                "type": failure[0],
                "message": failure[1],
                "unfused_reason": unfused,
            }
        return result


class _FirstCall:
    """What the first call of a kernel showed besides its results."""

    def __init__(self, attempt: Attempt) -> None:
        self.fused = Fused(attempt.torch)
        self.memory: int | None = None
        self._attempt = attempt

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Watch what is done within."""
        before = self._attempt.memory(reset=True)
        with self.fused:
            yield
        self.memory = None if before is None else self._attempt.memory() - before


def _larger(one: float, other: float) -> float:
    return one if one != one or one > other else other


def _count_lowered() -> list[int]:
    """A counter of kernels that Triton lowers; a hit in its cache ends before that."""
    count = [0]
    try:
        from triton.compiler.compiler import ASTSource
    except Exception:
        return count
    before = getattr(ASTSource.make_ir, "before", ASTSource.make_ir)

    def make_ir(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return before(*args, **kwargs)

    make_ir.before = before  # type: ignore[attr-defined]
    ASTSource.make_ir = make_ir
    return count


def _cache_folder() -> str:
    try:
        from torch._inductor.runtime.cache_dir_utils import cache_dir
    except ImportError:
        from torch._inductor.codecache import cache_dir
    return str(cache_dir())
