"""Compiles one kernel in the examined interpreter, runs it, and compares it with float64.

The server calls `run_job(job, emit)`. As a program of `launch.py`, this module runs one job that it
gets as JSON on standard input, and prints the result as one JSON line. It never raises; a compiler
may still end the process. It does not know what other processes do in the same cache folder.

A job: {"action": "build" | "verify" | "environment", "spec": …, "device": "cuda:0" | "cpu",
"sys_path": [folders for the user's mask], "cache_dir": folder of the caches or "", "compare":
whether to compare with float64, true if absent, "processes": how many may compile a block}.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import re
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from attn_doctor.worker import ownership
from attn_doctor.worker.kernels.compile_and_compare import Attempt, RefusedError
from attn_doctor.worker.kernels.fusion_check import switched_off
from attn_doctor.worker.stub_gpu import guard, install
from attn_doctor.worker.wire import Emit


def prepare(modules: list[str], emit: Emit) -> None:  # noqa: ARG001
    """Import what takes time and does not touch a GPU, so that forked workers need not.

    `modules`: classes whose modules are imported too, such as `diffusers.FluxTransformer2DModel`.
    """
    _require_own_caches(ownership.within)
    if guard.active():
        install.install()
    import torch
    import torch._dynamo
    import torch._inductor.codecache
    import torch._inductor.compile_fx
    import torch.nn.attention.flex_attention  # noqa: F401

    for name in (
        "torch._functorch.aot_autograd",
        "torch._functorch._aot_autograd.autograd_cache",
        "torch._inductor.kernel.flex_attention",
        "torch._inductor.kernel.flex.flex_attention",
        "torch._inductor.codegen.triton",
        "torch._inductor.codegen.cpp",
        "torch._inductor.codegen.wrapper",
        "torch._inductor.runtime.triton_heuristics",
        "triton",
        "triton.compiler.compiler",
        "triton.backends.nvidia.compiler",
        # What every compilation imports late, a second of modules; none of it asks for a GPU.
        "triton.compiler.code_generator",
        "torch._inductor.fx_passes.joint_graph",
        "torch._inductor.fx_passes.post_grad",
        "torch._inductor.fx_passes.fuse_attention",
        "torch._inductor.fx_passes.mkldnn_fusion",
        "torch._inductor.fx_passes.pad_mm",
        "torch._inductor.choices",
        "torch._inductor.cudagraph_trees",
        "torch._inductor.runtime.caching",
        "torch._inductor.codegen.cpp_wrapper_cpu_array_ref",
        "torch._inductor.codegen.cpp_wrapper_gpu",
        "torch._inductor.codegen.halide",
        "torch._inductor.codegen.mps",
        "torch._inductor.codegen.pallas",
        "torch._inductor.codegen.wrapper_fxir",
        "torch._dynamo.backends.cudagraphs",
        "torch._dynamo.backends.distributed",
        "torch._dynamo.repro.after_dynamo",
        "torch.fx.experimental.validator",
        "torch._inductor.compiler_bisector",
        "torch._inductor.codegen.cuda_combined_scheduling",
        "torch._inductor.codegen.memory_planning",
        "torch.distributed.tensor.experimental._context_parallel",
        "torch.export._trace",
        "sympy.physics.units",
        *_patterns(),
    ):
        with contextlib.suppress(Exception):
            __import__(name)
    _import_classes(modules)
    _hash_sources()


def _import_classes(names: list[str]) -> None:
    """Import the modules of these classes. What cannot be imported is reported by its job."""
    # Nothing is downloaded from a hub.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for module, _, name in (one.rpartition(".") for one in names):
        with contextlib.suppress(Exception):
            getattr(importlib.import_module(module), name)


def _require_own_caches(question: Callable[[str], ownership.Danger | None]) -> None:
    """Raise `RefusedError` if another user decides which code torch and Triton load here."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME"):
        if os.environ.get(name) and (found := question(os.environ[name])):
            raise RefusedError(f"{name} is not used: {found}")


def _patterns() -> list[str]:
    """The patterns of attention that Inductor looks for, a module each."""
    package = "torch._inductor.fx_passes.serialized_patterns"
    with contextlib.suppress(Exception):
        folders = importlib.import_module(package).__path__
        return [f"{package}.{one.name}" for one in pkgutil.iter_modules(folders)]
    return []


def _hash_sources() -> None:
    """Let torch and Triton take the digests of their own sources, which all keys hold, only once.

    It costs a second in every process; the digest is the same in all of them.
    """
    for module, name in (
        ("torch._inductor.codecache", "torch_key"),
        ("triton.runtime.cache", "triton_key"),
        ("triton.compiler.compiler", "triton_key"),
    ):
        function = getattr(sys.modules.get(module), name, None)
        try:
            if function is not None:
                function()
        except Exception as error:
            sys.stderr.write(f"{module}.{name}: {error}\n")


def describe() -> dict[str, Any]:
    """What the pool has to know of this process: nothing."""
    return {}


def warm_up(device: str) -> None:
    """Make a context on a device such as `cuda:0`, for a job that comes later.

    The driver makes one after another, in seconds when many are wanted at once. Nothing is
    compiled, loaded or read.
    """
    import torch

    if device.startswith("cuda"):
        torch.cuda.set_device(device)


def run_job(job: dict[str, Any], emit: Emit = lambda *_, **__: None) -> dict[str, Any]:
    """Run one job. The result says `ok`, or what failed; `begun` is sent once it has a context."""
    start = time.perf_counter()
    try:
        result = _done(job, emit)
    except RefusedError as error:
        result = _failed("Refused", str(error), error.unfused)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        traceback.print_exc()
        sys.stderr.flush()
        result = _failed(type(error).__name__, _last_words(error))
    on_stub = guard.installed()
    if on_stub is not None and on_stub.refused:
        # Also after a success: something may have swallowed the refusal, or failed because of it.
        result = _failed("Refused", on_stub.refused[0].sentence)
    result.setdefault("total_seconds", time.perf_counter() - start)
    return result


def _failed(type: str, message: str, unfused: str = "") -> dict[str, Any]:
    return {
        "ok": False,
        "failure": {"type": type, "message": message, "unfused_reason": unfused},
    }


def _last_words(error: BaseException) -> str:
    """The message of the innermost cause, in one paragraph; a long one is shortened."""
    while error.__cause__ is not None:
        error = error.__cause__
    # After the memory that was requested and is free, torch lists all processes on the GPU.
    message = re.sub(r"(CUDA out of memory\.[^\n]*?is free\.)[^\n]*", r"\1", str(error))
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if sum(map(len, lines)) > 600:
        # A compiler's output: its first complaint says more than its command line.
        complaints = [line for line in lines[1:] if re.search(r"\b(fatal|error)\b *:", line)]
        lines = [lines[0], *complaints[:1]]
    text = " ".join([f"{type(error).__name__}:", *lines]) if lines else type(error).__name__
    return text if len(text) <= 900 else text[:890] + " …"


def _done(job: dict[str, Any], emit: Emit) -> dict[str, Any]:
    if guard.active():
        install.install()
    # The caches were asked with their content at the start; since then only names could be taken.
    _require_own_caches(ownership.danger)
    _find_masks(job)
    device = job.get("device") or "cpu"
    if job["action"] == "environment":
        from attn_doctor.worker.kernels.environment import build_environment

        return {"ok": True, "environment": build_environment(device)}
    off = switched_off()
    if off:
        raise RefusedError(off)
    import torch

    start = time.perf_counter()
    if device.startswith("cuda"):
        torch.cuda.set_device(device)  # makes the context
    context = time.perf_counter() - start
    emit("begun")
    if job["spec"].get("block"):
        result = _block(torch, job, device)
    else:
        result = Attempt(torch, job, device).result()
    if device.startswith("cuda"):
        # The next process starts when we answer, and may need memory that we free at exit.
        torch.cuda.empty_cache()
    return {**result, "context_seconds": context}


def _find_masks(job: dict[str, Any]) -> None:
    """Make the module of the user's mask importable; for other masks nothing is added."""
    if ":" not in str((job.get("spec") or {}).get("mask", "")):
        return
    for folder in reversed(job.get("sys_path") or []):
        if found := ownership.danger(folder):
            raise RefusedError(f"{folder} is not searched for the mask: {found}")
        if folder not in sys.path:
            sys.path.insert(0, folder)


def _block(torch: Any, job: dict[str, Any], device: str) -> dict[str, Any]:
    from attn_doctor.worker.kernels.blocks import Block, BlockError

    run = Attempt(torch, job, device)
    try:
        block = Block(torch, job, device)
        return run.watched(lambda: block.run(run))
    except BlockError as error:
        raise RefusedError(str(error)) from error


def main(_: list[str]) -> int:
    """Run one job from standard input; print the result, and nothing else, on standard output."""
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = json.load(sys.stdin)
    if job.get("cache_dir"):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = job["cache_dir"]
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    result = run_job(job)
    answer.write(json.dumps(result) + "\n")
    answer.flush()
    return 0 if result["ok"] else 1
