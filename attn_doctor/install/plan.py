"""Makes the steps of an installation, in the form that `fix` shows, applies and undoes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.facts import Facts
from attn_doctor.findings import Fix, Safety
from attn_doctor.fixes.read_wheel import ReadWheel, read_wheel
from attn_doctor.fixes.ready_wheels import ReadyWheel
from attn_doctor.fixes.source_builds import estimate, settled
from attn_doctor.fixes.steps import Plan, Step
from attn_doctor.install import builds
from attn_doctor.install.choice import Choice, Conflict, choose
from attn_doctor.install.demand import Demand
from attn_doctor.install.packages import WITH_TORCH, Pick, Rules
from attn_doctor.rulebook import library
from attn_doctor.rulebook.conditions import parse
from attn_doctor.rulebook.fact_catalogue import catalogue

#: Wheels named after an earlier torch that are read, to see whether they load.
_READ = 3
#: Facts that hold once a package is installed.
_DONE = {
    "flash-attn": ("flash_attn.known_to_load == true",),
    "flash-attn-3": ("flash_attn_3.known_to_load == true",),
    "xformers": ("xformers.known_to_load == true",),
    "sageattention": ("sageattention.known_to_load == true",),
    "torchvision": ("torchvision.installed == true",),
    "torchaudio": ("torchaudio.installed == true",),
}


class Installation(Struct, frozen=True, kw_only=True):
    """What is installed, and how."""

    demand: Demand
    choice: Choice
    plan: Plan
    read: tuple[ReadWheel, ...] = ()
    """Wheels that were read before they are downloaded."""


def installation(
    demand: Demand,
    facts: Facts,
    *,
    read: bool = True,
    torch_index: str = builds.INDEX,
    absent: frozenset[str] = frozenset(),
    only_default: bool = False,
    watch: Callable[[str], None] = lambda _: None,
) -> Installation | Conflict:
    """Return the installation for the machine of the facts, or why there is none.

    `read`: look into wheels that are named by their address, which takes some seconds each. A wheel
    that does not load with the torch is not taken. `watch` gets a text for each. `absent`: versions
    of torch that the index is known not to have. `only_default`: PyTorch's indexes cannot be
    reached.
    """
    tables = library.tables()

    @cache
    def answered(url: str, torch: str) -> ReadWheel:
        watch(f"reading the wheel {url.rpartition('/')[2]}")
        return read_wheel(url, facts_of[torch])

    facts_of: dict[str, Facts] = {}
    seen: list[str] = []

    def verdict(wheel: ReadyWheel, ahead: Facts) -> ReadWheel:
        torch = ahead.torch.version or ""
        facts_of[torch] = ahead
        return answered(wheel.url, torch)

    def loads(wheel: ReadyWheel, ahead: Facts) -> bool:
        if not read or ahead.torch.path is None or len({*seen, wheel.url}) > _READ:
            return False
        seen.append(wheel.url)
        return verdict(wheel, ahead).verdict.loads == "yes"

    rules = Rules(
        community=demand.community,
        reinstall=demand.reinstall,
        absent=absent,
        only_default=only_default,
        loads=loads,
    )
    while True:
        found = choose(demand, facts, tables, rules)
        if isinstance(found, Conflict):
            return found
        wheels = [one.wheel for one in found.picks if one.wheel]
        answers = [verdict(one, found.ahead) for one in wheels] if read else []
        bad = [one.source for one in answers if one.verdict.loads == "no"]
        if not bad:
            break
        rules = replace(rules, rejected=rules.rejected | {*bad})
    return Installation(
        demand=demand,
        choice=found,
        plan=plan(found, facts, torch_index, reinstall=demand.reinstall),
        read=tuple(answers),
    )


def plan(
    choice: Choice, facts: Facts, torch_index: str = builds.INDEX, *, reinstall: bool = False
) -> Plan:
    """Return the steps: torch with what belongs to it first, then each other package."""
    steps = [_torch_step(choice, facts, torch_index)] if _moves_with_torch(choice) else []
    others = (one for one in choice.picks if one.how != "stays" and one.index != WITH_TORCH)
    steps += [_step(one, choice, torch_index, reinstall=reinstall) for one in others]
    plain = [step for step in steps if step.title == _PLAIN]
    if len(plain) > 1:
        steps = [*(step for step in steps if step.title != _PLAIN), _merged(plain)]
    done = [settled(step, choice.ahead) for step in steps]
    return Plan(
        steps=tuple(replace(step, number=number) for number, step in enumerate(done, 1)),
    )


_PLAIN = "Install packages that fit any torch"


def _moves_with_torch(choice: Choice) -> bool:
    return choice.moves_torch or any(
        pick.index == WITH_TORCH and pick.how != "stays" for pick in choice.picks
    )


def _torch_step(choice: Choice, facts: Facts, base: str) -> Step:
    build = choice.torch
    beside = [one for one in choice.picks if one.index == WITH_TORCH and one.how != "stays"]
    index = build.index or _index_of(build.installed)
    source = ("--index-url", f"{base}/{index}") if index else ()
    wanted = [f"torch=={build.full}"]
    again = choice.moves_torch and (facts.torch.version or "").partition("+")[0] == build.version
    flags = ("--force-reinstall",) if again and not build.index else ()
    title = f"Install {build.text}" if choice.moves_torch else "Install what belongs to torch"
    names = tuple(one.package for one in beside)
    if names:
        title += f", with {' and '.join(names)}" if choice.moves_torch else f": {', '.join(names)}"
    run = ("pip", "install", *flags, *wanted, *(one.requirement for one in beside), *source)
    done = [f'torch.release == "{build.version}"', 'torch.installation_error == ""']
    done += [line for name in names for line in _DONE[name]]
    packages = ("torch", *names) if choice.moves_torch else names
    return _made("torch", title, run, packages, done, choice.ahead)


def _index_of(installed: str) -> str:
    """The index that an installed torch came from: its local version names it."""
    return installed.partition("+")[2]


def _step(pick: Pick, choice: Choice, base: str, *, reinstall: bool) -> Step:
    index = pick.index.replace(builds.INDEX, base)
    source = ("--index-url", index) if index else ()
    # The setup.py of flash-attn imports torch, also where it only fetches a wheel.
    sees_torch = pick.how == "build" or (pick.package, pick.how) == ("flash-attn", "index")
    flags = ("--no-build-isolation",) if sees_torch else ()
    if reinstall:
        # pip keeps a package of the same version, and a wheel that it built earlier.
        flags = (*flags, "--force-reinstall", "--no-deps", "--no-cache-dir")
    requirement = pick.requirement.replace(builds.INDEX, base)
    run = ("pip", "install", *flags, requirement, *source)
    if pick.how == "index" and not pick.version:
        return _made("packages", _PLAIN, run, (pick.package,), [], choice.ahead)
    verb = "Compile" if pick.how == "build" else "Install"
    title = f"{verb} {pick.package} {pick.version}"
    done = [*_DONE.get(pick.package, ())]
    return _made(pick.package, title, run, (pick.package,), done, choice.ahead)


def _merged(steps: list[Step]) -> Step:
    first = steps[0]
    packages = tuple(name for step in steps for name in step.packages)
    run = (("pip", "install", *packages),)
    (fix,) = first.fixes
    return replace(first, packages=packages, run=run, fixes=(replace(fix, run=run),))


def _made(
    name: str,
    title: str,
    run: tuple[str, ...],
    packages: tuple[str, ...],
    done: list[str],
    ahead: Facts,
) -> Step:
    rule = f"install/{name}"
    fix = Fix(
        title=title,
        safety=Safety.ASK,
        rule=rule,
        run=(run,),
        done=tuple(parse(line, catalogue()) for line in done),
    )
    return Step(
        rules=(rule,),
        title=title,
        kind="install",
        safety=Safety.ASK,
        fixes=(fix,),
        run=(run,),
        packages=packages,
        undoable=True,
        estimate=estimate(packages, ahead, cuda=ahead.torch.build == "cuda"),
    )
