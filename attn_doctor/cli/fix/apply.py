"""The part of `attn-doctor fix` that shows a plan, asks, applies it, and shows the progress."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

from attn_doctor.cli.streams import shown
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Severity
from attn_doctor.fixes import installers
from attn_doctor.fixes.apply import Applied, Replan, StepResult
from attn_doctor.fixes.apply import apply as apply_plan
from attn_doctor.fixes.build_progress import Progress
from attn_doctor.fixes.distributions import Installed, installed
from attn_doctor.fixes.journal import runs
from attn_doctor.fixes.steps import Plan, Step
from attn_doctor.render.edge import replace_line
from attn_doctor.render.fix.json import fix_json
from attn_doctor.render.fix.text import applied_text, plan_text, result_lines, step_lines
from attn_doctor.render.grouping import plural
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.shell.installers import obstacle

#: Seconds between two states of the progress line.
_EVERY = 0.5


def show_plan(plan: Plan, diagnosis: Diagnosis, *, json: bool, why: str = "") -> int:
    """Show a plan and `why` it is not applied. Returns the exit code: 0 if it has no step."""
    code = 1 if plan.steps or plan.without else 0
    if json:
        sys.stdout.write(fix_json(plan, diagnosis.facts, code))
    elif not code:
        _say("Nothing to fix: no problem with a known fix was found.")
    else:
        show(plan, diagnosis.facts)
        _say(why or "Nothing was changed: this is only the plan.")
    return code


def show_and_apply(
    plan: Plan,
    diagnosis: Diagnosis,
    *,
    json: bool,
    apply: bool,
    yes: bool,
    look: Callable[[], Diagnosis],
    replan: Replan,
    named: Sequence[str] = (),
) -> int:
    """Show the plan; apply it if `apply` and the user agrees. Returns the exit code.

    `look` examines the environment again, after a step and at the end; `replan` plans the remaining
    rules after a step that changed torch.
    """
    facts = diagnosis.facts
    seen = installed(facts.python.site_packages or ())
    if not apply or not (plan.steps or plan.without):
        return show_plan(plan, diagnosis, json=json)
    singly = "Nothing was changed. Fix one rule at a time: `attn-doctor fix RULE`."
    why = obstacle_to(plan, facts.python.path or "", singly)
    if not why and not yes and (json or not sys.stdin.isatty()):
        why = "Nothing was changed. To apply the plan, run the same command with --yes."
    if why:
        return show_plan(plan, diagnosis, json=json, why=why)
    if not json:
        show(plan, facts)
        shown()
    if not yes and not agreed(f"Apply {plural(len(plan.ready), 'step')}?"):
        _say("Nothing was changed.")
        return 1
    terminal = Terminal.of(sys.stdout, dict(os.environ))
    applied = run_plan(plan, diagnosis, seen, yes=yes, look=look, replan=replan)
    code = _code(plan, applied, named)
    sys.stdout.write(
        fix_json(plan, facts, code, applied) if json else applied_text(applied, facts, terminal)
    )
    return code


def run_plan(
    plan: Plan,
    diagnosis: Diagnosis,
    seen: Mapping[str, Installed],
    *,
    yes: bool,
    look: Callable[[], Diagnosis],
    replan: Replan,
) -> Applied:
    """Apply a plan, with its progress on standard error. `seen`: what was installed before."""
    terminal = Terminal.of(sys.stdout, dict(os.environ))
    progress = _Progress(diagnosis.facts, terminal, yes=yes)
    return _applied(
        progress, lambda: apply_plan(plan, diagnosis, os.environ, progress, look, replan, seen)
    )


def show(plan: Plan, facts: Facts) -> None:
    """Print the plan."""
    terminal = Terminal.of(sys.stdout, dict(os.environ))
    installer = installers.name(facts) if not obstacle(facts) else ""
    sys.stdout.write(
        plan_text(plan, facts, terminal, installer, installers.lock_file_warning(facts))
    )


def _code(plan: Plan, applied: Applied, named: Sequence[str]) -> int:
    """0 if every step worked and what was to be fixed is fixed; else 1."""
    wanted = {*named, *(rule for step in plan.steps for rule in step.rules)}
    remaining = [
        finding
        for finding in applied.after.problems
        if finding.rule in wanted or (not named and finding.severity is Severity.ERROR)
    ]
    return 0 if applied.ok and not remaining else 1


def obstacle_to(plan: Plan, python: str, unsure: str) -> str:
    """Why the plan is not applied, whatever the user answers; empty if it can be.

    `unsure`: the answer where the steps do not fit together, or nothing could say that they do.
    """
    if not plan.ready:
        return "Nothing was changed: attn-doctor can apply none of these steps itself."
    for run in runs(os.environ):
        if run.changed and run.state in ("interrupted", "running") and run.python in ("", python):
            state = "is running" if run.state == "running" else "was interrupted"
            return (
                f"Nothing was changed: run {run.id} of fix {state} in this environment."
                f" `attn-doctor fix undo {run.id}` undoes it,"
                f" `attn-doctor fix forget {run.id}` keeps its changes."
            )
    return unsure if plan.together else ""


def agreed(question: str) -> bool:
    """Ask on the terminal; every answer but yes means no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _applied(progress: _Progress, work: Callable[[], Applied]) -> Applied:
    try:
        with progress:
            return work()
    except KeyboardInterrupt:
        _report_stop()
        raise
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise AttnDoctorError(f"fix had to stop: {error.strerror}{where}") from None


def _report_stop() -> None:
    last = next(iter(runs(os.environ)), None)
    if last is None:
        return
    done = [line for line in last.all("step") if line["state"] == "done"]
    kept = (
        f"The changes of {plural(len(done), 'earlier step')} are kept; `attn-doctor fix undo"
        f" {last.id}` undoes them."
        if done
        else "The run changed nothing else."
    )
    sys.stderr.write(f"\nStopped: the current step was undone. {kept}\n")


def _say(text: str) -> None:
    terminal = Terminal.of(sys.stdout, dict(os.environ))
    sys.stdout.write("\n".join(terminal.glyphs(line) for line in terminal.wrap(text, 0)) + "\n")


class _Progress:
    """The progress on standard error: one line that is rewritten, or a line for each step."""

    def __init__(self, facts: Facts, terminal: Terminal, *, yes: bool) -> None:
        self._facts, self._terminal, self._yes = facts, terminal, yes
        self._live = sys.stderr.isatty()
        self._step: Step | None = None
        self._progress = Progress(None)
        self._last = ""
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> _Progress:  # noqa: PYI034 (Self is newer than Python 3.10)
        if self._live:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._clear()

    def started(self, step: Step) -> None:
        """A step begins."""
        self._progress = Progress(step.estimate.minutes)
        self._step, self._last = step, ""
        if not self._live:
            self._write(f"{step.number}. {step.title} …")

    def line(self, _: Step, text: str) -> None:
        """Its installer printed a line."""
        self._progress.line(text)
        self._last = text.strip()

    def ended(self, result: StepResult) -> None:
        """A step ended."""
        self._step = None
        self._clear()
        for line in result_lines(result, self._facts, self._terminal, whole=False):
            self._write(line)

    def agrees(self, new: Step) -> bool:
        """Show a step that differs from the plan, and ask; `--yes` answers yes."""
        self._write(f"torch has changed, so step {new.number} is another one now:")
        for line in step_lines(new, self._facts, self._terminal):
            self._write(line)
        return self._yes or agreed(f"Apply step {new.number}?")

    def _tick(self) -> None:
        while not self._stop.wait(_EVERY):
            step = self._step
            if step is None:
                continue
            minutes, seconds = divmod(int(self._progress.elapsed), 60)
            words = [f"{step.number}. {minutes}:{seconds:02d}", self._progress.text, self._last]
            text = "  ".join(clean(word) for word in words if word)
            replace_line(self._terminal.glyphs(text[: max(20, self._terminal.width - 1)]))

    def _clear(self) -> None:
        if self._live:
            replace_line()

    def _write(self, text: str) -> None:
        self._clear()
        sys.stderr.write(self._terminal.glyphs(text) + "\n")
        sys.stderr.flush()
