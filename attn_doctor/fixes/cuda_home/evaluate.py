"""Weighs the toolkits of a machine against torch, the GPUs and the host compiler.

What files tell comes first and costs nothing; only toolkits without a fault so far are run and
tried, the best first, until one of them builds. torch refuses another major version of CUDA than
its own (`torch/utils/cpp_extension.py`), so that is never weighed against anything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from attn_doctor.derived.releases import major, parts, series
from attn_doctor.facts import Facts, Toolkit
from attn_doctor.fixes.cuda_home import compiler_bounds, trial_build
from attn_doctor.fixes.cuda_home.candidate import Candidate, Choice, Compiler
from attn_doctor.host import Host

#: Compilers to try where nvcc does not accept the usual one, besides those of `PATH` itself.
_NEWEST_GCC, _OLDEST_GCC = 16, 7
#: Variables that win over CUDA_HOME, and where.
_OTHER_VARIABLES = {
    "PYTORCH_NVCC": "torch's extension builds",
    "CUDACXX": "CMake builds",
    "CUDAToolkit_ROOT": "CMake builds",
}


class _Judge(NamedTuple):
    """What every toolkit is weighed against."""

    host: Host
    facts: Facts
    environ: Mapping[str, str]
    archs: tuple[int, ...]
    told: Callable[[str], None]


def choose(
    host: Host, facts: Facts, environ: Mapping[str, str], told: Callable[[str], None]
) -> Choice:
    """Judge every toolkit of `facts` and choose one, if one serves.

    `environ` is the user's own; `told` hears what is being tried, for someone who waits.
    """
    archs, notes = wanted_archs(facts, environ)
    judge = _Judge(host, facts, environ, archs, told)
    looked = [_looked_at(judge, one) for one in _all(facts)]
    fit = sorted((one for one in looked if not one.reasons), key=lambda one: _rank(facts, one))
    chosen: Candidate | None = None
    tried: list[Candidate] = []
    while fit and chosen is None:
        one = _tried(judge, fit.pop())
        chosen = one if one.verdict == "chosen" else None
        tried.append(one)
    better = "" if chosen is None else _why_better(chosen)
    rest = [
        msgspec.structs.replace(one, verdict="fits", reasons=(f"not tried: {better}",))
        for one in reversed(fit)
    ]
    rejected = [one for one in looked if one.reasons]
    ordered = (*([chosen] if chosen else []), *rest, *(one for one in tried if one != chosen))
    told_of = (*_unknown(facts), *notes, *_overrides(host, environ, chosen))
    return Choice(candidates=(*ordered, *rejected), notes=told_of)


def wanted_archs(
    facts: Facts, environ: Mapping[str, str]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Compute capabilities ×10 to compile for, and a note on where they are from if not the GPUs.

    TORCH_CUDA_ARCH_LIST comes first, as it does in a build.
    """
    listed = environ.get("TORCH_CUDA_ARCH_LIST", "")
    # "8.0;8.6 9.0a+PTX"; names such as "Ampere" are left to torch.
    numbers = re.findall(r"(?<![\d.])(\d{1,2})\.(\d)[af]?(?:\+PTX)?(?![\d.])", listed)
    if numbers:
        sms = sorted({int(major) * 10 + int(minor) for major, minor in numbers})
        return tuple(sms), (f"GPUs to build for: TORCH_CUDA_ARCH_LIST={listed}",)
    gpus = [gpu.sm for gpu in facts.gpus or () if gpu.visible is not False and gpu.sm]
    if gpus:
        return tuple(sorted(set(gpus))), ()
    why = "no GPU is visible here" if facts.gpus is not None else "the GPUs could not be listed"
    return (), (f"{why}, so no toolkit was compared with one (TORCH_CUDA_ARCH_LIST would tell)",)


def _overrides(host: Host, environ: Mapping[str, str], chosen: Candidate | None) -> tuple[str, ...]:
    """Variables that lead some builds elsewhere, whatever CUDA_HOME says."""
    if chosen is None:
        return ()
    inside = host.real(chosen.root)
    return tuple(
        f"{name}={environ[name]} leads {who} elsewhere, whatever CUDA_HOME says; unset it"
        for name, who in _OTHER_VARIABLES.items()
        if environ.get(name) and not f"{host.real(environ[name])}/".startswith(f"{inside}/")
    )


# What files tell


def _all(facts: Facts) -> tuple[Toolkit, ...]:
    """The toolkits, and what torch takes now if that is none of them."""
    found = facts.toolkits or ()
    build = facts.build
    if build.cuda_home and not any(one.in_use for one in found):
        present = Toolkit(
            root=build.cuda_home,
            version=build.version,
            source=build.cuda_home_source or "",
            nvcc=build.nvcc,
            missing_components=build.missing_components,
            in_use=True,
        )
        found = (*found, present)
    return tuple(one for one in found if one.root)


def _looked_at(judge: _Judge, one: Toolkit) -> Candidate:
    """What speaks against a toolkit by its files and its version."""
    torch, root = judge.facts.torch, one.root or ""
    version = series(one.version)
    matches = major(version) == major(torch.cuda) if torch.cuda and version else None
    reasons = []
    if not one.nvcc:
        reasons.append("it has no nvcc" + _only_a_wheel(root))
    elif one.missing_components:
        reasons.append(f"it lacks {', '.join(one.missing_components)}")
    elif one.missing_components is None:
        reasons.append("its folder could not be read")
    if matches is False:
        reasons.append(f"torch is built for CUDA {torch.cuda} and refuses another major version")
    if not root.isprintable() or "\ufffd" in root:
        reasons.append("its path cannot be written into a shell's file")
    return Candidate(
        root=root,
        source=one.source or "",
        version=version,
        lacks=one.missing_components,
        nvcc="" if one.nvcc else "none",
        matches=matches,
        exact=version is not None and version == series(torch.cuda),
        reasons=tuple(reasons),
    )


def _only_a_wheel(root: str) -> str:
    wheel = re.search(r"[/\\]nvidia[/\\]cuda_nvcc$", root)
    return "; NVIDIA's wheels for CUDA 11 and 12 hold ptxas but no compiler" if wheel else ""


def _rank(facts: Facts, one: Candidate) -> tuple[bool, bool, tuple[int, ...], bool]:
    """The best comes last: torch's own release, then the one in use, then the newest."""
    return (one.exact, _used(facts, one), parts(one.version or "0"), one.source != "wheel")


def _used(facts: Facts, one: Candidate) -> bool:
    return any(known.root == one.root and known.in_use for known in facts.toolkits or ())


def _why_better(chosen: Candidate) -> str:
    if chosen.exact:
        return f"CUDA {chosen.version} in {chosen.root} is torch's own release"
    return f"CUDA {chosen.version} in {chosen.root} comes first"


def _unknown(facts: Facts) -> tuple[str, ...]:
    """Why torch could not be compared with, if it could not."""
    torch = facts.torch
    if torch.installed is None:
        return (f"torch could not be examined: {facts.gap('torch') or 'no reason is known'}",)
    if not torch.installed:
        return ("torch is not installed here, so no toolkit was compared with its CUDA",)
    if torch.build != "cuda":
        return (f"torch {torch.version} is no CUDA build: its extensions are built without nvcc",)
    return () if torch.cuda else (f"torch's CUDA is unknown: {facts.gap('torch.cuda')}",)


# What running it tells


def _tried(judge: _Judge, one: Candidate) -> Candidate:
    """The candidate after its nvcc was asked and a trial build was made with it."""
    judge.told(f"trying {one.root}")
    asked = trial_build.nvcc(judge.host.join(one.root, "bin", "nvcc"), judge.environ)
    if not asked.version:
        return _rejected(one, "fails", asked.why)
    one = msgspec.structs.replace(one, nvcc=asked.version)
    cuda = judge.facts.torch.cuda or ""
    if cuda and major(asked.release) != major(cuda):
        return _rejected(one, asked.version, f"its nvcc is {asked.release}, torch's CUDA {cuda}")
    unknown = [sm for sm in judge.archs if asked.archs is not None and sm not in asked.archs]
    if unknown:
        side = "too old" if asked.archs and max(unknown) > max(asked.archs) else "too new"
        names = ", ".join(f"sm_{sm}" for sm in unknown)
        return _rejected(one, asked.version, f"its nvcc is {side} for {names}")
    if judge.host.windows:
        return msgspec.structs.replace(
            one, verdict="chosen", reasons=("no trial build: nvcc needs cl.exe's own prompt",)
        )
    return _built(judge, one, asked)


def _built(judge: _Judge, one: Candidate, asked: trial_build.Nvcc) -> Candidate:
    """A trial build, with an older host compiler if the usual one is not accepted."""
    sm = max(judge.archs, default=None)
    cxx, family = judge.facts.cxx, judge.facts.cxx.family or ""
    table = compiler_bounds.read(judge.host, judge.facts.torch.path or "", family)
    why = "there is no C++ compiler" if cxx.path == "" else ""
    why = why or compiler_bounds.refusal(table, asked.release, cxx.path or "", cxx.version or "")
    why = why or trial_build.build(judge.host, one.root, judge.environ, sm, Compiler())
    if not why:
        return msgspec.structs.replace(one, verdict="chosen", reasons=(_praise(judge, one),))
    if "gcc" not in why and "g++" not in why and "C++" not in why:
        return _rejected(one, asked.version, why)
    for other in _older(judge.host):
        if not compiler_bounds.refusal(
            table, asked.release, other.cxx, _number(other)
        ) and not trial_build.build(judge.host, one.root, judge.environ, sm, other):
            reason = f"{_praise(judge, one)} and {other.cxx} ({why})"
            return msgspec.structs.replace(one, verdict="chosen", reasons=(reason,), compiler=other)
    return _rejected(one, asked.version, why)


def _older(host: Host) -> list[Compiler]:
    """Other gcc of this machine, the newest first."""
    found = []
    for number in range(_NEWEST_GCC, _OLDEST_GCC - 1, -1):
        cc, cxx = host.which(f"gcc-{number}"), host.which(f"g++-{number}")
        if cc and cxx:
            found.append(Compiler(cc=cc, cxx=cxx))
    return found


def _number(compiler: Compiler) -> str:
    return compiler.cxx.rpartition("-")[2]


def _praise(judge: _Judge, one: Candidate) -> str:
    torch = judge.facts.torch
    if one.exact:
        what = f"torch's own release, CUDA {one.version}"
    elif one.matches:
        what = f"of torch's major version (torch {torch.cuda}, this {one.version})"
    else:
        what = "the one in use" if _used(judge.facts, one) else "the newest here"
    return f"{what}; a trial extension builds with it"


def _rejected(one: Candidate, nvcc: str, why: str) -> Candidate:
    return msgspec.structs.replace(one, nvcc=nvcc, verdict="rejected", reasons=(why,))
