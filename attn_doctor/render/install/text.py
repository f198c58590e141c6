"""Writes an installation, or why there is none, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_doctor.facts import Facts
from attn_doctor.fixes.read_wheel import ReadWheel
from attn_doctor.install.choice import Conflict
from attn_doctor.install.packages import Pick
from attn_doctor.install.plan import Installation
from attn_doctor.install.proof import Proof
from attn_doctor.render.terminal import Terminal, clean

_INDENT = 16


def machine_line(facts: Facts) -> str:
    """Return the machine in one line: system, Python, GPUs, driver."""
    system = " ".join(filter(None, (facts.system.os, facts.system.arch))) or "unknown system"
    names = [gpu.name or "a GPU" for gpu in facts.gpus or ()]
    other = {"amd": "an AMD GPU", "intel": "an Intel GPU"}.get(facts.driver.vendor or "", "no GPU")
    gpus = ", ".join(
        f"{names.count(name)} × {name}" if names.count(name) > 1 else name
        for name in dict.fromkeys(names)
    )
    driver = f", driver {facts.driver.version}" if facts.driver.version else ""
    return f"{system}, Python {facts.python.version}, {gpus or other}{driver}"


def conflict_text(
    words: Sequence[str], found: Conflict, facts: Facts, terminal: Terminal, community: bool = False
) -> str:
    """Return why nothing can be installed. `community`: wheels of other publishers would do."""
    head = f"{', '.join(words)}: no set of releases fits {machine_line(facts)}"
    first, *rest = terminal.wrap(clean(head), 2)
    lines = [terminal.style("✗", "bold", "red") + first[1:], *rest]
    for reason in found.reasons:
        start, *more = terminal.wrap(clean(reason), 4)
        lines += ["  - " + start[4:], *more]
    if len(found.reasons) > 1:
        lines += terminal.wrap("Without one of these a set exists.", 2)
    if community:
        lines += terminal.wrap(
            "A set with wheels of other publishers exists: add `--community`.", 2
        )
    return terminal.page(lines)


def installation_text(found: Installation, facts: Facts, terminal: Terminal) -> str:
    """Return what is installed and why, before the plan."""
    choice = found.choice
    title = f"{', '.join(found.demand.words)} for {machine_line(facts)}"
    lines = [*terminal.wrap(clean(title), 0), ""]
    lines[0] = terminal.style(lines[0], "bold")
    lines += _row("torch", _torch(found, facts), terminal)
    if choice.why:
        lines += _row("", f"the installed one does not stay: {choice.why}", terminal)
    read = {one.source: one for one in found.read}
    for pick in choice.picks:
        lines += _row(pick.package, _pick(pick), terminal)
        if pick.wheel and pick.wheel.url in read:
            lines += _row("", _read(read[pick.wheel.url]), terminal)
    for package in choice.dropped:
        version = getattr(facts, package.replace("-", "_")).version
        words = f"{version} does not fit this torch, and nothing that fits is prebuilt"
        lines += _row(package, words, terminal, "yellow")
    for note in choice.notes:
        lines += _row("note", note, terminal, "yellow")
    lines.append("")
    return terminal.page(lines)


def _torch(found: Installation, facts: Facts) -> str:
    build = found.choice.torch
    if build.installed:
        return f"{build.installed} stays"
    old = f", in place of {facts.torch.version}" if facts.torch.installed else ""
    source = f"PyTorch's index {build.index}" if build.index else "the default index"
    built = f"for CUDA {build.cuda}" if build.cuda else "for the processor"
    return f"{build.version} {built}, from {source}{old}"


def _pick(pick: Pick) -> str:
    if pick.how == "stays":
        return f"{pick.version} stays" if pick.version else pick.note
    how = {"index": "prebuilt", "address": "prebuilt", "build": "compiled here"}[pick.how]
    note = f"; {pick.note}" if pick.note else ""
    return f"{pick.version or 'the release that fits'}, {how}{note}"


def _read(one: ReadWheel) -> str:
    if one.verdict.loads == "unknown":
        return f"whether it loads is unknown: {one.verdict.reason}"
    return (
        f"{one.verdict.text} ({_bytes(one.reading.fetched)} read)"
        if one.reading
        else (one.verdict.text)
    )


def _bytes(number: int) -> str:
    return f"{number / 1e6:.1f} MB" if number >= 1e5 else f"{number / 1e3:.0f} kB"


def _row(label: str, words: str, terminal: Terminal, *styles: str) -> Iterator[str]:
    first, *rest = terminal.wrap(clean(words), _INDENT) or [""]
    yield f"  {terminal.pad(label, _INDENT - 2)}" + terminal.style(first[_INDENT:], *styles)
    yield from (terminal.style(line, *styles) for line in rest)


def proofs_text(proofs: Sequence[Proof], terminal: Terminal) -> str:
    """Return what the imports showed."""
    lines = []
    for one in proofs:
        mark, colour = ("✗", "red") if one.fault else ("✓", "green")
        words = f"`import {one.module}` " + (f"fails: {one.fault}" if one.fault else "works")
        first, *rest = terminal.wrap(clean(words), 2)
        lines += [terminal.style(mark, "bold", colour) + first[1:], *rest]
    return terminal.page(lines)
