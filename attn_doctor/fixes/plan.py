"""Makes a plan from findings: one step for each fix, in order, with conflicts named.

Pure: the same diagnosis always gives the same plan. Root causes are planned; their consequences are
checked again afterwards. Of several fixes the first that can be applied is used, because rules
write the best first. A fix that only a person can apply is shown and never run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations

from msgspec.structs import replace

from attn_doctor.facts import TRITON_DISTRIBUTIONS, Facts
from attn_doctor.findings import Diagnosis, Finding, Fix, Safety, Severity
from attn_doctor.fixes import conda
from attn_doctor.fixes.next_command import deletes_metadata
from attn_doctor.fixes.pip_arguments import (
    PipCall,
    conflict,
    merged,
    pip_call,
)
from attn_doctor.fixes.postconditions import following
from attn_doctor.fixes.source_builds import settled
from attn_doctor.fixes.steps import Clash, Kind, Plan, Stale, Step
from attn_doctor.shell.installers import owned_by_conda

#: Groups of packages in the order in which they have to be installed.
_RANKS = (
    ({"pip", "uv", "setuptools", "wheel", "ninja"}, 20),
    ({"torch", "torchvision", "torchaudio"}, 30),
    ({*TRITON_DISTRIBUTIONS}, 40),
    ({"xformers", "flash-attn", "flash-attn-3", "flash-attn-4", "sageattention", "sageattn3"}, 50),
)
_FRAMEWORKS = 60
_AREAS = {"driver": 0, "system": 5, "toolkit": 10, "python": 20, "torch": 30, "triton": 40}


def plan(
    diagnosis: Diagnosis, named: Collection[str] = (), *, only_auto: bool = False, choice: int = 1
) -> Plan:
    """Return the plan for all errors and warnings, or for the rules `named`.

    `choice` selects the nth fix of the named rules instead of the best.
    """
    roots = [one for one in diagnosis.problems if _wanted(one, named)]
    steps: list[Step] = []
    without = []
    for finding in roots:
        fix = _chosen(finding.fixes, choice if named else 1)
        if fix is None:
            without.append(finding.rule)
            continue
        step = _step(finding, fix, diagnosis.facts, named=bool(named))
        if not only_auto or step.safety is Safety.AUTO:
            steps.append(step)
    steps, clashes = _without_clashes(_merged_steps(steps))
    steps.sort(key=lambda step: step.rank)
    # Decided last: a step that was merged from two is one build.
    done = [settled(step, diagnosis.facts) for step in steps]
    return Plan(
        steps=tuple(replace(step, number=number) for number, step in enumerate(done, 1)),
        clashes=tuple(clashes),
        explained=_explained(diagnosis, steps),
        follows=tuple((one.rule, one.title) for one in following(diagnosis, done)),
        without=tuple(dict.fromkeys(without)),
        notes=() if named else tuple(_notes(diagnosis)),
    )


def _wanted(finding: Finding, named: Collection[str]) -> bool:
    if named:
        return finding.rule in named
    return not finding.caused_by and finding.severity is not Severity.INFO


def _notes(diagnosis: Diagnosis) -> Iterable[str]:
    """Notes with a fix, which are planned only by name."""
    notes = (
        one.rule
        for one in diagnosis.problems
        if one.severity is Severity.INFO and not one.caused_by and one.fixes
    )
    return dict.fromkeys(notes)


def _chosen(fixes: Sequence[Fix], choice: int) -> Fix | None:
    """The fix to plan: the first that a program can apply, else the first."""
    if choice > 1:
        return fixes[choice - 1] if choice <= len(fixes) else None
    return next(filter(_runnable, fixes), fixes[0] if fixes else None)


def _runnable(fix: Fix) -> bool:
    return fix.safety is not Safety.MANUAL and bool(fix.run or fix.exports)


def _step(finding: Finding, fix: Fix, facts: Facts, *, named: bool) -> Step:
    calls = [pip_call(argv) for argv in fix.run]
    kind = _kind(fix, calls)
    packages = sorted({name for call in calls if call for name in call.names})
    place = finding.fixes.index(fix)
    better = [one for one in finding.fixes[:place] if not _runnable(one)]
    others = (one.title for one in finding.fixes if one is not fix and one not in better)
    subject = f" ({finding.subject})" if finding.subject else ""
    step = Step(
        rules=(finding.rule,),
        title=fix.title + subject,
        kind=kind,
        safety=fix.safety,
        fixes=(fix,),
        run=fix.run,
        exports=fix.exports,
        manual=fix.manual,
        needs=fix.needs,
        clears=fix.clears,
        stale=_stale(fix.clears, facts),
        packages=tuple(packages),
        rank=_rank(finding.rule, packages, fix.exports),
        undoable=kind in ("install", "build") or _removes_only_metadata(fix.run, facts),
        better=tuple(f"{one.title}: {one.manual}" if one.manual else one.title for one in better),
        alternatives=tuple(others),
    )
    return replace(step, blocked_by=_blocked_by(step, facts, named=named))


def _kind(fix: Fix, calls: Sequence[PipCall | None]) -> Kind:
    if fix.safety is Safety.MANUAL or not (fix.run or fix.exports):
        return "manual"
    if not fix.run:
        return "variables"
    return "install" if all(calls) else "command"


def _removes_only_metadata(run: Sequence[tuple[str, ...]], facts: Facts) -> bool:
    """Beside pip's commands it deletes metadata in the environment, of which a copy is made."""
    others = [argv for argv in run if not pip_call(argv)]
    return 0 < len(others) < len(run) and all(deletes_metadata(argv, facts) for argv in others)


def _blocked_by(step: Step, facts: Facts, *, named: bool) -> str:
    """Why attn-doctor does not apply the step itself; empty if it does."""
    if why := conda.blocked_by(step, owned_by_conda(facts), facts.python.prefix or ""):
        return why
    if step.kind != "command":
        return ""
    installs = [argv for argv in step.run if argv[:2] == ("attn-doctor", "install")]
    if installs:
        if any("--community" in argv for argv in installs):
            return "it installs a wheel that others publish: run the command, which shows its plan"
        return "it installs another torch: run the command, which shows its plan and can be undone"
    if any(argv[:1] == ("sudo",) for argv in step.run) and not facts.system.user_is_root:
        return "it needs root, which attn-doctor never requests: run the command yourself"
    if step.packages or any(argv[:2] == ("python", "-m") for argv in step.run):
        return ""
    if not named:
        return (
            "it changes the machine and cannot be undone; attn-doctor applies it only by name:"
            f" `attn-doctor fix {step.rules[0]}`"
        )
    return ""


def _rank(rule: str, packages: Sequence[str], exports: dict[str, str]) -> int:
    if packages:
        named = [rank for names, rank in _RANKS if names & {*packages}]
        return min(named, default=_FRAMEWORKS)
    area = rule.partition("/")[0]
    return _AREAS.get(area, 10 if exports else _FRAMEWORKS)


def _stale(kinds: Iterable[str], facts: Facts) -> tuple[Stale, ...]:
    caches = facts.caches or ()
    return tuple(
        Stale(one.kind or "", one.path or "", one.bytes)
        for kind in kinds
        for one in caches
        if one.kind == kind and one.exists
    )


def _merged_steps(steps: Iterable[Step]) -> list[Step]:
    """Merge steps that do the same, or install the same packages from the same index."""
    found: list[Step] = []
    for step in steps:
        for index, earlier in enumerate(found):
            both = _merge(earlier, step)
            if both is not None:
                found[index] = both
                break
        else:
            found.append(step)
    return found


def _merge(one: Step, other: Step) -> Step | None:
    """One step for two, or None if that is impossible."""
    if joined := _as_one_command(one, other):
        return joined
    if one.kind != other.kind or (one.kind == "manual" and one.manual != other.manual):
        return None
    run = one.run
    if (one.run, one.exports) != (other.run, other.exports):
        left, right = (
            pip_call(step.run[0]) if len(step.run) == 1 else None for step in (one, other)
        )
        call = merged(left, right) if left and right and not one.exports else None
        if call is None:
            return None
        run = (call.argv,)
    elif one.title != other.title and one.kind == "manual":
        return None
    return replace(
        one,
        rules=tuple(dict.fromkeys((*one.rules, *other.rules))),
        run=run,
        fixes=(*one.fixes, *other.fixes),
        safety=Safety.ASK if Safety.ASK in (one.safety, other.safety) else one.safety,
        clears=tuple(dict.fromkeys((*one.clears, *other.clears))),
        stale=tuple(dict.fromkeys((*one.stale, *other.stale))),
        better=tuple(dict.fromkeys((*one.better, *other.better))),
        alternatives=tuple(dict.fromkeys((*one.alternatives, *other.alternatives))),
        rank=min(one.rank, other.rank),
    )


def _as_one_command(one: Step, other: Step) -> Step | None:
    """One step for what two subjects of a problem need; None for other steps.

    `check` prints it as one command too.
    """
    same = one.rules == other.rules and one.fixes[0].title == other.fixes[0].title
    runs = [*one.run, *other.run]
    plain = len(runs) == 2 and all(
        argv[:2] == ("pip", "install") and not any(word.startswith("-") for word in argv)
        for argv in runs
    )
    if not (same and plain and one.kind == other.kind == "install"):
        return None
    if one.exports or other.exports or {*one.packages} & {*other.packages}:
        return None  # pip refuses two requirements of one package
    return replace(
        one,
        title=one.fixes[0].title,
        run=((*runs[0], *runs[1][2:]),),
        fixes=(*one.fixes, *other.fixes),
        packages=tuple(sorted({*one.packages, *other.packages})),
        rank=min(one.rank, other.rank),
    )


def _without_clashes(steps: list[Step]) -> tuple[list[Step], list[Clash]]:
    """The steps, those blocked that exclude each other."""
    clashes = []
    blocked: dict[int, str] = {}
    for (i, one), (j, other) in combinations(enumerate(steps), 2):
        about = _clash(one, other)
        if not about:
            continue
        rules = (one.rules[0], other.rules[0])
        wants = (_need(one, about), _need(other, about))
        clashes.append(Clash(about=about, rules=rules, wants=wants))
        for index, (mine, theirs) in ((i, rules), (j, rules[::-1])):
            blocked[index] = (
                f"{theirs} needs another {about}: choose with `attn-doctor fix {mine}`"
                f" or `attn-doctor fix {theirs}`"
            )
    return [
        replace(step, blocked_by=blocked[index]) if index in blocked else step
        for index, step in enumerate(steps)
    ], clashes


def _clash(one: Step, other: Step) -> str:
    for name in one.exports.keys() & other.exports.keys():
        if one.exports[name] != other.exports[name]:
            return name
    for left in filter(None, map(pip_call, one.run)):
        for right in filter(None, map(pip_call, other.run)):
            if about := conflict(left, right):
                return about
    return ""


def _need(step: Step, about: str) -> str:
    """What a step needs of one package or variable, as text."""
    if about in step.exports:
        return f"{about}={step.exports[about]}" if step.exports[about] else f"no {about}"
    for call in filter(None, map(pip_call, step.run)):
        for one in call.wanted:
            if one.name == about:
                source = next((f" from {url}" for _, url in call.indexes), "")
                return f"no {about}" if call.verb == "uninstall" else one.text + source
    return about


def _explained(diagnosis: Diagnosis, steps: Iterable[Step]) -> dict[str, tuple[str, ...]]:
    planned = {rule for step in steps for rule in step.rules}
    found: dict[str, list[str]] = {}
    for one in diagnosis.problems:
        if one.caused_by in planned and one.rule not in planned:
            found.setdefault(one.caused_by, []).append(one.rule)
    return {rule: tuple(dict.fromkeys(rules)) for rule, rules in found.items()}
