"""Asks the installer of the examined environment which packages each step would change.

The answer is the installer's own (`--dry-run`), with the constraints that the step will have. It
works in a private folder and installs nothing. It is not asked about a step that compiles: for an
answer, pip would have to run the package's setup.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct, structs
from msgspec.structs import replace

from attn_doctor.facts import Facts
from attn_doctor.files import DATA, read_bytes, read_text
from attn_doctor.fixes import conda, installers
from attn_doctor.fixes.attribution import UV_LINE
from attn_doctor.fixes.distributions import Change, Installed, installed
from attn_doctor.fixes.installers import installer_environment, run
from attn_doctor.fixes.pip_arguments import PipCall, pip_call
from attn_doctor.fixes.source_builds import estimate, lacking
from attn_doctor.fixes.steps import Plan, Step
from attn_doctor.json_files import JsonError, decode
from attn_doctor.requirement import normal_name
from attn_doctor.shell.commands import in_text
from attn_doctor.shell.installers import obstacle, owned_by_conda

_log = logging.getLogger(__name__)


class Asking(Struct, frozen=True):
    """What a question to the installer needs."""

    facts: Facts
    there: Mapping[str, Installed]
    environ: Mapping[str, str]
    folder: Path
    """A private folder for constraints, reports and logs."""
    seconds: float = 300.0
    ahead: frozenset[str] = frozenset()
    """Packages of `there` that earlier steps install."""
    indexes: tuple[tuple[str, str], ...] = ()
    """Options with the indexes of earlier steps, which may alone have what those install."""


class Resolved(Struct, frozen=True, kw_only=True):
    """The installer's answer."""

    changes: tuple[Change, ...] | None = None
    """None if it has no answer."""
    why: str = ""
    """Why it has none."""
    strict: bool = True
    """No other package has to change. If False, packages that no step names change too."""


def ask(step: Step, asking: Asking, label: str) -> Resolved:
    """Return what one step would change."""
    calls = [call for call in map(pip_call, step.run) if call]
    changes: dict[str, Change] = {}
    strict = True
    for number, call in enumerate(calls):
        if step.kind == "build" and call.names <= {*step.packages}:
            # No question is needed: only its own package changes, because of --no-deps.
            for name in call.names:
                old = asking.there.get(name)
                changes[name] = Change(name, old.version if old else "", "built here")
            continue
        if call.verb == "uninstall":
            for name in sorted(call.names & asking.there.keys()):
                changes[name] = Change(name, asking.there[name].version)
            continue
        found = _ask(call, step.packages, asking, f"{label}-{number}")
        if found.changes is None:
            return found
        strict = strict and found.strict
        for one in found.changes:
            gone = changes.get(one.name)
            changes[one.name] = Change(one.name, gone.old if gone else one.old, one.new)
    return Resolved(changes=tuple(changes[name] for name in sorted(changes)), strict=strict)


def ask_together(steps: Sequence[Step], asking: Asking) -> str:
    """Return why the packages of all steps do not fit together; empty if they do."""
    calls = [
        call
        for step in steps
        if step.kind == "install"
        for call in map(pip_call, step.run)
        if call and call.verb == "install" and "--no-deps" not in call.flags
    ]
    if len(calls) < 2:
        return ""
    indexes = {pair for call in calls for pair in call.indexes}
    sources = tuple(
        ("--extra-index-url" if option == "--index-url" else option, url)
        for option, url in sorted(indexes)
    )
    wanted = {one.text: one for call in calls for one in call.wanted}
    together = PipCall(verb="install", wanted=tuple(wanted.values()), indexes=sources)
    moving = tuple(name for step in steps for name in step.packages)
    found = _ask(together, moving, asking, "together")
    return "" if found.changes is not None else found.why


def _ask(call: PipCall, moving: Sequence[str], asking: Asking, label: str) -> Resolved:
    """Ask with all other packages pinned; without a solution, with torch's own pinned only."""
    first = None
    for strict in (True, False):
        path = asking.folder / f"constraints-{label}{'' if strict else '-loose'}.txt"
        lines = installers.constraints(asking.there, moving, strict=strict)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        found = _asked(call, path, asking, label)
        if found.changes is not None:
            return Resolved(changes=found.changes, strict=strict)
        first = first or found
        if not found.why.startswith(("no set of releases", "the index has no such")):
            break
    return first or Resolved()


def _asked(call: PipCall, constraint: Path, asking: Asking, label: str) -> Resolved:
    uv = installers.name(asking.facts) == "uv"
    report = asking.folder / f"report-{label}.json"
    flags = (*call.flags, "--dry-run")
    if uv and asking.indexes:
        flags += ("--index-strategy", "unsafe-best-match")
    indexes = (*call.indexes, *asking.indexes)
    asked = structs.replace(call, flags=flags, indexes=indexes, variables=())
    argv = installers.command(asked.argv, asking.facts, constraint)
    log = asking.folder / f"plan-{label}.log"
    _log.debug("asking about %s", " ".join(call.argv))
    ended = run(
        argv if uv else (*argv, "--report", str(report)),
        seconds=asking.seconds,
        # The question leaves no bytecode of pip in the environment.
        env=installer_environment(asking.environ, {"PYTHONDONTWRITEBYTECODE": "1"}),
        folder=asking.folder,
        log=log,
    )
    if not ended.ok:
        why = installers.failure(ended)
        index = next((url for option, url in call.indexes if option == "--index-url"), "")
        return Resolved(
            why=why.replace("the package index", f"the index {index}", 1) if index else why
        )
    if uv:
        text = read_text(log, DATA)
        return Resolved(changes=_new(_with_versions(_from_uv(text), call), asking))
    try:
        data = decode(read_bytes(report, DATA), _Report)
    except (OSError, JsonError):
        return Resolved(why="this pip cannot report what it would do; pip 23 and later can")
    return Resolved(changes=_new(_from_pip(data, asking.there), asking))


def _new(changes: Iterable[Change], asking: Asking) -> tuple[Change, ...]:
    """Leave out what earlier steps do."""
    return tuple(
        one
        for one in changes
        if one.name not in asking.ahead or asking.there[one.name].version != one.new
    )


def _after(asking: Asking, earlier: Sequence[Step]) -> Asking:
    """Return the question as it is once the earlier steps are done."""
    changes = [one for step in earlier for one in step.changes or ()]
    gone = {one.name for one in changes if not one.new}
    new = {one.name: Installed(one.new, "") for one in changes if one.new}
    calls = (call for step in earlier for call in map(pip_call, step.run) if call)
    urls = dict.fromkeys(url for call in calls for _, url in call.indexes)
    return replace(
        asking,
        there={name: one for name, one in {**asking.there, **new}.items() if name not in gone},
        ahead=frozenset(new),
        indexes=tuple(("--extra-index-url", url) for url in urls),
    )


class _Metadata(Struct, frozen=True):
    name: str
    version: str


class _Item(Struct, frozen=True):
    metadata: _Metadata


class _Report(Struct, frozen=True):
    """What `pip install --report` writes, as far as it is needed."""

    install: tuple[_Item, ...]


def _from_pip(report: _Report, there: Mapping[str, Installed]) -> list[Change]:
    found = []
    for item in report.install:
        name = normal_name(item.metadata.name)
        old = there.get(name)
        found.append(Change(name, old.version if old else "", item.metadata.version))
    return sorted(found, key=lambda one: one.name)


def _from_uv(text: str) -> list[Change]:
    old: dict[str, str] = {}
    new: dict[str, str] = {}
    for line in text.splitlines():
        if match := UV_LINE.fullmatch(line):
            sign, name, version = match[1], normal_name(match[2]), match[3] or "?"
            if sign in "-~":
                old[name] = version
            if sign in "+~":
                new[name] = version
    return [
        Change(name, old.get(name, ""), new.get(name, ""))
        for name in sorted(old.keys() | new.keys())
    ]


def _with_versions(changes: list[Change], call: PipCall) -> list[Change]:
    """Take the version of a wheel at an address from its name: uv does not say it."""
    files = {one.name: one.url.rpartition("/")[2] for one in call.wanted if one.url}
    wheels = {name: file.split("-") for name, file in files.items() if file.endswith(".whl")}
    return [
        replace(one, new=unquote(wheels[one.name][1]))
        if one.new == "?" and one.name in wheels
        else one
        for one in changes
    ]


def prepared(
    plan: Plan,
    facts: Facts,
    environ: Mapping[str, str],
    *,
    local: bool,
    resolve: bool,
    watch: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Return the plan with what each step would change, and what blocks it.

    `watch` gets a text for each question. Raises nothing: the plan says what is unknown.
    """
    if not local:
        return plan  # a snapshot has only the facts of its environment
    there = installed(facts.python.site_packages or ())
    owners = conda.owned(facts, there)
    steps = [_unless_conda(_completed(step, there), owners, facts) for step in plan.steps]
    blocked = in_text(obstacle(facts), facts)
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
                done = [one for one in steps[:index] if one.ready]
                earlier = [one for one in done if "torch" in one.packages]
                found = _resolved(step, _after(asking, done), earlier)
                steps[index] = _unless_conda(found, owners, facts)
        ready = [step for step in steps if step.ready]
        together = ask_together(ready, asking) if len(ready) > 1 else ""
    return replace(plan, steps=tuple(steps), together=together)


def _completed(step: Step, there: Mapping[str, object]) -> Step:
    """Put the packages that a build needs and the environment lacks before the build."""
    if step.kind != "build" and not any("--no-build-isolation" in argv for argv in step.run):
        return step
    name = next((one for one in step.packages if one in ("flash-attn", "sageattention")), "")
    missing = lacking(name, there) if name else []
    if not missing:
        return step
    return replace(step, run=(("pip", "install", *missing), *step.run))


def _unless_conda(step: Step, owners: Mapping[str, str], facts: Facts) -> Step:
    """Block the step if it would overwrite what conda installed."""
    prefix = facts.python.prefix or ""
    by_facts = conda.blocked_by(step, owned_by_conda(facts), prefix)
    if step.blocked_by and step.blocked_by != by_facts:
        return step  # for another reason; conda's is written again, now with the channel
    return replace(step, blocked_by=conda.blocked_by(step, owners, prefix, step.changes))


def _blocked(step: Step, why: str) -> Step:
    """Block an installation into an environment where nothing can be installed."""
    if step.kind not in ("install", "build") or step.blocked_by:
        return step
    return replace(step, blocked_by=why)


def _other_source(step: Step, why: str) -> str:
    """The command that finds another source, where PyTorch's own index cannot be reached."""
    names = [one for one in ("xformers", "torch") if one in step.packages]
    if not names or "download.pytorch.org" not in why or "cannot be reached" not in why:
        return ""
    return f"; `attn-doctor install {names[0]}` finds another source"


def _resolved(step: Step, asking: Asking, earlier: Sequence[Step]) -> Step:
    """Add what the step would change. After an `earlier` step that changes torch it may fit."""
    found = ask(step, asking, str(step.number))
    if found.changes is None and earlier:
        first = earlier[-1].number
        return replace(step, unresolved=f"known only once step {first} is done ({found.why})")
    if found.changes is None:
        why = f"it cannot be planned: {found.why}{_other_source(step, found.why)}"
        return replace(step, blocked_by=why, unresolved=found.why)
    cuda = any(one.name.startswith("nvidia-") and one.new for one in found.changes)
    guess = step.estimate
    if step.kind == "install" and guess.basis:  # it installs something
        guess = estimate(step.packages, asking.facts, cuda=cuda)
    return replace(step, changes=found.changes, strict=found.strict, estimate=guess)
