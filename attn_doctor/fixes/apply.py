"""Applies a plan: one step after another, each journalled, each rolled back if it fails.

Before an installer runs, the environment's folders are copied; when it fails or is interrupted they
are restored at once, so that no step is half done. The changes of earlier steps are kept, and
`fix undo` undoes them.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.explain.engine import explain
from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding
from attn_doctor.fixes import env_snapshot, installers
from attn_doctor.fixes.distributions import Change, Installed, compared, installed
from attn_doctor.fixes.env_snapshot import Copies
from attn_doctor.fixes.installers import Outcome, installer_environment, run
from attn_doctor.fixes.journal import Journal, alive, begin
from attn_doctor.fixes.locks import environment_lock
from attn_doctor.fixes.pip_arguments import pip_call
from attn_doctor.fixes.postconditions import compare_problems, unmet
from attn_doctor.fixes.source_builds import environment
from attn_doctor.fixes.steps import Plan, Step
from attn_doctor.fixes.undo import roll_back
from attn_doctor.rulebook import library
from attn_doctor.shell.commands import split_assignments

#: Plans the fixes of some rules for a changed environment.
Replan = Callable[[Diagnosis, Collection[str]], Plan]
State = Literal["done", "failed", "not needed", "not reached", "yours"]
_log = logging.getLogger(__name__)
#: Seconds that a step may take, by its kind.
_LIMITS = {"install": 3600.0, "build": 4 * 3600.0, "command": 1800.0}


class StepResult(Struct, frozen=True, kw_only=True):
    """The result of one step."""

    step: Step
    state: State
    detail: str = ""
    """Why it failed or was not applied."""
    causes: tuple[str, ...] = ()
    """What `explain` finds in its log."""
    log: str = ""
    seconds: float = 0.0


class Applied(Struct, frozen=True, kw_only=True):
    """The results of a plan."""

    id: str
    results: tuple[StepResult, ...]
    changes: tuple[Change, ...]
    """Distributions, before and after."""
    resolved: tuple[Finding, ...]
    introduced: tuple[Finding, ...]
    after: Diagnosis

    @property
    def ok(self) -> bool:
        """Every step that could be applied was, and did what its rules promise."""
        return all(result.state in ("done", "not needed", "yours") for result in self.results)


class Watch(Protocol):
    """Shows the progress."""

    def started(self, step: Step) -> None:
        """A step begins."""

    def line(self, step: Step, text: str) -> None:
        """Its installer printed a line."""

    def ended(self, result: StepResult) -> None:
        """A step ended."""

    def agrees(self, new: Step) -> bool:
        """Whether to apply this step, which differs from the one that the user agreed to."""


class _Run:
    """One run: what its steps share."""

    def __init__(
        self, journal: Journal, facts: Facts, environ: Mapping[str, str], watch: Watch
    ) -> None:
        self.journal = journal
        self.facts = facts
        self.watch = watch
        self.environ = dict(environ)
        self.folders = env_snapshot.places(facts, environ, journal.folder)
        self.locks: tuple[int, ...] = ()
        """Held by the installers too, so that one which outlives a killed run counts as running."""
        self.sites = list(facts.python.site_packages or self.folders[:1])

    def apply(self, step: Step) -> StepResult:
        """Apply one step, from its first line in the journal to its last."""
        self.watch.started(step)
        if step.kind == "variables":
            # For the commands that follow; the user's shell cannot be reached from here.
            for name, value in step.exports.items():
                self.environ[name] = value
                if not value:
                    del self.environ[name]
            return self._ended(StepResult(step=step, state="yours"))
        self.journal.note("step", number=step.number, state="started", run=step.run)
        log = self.journal.folder / f"step-{step.number}.log"
        start = time.monotonic()
        copies: Copies | None = None
        try:
            self._check_disk(step)
            if step.undoable:
                copies = env_snapshot.keep(self.journal, self.folders, f"step-{step.number}")
            ended = self._commands(step, log, copies)
            detail = "" if ended.ok else installers.failure(ended)
        except AttnDoctorError as error:
            detail = str(error)
        except BaseException:
            self._roll_back(copies, log)
            raise
        seconds = time.monotonic() - start
        if not detail:
            return self._ended(StepResult(step=step, state="done", log=str(log), seconds=seconds))
        faults = self._roll_back(copies, log)
        detail += "; its changes were undone" if copies and not faults else ""
        return self._ended(
            StepResult(
                step=step,
                state="failed",
                detail="; ".join([detail, *faults]),
                causes=_causes(log),
                log=str(log) if log.exists() else "",
                seconds=seconds,
            )
        )

    def _ended(self, result: StepResult) -> StepResult:
        step = result.step
        _log.debug("step %d %s after %.1f s", step.number, result.state, result.seconds)
        self.journal.note(
            "step", number=step.number, state=result.state, detail=result.detail, log=result.log
        )
        self.watch.ended(result)
        return result

    def _check_disk(self, step: Step) -> None:
        free = shutil.disk_usage(self.folders[0]).free >> 20
        if step.estimate.disk_mib > free:
            raise AttnDoctorError(
                f"{self.folders[0]} has {free} MiB free, and the step writes some"
                f" {step.estimate.disk_mib} MiB; nothing was changed"
            )

    def _commands(self, step: Step, log: Path, copies: Copies | None) -> Outcome:
        """Run the step's commands, and record what they changed."""
        with alive(copies.mark) if copies else contextlib.nullcontext():
            ended = self._run_all(step, log, copies)
            if ended.ok and copies:
                env_snapshot.record(self.journal, copies, copies.changes(log))
        return ended

    def _run_all(self, step: Step, log: Path, copies: Copies | None) -> Outcome:
        constraint = self.journal.folder / f"constraints-{step.number}.txt"
        there = installed(self.sites)
        lines = installers.constraints(there, step.packages, strict=step.strict)
        constraint.write_text("\n".join(lines) + "\n", encoding="utf-8")
        ended = Outcome(code=0)
        for argv in step.run:
            given = dict(pair.split("=", 1) for pair in split_assignments(argv)[0])
            command = installers.command(argv, self.facts, constraint)
            if step.kind == "build":
                command = (*command, "-v")  # pip shows the compilers' output only then
            call = pip_call(argv)
            names = {*(call.names if call else ()), *(one.name for one in step.changes or ())}
            if copies:
                copies.asked.append(frozenset(names))
            ended = run(
                command,
                seconds=_LIMITS.get(step.kind, 3600.0),
                env=installer_environment(
                    self.environ, {**given, **environment(step, self.environ)}
                ),
                folder=self.journal.folder,
                log=log,
                on_line=lambda line: self.watch.line(step, line),
                on_start=partial(self._started, names),
                inherit=self.locks,
            )
            if not ended.ok:
                break
        return ended

    def _started(self, names: Collection[str], process: int) -> None:
        """An installer was started, which is known to change these distributions."""
        self.journal.note("child", process=process, names=sorted(names))

    def _roll_back(self, copies: Copies | None, log: Path) -> list[str]:
        return roll_back(self.journal, copies, log) if copies else []


def apply(
    plan: Plan,
    before: Diagnosis,
    environ: Mapping[str, str],
    watch: Watch,
    look: Callable[[], Diagnosis],
    replan: Replan,
    seen: Mapping[str, Installed],
) -> Applied:
    """Apply all steps of `plan` that can be applied. `look` examines the environment again.

    `seen`: the distributions that were installed when the user agreed to the plan.

    `replan` plans the remaining rules once torch has changed. Raises `AttnDoctorError` before
    anything is changed if the environment cannot be read or kept. Ctrl-C is passed on, after the
    current step was rolled back.
    """
    facts = before.facts
    title = ", ".join(rule for step in plan.ready for rule in step.rules)
    with begin(environ, f"fix {title}", facts.python.path or "") as journal:
        run_state = _Run(journal, facts, environ, watch)
        with environment_lock(run_state.folders[0], journal.folder.parent) as handle:
            run_state.locks = (journal.lock_handle, handle)
            there = installed(run_state.sites)
            if there != seen:
                raise AttnDoctorError(
                    f"the packages in {run_state.folders[0]} changed since the plan was made;"
                    " nothing was changed; run the same command again for a new plan"
                )
            journal.note("before", installed={name: one.version for name, one in there.items()})
            wanted = [step for step in plan.steps if step.ready or step.kind == "variables"]
            steps = [step for step in wanted if not step.blocked_by]
            results = _apply_all(run_state, steps, look, replan)
            now = installed(run_state.sites)
            after = look()
            results = [_checked(result, after.facts) for result in results]
            failed = any(result.state == "failed" for result in results)
            journal.note("end", result="failed" if failed else "done")
    resolved, introduced = compare_problems(before.problems, after.problems)
    return Applied(
        id=journal.id,
        results=tuple(results),
        changes=tuple(compared(there, now)),
        resolved=tuple(resolved),
        introduced=tuple(introduced),
        after=after,
    )


def _apply_all(
    run_state: _Run, steps: Sequence[Step], look: Callable[[], Diagnosis], replan: Replan
) -> list[StepResult]:
    """Apply every step in turn. After a failure no other begins: it may depend on the first."""
    results: list[StepResult] = []
    rest = list(steps)
    while rest:
        step = rest.pop(0)
        result = run_state.apply(step)
        results.append(result)
        if result.state == "failed":
            results += [StepResult(step=later, state="not reached") for later in rest]
            break
        if "torch" in step.packages and rest:
            # Which xformers fits depends on the torch that is installed now.
            fresh = replan(look(), [rule for step in rest for rule in step.rules])
            rest, dropped = _replanned(rest, fresh, run_state.watch.agrees)
            results += dropped
    return results


def _replanned(
    rest: Sequence[Step], fresh: Plan, agrees: Callable[[Step], bool]
) -> tuple[list[Step], list[StepResult]]:
    """The remaining steps as `fresh` has them, and those that are dropped.

    `agrees` is asked about each step that would do something else than was planned.
    """
    by_rule = {rule: step for step in fresh.steps for rule in step.rules}
    kept, dropped = [], []
    for step in rest:
        new = next((by_rule[rule] for rule in step.rules if rule in by_rule), None)
        if new is None:
            state: State = "not needed"
            why = "the new torch does not need it"
        elif new.blocked_by or new.kind == "manual":
            state, why = "not reached", new.blocked_by or new.manual
        else:
            new = replace(new, number=step.number)
            if _does_the_same(new, step) or agrees(new):
                others = (fix for fix in step.fixes if fix.rule not in new.rules)
                kept.append(replace(new, rules=step.rules, fixes=(*new.fixes, *others)))
                continue
            state, why = "not reached", "another fix is needed now: run `attn-doctor fix` again"
        dropped.append(StepResult(step=step, state=state, detail=why))
    return kept, dropped


def _does_the_same(new: Step, agreed: Step) -> bool:
    """It runs the same commands and changes no package that `agreed` does not change."""
    changes = {*(new.changes or ())} if agreed.changes is not None else set()
    return (new.run, new.variables, new.exports) == (
        agreed.run,
        agreed.variables,
        agreed.exports,
    ) and changes <= {*(agreed.changes or ())}


def _checked(result: StepResult, after: Facts) -> StepResult:
    """The result after a look at the new facts: a step that broke its rules' promise has failed."""
    faults = unmet(result.step.fixes, after) if result.state == "done" else []
    if not faults:
        return result
    return replace(result, state="failed", detail="it ran, but " + "; ".join(faults))


def _causes(log: Path) -> tuple[str, ...]:
    """The causes that `explain` finds in `log`, the likeliest first, as `title [rule]`."""
    if not log.is_file():
        return ()
    found = explain([str(log)], library.load())
    return tuple(f"{match.title} [{match.rule}]" for match in found.matches[:3])
