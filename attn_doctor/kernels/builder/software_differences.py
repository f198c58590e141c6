"""Whether this environment compiles what a target's environment would reuse.

torch's and Triton's keys hold digests of their own files, which differ with the version, the CUDA
they were built for, and the Python ABI. What is unknown on either side is not compared; the digests
themselves are known only when torch runs, and are compared then.
"""

from __future__ import annotations

import re

from msgspec import Struct

from attn_doctor.facts import Facts
from attn_doctor.kernels.builder.devices import pip
from attn_doctor.kernels.builder.target import Target, TargetError
from attn_doctor.worker.kernels.torch_versions import minor

#: The oldest torch with which building for another machine's GPU was tested.
OLDEST = (2, 7)
#: GPUs beside a processor of NVIDIA's own: GB10, GB200, GB300, GH200 and Thor.
_ARM = r"NVIDIA (G[BH]\d+|Thor)\b"
_INDEX = "https://download.pytorch.org/whl/"


class Difference(Struct, frozen=True, kw_only=True):
    """A component that is not the same there and here."""

    component: str
    there: str
    here: str
    remedy: str
    """A command, or what to do in words."""


def check(facts: Facts, target: Target) -> None:
    """Raise `TargetError` if kernels that this environment builds cannot serve `target`."""
    check_able(facts)
    found = differences(facts, target)
    if found:
        head = f"kernels built here would not be reused on the {target.name}: other software there"
        raise TargetError(
            head,
            *(f"  {one.component}: {one.there} there, {one.here} here" for one in found),
            *dict.fromkeys(f"  {one.remedy}" for one in found),
        )


def check_able(facts: Facts) -> None:
    """Raise `TargetError` if this environment cannot compile for a GPU of another machine."""
    why = _unable(facts)
    if why:
        raise TargetError(*why)


def _unable(facts: Facts) -> tuple[str, ...]:
    """Why this environment cannot build for a GPU that is elsewhere, in lines; empty if it can."""
    torch, place = facts.torch, facts.python.path or "the examined environment"
    if facts.system.os not in (None, "linux"):
        words = f"the stub GPU needs Linux, and this is {facts.system.os}: run the same in a"
        return (words + " Linux container, such as the image that training uses (--docker)",)
    if torch.installed is False:
        words = f"torch is not installed in {place}, and kernels are built with it:"
        return words, "  " + pip(facts, "torch")
    if torch.has_flex is False:
        words = f"torch {torch.version} has no FlexAttention, which came with torch 2.5:"
        return words, "  " + pip(facts, "--upgrade", "torch")
    if torch.build not in (None, "cuda"):
        # On Linux, the wheels of the default index are built for CUDA.
        release = (torch.version or "").partition("+")[0]
        wanted = f"torch=={release}" if release else "torch"
        words = f"torch {torch.version} is a build without CUDA; the CUDA build compiles for a GPU"
        return f"{words} without having one:", "  " + pip(facts, "--force-reinstall", wanted)
    if torch.version and minor(torch.version) < OLDEST:
        words = f"torch {torch.version} is older than 2.7, the oldest with which building for a GPU"
        words += " of another machine was tested; torch 2.10 and newer reuse all of it:"
        return words, "  " + pip(facts, "--upgrade", "torch")
    return ()


def differences(facts: Facts, target: Target) -> tuple[Difference, ...]:
    """Components of the target's software that are not the same here."""
    there = target.descriptor.software
    if re.match(_ARM, target.name):
        there = {"machine": "aarch64", **there}
    torch, triton, python = facts.torch, facts.triton, facts.python
    release, _, local = there.get("torch", "").partition("+")
    index = ("--index-url", _INDEX + local) if local else ()
    same = pip(facts, f"torch=={release}", *index)
    wheel = "use the same wheel of torch, best by building in the same image (--docker)"
    version = _python(there.get("abi", ""))
    pinned = f"triton=={there.get('triton', '').partition('+')[0]}"
    rows = (
        ("torch", torch.version, same),
        ("torch_cuda", torch.cuda, same),
        ("torch_git", torch.git_version, wheel),
        ("triton", triton.version, pip(facts, pinned)),
        ("abi", python.abi, f"build with an environment of Python {version}"),
        ("machine", facts.system.arch, "build on a machine with the same kind of processor"),
    )
    found = [
        Difference(component=_WORDS[name], there=there[name], here=here, remedy=remedy)
        for name, here, remedy in rows
        if here and there.get(name) and not _same(name, there[name], here)
    ]
    # Another torch comes with other versions of these.
    brought = ("CUDA of torch", "torch's commit", "Triton")
    whole = any(one.component == "torch" for one in found)
    return tuple(one for one in found if not (whole and one.component in brought))


_WORDS = {
    "torch": "torch",
    "torch_cuda": "CUDA of torch",
    "torch_git": "torch's commit",
    "triton": "Triton",
    "abi": "Python ABI",
    "machine": "processor",
}


def _same(name: str, there: str, here: str) -> bool:
    if name == "triton":
        # A wheel's local part or post release is not in Triton's own version.
        there, here = (re.split(r"\.post|\+", text)[0] for text in (there, here))
    if name == "torch_git":
        shorter = min(len(there), len(here))
        return there[:shorter] == here[:shorter]
    return there == here


def _python(abi: str) -> str:
    """`3.12` of `cp312`."""
    found = re.match(r"cp(\d)(\d+)", abi)
    return f"{found[1]}.{found[2]}" if found else abi
