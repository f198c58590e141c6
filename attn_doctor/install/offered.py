"""The fixes of a diagnosis that can work on this machine, as `fix` and `install` would do them.

A rule that needs flash-attn, xformers or SageAttention names `attn-doctor install`, which chooses a
release. Where a prebuilt wheel fits the installed torch, pip's command is shown in its place. Where
torch has to change, or a build from source is needed, the command stays; where nothing fits, the
fix says why. On Windows the choice includes the wheels of others, if there is none of the project.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from attn_doctor.derived.releases import tag
from attn_doctor.explain.explanation import Explanation
from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding, Fix, Safety, Verdict
from attn_doctor.fixes import python_support, torch_support
from attn_doctor.fixes.pip_arguments import PipCall, Wanted, pip_call
from attn_doctor.fixes.postconditions import Same, with_build
from attn_doctor.fixes.source_builds import (
    PARALLELISM,
    Preflight,
    built_by,
    pinned,
    preflight,
    takes_release,
)
from attn_doctor.install.builds import TorchBuild, published
from attn_doctor.install.choice import Choice, Conflict, choose
from attn_doctor.install.demand import Demand
from attn_doctor.install.known_faults import known_faults
from attn_doctor.install.packages import Pick
from attn_doctor.install.together import joined
from attn_doctor.requirement import satisfies
from attn_doctor.rulebook import library
from attn_doctor.shell.commands import split_assignments


def offered(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with fixes that can work here first, each as `fix` would apply it."""
    facts = diagnosis.facts
    found = tuple(_finding(finding, facts) for finding in diagnosis.findings)
    return joined(replace(diagnosis, findings=found))


def _finding(finding: Finding, facts: Facts) -> Finding:
    if finding.verdict is not Verdict.PROBLEM:
        return finding
    return replace(finding, fixes=_fixes(finding.fixes, facts))


def _fixes(fixes: tuple[Fix, ...], facts: Facts) -> tuple[Fix, ...]:
    """The fixes as `fix` would apply them, those that cannot work yet at the end."""
    if not any(fix.run for fix in fixes):
        return fixes
    possible = [possible_here(fix, facts) for fix in fixes]
    possible.sort(key=lambda fix: fix.title.startswith(_IMPOSSIBLE))  # stable: best first
    for_these_gpus = [fix for fix in possible if not fix.title.startswith(_NO_GPU)]
    return tuple(for_these_gpus or possible)


def decided(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis for `fix`, which does not install another torch for a package.

    Such a fix names `attn-doctor install`, or says why nothing fits.
    """
    facts = diagnosis.facts
    found = tuple(
        replace(
            one,
            fixes=tuple(
                _with_faults(_decided(fix, facts, builds=False), facts) for fix in one.fixes
            ),
        )
        for one in diagnosis.findings
    )
    return joined(replace(diagnosis, findings=found))


def offered_for_log(found: Explanation) -> Explanation:
    """Return the explanation with the fixes that can work on the machine of its log first.

    That machine is known in part only: what the log does not state excludes no fix.
    """
    facts, guess = found.facts, found.guess
    matches = tuple(replace(one, fixes=_fixes(one.fixes, facts)) for one in found.matches)
    if guess is not None:
        guess = replace(guess, fixes=_fixes(guess.fixes, facts))
    return replace(found, matches=matches, guess=guess)


#: The start of the title of a fix that cannot work yet.
_LATER = "Not possible yet: "
#: The start of the title of a fix that this Python excludes.
_NEVER = "Not possible with this Python: "
#: The start of the title of a fix for which no set of releases exists here.
_NOWHERE = "Not possible here: "
#: The start of the title of a fix that these GPUs exclude. It is left out beside other fixes.
_NO_GPU = "Not possible on this GPU: "
_IMPOSSIBLE = (_LATER, _NEVER, _NOWHERE, _NO_GPU)
#: Packages that `install` chooses with their torch → its word for them.
_WORDS = {
    "flash-attn": "flash",
    "flash-attn-3": "flash3",
    "xformers": "xformers",
    "sageattention": "sage",
}
_TORCH = {"torch", "torchvision", "torchaudio"}
#: What a build imports, which `install` brings itself.
_TOOLS = {"packaging", "ninja", "psutil", "wheel", "setuptools"}
#: The condition in the title of a fix.
_FIRST, _LAST = re.compile(r"If [^,:]{3,100}[,:] "), re.compile(r", if [^,]{3,100}$")
_COMMUNITY = "--community"
#: Options of `install` that a fix may have.
_OPTIONS = (_COMMUNITY, "--reinstall")
#: Options of a command that repairs the installed release.
_REPAIRS = {"--force-reinstall", "--no-deps"}


def possible_here(fix: Fix, facts: Facts) -> Fix:
    """Return the fix as `fix` would apply it; without its command if its build would stop here."""
    fix = _with_faults(_decided(fix, facts, builds=True), facts)
    run: list[tuple[str, ...]] = []
    for argv in fix.run:
        call = pip_call(argv)
        if unfit := python_support.obstacle(call or _asked(argv), facts):
            return _not_here(fix, unfit)
        if call is None:
            run.append(argv)
            continue
        if unfit := torch_support.obstacle(call, facts):
            return _by_hand(fix, _NOWHERE, _sentence([unfit]))
        name = built_by(call, facts)
        if not name:
            ready = torch_support.bounded(pinned(call, facts), facts)
            run.append(argv if ready == call else ready.argv)
            if any(one.url.endswith(".whl") for one in ready.wanted):
                fix = replace(fix, needs="")  # nothing is compiled
        else:
            found = preflight(name, facts, release=takes_release(call, name))
            if found.obstacles:
                return _not_yet(fix, found)
            run.append(_prepared(argv, found, facts))
    return replace(fix, run=tuple(run))


def _asked(argv: tuple[str, ...]) -> PipCall:
    """The packages that a command of `install` names; SageAttention 2 is not on the index."""
    named = argv[2:] if argv[:2] == ("attn-doctor", "install") else ()
    wanted = (
        Wanted(package, url="its repository" if word == "sage" else "")
        for package, word in _WORDS.items()
        if word in named
    )
    return PipCall(verb="install", wanted=tuple(wanted))


def _decided(fix: Fix, facts: Facts, *, builds: bool) -> Fix:
    """Return the fix as `install` decides it; pip's command stays where the installed torch does.

    `builds`: a build from source names `install` too.
    """
    words = _words(fix.run)
    if not words or not _is_known(facts):
        return fix
    options = tuple(one for one in _OPTIONS if any(one in argv for argv in fix.run))
    found = _chosen(words, Same(facts), options)
    if facts.system.os == "windows" and not _prebuilt(found) and _COMMUNITY not in options:
        others = _chosen(words, Same(facts), (_COMMUNITY, *options))
        if _prebuilt(others):
            found, options = others, (_COMMUNITY, *options)
    if isinstance(found, Conflict):
        return _by_hand(fix, _head(found, facts), _sentence(found.reasons))
    named = any(argv[:2] == ("attn-doctor", "install") for argv in fix.run)
    if found.moves_torch or _COMMUNITY in options or (builds and not _prebuilt(found)):
        return replace(
            fix,
            title=_under_its_condition(fix.title, _title(found)),
            safety=Safety.ASK,
            run=(("attn-doctor", "install", *words, *options),),
            manual="",
            needs="",
        )
    return replace(fix, run=_by_pip(found, facts, options)) if named else fix


def _is_known(facts: Facts) -> bool:
    """The facts that decide which wheel fits are known; a log states only some."""
    torch = facts.torch
    of_torch = (torch.version, torch.build) if torch.installed else ()
    return None not in (torch.installed, *of_torch, facts.python.version, facts.system.os)


def _prebuilt(found: Choice | Conflict) -> bool:
    """A set exists of which nothing is compiled."""
    return isinstance(found, Choice) and all(one.how != "build" for one in found.picks)


def _by_pip(found: Choice, facts: Facts, options: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The commands with which `install` would install the packages."""
    from attn_doctor.install.plan import plan

    steps = plan(found, facts, reinstall="--reinstall" in options).steps
    return tuple(argv for step in steps for argv in step.run)


def _head(found: Conflict, facts: Facts) -> str:
    """The start of the title of a fix that cannot work."""
    if found.names == ("gpu",) or facts.system.os == "macos":
        return _NO_GPU
    return _LATER if {*found.names} <= _WORDS.keys() else _NOWHERE


def _sentence(reasons: Sequence[str]) -> str:
    text = "; ".join(reasons)
    return f"{text[0].upper()}{text[1:]}."


def _with_faults(fix: Fix, facts: Facts) -> Fix:
    """Return the fix with a word on advisories that the torch that it installs falls under."""
    calls = [call for call in map(pip_call, fix.run) if call and call.verb == "install"]
    build = next((found for call in calls if (found := _torch_of(call, facts))), None)
    if build is None or not facts.gpus:
        return fix
    ahead = with_build(facts, build.full, build.cuda)
    for training in (False, True):
        faults = known_faults(Demand(words=("native",), training=training), ahead)
        if faults:
            numbers = ", ".join(one.rule.partition("/")[2] for one in faults)
            phase = "training" if training else "inference"
            words = f"{build.text} has a known fault in {phase} ({numbers})"
            return replace(fix, title=f"{fix.title}; {words}")
    return fix


def _torch_of(call: PipCall, facts: Facts) -> TorchBuild | None:
    """The build of torch that a command installs; None if it names none, or none of the tables."""
    wanted = next((one for one in call.wanted if one.name == "torch" and not one.url), None)
    if wanted is None:
        return None
    index = next((url.rpartition("/")[2] for _, url in call.indexes), "")
    local = "+" in wanted.specifier
    return next(
        (
            build
            for build in published(facts, library.tables(), cuda=index != "cpu")
            if satisfies(build.version + f"+{tag(build.cuda)}" * local, wanted.specifier)
            and index in (build.index, tag(build.cuda))
        ),
        None,
    )


@lru_cache(maxsize=16)
def _chosen(words: tuple[str, ...], same: Same, options: tuple[str, ...]) -> Choice | Conflict:
    """What `install` chooses; all backends of a report ask for it."""
    demand = Demand(
        words=words, community=_COMMUNITY in options, reinstall="--reinstall" in options
    )
    return choose(demand, same.facts, library.tables())


def _words(run: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """The words of `install` for commands that install such packages; empty for other commands."""
    found: set[str] = set()
    for argv in run:
        call = pip_call(argv)
        named = call.names if call is not None else frozenset[str]()
        repairs = call is not None and _REPAIRS & {*call.flags} and named & _WORDS.keys()
        if argv[:2] == ("attn-doctor", "install"):
            found |= {*argv[2:]}
        elif (
            call is None
            or call.verb != "install"
            or repairs
            or named - _WORDS.keys() - _TORCH - _TOOLS
        ):
            return ()
        found |= {_WORDS[name] for name in named & _WORDS.keys()}
    return tuple(word for word in _WORDS.values() if word in found)


def _title(found: Choice) -> str:
    """What `install` does, in a few words."""
    moving = [one for one in found.picks if one.how != "stays" and one.version]
    names = " and ".join(f"{one.package} {one.version}{_origin(one)}" for one in moving)
    return f"Install {names}, with {found.torch.text}" if found.moves_torch else f"Install {names}"


def _origin(one: Pick) -> str:
    """Where a package comes from, if not from its project's wheels."""
    if one.how == "build":
        return ", compiled here"
    return "" if one.wheel is None or one.official else f", a wheel by {one.wheel.publisher}"


def _under_its_condition(title: str, new: str) -> str:
    """The new title with the condition of the old one: "Update it, if …" or "If …, update it"."""
    if match := _FIRST.match(title):
        return match[0] + new[0].lower() + new[1:]
    match = _LAST.search(title)
    return new + match[0] if match else new


def _prepared(argv: tuple[str, ...], found: Preflight, facts: Facts) -> tuple[str, ...]:
    """A build with the variables that fit this machine; those of the rule give way."""
    assignments, words = split_assignments(argv)
    kept = {name: value for name, _, value in (one.partition("=") for one in assignments)}
    fitting = {
        name: value
        for name, value in found.variables.items()
        if facts.build.jobs is not None or name not in PARALLELISM
    }
    variables = {**kept, **fitting}
    return (*(f"{name}={value}" for name, value in variables.items()), *words)


def _not_yet(fix: Fix, found: Preflight) -> Fix:
    """A build that would stop, without its command: with the reason in its place."""
    return _by_hand(fix, _LATER, _sentence(found.obstacles))


def _not_here(fix: Fix, reason: str) -> Fix:
    """A fix that this Python excludes, with what makes it possible."""
    words = (
        f"{reason}. It needs an environment with another Python, in which all is installed anew."
    )
    return _by_hand(fix, _NEVER, words)


def _by_hand(fix: Fix, head: str, manual: str) -> Fix:
    title = head + fix.title[0].lower() + fix.title[1:]
    return replace(fix, title=title, safety=Safety.MANUAL, run=(), manual=manual)
