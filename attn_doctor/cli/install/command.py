"""`attn-doctor install`: plan, install and prove a working backend."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.cli import completion
from attn_doctor.cli.common_options import DryRun, Yes
from attn_doctor.cli.result_options import ResultOptions
from attn_doctor.cli.screen import say, terminal
from attn_doctor.cli.source_options import SourceOptions
from attn_doctor.errors import AttnDoctorError

if TYPE_CHECKING:
    from attn_doctor.facts import Facts
    from attn_doctor.findings import Diagnosis
    from attn_doctor.fixes.steps import Plan, Step
    from attn_doctor.install.choice import Conflict
    from attn_doctor.install.demand import Demand
    from attn_doctor.install.plan import Installation


class Purpose(str, Enum):
    """What the backend is for."""

    inference = "inference"
    training = "training"


class ChoiceOptions(Struct, frozen=True, kw_only=True):
    """Options that limit what is chosen."""

    purpose: Annotated[Purpose, typer.Option("--for", help="What it is used for.")] = (
        Purpose.inference
    )
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Choose a torch for CUDA, although no GPU is seen here.")
    ] = False
    community: Annotated[
        bool,
        typer.Option(
            "--community", help="Also use wheels that others publish than the project itself."
        ),
    ] = False
    keep_torch: Annotated[
        bool, typer.Option("--keep-torch", help="Do not install another torch.")
    ] = False
    reinstall: Annotated[
        bool,
        typer.Option("--reinstall", help="Replace the named packages, also where they load."),
    ] = False
    torch_index: Annotated[
        str,
        typer.Option(
            "--torch-index",
            metavar="URL",
            help="Address of PyTorch's indexes, such as a mirror of them.",
        ),
    ] = "https://download.pytorch.org/whl"
    read: Annotated[
        bool,
        typer.Option(
            "--read/--no-read",
            help="Read wheels that are named by their address before they are downloaded.",
        ),
    ] = True
    resolve: Annotated[
        bool,
        typer.Option(
            "--resolve/--no-resolve",
            help="Ask the installer which packages each step would change.",
        ),
    ] = True


def install(
    *,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME…",
            autocompletion=completion.installable,
            help="torch, native, flex, flash, flash3, xformers, sage, hub; diffusers, comfyui.",
        ),
    ],
    source: SourceOptions,
    limits: ChoiceOptions,
    lock: Annotated[
        str,
        typer.Option(
            "--lock",
            metavar="FILE",
            help="Write it for another machine: requirements with hashes; a script if the name ends"
            " with .sh, a stage of an image if it is a Dockerfile. - is standard output.",
        ),
    ] = "",
    dry_run: DryRun = False,
    yes: Yes = False,
    result: ResultOptions,
) -> None:
    """Plan, install and prove a working attention backend, with the torch that fits it.

    Finds releases of torch, Triton and the packages that fit each other, this Python, driver and
    GPU, with prebuilt wheels where there are any, and moves as little as possible. Shows the plan,
    asks, applies it as `fix` does, and imports what it installed. `attn-doctor fix undo` undoes it.

    Exit codes: 0 installed and imported, or, with --dry-run, --pretend, --facts or --lock, a set
    exists and no step is blocked; 1 no set exists, a step is blocked or failed, an import fails,
    or the plan was not applied; 2 wrong usage.
    """
    if dry_run and yes:
        raise typer.BadParameter("--dry-run changes nothing and --yes applies the plan: choose one")
    from attn_doctor.diagnosis import diagnosis_of
    from attn_doctor.host.local import LocalHost
    from attn_doctor.install.choice import Conflict
    from attn_doctor.install.demand import Demand, words_of
    from attn_doctor.probes.interpreter.choice import to_install_into

    demand = Demand(
        words=words_of(names),
        training=limits.purpose is Purpose.training,
        gpu=limits.gpu,
        community=limits.community,
        keep_torch=limits.keep_torch,
        reinstall=limits.reinstall,
    )
    local = not (source.facts or source.pretend)
    if not source.python and local:
        source = replace(source, python=to_install_into(LocalHost()))
    diagnosis = diagnosis_of(source.read(), None, source.rule_folders)
    facts = diagnosis.facts
    session = _Session(source=source, limits=limits, demand=demand, local=local)
    found, plan = session.planned(facts)
    if isinstance(found, Conflict):
        raise typer.Exit(_conflict(found, demand, facts, result))
    if lock:
        _write_lock(found, facts, lock)
        raise typer.Exit(0)
    if dry_run or not local:
        raise typer.Exit(_shown(found, plan, facts, result))
    raise typer.Exit(_apply(session, found, plan, diagnosis, result, yes=yes))


class _Session(Struct, frozen=True, kw_only=True):
    """What is asked for, to plan it again after torch has changed."""

    source: SourceOptions
    limits: ChoiceOptions
    demand: Demand
    local: bool

    def planned(self, facts: Facts) -> tuple[Installation | Conflict, Plan]:
        """The installation, and its plan as the installer answers it.

        A torch that the index does not have, such as a mirror without the newest release, is left
        out, and the next best is taken. Where PyTorch's indexes cannot be reached, the builds of
        the default index are tried.
        """
        from attn_doctor.fixes.steps import Plan
        from attn_doctor.install.choice import Conflict

        absent: frozenset[str] = frozenset()
        only_default = False
        first: tuple[Installation, Plan] | None = None
        for _ in range(_MOST_ABSENT):
            found = _found(self.demand, facts, self.limits, absent, only_default=only_default)
            if isinstance(found, Conflict):
                return first or (found, Plan())
            plan = self.prepared(found, facts)
            first = first or (found, plan)
            if any(_is_unreachable(step) for step in plan.steps):
                if only_default:
                    break
                only_default = True
            elif any(_is_absent(step) for step in plan.steps):
                absent |= {found.choice.torch.full}
            else:
                return found, plan
        return first or (Conflict(reasons=()), Plan())

    def prepared(self, found: Installation, facts: Facts) -> Plan:
        """The plan with what each step would change."""
        from attn_doctor.fixes.resolve import prepared

        return prepared(
            found.plan,
            facts,
            os.environ,
            local=self.local,
            resolve=self.limits.resolve,
            watch=_watch,
        )

    def replan(self, now: Diagnosis, rules: Collection[str]) -> Plan:
        """The plan for the steps of `rules`, with the torch that is installed now."""
        from attn_doctor.fixes.steps import Plan
        from attn_doctor.install.choice import Conflict

        found = _found(replace(self.demand, keep_torch=True), now.facts, self.limits)
        if isinstance(found, Conflict):
            return Plan()
        plan = self.prepared(found, now.facts)
        return replace(plan, steps=tuple(one for one in plan.steps if {*one.rules} & {*rules}))

    def look(self, python: str) -> Diagnosis:
        """Examine the environment again."""
        from attn_doctor.diagnosis import diagnosis_of

        source = replace(self.source, python=python)
        return diagnosis_of(source.read(), None, source.rule_folders)


#: Seconds that all backends together may take.
_LIVE_SECONDS = 1800.0
#: Releases of torch that the index may lack before the first answer is shown.
_MOST_ABSENT = 12


def _is_absent(step: Step) -> bool:
    """Whether the installer finds no such torch."""
    return "torch" in step.packages and step.unresolved.startswith(
        ("the index has no such", "the index offers no", "no set of releases")
    )


def _is_unreachable(step: Step) -> bool:
    return step.unresolved.startswith("the index http") and "cannot be reached" in step.unresolved


def _found(
    demand: Demand,
    facts: Facts,
    limits: ChoiceOptions,
    absent: frozenset[str] = frozenset(),
    *,
    only_default: bool = False,
) -> Installation | Conflict:
    from attn_doctor.install.plan import installation

    index = limits.torch_index.rstrip("/")
    return installation(
        demand,
        facts,
        read=limits.read,
        torch_index=index,
        absent=absent,
        only_default=only_default,
        watch=_watch,
    )


def _watch(text: str) -> None:
    if sys.stderr.isatty():
        from attn_doctor.render.edge import replace_line

        replace_line(f"{text} …")


def _conflict(found: Conflict, demand: Demand, facts: Facts, result: ResultOptions) -> int:
    from attn_doctor.install.choice import fits_with_community
    from attn_doctor.render.install.json import installation_json
    from attn_doctor.render.install.text import conflict_text

    if result.as_json:
        sys.stdout.write(installation_json(demand.words, found, None, facts, 1))
    else:
        community = fits_with_community(demand, facts)
        sys.stdout.write(conflict_text(demand.words, found, facts, terminal(), community))
    return 1


def _shown(found: Installation, plan: Plan, facts: Facts, result: ResultOptions) -> int:
    """Show the plan only. Returns the exit code."""
    code = 1 if any(step.blocked_by for step in plan.steps) else 0
    if result.as_json:
        from attn_doctor.render.install.json import installation_json

        sys.stdout.write(installation_json(found.demand.words, found, plan, facts, code))
        return code
    _show(found, plan, facts)
    say("Nothing was changed: this is only the plan.")
    return code


def _show(found: Installation, plan: Plan, facts: Facts) -> None:
    from attn_doctor.cli.fix.apply import show
    from attn_doctor.render.install.text import installation_text

    sys.stdout.write(installation_text(found, facts, terminal()))
    if plan.steps:
        show(plan, facts)


def _apply(
    session: _Session,
    found: Installation,
    plan: Plan,
    diagnosis: Diagnosis,
    result: ResultOptions,
    *,
    yes: bool,
) -> int:
    """Show the plan, ask, apply it, and import what it installed. Returns the exit code."""
    from attn_doctor.cli.fix.apply import agreed, obstacle_to, run_plan
    from attn_doctor.fixes.distributions import installed
    from attn_doctor.install.proof import modules, prove
    from attn_doctor.render.fix.text import applied_text
    from attn_doctor.render.grouping import plural
    from attn_doctor.render.install.json import installation_json
    from attn_doctor.render.install.text import proofs_text

    facts = diagnosis.facts
    python = facts.python.path or ""
    seen = installed(facts.python.site_packages or ())
    if not result.as_json:
        _show(found, plan, facts)
    unsure = "Nothing was changed: it is not known that these steps fit together."
    why = obstacle_to(plan, python, unsure) if plan.steps else ""
    if plan.steps and not why and not yes and (result.as_json or not sys.stdin.isatty()):
        why = "Nothing was changed. To apply the plan, run the same command with --yes."
    if plan.steps and not why and not yes:
        sys.stdout.flush()
        why = "" if agreed(f"Apply {plural(len(plan.ready), 'step')}?") else "Nothing was changed."
    if why:
        if result.as_json:
            words = found.demand.words
            sys.stdout.write(installation_json(words, found, plan, facts, 1, False))
        else:
            sys.stdout.write("\n".join(terminal().wrap(why, 0)) + "\n")
        return 1
    good = True
    if plan.steps:
        look = lambda: session.look(python)  # noqa: E731
        applied = run_plan(plan, diagnosis, seen, yes=yes, look=look, replan=session.replan)
        good = applied.ok
        if not result.as_json:
            sys.stdout.write(applied_text(applied, facts, terminal()))
    proofs = prove(python, modules(found.demand), os.environ) if good else ()
    good = good and not any(one.fault for one in proofs)
    code = 0 if good else 1
    if result.as_json:
        words = found.demand.words
        live = _live_data(found.demand, facts, python) if good else None
        code = max(code, int(live is not None and not live["ok"]))
        text = installation_json(words, found, plan, facts, code, good, proofs, live)
        sys.stdout.write(text)
        return code
    if proofs:
        sys.stdout.write(proofs_text(proofs, terminal()))
    return max(code, _live(found.demand, facts, python)) if good else code


def _live(demand: Demand, facts: Facts, python: str) -> int:
    """Run the backends on the GPU, if there is one, and show it. Returns the exit code."""
    from attn_doctor.install.proof import live_words
    from attn_doctor.processes import run

    words = live_words(demand, facts, python)
    if not words:
        return 0
    sys.stdout.flush()
    argv = (sys.executable, "-m", "attn_doctor", *words)
    ended = run(argv, _LIVE_SECONDS, joined=True, on_line=lambda line: _say(line + "\n"))
    return 0 if ended.ok else 1


def _live_data(demand: Demand, facts: Facts, python: str) -> dict[str, Any] | None:
    """Run the backends on the GPU; what `backends --live --json` says, or why it says nothing."""
    from attn_doctor.install.proof import live_words
    from attn_doctor.json_files import JsonError, decode
    from attn_doctor.processes import run

    words = live_words(demand, facts, python)
    if not words:
        return None
    ended = run((sys.executable, "-m", "attn_doctor", *words, "--json"), _LIVE_SECONDS)
    try:
        found = decode(ended.out, dict[str, Any])["live"]
    except (JsonError, KeyError):
        return {"ok": False, "error": ended.status}
    return {"ok": ended.ok, **found}


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _write_lock(found: Installation, facts: Facts, name: str) -> None:
    """Write the installation for another machine. An existing file is not overwritten."""
    import shutil

    from attn_doctor.install.lock import form_of, locked
    from attn_doctor.render.install.text import machine_line

    if name != "-" and Path(name).is_file():
        raise AttnDoctorError(f"{name} exists: choose another name")
    uv = facts.python.uv or shutil.which("uv") or ""
    if not uv:
        raise AttnDoctorError("--lock needs uv, which is not on PATH: `pip install uv`")
    text = locked(found.plan, facts, machine_line(facts), uv, os.environ, form_of(name))
    if name == "-":
        sys.stdout.write(text)
        return
    from attn_doctor.cli.output_file import write_new

    write_new({Path(name): text})
    say(f"Wrote {name}.")
