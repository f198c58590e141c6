"""The results of running built kernels, for a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from attn_doctor.facts import Facts
from attn_doctor.kernels.verify.run import Verification
from attn_doctor.kernels.verify.why import short
from attn_doctor.render.grouping import plural
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.shell import commands


def verification_text(results: Sequence[Verification], facts: Facts, terminal: Terminal) -> str:
    """One line for each kernel or program, the reason of each miss, and the fix."""
    lines = [line for one in results for line in _lines(one, terminal)]
    lines += ["", *(line for text in _summary(results, facts) for line in terminal.wrap(text, 0))]
    return terminal.page(lines)


def _lines(one: Verification, terminal: Terminal) -> Iterator[str]:
    mark, colour = ("✓", "green") if one.hit else ("✗", "red")
    if one.hit and one.state == "unverified":
        mark, colour = "!", "yellow"
    text = clean(f"{one.title} {one.device_slot}".strip())
    if one.hit:
        error = max(one.errors.values(), default=None)
        text += f": hit in {one.seconds:.2f} s" if one.seconds is not None else ": hit"
        text += f", error {error:.1e}" if error is not None else ""
        if one.state == "unverified":
            text += ", on a stub GPU: its numbers stay unverified"
        elif one.previous_state == "unverified":
            text += ", verified now"
        text += f"; {clean(one.message)}" if one.message else ""
    else:
        message = short(one.message) if one.misses else one.message
        text += f": {clean(message) or 'it did not hit'}"
    yield from terminal.marked(mark, text, colour)
    for miss in one.misses:
        yield from terminal.wrap(clean(f"differs  {miss.what}"), 4)
        yield from terminal.wrap(clean(f"fix      {miss.fix}"), 4)


def _summary(results: Sequence[Verification], facts: Facts) -> Iterator[str]:
    """The result in one sentence, and the next step."""
    named = [one for one in results if one.key]
    missed = [one for one in named if not one.hit]
    verified = [
        one
        for one in named
        if one.hit and one.previous_state == "unverified" and one.state == "built"
    ]
    stays = [one for one in named if one.hit and one.state == "unverified"]
    if missed or len(named) < len(results):
        yield f"{len(missed)} of {_counted(named)} missed the cache or failed the comparison."
        again = dict.fromkeys(
            _again(one, facts)
            for one in missed
            if one.previous_state != "unverified" and not one.program_failed
        )
        if again and not any(one.misses for one in missed):
            joined = " and ".join(f"`{command}`" for command in again)
            yield f"Next: {joined} builds and records them; then start the run."
    else:
        yield f"Every cache hit and no compiler ran: {_counted(named)}."
    if verified:
        yield f"Verified here now, and ready: {_counted(verified)}."
    if stays:
        yield f"Still unverified: {_counted(stays)}; this machine cannot compute their numbers."


def _again(one: Verification, facts: Facts) -> str:
    """The command that builds what did not hit: a program's kernels by running it."""
    program = shlex.split(one.title) if one.key == "program" else ()
    return commands.build(one.folder, facts, program=program)


def _counted(found: Sequence[Verification]) -> str:
    programs = sum(one.key == "program" for one in found)
    kernels = len(found) - programs
    counts = [plural(kernels, "kernel")] if kernels else []
    counts += [plural(programs, "program")] if programs else []
    return " and ".join(counts)
