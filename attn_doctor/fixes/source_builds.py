"""Predicts whether a source build can succeed here, with which variables, and how long it takes.

Two packages are built: flash-attn if no prebuilt wheel fits, and SageAttention 2, which has no
wheels for Linux. Their requirements are in `rules/tables/`. Estimates rest on measurements and on
what a project says; all else is unknown. The time of a download depends on the network and on
caches, so it is never estimated.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.binaries.architectures import runs
from attn_doctor.derived.releases import parts
from attn_doctor.derived.torch_wheels import apart
from attn_doctor.facts import Facts
from attn_doctor.fixes import python_support, torch_support
from attn_doctor.fixes.build_progress import span
from attn_doctor.fixes.pip_arguments import PipCall, Wanted, pip_call
from attn_doctor.fixes.steps import Estimate, Step
from attn_doctor.fixes.wheel_check import asked_for, fetched_flash
from attn_doctor.requirement import parsed
from attn_doctor.rulebook import library
from attn_doctor.shell.commands import attn_doctor

#: MiB on disk: the sizes of the files that are installed, summed over each distribution, on Linux
#: with an x86 processor on 2026-11-21. torch 2.11.0+cu130 is 1129, the CUDA libraries that it
#: depends on 2731, triton 3.6.0 639 (2.4.1+cu121: 1587, 2704, 554); torch 2.13.0+cpu is 721.
_TORCH_CUDA = 1129 + 2731 + 639
_TORCH_CPU = 721
_TRITON = 639

#: Work of a build in minutes of one core, how many cores it can use at most, and the source.
#: flash-attn: https://github.com/Dao-AILab/flash-attention/blob/v2.8.3.post1/README.md#L78
#: ("compiling takes 3-5 minutes on a 64-core machine"); 72 files are compiled.
#: SageAttention 2.2 (d1a57a5): measured with nvcc 13.0 for compute capability 9.0 on 16 cores,
#: EXT_PARALLEL=4 and MAX_JOBS=16: 122 s. It has ten CUDA files, so at most ten cores were busy.
_WORK = {
    "flash-attn": (4.0 * 64, 72, "its README: 3 to 5 min with 64 cores"),
    "sageattention": (122 / 60 * 10, 10, "measured: 2 and 4 min with 16 cores for one GPU"),
}


class Machine(Struct, frozen=True):
    """The values that decide the time of a build."""

    cpus: int
    jobs: int

    @classmethod
    def of(cls, facts: Facts) -> Machine:
        """Return the machine of the facts; no core if they do not say."""
        return cls(facts.system.cpus or 0, facts.build.jobs or 1)


def estimate(packages: Iterable[str], facts: Facts, *, cuda: bool = False) -> Estimate:
    """Return what installing prebuilt wheels of `packages` needs: disk space, where measured.

    `cuda`: torch is known to install CUDA's libraries.
    """
    names = {*packages}
    if not names:
        return Estimate()
    basis = "it depends on the network and on what is cached"
    disk, source = 0, ""
    if (facts.system.os, facts.system.arch) == ("linux", "x86_64"):
        if "torch" in names and (cuda or facts.torch.build == "cuda" or _cuda_wanted(facts)):
            disk, source = _TORCH_CUDA, "measured: torch 2.11.0 with its CUDA libraries and Triton"
        elif "torch" in names and facts.torch.build == "cpu":
            disk, source = _TORCH_CPU, "measured: torch 2.13.0, the CPU build"
        elif "triton" in names:
            disk, source = _TRITON, "measured: Triton 3.6.0"
    return Estimate(disk_mib=disk, disk_basis=source, basis=basis)


def _cuda_wanted(facts: Facts) -> bool:
    return bool(facts.gpus) or facts.driver.vendor == "nvidia"


def build_estimate(name: str, machine: Machine) -> Estimate:
    """Return what compiling `name` needs with this memory and these cores."""
    work, most, source = _WORK[name]
    if not machine.cpus:
        return Estimate(basis=f"the number of cores is unknown; {source}")
    at_best = work / min(machine.cpus, most)
    # Jobs that memory forbids leave cores idle, though each compiler may have a few threads.
    at_worst = work / min(machine.cpus, machine.jobs, most)
    # Only of flash-attn is it known what a job takes: its setup.py says so.
    memory = library.tables()["flash-attn"]["jobs"]["gib"] * 1024 if name == "flash-attn" else 0
    cores = "1 core" if machine.cpus == 1 else f"{machine.cpus} cores"
    here = f"here {cores}, {machine.jobs} at once by memory"
    disk = _BUILD_DISK.get(name, 0)
    return Estimate(
        # Two builds of SageAttention on such machines took 122 and 225 s.
        minutes=(at_best, max(at_worst, at_best * 1.9)),
        disk_mib=disk,
        disk_basis="measured for one GPU: the files of the compiler and what is installed"
        if disk
        else "",
        ram_mib=machine.jobs * memory,
        ram_basis="its setup.py: 8 to 9 GB a job" if memory else "",
        basis=f"{source}; {here}",
    )


#: MiB on disk at most, with the folders that pip deletes again.
_BUILD_DISK = {"sageattention": 272 + 75}

#: What pip must find in the environment, since the build is not isolated from torch.
_BUILD_REQUIREMENTS = {
    "flash-attn": ("setuptools", "wheel", "packaging", "psutil", "ninja", "einops"),
    "sageattention": ("setuptools", "wheel", "packaging", "ninja"),
}
#: MiB that one compiler needs, and the source. The disk space of a build is unknown.
_LEAST_RAM = {
    # https://github.com/Dao-AILab/flash-attention/blob/0251105a2fb19d2957484b7f023cd8c115286ced/setup.py
    # says in `NinjaBuildExtension`: "Assume worst-case peak observed memory usage
    # of ~5GB per NVCC thread."
    "flash-attn": (5 * 1024, "its setup.py assumes 5 GB for one compiler"),
    # Measured for compute capability 9.0 with nvcc 13.0: `qk_int_sv_f8_cuda_sm90.cu` 3082 MiB,
    # `sm89_qk_int8_sv_f8_accum_f32_fuse_v_scale_attn_inst_buf.cu` 3044 MiB.
    "sageattention": (3082, "one of its files took 3082 MiB to compile, as measured"),
}
#: The extensions that SageAttention's setup.py makes at most, and the CUDA files of the largest
#: (`_qattn_sm89`), all others having one.
#: https://github.com/thu-ml/SageAttention/blob/d1a57a546c3d395b1ffcbeecc66d81db76f3b4b5/setup.py
_SAGE_EXTENSIONS, _SAGE_FILES = 4, 7


#: SageAttention's setup.py names C++17. torch 2.13 compiles extensions as C++20, and the headers of
#: 2.14 refuse C++17. The last `-std` counts.
_CXX20_TORCH = (2, 13)
#: TRUE installs flash-attn without its CUDA kernels.
_WITHOUT_KERNELS = "FLASH_ATTENTION_SKIP_CUDA_BUILD"
#: Variables of a build that follow from memory and processors.
PARALLELISM = ("MAX_JOBS", "EXT_PARALLEL", "NVCC_THREADS")


class Preflight(Struct, frozen=True, kw_only=True):
    """The obstacles of a build, and its variables."""

    obstacles: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    """What is unknown beforehand."""
    variables: dict[str, str] = {}


def built_by(call: PipCall, facts: Facts) -> str:
    """The package that this command compiles; empty if it compiles nothing, as far as is known."""
    if call.verb != "install":
        return ""
    for one in call.wanted:
        if one.name == "sageattention" and one.url and not one.url.endswith(".whl"):
            return one.name
        if one.name == "flash-attn" and not one.url.endswith(".whl"):
            return one.name if one.url or not fetched_flash(one.specifier, facts) else ""
    return ""


def takes_release(call: PipCall | None, name: str) -> bool:
    """Whether the command takes the sources of a release of this package, not of a repository."""
    return call is not None and any(one.name == name and not one.url for one in call.wanted)


def settled(step: Step, facts: Facts) -> Step:
    """Return the step with a pinned wheel, or prepared as a build."""
    if step.kind != "install":
        return step
    calls = [pip_call(argv) for argv in step.run]
    unfit = next((why for call in calls if call and (why := _obstacle(call, facts))), "")
    if unfit:
        return replace(step, blocked_by=step.blocked_by or unfit)
    name = next((name for call in calls if call and (name := built_by(call, facts))), "")
    if not name:
        run = tuple(
            torch_support.bounded(pinned(call, facts), facts).argv if call else argv
            for call, argv in zip(calls, step.run, strict=True)
        )
        if any(word.endswith(".whl") for argv in run for word in argv):
            step = replace(step, needs="")  # nothing is compiled
        wanted = {one for call in calls if call and call.verb == "install" for one in call.names}
        return replace(step, run=run, estimate=estimate(wanted, facts))
    found = preflight(name, facts, release=any(takes_release(call, name) for call in calls))
    blocked_by = step.blocked_by or "; ".join(found.obstacles)
    run = tuple(
        _alone(call).argv if call else argv for call, argv in zip(calls, step.run, strict=True)
    )
    return replace(
        step,
        kind="build",
        run=run,
        blocked_by=blocked_by,
        variables=found.variables,
        needs="; ".join(filter(None, (step.needs, *found.doubts))),
        estimate=build_estimate(name, Machine.of(facts)),
    )


def _obstacle(call: PipCall, facts: Facts) -> str:
    """Why no release that the command accepts fits this Python or this torch."""
    return python_support.obstacle(call, facts) or torch_support.obstacle(call, facts)


def pinned(call: PipCall, facts: Facts) -> PipCall:
    """flash-attn pinned to the release whose prebuilt wheel fits, so that pip compiles nothing."""
    if "flash-attn" not in call.names or call.verb != "install":
        return call
    wanted = tuple(_wheel_of(one, facts) for one in call.wanted)
    if not all(one.url.endswith(".whl") for one in wanted):
        return replace(call, wanted=wanted)
    flags = tuple(one for one in call.flags if one != "--no-build-isolation")
    jobs = tuple(one for one in call.variables if not one.startswith("MAX_JOBS="))
    return replace(call, wanted=wanted, flags=flags, variables=jobs)


def _wheel_of(one: Wanted, facts: Facts) -> Wanted:
    found = None
    if one.name == "flash-attn" and not one.url:
        found = fetched_flash(one.specifier, facts)
    if found is None:
        return one
    url = found.requirement if " @ " in found.requirement else ""
    if not url and preflight(one.name, facts).obstacles:
        # Where GitHub is not reached, setup.py compiles instead, and that stops here.
        address = asked_for(found.version, facts)
        url = f"{one.name} @ {address}" if address else ""
    return Wanted(one.name, "" if url else f"=={found.version}", url)


def _alone(call: PipCall) -> PipCall:
    """A build that sees the environment's torch, and installs only its own package."""
    flags = tuple(dict.fromkeys((*call.flags, "--no-build-isolation", "--no-deps")))
    jobs = tuple(one for one in call.variables if not one.startswith("MAX_JOBS="))
    return replace(call, flags=flags, variables=jobs)


def preflight(name: str, facts: Facts, *, release: bool = True) -> Preflight:
    """Return the obstacles to building `name` on this machine, and the variables for it.

    `release`: its newest release is built, where it has one on the index; otherwise its repository.
    """
    obstacles: list[str] = []
    doubts: list[str] = []
    home = _home(facts, obstacles, doubts)
    _compilers(facts, obstacles, doubts)
    _torch(name, facts, obstacles, release=release)
    archs = _archs(name, facts, obstacles, doubts)
    _nvcc_for(name, archs, facts, home, obstacles)
    _check_memory(name, facts, obstacles, doubts)
    variables = _jobs(name, facts, max(1, len(archs)))
    if archs:
        variables["TORCH_CUDA_ARCH_LIST"] = ";".join(f"{sm // 10}.{sm % 10}" for sm in archs)
        if name == "flash-attn":
            variables["FLASH_ATTN_CUDA_ARCHS"] = ";".join(map(str, archs))
    if name == "flash-attn" and facts.env.get(_WITHOUT_KERNELS):
        variables[_WITHOUT_KERNELS] = "FALSE"
    if name == "sageattention" and parts(facts.torch.version or "") >= _CXX20_TORCH:
        before = facts.env.get("NVCC_APPEND_FLAGS", "")
        variables["CXX_APPEND_FLAGS"] = "-std=c++20"
        variables["NVCC_APPEND_FLAGS"] = f"{before} -std=c++20".strip()
    if home and home != facts.build.cuda_home:
        variables["CUDA_HOME"] = variables["CUDA_PATH"] = home
    return Preflight(obstacles=tuple(obstacles), doubts=tuple(doubts), variables=variables)


def compiling(name: str, facts: Facts) -> tuple[str, ...]:
    """Return whether `name` can be compiled here and how long that takes, a sentence each."""
    if name not in _BUILD_REQUIREMENTS:
        return ()
    found = preflight(name, facts)
    if found.obstacles:
        return tuple(f"it cannot be compiled here: {line}" for line in found.obstacles)
    guess = build_estimate(name, Machine.of(facts))
    if guess.minutes is None:
        return (f"it can be compiled here ({guess.basis})", *found.doubts)
    low, high = guess.minutes
    words = span((60 * low, 60 * high))
    return (f"it can be compiled here, in {words} ({guess.basis})", *found.doubts)


def lacking(name: str, installed: Iterable[str]) -> list[str]:
    """Return the missing packages that a build of `name` needs in the environment."""
    there = {*installed}
    return [one for one in _BUILD_REQUIREMENTS[name] if one not in there]


def _home(facts: Facts, obstacles: list[str], doubts: list[str]) -> str:
    """The toolkit to build with: the one in use if it fits torch, else another one that fits."""
    build, torch = facts.build, facts.torch
    if torch.build != "cuda":
        if torch.installed is False:
            obstacles.append("torch is not installed")
        elif torch.build is None:
            doubts.append("it is unknown what torch was built for")
        else:
            obstacles.append(f"this torch was built for {torch.build}, not for CUDA")
        return ""
    fits = build.nvcc and build.cuda_major == torch.cuda_major and not build.missing_components
    if fits:
        return build.cuda_home or ""
    if build.compatible_toolkit:
        return build.compatible_toolkit
    if build.compatible_toolkit is None and build.nvcc is None:
        doubts.append("it is unknown which CUDA toolkits are installed")
        return ""
    if (torch.cuda_major or 0) >= 13 and facts.system.os in ("linux", "windows"):
        how = f"`{attn_doctor('fix', '--cuda-home', '--install', facts=facts)}` installs one"
    else:  # NVIDIA's wheels contain no compiler
        how = (
            f"`{attn_doctor('fix', '--cuda-home', facts=facts)}` names the one to install, and how"
        )
    obstacles.append(f"a complete CUDA {torch.cuda_major} toolkit is missing ({how})")
    return ""


def _compilers(facts: Facts, obstacles: list[str], doubts: list[str]) -> None:
    if facts.cxx.path == "":
        obstacles.append("there is no C++ compiler")
    elif facts.cxx.path is None:
        doubts.append("it is unknown whether a C++ compiler is installed")
    if facts.python.headers == "":
        obstacles.append(f"Python.h is missing from {facts.python.include or 'this Python'}")


def _torch(name: str, facts: Facts, obstacles: list[str], *, release: bool) -> None:
    """A torch that the sources are too new or, for a release, too old for.

    The release names a C++ standard that the headers of a newer torch refuse.
    """
    row: Mapping[str, Any] = library.tables()[name]["release"][-1]
    version = parts(facts.torch.version or "")
    oldest, first = row.get("oldest_torch"), row.get("refused_by_torch")
    if oldest and version and version < parts(oldest):
        obstacles.append(f"{name} needs torch {oldest} or later")
    if release and first and version and version >= parts(first):
        obstacles.append(
            f"{name} {row['version']} is compiled as C++17, and torch {first} and later need C++20,"
            " which its main branch names"
        )


def _archs(name: str, facts: Facts, obstacles: list[str], doubts: list[str]) -> list[int]:
    """The compute capabilities ×10 to compile for: those of the visible GPUs."""
    sms = sorted({one.sm for one in facts.gpus or () if one.sm and one.visible is not False})
    if facts.gpus is None:
        doubts.append("it is unknown which GPU to compile for")
        return []
    if not sms:
        obstacles.append(
            "no GPU is visible, so the architecture to compile for is unknown; build it on the"
            " machine with the GPU, or set TORCH_CUDA_ARCH_LIST and install it by hand"
        )
        return []
    fitting = {_code_for(name, sm, facts) for sm in sms}
    if 0 in fitting:
        obstacles.append(_no_code(name, sms))
        return []
    return sorted(fitting)


def without_code(name: str, facts: Facts) -> str:
    """Return that no release of `name` has code for any of the GPUs; empty if one may have it."""
    sms = sorted({one.sm for one in facts.gpus or () if one.sm and one.visible is not False})
    return "" if not sms or any(_code_for(name, sm, facts) for sm in sms) else _no_code(name, sms)


def _no_code(name: str, sms: Sequence[int]) -> str:
    names = ", ".join(f"{sm // 10}.{sm % 10}" for sm in sms)
    return f"{name} has no kernels for compute capability {names}"


def _code_for(name: str, sm: int, facts: Facts) -> int:
    """The compute capability ×10 of the code of `name` that runs on a GPU; 0 if it has none."""
    rows = library.tables()[name]["release"]
    known: list[int] = next((row["archs"] for row in reversed(rows) if row.get("archs")), [])
    if name != "flash-attn":
        return sm if sm in known else 0
    # Code for 8.0 serves all of 8.x, that for 10.0 and 12.0 their generations. Orin (8.7) is
    # apart until CUDA 13.2.
    alone = apart(facts.torch.cuda or "13.2")
    return max((one for one in known if runs(sm, str(one), alone)), default=0)


def _nvcc_for(name: str, archs: list[int], facts: Facts, home: str, obstacles: list[str]) -> None:
    """The nvcc must know the GPU, and be as new as the project's setup.py asks."""
    version = facts.build.version if home == facts.build.cuda_home else _version_of(home, facts)
    if not version or not archs:
        return
    row: Mapping[str, Any] = library.tables()[name]["release"][-1]
    by_arch = row.get("nvcc_by_arch", {})
    wanted = max(
        [parsed(row["nvcc"]), *(parsed(by_arch[str(sm)]) for sm in archs if str(sm) in by_arch)]
    )
    if parsed(version) < wanted:
        obstacles.append(f"nvcc is {version}; for this GPU {name} needs {wanted} or later")


def _version_of(home: str, facts: Facts) -> str:
    found = (one.version for one in facts.toolkits or () if one.root == home)
    return next(found, None) or ""


def _check_memory(name: str, facts: Facts, obstacles: list[str], doubts: list[str]) -> None:
    free = facts.system.ram_available_mib
    if free is None:
        doubts.append("the free memory is unknown")
    elif free < _LEAST_RAM[name][0]:
        obstacles.append(f"{free} MiB of memory are free; {_LEAST_RAM[name][1]}")


def _jobs(name: str, facts: Facts, archs: int) -> dict[str, str]:
    """Parallelism that fits memory and processors (`build.jobs` assumes 9 GiB for a job)."""
    jobs, cpus = facts.build.jobs or 1, facts.system.cpus or 1
    if name == "sageattention":
        # Its setup.py builds EXT_PARALLEL extensions side by side, each with MAX_JOBS of its own
        # (rules set MAX_JOBS=build.jobs too), and gives nvcc `--threads=8`, which is one compiler
        # for each architecture. So min(7, MAX_JOBS) files of the largest extension are compiled at
        # once, and one of each beside it. Side by side are as many as keep this within `jobs`: all
        # four from 10 jobs on. Measured with 16 cores, four at once: 122 s.
        jobs = max(1, jobs // archs)
        side = max(1, min(_SAGE_EXTENSIONS, jobs - _SAGE_FILES + 1))
        return {"EXT_PARALLEL": str(side), "MAX_JOBS": str(jobs)}
    threads = max(1, min(4, cpus // jobs))
    return {"MAX_JOBS": str(jobs), "NVCC_THREADS": str(threads)}


def environment(step: Step, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a step's commands, with the toolkit first on PATH."""
    found = dict(step.variables)
    if home := found.get("CUDA_HOME"):
        found["PATH"] = os.path.join(home, "bin") + os.pathsep + environ.get("PATH", "")
    return found
