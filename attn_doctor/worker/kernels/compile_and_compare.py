"""Compiles one spec on one device, runs it, compares it with float64, and evaluates the result.

torch's counters are torch's own account; `compiler_watch.py` observes which compilers ran and which
files were used. It does not know what other processes do in the same cache folder.
"""

from __future__ import annotations

import os
import time
from typing import Any

from attn_doctor.worker import reference
from attn_doctor.worker.kernels import cache_keys, spec_inputs, torch_builder
from attn_doctor.worker.kernels.compiler_watch import (
    files_below,
    mapped,
    vector_checks,
    watching,
)
from attn_doctor.worker.kernels.fusion_check import Fused
from attn_doctor.worker.kernels.torch_versions import Reuse, reuse
from attn_doctor.worker.stub_gpu import guard

#: Makes one kernel wrong on purpose, for tests: "1", or the id of a spec.
WRONG = "ATTN_DOCTOR_TEST_WRONG"
#: Query lengths below it may be served by another kernel.
_DECODE = 128
#: float64 operations spent on a comparison: on CPUs, on GPUs, on GPUs made for float64.
_OPERATIONS = (3e10, 1.5e12, 2e13)


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
        self.reuse: Reuse = reuse(torch.__version__, self.training, device)
        self.seconds = 0.0
        self.reference_seconds = 0.0
        self.errors: dict[str, float] = {}
        self.worst: dict[str, float] = {}
        #: Result → the part of it with the largest error, in words.
        self.places: dict[str, str] = {}
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
        self.error_limit = reference.limit(self.spec.get("dtype", "bfloat16"))

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
            "errors": self.errors,
            "error_limit": self.error_limit,
            "worst": self.worst,
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
        torch = self.torch
        part = reference.sample(self.spec, length, self._operations())
        call = spec_inputs.make(torch, self.spec, length, self.device, user)
        arguments = self._arguments(call)
        with Fused(torch) as fused, torch.set_grad_enabled(self.training):
            before = self._memory(reset=True)
            start = time.perf_counter()
            out = compiled(call.query, call.key, call.value, **arguments)
            self.wait()
            seconds = time.perf_counter() - start
            results = {"out": out.detach()}
            gradient = None
            if self.training:
                gradient = reference.masked_gradient(torch, results["out"], part)
                start = time.perf_counter()
                wanted = (call.query, call.key, call.value)
                grads = torch.autograd.grad(out, wanted, gradient)
                self.wait()
                seconds += time.perf_counter() - start
                results.update(dict(zip(("dq", "dk", "dv"), grads)))  # noqa: B905
            memory = None if before is None else self._memory() - before
        self.seconds += seconds
        if not self.unfused:
            reason = fused.reason(self.spec, length, memory)
            self.unfused = f"length {length}: {reason}" if reason else ""
        if not self.compares:
            return
        scale = self.spec.get("scale") or self.spec["head_dim"] ** -0.5
        start = time.perf_counter()
        total, worst = reference.errors(torch, call, results, gradient, scale, part)
        self.reference_seconds += time.perf_counter() - start
        for name in total:
            self.errors[name] = _larger(self.errors.get(name, 0.0), total[name])
            self.worst[name] = _larger(self.worst.get(name, 0.0), worst[name])

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

    def _operations(self) -> float:
        if not self.device.startswith("cuda"):
            return _OPERATIONS[0]
        major, minor = self.torch.cuda.get_device_capability(self.device)
        return _OPERATIONS[2] if (major, minor) in ((8, 0), (9, 0), (10, 0)) else _OPERATIONS[1]

    def _memory(self, reset: bool = False) -> Any:
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
        limit = self.error_limit
        wrong = [name for name, error in result["errors"].items() if not error <= limit]
        local = [name for name, error in result["worst"].items() if not error <= 8 * limit]
        failure = None
        if self.unfused:
            failure = ("Unfused", self.unfused)
        elif wrong or local:
            failure = ("Wrong", self._wrong((wrong or local)[0], result, whole=bool(wrong)))
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

    def _wrong(self, name: str, result: dict[str, Any], *, whole: bool) -> str:
        """A sentence on how much a result differs from float64: all of it, or one part."""
        place = self.places.get(name, "")
        figures, allowed = result["errors" if whole else "worst"], self.error_limit
        off = f"differs from float64 by {figures[name]:.2g}"
        if whole:
            sentence = f"{name} {off}, most in {place}" if place else f"{name} {off}"
        else:
            sentence = f"{place} {off}" if place else f"{name} {off} in one block of rows"
            allowed *= 8
        return f"{sentence}; {allowed:.2g} is allowed"


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
