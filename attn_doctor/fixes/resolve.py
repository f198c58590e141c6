"""Asks the installer what a step would change, before anything is changed.

The answer is the installer's own (`--dry-run`), with the constraints that the step will have. A
step that compiles is not asked about: to tell, pip would have to run the package's setup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, structs

from attn_doctor.facts import Facts
from attn_doctor.fixes import installers
from attn_doctor.fixes.distributions import Change, Installed, normal
from attn_doctor.fixes.pip_arguments import PipCall, pip_call
from attn_doctor.fixes.run_installer import installer_environment, run
from attn_doctor.fixes.steps import Step

#: `` + torch==2.11.0`` as uv prints it.
_UV_LINE = re.compile(r"\s*([+~-]) ([A-Za-z0-9_.-]+)(?:==(\S+)| @ \S+|)(?: \(from .*\))?")


class Asking(Struct, frozen=True):
    """What is needed to ask."""

    facts: Facts
    there: Mapping[str, Installed]
    environ: Mapping[str, str]
    folder: Path
    """A private folder for constraints, reports and logs."""
    seconds: float = 300.0


class Resolved(Struct, frozen=True, kw_only=True):
    """The installer's answer."""

    changes: tuple[Change, ...] | None = None
    """None if it could not tell."""
    why: str = ""
    """Why it could not."""
    strict: bool = True
    """Nothing else has to move. If not, packages that no step names give way."""


def ask(step: Step, asking: Asking, label: str) -> Resolved:
    """What one step would change."""
    calls = [call for call in map(pip_call, step.run) if call]
    changes: dict[str, Change] = {}
    strict = True
    for number, call in enumerate(calls):
        if step.kind == "build" and call.names <= {*step.packages}:
            # It is not asked about: only its own package changes, for it has --no-deps.
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
    """Why the packages of all steps do not fit together; empty if they do."""
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
    """Ask with everything else held, and if that cannot be, with torch and its own held."""
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
    asked = structs.replace(call, flags=(*call.flags, "--dry-run"), variables=())
    argv = installers.command(asked.argv, asking.facts, constraint)
    log = asking.folder / f"plan-{label}.log"
    ended = run(
        argv if uv else (*argv, "--report", str(report)),
        seconds=asking.seconds,
        env=installer_environment(asking.environ, {}),
        folder=asking.folder,
        log=log,
    )
    if not ended.ok:
        return Resolved(why=installers.failure(ended))
    if uv:
        text = log.read_text(encoding="utf-8", errors="replace")
        return Resolved(changes=tuple(_from_uv(text)))
    try:
        told = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Resolved(why="this pip cannot report what it would do; pip 23 and later can")
    return Resolved(changes=tuple(_from_pip(told, asking.there)))


def _from_pip(report: Mapping[str, object], there: Mapping[str, Installed]) -> list[Change]:
    found = []
    items = report.get("install")
    for item in items if isinstance(items, list) else ():
        metadata = item["metadata"]
        name = normal(metadata["name"])
        old = there.get(name)
        found.append(Change(name, old.version if old else "", metadata["version"]))
    return sorted(found, key=lambda one: one.name)


def _from_uv(text: str) -> list[Change]:
    old: dict[str, str] = {}
    new: dict[str, str] = {}
    for line in text.splitlines():
        if match := _UV_LINE.fullmatch(line):
            sign, name, version = match[1], normal(match[2]), match[3] or "?"
            if sign in "-~":
                old[name] = version
            if sign in "+~":
                new[name] = version
    return [
        Change(name, old.get(name, ""), new.get(name, ""))
        for name in sorted(old.keys() | new.keys())
    ]
