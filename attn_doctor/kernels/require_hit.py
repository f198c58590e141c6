"""`attn_doctor.require_hit()`: a job that fails at its start instead of compiling on every rank.

To be called in a program of the user's, beside torch. It compares the builder's record with this
machine, as `attn-doctor cache why` does, and then forbids Inductor to compile: whatever is not in
the cache from then on raises `CacheMiss` where it would have been compiled. Triton kernels that a
program starts itself, without torch.compile, are not seen.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attn_doctor.errors import AttnDoctorError

if TYPE_CHECKING:
    from attn_doctor.facts import Facts
    from attn_doctor.kernels.verify.why import DeviceKernels

#: Functions that are only called when a graph was not found, newest torch first.
_COMPILERS = ("fx_codegen_and_compile", "codegen_and_compile")

#: Characters of a command line that a message still holds.
_SHOWN = 400


class CacheMiss(AttnDoctorError):  # noqa: N818 (said as cache people say it)
    """A kernel that should have been built ahead of time is not there."""


def require_hit(
    cache_dir: str | os.PathLike[str] = "",
    *,
    later: Literal["forbid", "warn", "allow"] = "forbid",
    environ: Mapping[str, str] | None = None,
) -> None:
    """Make sure that what `attn-doctor build-kernels` built is used by this process.

    `cache_dir`: the cache folder; by default TORCHINDUCTOR_CACHE_DIR, else torch's own. `later`:
    what happens when torch.compile meets a graph that is not in the cache after this call: `forbid`
    raises `CacheMiss` in the place of compiling (torch may wrap it), `warn` compiles with a
    warning, `allow` compiles. Of several calls, the strictest counts.

    Raises `CacheMiss` if nothing was built there, if something moved since (torch, Triton, GPU,
    compilers, variables, mask files), if files are missing, or if kernels that were built without
    their GPU were not verified on it yet; and where TORCH_CACHING_PRECOMPILE is set, under which
    torch does not ask these caches. Takes about 0.2 s.

    It does nothing where the variable ATTN_DOCTOR_REQUIRE_HIT is `off`, as it is in programs that
    attn-doctor itself runs (`build-kernels -- COMMAND`, `cache why -- COMMAND`): those fill the
    cache, or find out why it was missed.
    """
    from attn_doctor.kernels.builder.devices import precompiles
    from attn_doctor.kernels.builder.program_run import REQUIRE_HIT
    from attn_doctor.shell import commands

    variables = os.environ if environ is None else environ
    if variables.get(REQUIRE_HIT) == "off":
        return
    if unsafe := precompiles(variables):
        raise CacheMiss(unsafe)
    facts, folder, found = _state(str(cache_dir), variables)
    moved = [sentence for one in found for sentence in one.misses]
    if moved:
        again = [*dict.fromkeys(command for one in found for command in one.build)]
        raise CacheMiss(
            f"kernels in {folder} would be compiled again:",
            *(f"  {line}" for line in moved),
            *(
                f"{'  ' if number else 'Build them first: '}{one}"
                for number, one in enumerate(again)
            ),
        )
    unverified = [name for one in found for name in one.unverified]
    if unverified:
        raise CacheMiss(
            f"kernels in {folder} were built without this GPU and not verified on it:",
            *(f"  {name}" for name in unverified),
            f"Verify them first: {commands.verify(folder, facts)}",
        )
    used = variables.get("TORCHINDUCTOR_CACHE_DIR", "")
    if cache_dir and not _looks_into(used, folder, facts):
        raise CacheMiss(
            f"TORCHINDUCTOR_CACHE_DIR is {used or 'not set'}, so torch does not look into {folder}:"
            " set it before this program starts"
        )
    if later != "allow":
        _watch(later, commands.why(folder, facts, _this_program()))


def _state(cache_dir: str, environ: Mapping[str, str]) -> tuple[Facts, Path, list[DeviceKernels]]:
    """The facts of this process, the cache folder, and what it has for this machine."""
    from attn_doctor.examination import examine
    from attn_doctor.host.local import LocalHost
    from attn_doctor.kernels.builder.devices import cache_folder
    from attn_doctor.kernels.verify.why import kernels_by_device
    from attn_doctor.record import store

    facts = examine(LocalHost(), sys.executable)
    folder = cache_folder(facts, cache_dir)
    manifest = store.load(folder)
    if manifest is None or not (manifest.entries or manifest.warmups):
        raise CacheMiss(
            f"nothing was built in {folder}: run `attn-doctor build-kernels`, or name the folder"
            " that was built in"
        )
    found = kernels_by_device(manifest, facts, folder, environ)
    here = [one for one in found if one.device_slot == "cpu" or _has(facts, one.device_slot)]
    # Kernels for the CPU serve no program that runs on a GPU.
    others = [one.device_slot for one in found if one.device_slot != "cpu" and one not in here]
    on_gpu = any(one.device_slot != "cpu" for one in here)
    if not here or (others and not on_gpu and _has_gpu(facts)):
        built = ", ".join(others)
        raise CacheMiss(f"kernels in {folder} are for {built}, which this machine does not have")
    return facts, folder, here


def _looks_into(used: str, folder: Path, facts: Facts) -> bool:
    """Whether torch uses a folder; `used` is the variable that says so, or empty."""
    own = [cache.path for cache in facts.caches or () if cache.kind == "inductor"]
    folders = [used] if used else [path for path in own if path]
    return any(os.path.realpath(one) == os.path.realpath(folder) for one in folders)


def _has_gpu(facts: Facts) -> bool:
    """This machine has a GPU that programs may use."""
    return any(gpu.visible is not False for gpu in facts.gpus or ())


def _has(facts: Any, place: str) -> bool:
    """This machine has the GPU of a place such as `cuda:0 NVIDIA H200`, under that index."""
    if facts.gpus is None:
        return True
    device, _, name = place.partition(" ")
    shown = [gpu for gpu in facts.gpus if gpu.visible is not False]
    number = int(device.partition(":")[2] or 0)
    return number < len(shown) and any(gpu.name == name for gpu in shown)


def _this_program() -> tuple[str, ...]:
    """The command line of this process, where it is short enough for a message."""
    words = tuple(sys.orig_argv)
    return words if words and len(" ".join(words)) <= _SHOWN else ("COMMAND",)


class _Guard:
    """Stands before Inductor's compiler. `command` names what a miss is due to."""

    def __init__(self, before: Callable[..., Any], later: str, command: str) -> None:
        self.before, self.later, self.command = before, later, command
        update_wrapper(self, before)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        message = (
            "torch.compile met a graph that was not built ahead of time"
            f" ({_named(args)}); this names what differs: {self.command}"
        )
        if self.later == "forbid":
            raise CacheMiss(message)
        import warnings

        warnings.warn(f"{message}; it is compiled now", RuntimeWarning, stacklevel=2)
        return self.before(*args, **kwargs)


def _watch(later: str, command: str) -> None:
    """Put a guard before Inductor's compiler, or make the one that is there stricter."""
    module = importlib.import_module("torch._inductor.compile_fx")
    for name in _COMPILERS:
        before = getattr(module, name, None)
        if isinstance(before, _Guard):
            if later == "forbid":
                before.later, before.command = later, command
            return
        if callable(before):
            setattr(module, name, _Guard(before, later, command))
            return
    version = getattr(importlib.import_module("torch"), "__version__", "?")
    raise CacheMiss(
        f"torch {version} is not known well enough to forbid compiling: call"
        " require_hit(later='allow')"
    )


def _named(args: tuple[Any, ...]) -> str:
    """The shapes of a graph's inputs, for a message."""
    shapes = [
        f"{tuple(one.shape)} {str(one.dtype).removeprefix('torch.')}"
        for one in (args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ())
        if hasattr(one, "shape") and hasattr(one, "dtype")
    ]
    return "inputs " + ", ".join(shapes[:4]) if shapes else "without tensors"
