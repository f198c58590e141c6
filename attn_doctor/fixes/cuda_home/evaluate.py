"""Compares the toolkits of a machine with torch, the GPUs and the host compiler.

Files are read first, at no cost; only toolkits without a fault so far are run and tried, the best
first, until one of them builds. torch refuses another major version of CUDA than its own
(`torch/utils/cpp_extension.py`), so such a toolkit is always rejected.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from attn_doctor.derived.releases import major, parts, series
from attn_doctor.facts import Facts, Toolkit
from attn_doctor.fixes.cuda_home import compiler_bounds, trial_build
from attn_doctor.fixes.cuda_home.candidate import Candidate, Choice, Compiler
from attn_doctor.host import Host

_log = logging.getLogger(__name__)
#: Compilers to try where nvcc does not accept the usual one, besides those of `PATH` itself.
_NEWEST_GCC, _OLDEST_GCC = 16, 7
#: Variables that win over CUDA_HOME, and where.
_OTHER_VARIABLES = {
    "PYTORCH_NVCC": "torch's extension builds",
    "CUDACXX": "CMake builds",
    "CUDAToolkit_ROOT": "CMake builds",
}


class _Machine(NamedTuple):
    """What every toolkit is compared with."""

    host: Host
    facts: Facts
    environ: Mapping[str, str]
    archs: tuple[int, ...]
    progress: Callable[[str], None]


def choose(
    host: Host, facts: Facts, environ: Mapping[str, str], progress: Callable[[str], None]
) -> Choice:
    """Evaluate every toolkit of `facts` and choose one, if one fits.

    `environ` is the user's own; `progress` gets a text for each trial.
    """
    archs, notes = wanted_archs(facts, environ)
    machine = _Machine(host, facts, environ, archs, progress)
    looked = [_by_files(machine, one) for one in _all(facts)]
    fit = sorted((one for one in looked if not one.reasons), key=lambda one: _rank(facts, one))
    chosen: Candidate | None = None
    tried: list[Candidate] = []
    while fit and chosen is None:
        candidate = _tried(machine, fit.pop())
        chosen = candidate if candidate.verdict == "chosen" else None
        tried.append(candidate)
    for candidate in tried:
        _log.debug("%s: %s: %s", candidate.root, candidate.verdict, "; ".join(candidate.reasons))
    better = "" if chosen is None else _why_better(chosen)
    rest = [
        msgspec.structs.replace(one, verdict="fits", reasons=(f"not tried: {better}",))
        for one in reversed(fit)
    ]
    rejected = [one for one in looked if one.reasons]
    ordered = (*([chosen] if chosen else []), *rest, *(one for one in tried if one != chosen))
    every_note = (*_unknown(facts), *notes, *_overrides(host, environ, chosen))
    return Choice(candidates=(*ordered, *rejected), notes=every_note)


def wanted_archs(
    facts: Facts, environ: Mapping[str, str]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return compute capabilities ×10 to compile for, and a note if they are not from the GPUs.

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
    return (), (f"{why}, so no toolkit was compared with one; TORCH_CUDA_ARCH_LIST can name it",)


def _overrides(host: Host, environ: Mapping[str, str], chosen: Candidate | None) -> tuple[str, ...]:
    """Variables that make some builds use another toolkit, despite CUDA_HOME."""
    if chosen is None:
        return ()
    inside = host.real(chosen.root)
    return tuple(
        f"{name}={environ[name]} overrides CUDA_HOME in {who}; unset it"
        for name, who in _OTHER_VARIABLES.items()
        if environ.get(name) and not f"{host.real(environ[name])}/".startswith(f"{inside}/")
    )


# From files


def _all(facts: Facts) -> tuple[Toolkit, ...]:
    """The toolkits, and the one that torch uses now if it is none of them."""
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


def _by_files(machine: _Machine, toolkit: Toolkit) -> Candidate:
    """Evaluate a toolkit by its files and its version."""
    torch, root = machine.facts.torch, toolkit.root or ""
    version = series(toolkit.version)
    matches = major(version) == major(torch.cuda) if torch.cuda and version else None
    reasons = []
    if not toolkit.nvcc:
        reasons.append("it has no nvcc" + _only_a_wheel(root))
    elif toolkit.missing_components:
        reasons.append(f"it lacks {', '.join(toolkit.missing_components)}")
    elif toolkit.missing_components is None:
        reasons.append("its folder could not be read")
    if matches is False:
        reasons.append(f"torch is built for CUDA {torch.cuda} and refuses another major version")
    if not root.isprintable() or "\ufffd" in root:
        reasons.append("its path contains characters that a shell's file cannot hold")
    return Candidate(
        root=root,
        source=toolkit.source or "",
        version=version,
        lacks=toolkit.missing_components,
        nvcc="" if toolkit.nvcc else "none",
        matches=matches,
        exact=version is not None and version == series(torch.cuda),
        reasons=tuple(reasons),
    )


def _only_a_wheel(root: str) -> str:
    wheel = re.search(r"[/\\]nvidia[/\\]cuda_nvcc$", root)
    return "; NVIDIA's wheels for CUDA 11 and 12 contain ptxas but no compiler" if wheel else ""


def _rank(facts: Facts, candidate: Candidate) -> tuple[bool, bool, tuple[int, ...], bool]:
    """Sort key, the best last: torch's own release, then the one in use, then the newest."""
    return (
        candidate.exact,
        _used(facts, candidate),
        parts(candidate.version or "0"),
        candidate.source != "wheel",
    )


def _used(facts: Facts, candidate: Candidate) -> bool:
    return any(known.root == candidate.root and known.in_use for known in facts.toolkits or ())


def _why_better(chosen: Candidate) -> str:
    if chosen.exact:
        return f"CUDA {chosen.version} in {chosen.root} is torch's own release"
    return f"CUDA {chosen.version} in {chosen.root} comes first"


def _unknown(facts: Facts) -> tuple[str, ...]:
    """Why no toolkit was compared with torch, if so."""
    torch = facts.torch
    if torch.installed is None:
        return (f"torch could not be examined: {facts.gap('torch') or 'no reason is known'}",)
    if not torch.installed:
        return ("torch is not installed here, so no toolkit was compared with its CUDA",)
    if torch.build != "cuda":
        return (
            f"torch {torch.version} is not a CUDA build: its extensions are built without nvcc",
        )
    return () if torch.cuda else (f"torch's CUDA is unknown: {facts.gap('torch.cuda')}",)


# By running it


def _tried(machine: _Machine, candidate: Candidate) -> Candidate:
    """The candidate after its nvcc was run and a trial build was made with it."""
    machine.progress(f"trying {candidate.root}")
    asked = trial_build.nvcc(machine.host.join(candidate.root, "bin", "nvcc"), machine.environ)
    if not asked.version:
        return _rejected(candidate, "fails", asked.why)
    candidate = msgspec.structs.replace(candidate, nvcc=asked.version)
    cuda = machine.facts.torch.cuda or ""
    if cuda and major(asked.release) != major(cuda):
        why = f"its nvcc is {asked.release}, torch needs CUDA {cuda}"
        return _rejected(candidate, asked.version, why)
    unknown = [sm for sm in machine.archs if asked.archs is not None and sm not in asked.archs]
    if unknown:
        side = "too old" if asked.archs and max(unknown) > max(asked.archs) else "too new"
        names = ", ".join(f"sm_{sm}" for sm in unknown)
        return _rejected(candidate, asked.version, f"its nvcc is {side} for {names}")
    if machine.host.windows:
        return msgspec.structs.replace(
            candidate, verdict="chosen", reasons=("no trial build: nvcc needs cl.exe's own prompt",)
        )
    return _built(machine, candidate, asked)


def _built(machine: _Machine, candidate: Candidate, asked: trial_build.Nvcc) -> Candidate:
    """A trial build, with an older host compiler if the usual one is not accepted."""
    sm = max(machine.archs, default=None)
    cxx, family = machine.facts.cxx, machine.facts.cxx.family or ""
    table = compiler_bounds.read(machine.host, machine.facts.torch.path or "", family)
    why = "there is no C++ compiler" if cxx.path == "" else ""
    why = why or compiler_bounds.refusal(table, asked.release, cxx.path or "", cxx.version or "")
    why = why or trial_build.build(machine.host, candidate.root, machine.environ, sm, Compiler())
    if not why:
        return msgspec.structs.replace(
            candidate, verdict="chosen", reasons=(_advantage(machine, candidate),)
        )
    if "gcc" not in why and "g++" not in why and "C++" not in why:
        return _rejected(candidate, asked.version, why)
    for other in _older(machine.host):
        if not compiler_bounds.refusal(
            table, asked.release, other.cxx, _number(other)
        ) and not trial_build.build(machine.host, candidate.root, machine.environ, sm, other):
            reason = f"{_advantage(machine, candidate)} and {other.cxx} ({why})"
            return msgspec.structs.replace(
                candidate, verdict="chosen", reasons=(reason,), compiler=other
            )
    return _rejected(candidate, asked.version, why)


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


def _advantage(machine: _Machine, candidate: Candidate) -> str:
    torch = machine.facts.torch
    if candidate.exact:
        what = f"torch's own release, CUDA {candidate.version}"
    elif candidate.matches:
        what = f"of torch's major version (torch {torch.cuda}, this {candidate.version})"
    else:
        what = "the one in use" if _used(machine.facts, candidate) else "the newest here"
    return f"{what}; a trial extension builds with it"


def _rejected(candidate: Candidate, nvcc: str, why: str) -> Candidate:
    return msgspec.structs.replace(candidate, nvcc=nvcc, verdict="rejected", reasons=(why,))
