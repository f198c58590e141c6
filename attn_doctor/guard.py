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
from functools import wraps
from pathlib import Path
from typing import Any, Literal

from attn_doctor.errors import AttnDoctorError

__all__ = ["CacheMiss", "require_hit"]

#: Functions that are only called when a graph was not found, newest torch first.
_COMPILERS = ("fx_codegen_and_compile", "codegen_and_compile")


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
    warning, `allow` compiles.

    Raises `CacheMiss` if nothing was built there, if something moved since (torch, Triton, GPU,
    compilers, variables, mask files), if files are missing, or if kernels that were built without
    their GPU were not proven on it yet. Takes about 0.2 s.
    """
    from attn_doctor.caches.proving import command

    variables = os.environ if environ is None else environ
    folder, moved, unproven = _state(str(cache_dir), variables)
    if moved:
        raise CacheMiss(
            f"kernels in {folder} would be compiled again:\n  "
            + "\n  ".join(moved)
            + "\nBuild them first: attn-doctor build-kernels"
        )
    if unproven:
        raise CacheMiss(
            f"kernels in {folder} were built without this GPU and not proven on it:\n  "
            + "\n  ".join(unproven)
            + f"\nProve them first: {command(folder)}"
        )
    used = variables.get("TORCHINDUCTOR_CACHE_DIR", "")
    if cache_dir and os.path.realpath(used or os.curdir) != os.path.realpath(folder):
        raise CacheMiss(
            f"TORCHINDUCTOR_CACHE_DIR is {used or 'not set'}, so torch does not look into {folder}:"
            " set it before this program starts"
        )
    if later != "allow":
        _watch(later)


def _state(cache_dir: str, environ: Mapping[str, str]) -> tuple[Path, list[str], list[str]]:
    """The cache folder, why kernels in it would not be reused, and which are not proven yet."""
    from attn_doctor.builder import stamp
    from attn_doctor.builder.devices import cache_folder
    from attn_doctor.caches.why import places
    from attn_doctor.host.local import LocalHost
    from attn_doctor.pipeline import examine

    facts = examine(LocalHost(), sys.executable)
    folder = cache_folder(facts, cache_dir)
    manifest = stamp.load(folder)
    if manifest is None or not (manifest.entries or manifest.warmups):
        raise CacheMiss(
            f"nothing was built in {folder}: run `attn-doctor build-kernels`, or name the folder"
        )
    found = places(manifest, facts, folder, environ)
    here = [one for one in found if one.place == "cpu" or _has(facts, one.place)]
    if not here:
        built = ", ".join(one.place for one in found)
        raise CacheMiss(f"kernels in {folder} are for {built}, which this machine does not have")
    missed = [sentence for one in here for sentence in one.misses]
    return folder, missed, [name for one in here for name in one.unproven]


def _has(facts: Any, place: str) -> bool:
    """This machine has the GPU of a place such as `cuda:0 NVIDIA H200`, under that index."""
    if facts.gpus is None:
        return True
    device, _, name = place.partition(" ")
    shown = [gpu for gpu in facts.gpus if gpu.visible is not False]
    number = int(device.partition(":")[2] or 0)
    return number < len(shown) and any(gpu.name == name for gpu in shown)


def _watch(later: str) -> None:
    """Put a guard before Inductor's compiler."""
    module = importlib.import_module("torch._inductor.compile_fx")
    for name in _COMPILERS:
        before = getattr(module, name, None)
        if callable(before):
            if not hasattr(before, "__attn_doctor__"):
                setattr(module, name, _guarded(before, later))
            return
    version = getattr(importlib.import_module("torch"), "__version__", "?")
    raise CacheMiss(
        f"torch {version} is not known well enough to forbid compiling: call"
        " require_hit(later='allow')"
    )


def _guarded(before: Callable[..., Any], later: str) -> Callable[..., Any]:
    @wraps(before)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        message = (
            "torch.compile met a graph that was not built ahead of time"
            f" ({_named(args)}); `attn-doctor cache why -- COMMAND` names what differs"
        )
        if later == "forbid":
            raise CacheMiss(message)
        import warnings

        warnings.warn(f"{message}; it is compiled now", RuntimeWarning, stacklevel=2)
        return before(*args, **kwargs)

    guarded.__attn_doctor__ = True  # type: ignore[attr-defined]
    return guarded


def _named(args: tuple[Any, ...]) -> str:
    """The shapes of a graph's inputs, for a message."""
    shapes = [
        f"{tuple(one.shape)} {str(one.dtype).removeprefix('torch.')}"
        for one in (args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ())
        if hasattr(one, "shape") and hasattr(one, "dtype")
    ]
    return "inputs " + ", ".join(shapes[:4]) if shapes else "without tensors"
