"""The devices and the folder to build for, and in one sentence what is missing for them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from attn_doctor.errors import AttnDoctorError, MessageError
from attn_doctor.facts import Facts
from attn_doctor.ownership import require_cache
from attn_doctor.shell import commands
from attn_doctor.shell.commands import argv_for
from attn_doctor.worker import reach
from attn_doctor.worker.kernels.torch_versions import minor

_NO_GPU = {
    "no-driver": "there is a GPU, but no NVIDIA driver",
    "no-device": "the NVIDIA driver shows no GPU",
    "no-gpu": "this machine has no NVIDIA GPU",
    "no-permission": "this user may not open the GPU's device files",
    "library-mismatch": "the NVIDIA driver and its library have different versions",
    "no-library": "the NVIDIA driver's library is missing",
    "container-without-runtime": "this container was started without access to the GPU",
    "wsl-stub": "WSL shows no GPU",
    "not-answering": "the NVIDIA driver does not answer",
    "gpu-lost": "the GPU has fallen off the bus",
    "error": "the NVIDIA driver answers with an error",
}
#: Its entries were seen to reuse an old kernel for a changed mask, with wrong results.
_PRECOMPILE = "TORCH_CACHING_PRECOMPILE"
#: Takes Triton's compiled kernels out of Inductor's folder; usual on clusters.
_TRITON_CACHE = "TRITON_CACHE_DIR"
#: Triton's folder below TRITON_HOME.
TRITON = ".triton"
#: Variables under which nothing is fused or nothing is kept, and the value that does it.
_POINTLESS = {
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    "TORCH_COMPILE_FORCE_DISABLE_CACHES": "1",
    "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
    "TORCH_COMPILE_DISABLE": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "TRITON_INTERPRET": "1",
    "TRITON_ALWAYS_COMPILE": "1",
}

#: The newest torch that was seen to split its compiler's command line at blanks.
_UNQUOTED = (2, 13)


class DeviceError(MessageError):
    """Nothing can be built here; the message is one sentence that says what is missing."""


class NoGpuError(DeviceError):
    """There is no GPU that torch could use; `reason` says why."""

    def __init__(self, reason: str, *, cuda: bool) -> None:
        self.reason, self.cuda = reason, cuda
        super().__init__(self.with_command(["build-kernels"]))

    def with_command(self, words: Sequence[str]) -> str:
        """The sentence, with the command `words` changed to build for another GPU."""
        before = "" if self.cuda else "in an environment with the CUDA build of torch, "
        return (
            f"{self.reason}, so there is no GPU to build for: {before}`{_for_target(words)}` builds"
            " for a GPU of another machine (--list-targets lists them), and --device cpu builds the"
            " kernels for the CPU"
        )


def _for_target(words: Sequence[str]) -> str:
    """The same command with `--target`, in place of a device of this machine."""
    own, program = list(words), []
    if "--" in own:
        own, program = own[: own.index("--")], own[own.index("--") :]
    kept: list[str] = []
    for word in own:
        if word.startswith("--device=") or (kept and kept[-1] == "--device"):
            kept = kept[:-1] if kept and kept[-1] == "--device" else kept
        else:
            kept.append(word)
    return commands.line(["attn-doctor", *kept, "--target", "NAME", *program])


def devices(facts: Facts, asked: str) -> tuple[str, ...]:
    """The devices to build for, such as `cuda:0`. `asked`: empty, or as given to `--device`.

    Raises `DeviceError` if torch or the machine has no such device (`NoGpuError` if there is no
    GPU), and `AttnDoctorError` for a word that names none.
    """
    words = [word.strip() for word in (asked or "cuda").split(",") if word.strip()]
    for word in words:
        if not re.fullmatch(r"cpu|cuda(:\d+)?|all", word):
            raise AttnDoctorError(f"--device {word}: write cpu, cuda, cuda:N or all")
    torch = facts.torch
    place = facts.python.path or "the examined environment"
    if torch.installed is False:
        raise DeviceError(
            f"torch is not installed in {place}, and kernels are built with it:"
            f" `{pip(facts, 'torch')}` installs it"
        )
    if torch.has_flex is False:
        raise DeviceError(
            f"torch {torch.version} has no FlexAttention, which came with torch 2.5:"
            f" `{pip(facts, '--upgrade', 'torch')}` installs a newer one"
        )
    if words == ["cpu"]:
        return ("cpu",)
    missing = _missing(facts)
    if missing:
        raise NoGpuError(missing, cuda=torch.build in (None, "cuda"))
    return tuple(dict.fromkeys(one for word in words for one in _numbered(facts, word)))


def pip(facts: Facts, *arguments: str) -> str:
    """`pip install …` by the examined environment's own installer: one that uv made has no pip."""
    command = ("pip", "install", *arguments)
    words = argv_for(command, facts)
    return commands.line(("python", "-m", *command) if words == command else words)


def _missing(facts: Facts) -> str:
    """Why torch cannot use a GPU here; empty if it can as far as the facts tell."""
    torch = facts.torch
    if torch.build in ("cpu", "mps", "xpu"):
        return f"torch {torch.version} is a build without CUDA"
    if torch.build == "rocm":
        return ""
    state = facts.driver.state
    if state not in (None, "ok"):
        return _NO_GPU.get(state, f"the NVIDIA driver's state is {state}")
    if facts.gpus is not None and not any(gpu.visible is not False for gpu in facts.gpus):
        hidden = facts.env.get("CUDA_VISIBLE_DEVICES")
        return (
            "CUDA_VISIBLE_DEVICES hides every GPU"
            if hidden is not None and facts.gpus
            else ("the NVIDIA driver shows no GPU")
        )
    return ""


def _numbered(facts: Facts, word: str) -> list[str]:
    shown = [gpu for gpu in facts.gpus or () if gpu.visible is not False]
    if word == "cpu":
        return ["cpu"]
    if word == "all":
        return [f"cuda:{number}" for number in range(len(shown) or 1)]
    number = int(word.partition(":")[2] or 0)
    if shown and number >= len(shown):
        raise AttnDoctorError(
            f"--device {word}: torch sees {len(shown)} GPU(s), the first is cuda:0"
        )
    return [f"cuda:{number}"]


def cache_folder(facts: Facts, asked: str) -> Path:
    """The folder that will hold the kernels: `asked`, else torch's own, as the facts have it.

    Links in its path are resolved, since no file is ever removed through a link. Raises
    `OwnershipError` if another user decides what is in it.
    """
    found = [cache.path for cache in facts.caches or () if cache.kind == "inductor"]
    path = str(Path(asked).expanduser()) if asked else next(iter(found), None)
    if not path:
        raise AttnDoctorError("torch's cache folder is unknown: name one with --cache-dir")
    reach.refuse(path)
    require_cache(path)
    return Path(os.path.realpath(path))


def compilable(facts: Facts, folder: Path, device: str) -> None:
    """Raise `AttnDoctorError` for a folder in which torch cannot compile for the CPU.

    It writes the C++ compiler's command line without quotes and splits it at blanks
    (`torch/_inductor/cpp_builder.py`; read in 2.11 to 2.13). With 2.13 even its check of the
    processor's vector instructions failed so, with an empty AssertionError.
    """
    path = str(folder)
    if not device.startswith("cpu") or minor(facts.torch.version or "") > _UNQUOTED:
        return
    try:
        whole = shlex.split(path) == [path]
    except ValueError:
        whole = False
    if not whole:
        raise AttnDoctorError(
            f"--cache-dir {commands.word(path)}: torch cannot compile for the CPU in a folder with"
            " a blank, a quote or a backslash in its path: name another"
        )


def children_environment(
    environ: Mapping[str, str], folder: str, *, own: bool = False
) -> tuple[dict[str, str], list[str]]:
    """The environment of the building processes, and remarks on what was changed in it.

    `own`: the folder must hold all that is compiled, as it was named or is for another machine.
    Raises `DeviceError` if a variable makes building pointless.
    """
    for name, value in _POINTLESS.items():
        if environ.get(name) == value:
            raise DeviceError(
                f"{name}={value} is set, and torch then keeps or fuses nothing: unset it"
            )
    children = dict(environ)
    children["TORCHINDUCTOR_CACHE_DIR"] = folder
    # One process for each spec is parallel enough; the number is part of no key.
    children["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    remarks = []
    elsewhere = environ.get(_TRITON_CACHE, "")
    reach.refuse(elsewhere)
    if elsewhere and not Path(os.path.realpath(elsewhere)).is_relative_to(os.path.realpath(folder)):
        remarks.append(_triton_remark(elsewhere, folder, own=own))
        if own:
            del children[_TRITON_CACHE]
        else:
            require_cache(elsewhere)
    if (Path(folder) / TRITON).is_dir() and not {"TRITON_HOME", _TRITON_CACHE} & children.keys():
        # Built for a GPU elsewhere, it contains what Triton would compile into the home directory.
        children["TRITON_HOME"] = folder
    children.pop(_PRECOMPILE, None)
    if precompiles(environ):
        remarks.append(
            f"{_PRECOMPILE} is set: this build ignores it, because it reuses kernels of a changed"
            " mask; unset it for training too"
        )
    return children, remarks


def _triton_remark(elsewhere: str, folder: str, *, own: bool) -> str:
    if own:
        return (
            f"{_TRITON_CACHE}={elsewhere} is set: this build ignores it, so that {folder} holds the"
            " compiled kernels too; unset it for training as well, or Triton does not find them"
        )
    return (
        f"{_TRITON_CACHE}={elsewhere} is set: Triton keeps the compiled kernels there, outside of"
        f" {folder}; --cache-dir keeps all of them in one folder"
    )


def precompiles(environ: Mapping[str, str]) -> str:
    """A sentence if torch would keep whole functions and bypass the caches; else empty."""
    if environ.get(_PRECOMPILE, "") in ("", "0"):
        return ""
    return (
        f"{_PRECOMPILE} is set: torch then reuses a kernel of a changed mask, with wrong results:"
        f" unset {_PRECOMPILE}"
    )
