"""Carries a plan out: one step after another, each journalled, each taken back if it fails.

Before an installer runs, the environment's folders are kept; when it fails or is interrupted they
are brought back at once, so that no step is half done. What was done by earlier steps stays, and
`fix --undo` takes it back.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding
from attn_doctor.fixes import env_snapshot, installers, link_copy
from attn_doctor.fixes.distributions import (
    Change,
    Installed,
    compared,
    installed,
)
from attn_doctor.fixes.env_snapshot import Part
from attn_doctor.fixes.failure_causes import causes
from attn_doctor.fixes.journal import Journal, begin
from attn_doctor.fixes.plan import plan as planned
from attn_doctor.fixes.postconditions import compare_problems, unmet
from attn_doctor.fixes.run_installer import Outcome, installer_environment, run
from attn_doctor.fixes.source_builds import environment
from attn_doctor.fixes.steps import Plan, Step

State = Literal["done", "failed", "not needed", "not reached", "yours"]
#: Seconds that an installation and a build may take.
_LIMITS = {"install": 3600.0, "build": 4 * 3600.0, "command": 1800.0}


class Done(Struct, frozen=True, kw_only=True):
    """What became of one step."""

    step: Step
    state: State
    told: str = ""
    """Why it failed or was not carried out."""
    causes: tuple[str, ...] = ()
    """What `explain` finds in its log."""
    log: str = ""
    seconds: float = 0.0


class Applied(Struct, frozen=True, kw_only=True):
    """What became of the plan."""

    id: str
    done: tuple[Done, ...]
    changes: tuple[Change, ...]
    """Distributions, before and after."""
    resolved: tuple[Finding, ...]
    introduced: tuple[Finding, ...]
    after: Diagnosis

    @property
    def ok(self) -> bool:
        """Every step that could be carried out was, and did what its rule promises."""
        return all(one.state in ("done", "not needed", "yours") for one in self.done)


class Watch(Protocol):
    """Whoever shows the progress."""

    def started(self, step: Step) -> None:
        """A step begins."""

    def line(self, step: Step, text: str) -> None:
        """Its installer printed a line."""

    def ended(self, done: Done) -> None:
        """A step ended."""


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
        self.kept: tuple[Part, ...] = ()
        """The copies from before the first installation, which --undo goes back to."""
        self.sites = list(facts.python.site_packages or self.folders[:1])

    def carry_out(self, step: Step) -> Done:
        """One step, from its first line in the journal to its last."""
        self.watch.started(step)
        if step.kind == "variables":
            # For the commands that follow; the user's shell cannot be reached from here.
            for name, value in step.exports.items():
                self.environ[name] = value
                if not value:
                    del self.environ[name]
            return self._ended(Done(step=step, state="yours"))
        self.journal.note("step", number=step.number, state="started", run=step.run)
        log = self.journal.folder / f"step-{step.number}.log"
        start = time.monotonic()
        parts: tuple[Part, ...] = ()
        try:
            self._room(step)
            if step.undoable:
                parts = env_snapshot.keep(self.journal, self.folders, f"step-{step.number}")
            ended = self._commands(step, log)
        except AttnDoctorError as error:
            return self._ended(Done(step=step, state="failed", told=str(error)))
        except BaseException:
            self._take_back(step, parts)
            raise
        seconds = time.monotonic() - start
        if ended.ok and not self.kept:
            self.kept = parts
        elif ended.ok:
            env_snapshot.forget(parts)
        else:
            told = installers.failure(ended)
            faults = self._take_back(step, parts)
            told += "; what it had done was taken back" if parts and not faults else ""
            return self._ended(
                Done(
                    step=step,
                    state="failed",
                    told="; ".join([told, *faults]),
                    causes=causes(log),
                    log=str(log),
                    seconds=seconds,
                )
            )
        return self._ended(Done(step=step, state="done", log=str(log), seconds=seconds))

    def _ended(self, done: Done) -> Done:
        self.journal.note(
            "step", number=done.step.number, state=done.state, told=done.told, log=done.log
        )
        self.watch.ended(done)
        return done

    def _room(self, step: Step) -> None:
        free = shutil.disk_usage(self.folders[0]).free >> 20
        if step.estimate.disk_mib > free:
            raise AttnDoctorError(
                f"{self.folders[0]} has {free} MiB free, and the step writes some"
                f" {step.estimate.disk_mib} MiB; nothing was changed"
            )

    def _commands(self, step: Step, log: Path) -> Outcome:
        constraint = self.journal.folder / f"constraints-{step.number}.txt"
        there = installed(self.sites)
        lines = installers.constraints(there, step.packages, strict=step.strict)
        constraint.write_text("\n".join(lines) + "\n", encoding="utf-8")
        ended = Outcome(code=0)
        for argv in step.run:
            given = dict(one.split("=", 1) for one in _leading(argv))
            command = installers.command(argv, self.facts, constraint)
            if step.kind == "build":
                command = (*command, "-v")  # what the compilers do is shown only then
            ended = run(
                command,
                seconds=_LIMITS.get(step.kind, 3600.0),
                env=installer_environment(
                    self.environ, {**given, **environment(step, self.environ)}
                ),
                folder=self.journal.folder,
                log=log,
                on_line=lambda line: self.watch.line(step, line),
                on_start=lambda pid: self.journal.note("child", process=pid),
                handle=self.journal.lock_handle,
            )
            if not ended.ok:
                break
        return ended

    def _take_back(self, step: Step, parts: Sequence[Part]) -> list[str]:
        faults = env_snapshot.roll_back(parts)
        if parts and not faults:
            self.journal.note("taken back", label=f"step-{step.number}")
            env_snapshot.forget(parts)
        return faults


def apply(
    plan: Plan,
    before: Diagnosis,
    environ: Mapping[str, str],
    watch: Watch,
    look: Callable[[], Diagnosis],
) -> Applied:
    """Carry out all steps of `plan` that can be. `look` examines the environment again.

    Raises `AttnDoctorError` before anything is changed if nothing can be; Ctrl-C goes through,
    after the step at work was taken back.
    """
    facts = before.facts
    title = ", ".join(rule for step in plan.ready for rule in step.rules)
    with begin(environ, f"fix {title}", facts.python.path or "") as journal:
        at_work = _Run(journal, facts, environ, watch)
        there = installed(at_work.sites)
        frozen = installers.freeze(facts, environ, journal.folder)
        journal.note("before", freeze=frozen, installed=env_snapshot.marks(there))
        wanted = [step for step in plan.steps if step.ready or step.kind == "variables"]
        results = _all(at_work, [step for step in wanted if not step.blocked_by], look)
        now = installed(at_work.sites)
        after = look()
        results = [_checked(one, after.facts) for one in results]
        _settle(at_work, results, now, installers.freeze(facts, environ, journal.folder))
    resolved, introduced = compare_problems(before.problems, after.problems)
    return Applied(
        id=journal.id,
        done=tuple(results),
        changes=tuple(compared(there, now)),
        resolved=tuple(resolved),
        introduced=tuple(introduced),
        after=after,
    )


def _all(at_work: _Run, steps: Sequence[Step], look: Callable[[], Diagnosis]) -> list[Done]:
    """Every step in turn. After a failure the others are not begun: they may build on it."""
    results: list[Done] = []
    rest = list(steps)
    while rest:
        step = rest.pop(0)
        done = at_work.carry_out(step)
        results.append(done)
        if done.state == "failed":
            results += [Done(step=one, state="not reached") for one in rest]
            break
        if "torch" in step.packages and rest:
            # Which xformers fits depends on the torch that is there now.
            rest, dropped = _again(rest, look())
            results += dropped
    return results


def _again(rest: Sequence[Step], now: Diagnosis) -> tuple[list[Step], list[Done]]:
    """The remaining steps as the environment calls for them now."""
    rules = {rule for step in rest for rule in step.rules}
    fresh = {rule: step for step in planned(now, rules).steps for rule in step.rules}
    kept, dropped = [], []
    for step in rest:
        new = next((fresh[rule] for rule in step.rules if rule in fresh), None)
        if new is None:
            dropped.append(Done(step=step, state="not needed", told="torch is another one now"))
        elif {*new.packages} == {*step.packages} and not new.blocked_by:
            others = (fix for fix in step.fixes if fix.rule not in new.rules)
            kept.append(
                replace(
                    new,
                    number=step.number,
                    rules=step.rules,
                    fixes=(*new.fixes, *others),
                    strict=step.strict,
                )
            )
        else:
            told = new.blocked_by or "another remedy is called for now: run `attn-doctor fix` again"
            dropped.append(Done(step=step, state="not reached", told=told))
    return kept, dropped


def _checked(done: Done, after: Facts) -> Done:
    """The result after a look at the new facts: a step that broke its rules' promise has failed."""
    if done.state != "done":
        return done
    faults = unmet(done.step.fixes, after)
    if not faults:
        return done
    return replace(done, state="failed", told="it ran, but " + "; ".join(faults))


def _settle(
    at_work: _Run, results: Sequence[Done], now: Mapping[str, Installed], frozen: Sequence[str]
) -> None:
    """Write down how it ended, and what came new: only that may be removed later."""
    failed = any(one.state == "failed" for one in results)
    new = [
        os.path.join(part.folder, path)
        for part in at_work.kept
        for path in link_copy.changes(part.folder, part.copy).new
    ]
    (at_work.journal.folder / "new.json").write_text(json.dumps(new), encoding="utf-8")
    at_work.journal.note("after", freeze=list(frozen), installed=env_snapshot.marks(now))
    at_work.journal.note("end", result="failed" if failed else "done")


def _leading(argv: Sequence[str]) -> list[str]:
    """The `NAME=value` elements before the command."""
    found = []
    for word in argv:
        name, equals, _ = word.partition("=")
        if not equals or not name.isidentifier():
            break
        found.append(word)
    return found
