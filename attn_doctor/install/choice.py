"""Chooses a torch and packages that fit each other and the machine, or says what is in the way.

There are some fifty builds of torch, so all are tried. Of those with which everything that is asked
for is available, the best one compiles least, then moves least of what is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.derived.releases import parts
from attn_doctor.facts import Facts
from attn_doctor.fixes.pip_arguments import PipCall, Wanted
from attn_doctor.fixes.postconditions import with_build
from attn_doctor.fixes.python_support import obstacle
from attn_doctor.install.builds import (
    Fit,
    TorchBuild,
    fit,
    installed_build,
    on_default_index,
    other_vendor,
    published,
)
from attn_doctor.install.demand import Demand
from attn_doctor.install.hardware import COMPILED, disagreement, gpu_fault
from attn_doctor.install.known_faults import known_faults, sentence
from attn_doctor.install.packages import Lacking, Pick, Rules, pick, pick_pair
from attn_doctor.rulebook import library

#: Packages that are built for one torch: where it moves, those that are installed move with it.
_TIED = ("torchvision", "torchaudio", "flash-attn", "flash-attn-3", "xformers", "sageattention")
#: The condition that xformers uses the flash-attn beside it.
PAIR = "xformers with flash-attn"


class Choice(Struct, frozen=True, kw_only=True):
    """What is installed."""

    torch: TorchBuild
    picks: tuple[Pick, ...] = ()
    ahead: Facts
    """The facts with this torch."""
    dropped: tuple[str, ...] = ()
    """Installed packages that do not fit the new torch, and that no one asked for."""
    why: str = ""
    """Why the installed torch does not stay; empty if it does, or if there is none."""
    notes: tuple[str, ...] = ()

    @property
    def moves_torch(self) -> bool:
        """Another torch than the installed one."""
        return not self.torch.installed


class Conflict(Struct, frozen=True, kw_only=True):
    """Why nothing fits: each of `reasons` is needed for it; without one of them, a set exists."""

    reasons: tuple[str, ...]
    names: tuple[str, ...] = ()
    """What each reason is about: `system`, `python`, `driver`, `gpu`, `cuda`, `torch` for the
    installed one that stays, a package, or `PAIR`."""


class _Tried(Struct, frozen=True):
    """One build with what is said against it, by the name of the condition."""

    build: TorchBuild
    fit: Fit
    faults: dict[str, str]
    picks: tuple[Pick, ...]
    ahead: Facts


def choose(
    demand: Demand, facts: Facts, tables: Mapping[str, Any], rules: Rules | None = None
) -> Choice | Conflict:
    """Return the best set for the machine of the facts, or the smallest conflict."""
    if fault := _always(demand):
        return Conflict(reasons=(fault,), names=("for",))
    if fault := _python_fault(demand, facts):
        return Conflict(reasons=(fault,), names=("python",))
    rules = rules or Rules(community=demand.community, reinstall=demand.reinstall)
    offered = (one for one in _builds(demand, facts, tables, rules) if _is_there(one, rules))
    tried = [_try(build, demand, facts, tables, rules) for build in offered]
    if fault := _gpu_fault(demand, tried) or ("" if demand.gpu else other_vendor(facts)):
        return Conflict(reasons=(fault,), names=("gpu",))
    fitting = [one for one in tried if not one.faults]
    if not fitting:
        names = _smallest(tried)
        reasons = tuple(_reason(name, tried, {*names} - {name}, demand) for name in names)
        return Conflict(
            reasons=reasons or ("the tables list no torch for this system",), names=names
        )
    best = min(fitting, key=lambda one: _cost(one, demand))
    why = "" if best.build.installed else _why(tried[0])
    return replace(_choice(best, demand, facts, rules), why=why)


def fits_with_community(demand: Demand, facts: Facts) -> bool:
    """Whether a set exists with wheels that others publish, for a demand that excluded them."""
    if demand.community:
        return False
    return isinstance(choose(replace(demand, community=True), facts, library.tables()), Choice)


def _why(first: _Tried) -> str:
    """Why the installed torch, which is tried first, does not stay; empty if there is none."""
    if not first.build.installed:
        return ""
    if first.faults:
        return "; ".join(first.faults.values())
    built = " and ".join(one.package for one in first.picks if one.how == "build")
    return f"with torch {first.build.installed}, {built} would have to be compiled"


def _always(demand: Demand) -> str:
    if demand.training and "sage" in demand.words:
        return "SageAttention has no backward pass, so that it cannot be used for training"
    return ""


def _python_fault(demand: Demand, facts: Facts) -> str:
    """What no torch changes: a package of which no release is for this Python."""
    wanted = tuple(Wanted(name) for name in demand.plain)
    return obstacle(PipCall(verb="install", wanted=wanted), facts)


def _gpu_fault(demand: Demand, tried: list[_Tried]) -> str:
    """What no torch changes: the GPUs cannot run what is asked for."""
    ahead = next((one.ahead for one in tried if one.build.cuda), None)
    return gpu_fault(demand, ahead) if ahead is not None else ""


def _builds(
    demand: Demand, facts: Facts, tables: Mapping[str, Any], rules: Rules
) -> Iterator[TorchBuild]:
    there = installed_build(facts)
    if there is not None:
        yield there
    if there is None or not demand.keep_torch:
        cuda = wants_cuda(demand, facts)
        if rules.only_default and not cuda and facts.system.os == "linux":
            yield from on_default_index(facts, tables)
            return
        for build in published(facts, tables, cuda=cuda):
            if there is None or (build.version, build.cuda) != (there.version, there.cuda):
                yield build


def _is_there(build: TorchBuild, rules: Rules) -> bool:
    reachable = build.installed or not (build.index and rules.only_default)
    return bool(reachable) and build.full not in rules.absent


def wants_cuda(demand: Demand, facts: Facts) -> bool:
    """Whether torch has to be built for CUDA: for the GPU, or because it is asked for."""
    seen = bool(facts.gpus) or facts.driver.vendor == "nvidia"
    needing = {*COMPILED} & {*demand.packages}
    return seen or demand.gpu or bool(needing)


def _try(
    build: TorchBuild, demand: Demand, facts: Facts, tables: Mapping[str, Any], rules: Rules
) -> _Tried:
    found = fit(build, facts, tables)
    faults = {
        name: getattr(found, name)
        for name in ("system", "python", "driver", "gpu")
        if getattr(found, name)
    }
    if wants_cuda(demand, facts) and not build.cuda:
        faults["cuda"] = f"{build.text} does not use the GPU"
    ahead = facts if build.installed else with_build(facts, build.full, build.cuda)
    if demand.keep_torch and not build.installed and installed_build(facts):
        faults["torch"] = "the installed torch has to stay"
    picks: dict[str, Pick] = {}
    for package in _needed(demand, facts):
        answer = pick(package, ahead, rules)
        if isinstance(answer, Lacking):
            faults[package] = answer.reason
        else:
            picks[package] = answer
    if {"xformers", "flash-attn"} <= picks.keys():
        pair = pick_pair(picks["xformers"], picks["flash-attn"], ahead, rules)
        if isinstance(pair, Lacking):
            faults[PAIR] = pair.reason
        else:
            picks |= {one.package: one for one in pair}
    return _Tried(build, found, faults, tuple(picks.values()), ahead)


def _needed(demand: Demand, facts: Facts) -> tuple[str, ...]:
    """The packages that have to fit torch; that of Windows brings no Triton for SageAttention."""
    windows = facts.system.os == "windows" and "sageattention" in demand.packages
    return tuple(dict.fromkeys((*(("triton",) if windows else ()), *demand.packages)))


def _cost(one: _Tried, demand: Demand) -> tuple[Any, ...]:
    """Sort key: compile least, move least, have no known fault, be new, be sure about the GPU.

    Among builds of one release this is the order of `derived.torch_wheels`, which `fix` uses.
    """
    build = one.build
    cuda = tuple(-number if one.fit.whole else number for number in parts(build.cuda))
    return (
        sum(pick.how == "build" for pick in one.picks),
        not build.installed,
        len(known_faults(demand, one.ahead)),
        sum(not pick.official for pick in one.picks),
        tuple(-number for number in parts(build.version)),
        not one.fit.certain,
        not one.fit.whole,
        # Without a known driver the build that everybody gets, and not the newest CUDA.
        bool(build.index) and not one.ahead.driver.cuda_max,
        cuda,
    )


def _choice(best: _Tried, demand: Demand, facts: Facts, rules: Rules) -> Choice:
    picks = [*best.picks]
    dropped: list[str] = []
    notes: list[str] = []
    if not best.build.installed:
        notes += filter(None, [disagreement(facts)])
        for package in _tied(demand, facts):
            answer = pick(package, best.ahead, rules, asked=False)
            if isinstance(answer, Lacking) or answer.how == "build":
                dropped.append(package)
            elif answer.how != "stays":
                picks.append(answer)
    picks += [_plain(package, facts) for package in demand.plain]
    if rules.only_default and not best.build.installed:
        notes.append("PyTorch's own index cannot be reached; this build is on the default index")
    notes += [f"{best.build.text}: {sentence(one)}" for one in known_faults(demand, best.ahead)]
    if best.build.cuda and not best.build.installed and not wants_cuda(demand, facts):
        notes.append(
            "it is built for CUDA, brings NVIDIA's libraries, and runs on the processor too"
        )
    elif best.build.cuda and not wants_cuda(replace(demand, words=()), facts):
        notes.append("no NVIDIA GPU was found here, so it does not run on this machine")
    if not best.fit.certain:
        notes.append("the tables do not say whether this torch has code for the GPU")
    if not best.fit.whole:
        notes.append(
            f"the driver knows CUDA {facts.driver.cuda_max}; it runs this torch by minor version"
            " compatibility"
        )
    return Choice(
        torch=best.build,
        picks=tuple(picks),
        ahead=best.ahead,
        dropped=tuple(dropped),
        notes=tuple(notes),
    )


def _tied(demand: Demand, facts: Facts) -> Iterator[str]:
    """Yield installed packages that are not asked for and are built for one torch."""
    for package in _TIED:
        field = getattr(facts, package.replace("-", "_"))
        # SageAttention 1 is Python alone, which fits any torch.
        alone = package == "sageattention" and field.extensions == ()
        if field.installed and not alone and package not in demand.packages:
            yield package


def _plain(package: str, facts: Facts) -> Pick:
    field = getattr(facts, package.replace("-", "_"), None)
    if field is not None and field.installed and field.version:
        return Pick(package=package, how="stays", version=field.version)
    return Pick(package=package, how="index", requirement=package)


def _smallest(tried: list[_Tried]) -> tuple[str, ...]:
    """Return a smallest set of conditions that no build meets.

    A condition is left out if no build meets the others either, packages before the machine.
    """
    kept = [*dict.fromkeys(name for one in tried for name in one.faults)]
    for name in reversed(tuple(kept)):
        rest = [one for one in kept if one != name]
        if rest and all({*rest} & one.faults.keys() for one in tried):
            kept = rest
    return tuple(kept)


def _reason(name: str, tried: list[_Tried], others: set[str], demand: Demand) -> str:
    """The reason of the best build that fails for this condition only, or else for the fewest."""
    alone = [one for one in tried if name in one.faults and not others & one.faults.keys()]
    return min(alone, key=lambda one: (len(one.faults), _cost(one, demand))).faults[name]
