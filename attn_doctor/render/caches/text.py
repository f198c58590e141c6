"""`cache status`, `cache verify` and `cache clear` for a terminal."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from attn_doctor.facts import Facts
from attn_doctor.kernels.caches.contents import KINDS, State
from attn_doctor.render.caches.trash import kept_lines
from attn_doctor.render.findings.summary import header
from attn_doctor.render.grouping import plural
from attn_doctor.render.humanize import age, size
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.shell import commands

if TYPE_CHECKING:
    from attn_doctor.kernels.caches.deletion import Cleared, Plan
    from attn_doctor.kernels.caches.integrity import Integrity
    from attn_doctor.kernels.caches.locks import Lock
    from attn_doctor.kernels.caches.survey import Survey

_COLUMN = 12


def compared_with(facts: Facts) -> str:
    """The environment and the GPUs that entries are compared with."""
    parts = [f"torch {facts.torch.version}" if facts.torch.version else "no torch"]
    if facts.triton.version:
        parts.append(f"triton {facts.triton.version}")
    shown = [gpu.name for gpu in facts.gpus or () if gpu.visible is not False and gpu.name]
    parts += dict.fromkeys(shown)
    return clean(f"{header(facts)}: {', '.join(parts)}{'' if shown else ', no GPU'}")


def status_text(found: Sequence[Survey], facts: Facts, terminal: Terminal, *, verbose: bool) -> str:
    """Every cache that exists, and in one line the kinds that do not."""
    lines = terminal.wrap(f"Caches of compiled kernels, compared with {compared_with(facts)}", 0)
    lines.append("")
    for one in found:
        if one.exists:
            lines += [*_cache(one, facts, terminal, verbose=verbose), ""]
    absent = [one.location.kind for one in found if not one.exists]
    if absent:
        lines += [*terminal.wrap(f"Not found: {', '.join(absent)}.", 0)]
    lines += _total(found, facts, terminal)
    return terminal.page(lines)


def _cache(one: Survey, facts: Facts, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    contents = one.contents
    kind = terminal.style(f"{one.location.kind:<{_COLUMN}}", "bold")
    if contents.unrecognised:
        why = terminal.say(clean(contents.unrecognised))
        yield f"{kind}{terminal.style('not recognised', 'yellow')}: {why}"
    elif not contents.entries:
        yield f"{kind}empty"
    else:
        newest = max(entry.newest for entry in contents.entries)
        words = (
            size(contents.bytes),
            _entries(len(contents.entries)),
            _states(one, terminal),
            f"newest {age(time.time() - newest)}",
        )
        yield kind + " · ".join(words)
    yield from _indented(terminal, f"{one.location.path} ({where(one)})")
    for text in remarks(one, facts):
        yield from _indented(terminal, f"! {text}", "yellow")
    yield from _reasons(one, terminal, verbose=verbose)
    if verbose:
        yield from _indented(terminal, KINDS[one.location.kind])
        yield from _record(one, terminal)


def _states(one: Survey, terminal: Terminal) -> str:
    colours = {State.LIVE: "green", State.STALE: "yellow", State.UNKNOWN: "dim"}
    counts = [
        terminal.style(f"{one.count(state)} {state.value}", colours[state])
        for state in State
        if one.count(state)
    ]
    return ", ".join(counts)


def where(one: Survey) -> str:
    """Which variable names the folder, its owner and its file system."""
    source = "default location" if one.location.source == "default" else one.location.source
    parts = [source, f"owner {one.owner}" if one.owner else "", one.facts.filesystem or ""]
    return ", ".join(filter(None, parts))


def remarks(survey: Survey, environment: Facts) -> Iterator[str]:
    """What is wrong with the cache's location, and which processes use it."""
    one, facts = survey, survey.facts
    if one.real:
        yield f"this is a symbolic link; the files are in {one.real}"
    if one.danger:
        yield f"another user can put code there: {one.danger}"
    faults = {
        "it is on a network disk, where processes of several machines disturb each other"
        "": facts.network,
        "its file system is mounted noexec: compiled code in it cannot be loaded": facts.noexec,
        "it is lost at a reboot or with the container; `attn-doctor cache env` names a folder that"
        " lasts": facts.volatile,
        "this user cannot write there": facts.writable is False,
    }
    yield from (text for text, true in faults.items() if true)
    if one.record_unreadable:
        yield one.record_unreadable
    if one.record_damaged:
        yield "its record of built kernels is damaged"
    yield from map(_lock, one.locks)
    yield from _waiting(one, environment)
    contents = one.contents
    if contents.trash:
        where = ("--cache-dir", one.location.path) if one.location.source == "named" else ()
        back = commands.attn_doctor("cache", "restore", *where)
        away = commands.attn_doctor("cache", "empty-trash", *where)
        held = size(contents.trash)
        yield f"{held} in the trash: `{back}` brings it back, `{away}` frees the space"
    if contents.leftovers:
        yield plural(len(contents.leftovers), "incomplete file")
    if contents.unreadable:
        yield f"cannot be read: {', '.join(contents.unreadable[:3])}"
    if contents.unrelated_files and contents.entries:
        count = plural(len(contents.unrelated_files), "file")
        yield f"{count} that the cache did not write (never deleted)"


def _waiting(one: Survey, facts: Facts) -> Iterator[str]:
    """Kernels that were built without their GPU and are not verified yet."""
    for record in one.built:
        if not record.unverified or record.drift:
            continue
        if record.device_present is False:
            yield f"{record.unverified} built for {record.device_slot}, to verify on that GPU"
        else:
            command = commands.verify(one.location.path, facts)
            yield f"{record.unverified} built for {record.device_slot}, not verified yet: {command}"


def _lock(lock: Lock) -> str:
    if lock.holder:
        return f"in use: {lock.holder} holds {lock.path}"
    if lock.stale:
        return f"the build that created {lock.path} was killed, and later builds wait for it"
    return f"{lock.path} may be abandoned: {lock.doubt}"


def _reasons(one: Survey, terminal: Terminal, *, verbose: bool) -> Iterator[str]:
    for state in (State.STALE, State.UNKNOWN) if verbose else (State.STALE,):
        reasons = Counter(each.why for each in one.evaluated if each.state is state)
        for why, count in reasons.most_common():
            yield from _indented(terminal, f"{count} {state.value}: {why}")


def _record(one: Survey, terminal: Terminal) -> Iterator[str]:
    """What `build-kernels` recorded about each kernel."""
    for entry in one.manifest.entries.values() if one.manifest else ():
        parts = [f"{entry.state}: {entry.spec.title} on {entry.device_slot}"]
        if entry.build is not None:
            parts.append(f"{entry.build.seconds:.1f} s")
        if entry.message:
            parts.append(entry.message)
        if entry.cause:
            parts.append(f"rule {entry.cause}")
        yield from _indented(terminal, " · ".join(parts))
    for warmup in one.manifest.warmups.values() if one.manifest else ():
        state = "verified" if warmup.verified and not warmup.unverified else "not verified"
        yield from _indented(
            terminal, f"warm-up, {state}: {' '.join(warmup.argv)} {warmup.message}"
        )


def _indented(terminal: Terminal, text: str, *styles: str) -> list[str]:
    return [terminal.style(line, *styles) for line in terminal.wrap(clean(text), _COLUMN)]


def _total(found: Sequence[Survey], facts: Facts, terminal: Terminal) -> list[str]:
    there = [one for one in found if one.exists]
    stale = sum(one.count(State.STALE) for one in there)
    text = f"{size(sum(one.contents.bytes for one in there))} in {plural(len(there), 'cache')}."
    if stale:
        named = next((one.location.path for one in there if one.location.source == "named"), "")
        text += (
            f" Stale entries only take space: `{_clear(named, facts)}` removes them."
            " Entries of another environment count as stale here; name that environment with"
            " --python."
        )
    return terminal.wrap(text, 0)


def _clear(folder: str, facts: Facts) -> str:
    """The command that deletes useless files, in the folder that the user named."""
    where = ("--cache-dir", folder) if folder else ()
    return commands.attn_doctor("cache", "clear", *where, "--stale", facts=facts)


def verify_text(
    found: Sequence[Integrity], facts: Facts, terminal: Terminal, folder: str = ""
) -> str:
    """What is broken, and the fix. `folder`: the cache that the user named."""
    lines: list[str] = []
    for one in found:
        lines += [*_verified(one, terminal)]
    broken = sum(len(one.damage) for one in found)
    lines.append("")
    if broken:
        gone = any(not each.remove for one in found for each in one.damage)
        then = f", or by `{commands.build(found[0].root, facts)}`" if gone else ""
        lines += terminal.wrap(
            f"Next: `{_clear(folder, facts)}` removes the broken files; they are compiled again"
            f" at the next use{then}.",
            0,
        )
    elif not any(one.unreadable or one.unrecognised for one in found):
        count = sum(one.checked for one in found)
        where = f"{plural(count, 'file')} in {plural(len(found), 'cache')}"
        text = f"✓ {where}: none is truncated or corrupt"
        lines.append(terminal.style(text, "green"))
    return terminal.page(lines).lstrip("\n")


def _verified(one: Integrity, terminal: Terminal) -> Iterator[str]:
    kind = terminal.style(f"{one.kind:<{_COLUMN}}", "bold")
    if one.unrecognised:
        why = terminal.say(clean(one.unrecognised))
        yield f"{kind}{terminal.style('not recognised', 'yellow')}: {why}"
    elif one.damage:
        count = plural(len(one.damage), "file")
        yield f"{kind}{terminal.style(f'✗ {count} of {one.checked} broken', 'red')}"
    else:
        yield f"{kind}{terminal.style('✓', 'green')} {plural(one.checked, 'file')}"
    yield from _indented(terminal, one.root)
    for each in one.damage:
        yield from _indented(terminal, f"{each.path}: {each.what}")
    if one.leftovers:
        count = plural(len(one.leftovers), "incomplete file")
        yield from _indented(
            terminal, f"{count} of killed processes, which nothing reads (harmless)"
        )
    for path in one.unreadable:
        yield from _indented(terminal, f"{path}: this user may not read it", "yellow")
    for obstacle in one.obstacles:
        yield from _indented(terminal, f"✗ {obstacle}", "red")
    for place, number in one.unverified_elsewhere.items():
        yield from _indented(terminal, f"{number} built for {place}, to verify on that GPU")
    for command in one.verify_commands:
        yield from _indented(terminal, f"a warm-up is unverified: {command}", "yellow")


def plan_text(plans: Iterable[Plan], facts: Facts | None, terminal: Terminal) -> str:
    """What would be deleted, with sizes, and what stays."""
    lines: list[str] = []
    for plan in plans:
        if not (plan.groups or plan.refused or plan.doubts):
            continue
        lines.append(terminal.style(f"{plan.kind} {clean(plan.root)}", "bold"))
        for group in plan.groups:
            head = f"{size(group.bytes):>{_COLUMN - 1}}  "
            lines += terminal.beside(head, f"{_entries(group.entries)}: {group.why}", len(head))
        if plan.refused:
            lines += _wrapped(terminal, f"nothing is deleted here: {plan.refused}", "yellow")
        for doubt in plan.doubts:
            lines += _wrapped(terminal, f"stays: {doubt}", "yellow")
        if plan.unrelated_files and plan.groups:
            lines += _wrapped(
                terminal,
                f"stays: {plural(plan.unrelated_files, 'file')} that the cache did not write",
            )
    if facts is not None and lines:
        note = f"Compared with {compared_with(facts)}."
        note += " Entries of another environment count as stale."
        lines[:0] = [*terminal.wrap(note, 0), ""]
    return terminal.page(lines) if lines else ""


def cleared_text(done: Sequence[Cleared], terminal: Terminal) -> str:
    """What was deleted, and what could not be deleted."""
    lines: list[str] = []
    for cleared in done:
        if cleared.plan.refused:
            lines += [f"{cleared.plan.kind}: nothing deleted: {clean(cleared.plan.refused)}"]
            continue
        locks = cleared.plan.locks if cleared.trash else ()  # which are deleted in any case
        count = plural(len({*cleared.removed.files}.difference(locks)), "file")
        what = f"{count}, {size(cleared.removed.bytes)}"
        lines.append(
            f"{cleared.plan.kind}: {what} {'in the trash' if cleared.trash else 'deleted'}"
        )
        lines += kept_lines(cleared.removed.kept, "kept", terminal)
    if trash := next((one.trash for one in done if one.trash), ""):
        clearing = os.path.basename(trash)
        named = [one.plan.root for one in done if one.plan.source == "named" and one.trash]
        where = ("--cache-dir", named[0]) if named else ()
        back = commands.attn_doctor("cache", "restore", *where, clearing)
        away = commands.attn_doctor("cache", "empty-trash", *where, clearing)
        text = f"`{back}` brings them back. `{away}` deletes them and frees the space."
        lines += terminal.wrap(text, 0)
    return terminal.page(lines)


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _wrapped(terminal: Terminal, text: str, *styles: str) -> list[str]:
    return [terminal.style(line, *styles) for line in terminal.wrap(clean(text), 2)]
