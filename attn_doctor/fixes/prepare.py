"""Fills in what only the examined environment can tell: what each step would really change.

For this the installer is asked, in a private folder; nothing is installed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from attn_doctor.facts import Facts
from attn_doctor.fixes import conda, installers
from attn_doctor.fixes.distributions import installed
from attn_doctor.fixes.estimates import estimate
from attn_doctor.fixes.resolve import Asking, ask, ask_together
from attn_doctor.fixes.source_builds import lacking
from attn_doctor.fixes.steps import Plan, Step


def prepared(
    plan: Plan,
    facts: Facts,
    environ: Mapping[str, str],
    *,
    local: bool,
    resolve: bool,
    watch: Callable[[str], None] = lambda _: None,
) -> Plan:
    """The plan with what each step would change, and what keeps it from being carried out.

    `watch` is told what is being asked. Raises nothing: what cannot be told is said in the plan.
    """
    if not local:
        return plan  # of a snapshot's environment there are only the facts
    there = installed(facts.python.site_packages or ())
    owners = conda.owned(facts, there)
    steps = [_not_condas(_completed(step, there), owners, facts) for step in plan.steps]
    blocked = installers.obstacle(facts)
    if blocked:
        steps = [_blocked(step, blocked) for step in steps]
    asked = [step for step in steps if step.ready and step.kind in ("install", "build")]
    if not asked or not resolve:
        return replace(plan, steps=tuple(steps))
    with tempfile.TemporaryDirectory(prefix="attn-doctor-") as folder:
        asking = Asking(facts, there, environ, Path(folder))
        for index, step in enumerate(steps):
            if step in asked:
                watch(f"asking {installers.name(facts)} about step {step.number}")
                earlier = [one for one in steps[:index] if one.ready and "torch" in one.packages]
                found = _asked(step, asking, earlier)
                steps[index] = _not_condas(found, owners, facts)
        ready = [step for step in steps if step.ready]
        together = ask_together(ready, asking) if len(ready) > 1 else ""
    return replace(plan, steps=tuple(steps), together=together)


def _completed(step: Step, there: Mapping[str, object]) -> Step:
    """A build preceded by what it needs and the environment lacks."""
    if step.kind != "build":
        return step
    name = next((one for one in step.packages if one in ("flash-attn", "sageattention")), "")
    missing = lacking(name, there) if name else []
    if not missing:
        return step
    return replace(step, run=(("pip", "install", *missing), *step.run))


def _not_condas(step: Step, owners: Mapping[str, str], facts: Facts) -> Step:
    """The step, blocked if it would overwrite what conda installed."""
    prefix = facts.python.prefix or ""
    if step.blocked_by and step.blocked_by != conda.blocked_by(
        step, conda.owned_by_facts(facts), prefix
    ):
        return step  # for another reason; this one is told again, now with conda's channel
    return replace(step, blocked_by=conda.blocked_by(step, owners, prefix, step.changes))


def _blocked(step: Step, why: str) -> Step:
    """An installation into an environment where nothing can be installed."""
    if step.kind not in ("install", "build") or step.blocked_by:
        return step
    return replace(step, blocked_by=why)


def _asked(step: Step, asking: Asking, earlier: Sequence[Step]) -> Step:
    """The step with what it would change. After an `earlier` one that moves torch it may fit."""
    found = ask(step, asking, str(step.number))
    if found.changes is None and earlier:
        first = earlier[-1].number
        return replace(step, unresolved=f"known only once step {first} is done ({found.why})")
    if found.changes is None:
        return replace(step, blocked_by=f"it cannot be planned: {found.why}", unresolved=found.why)
    cuda = any(one.name.startswith("nvidia-") and one.new for one in found.changes)
    guess = step.estimate
    if step.kind == "install" and guess.basis:  # it installs something
        guess = estimate(step.packages, asking.facts, cuda=cuda)
    return replace(step, changes=found.changes, strict=found.strict, estimate=guess)
