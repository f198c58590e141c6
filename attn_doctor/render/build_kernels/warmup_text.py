"""A warm-up by a program of the user's own, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attn_doctor.explain.explanation import Explanation
from attn_doctor.kernels.builder.program_run import Program
from attn_doctor.kernels.builder.warmup import NOTHING, WarmupResult
from attn_doctor.record.manifest import Warmup
from attn_doctor.render.build_kernels.off_gpu import headings, next_steps
from attn_doctor.render.build_kernels.text import cleared_lines
from attn_doctor.render.explanation.text import text
from attn_doctor.render.grouping import plural
from attn_doctor.render.humanize import size
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.shell import commands

#: Sentences of one kind that are shown.
_SHOWN = 8


def warmup_text(
    ran: WarmupResult,
    program: Program,
    found: Explanation | None,
    terminal: Terminal,
    *,
    exported: bool = False,
) -> str:
    """What the program compiled and whether a second run reused it, or why it failed.

    `exported`: an artifact is written of it.
    """
    targets = [program.target] if program.target is not None else []
    lines = ["", *headings(targets, terminal)]
    lines += cleared_lines(ran.cleared, "cleared", terminal, verbose=False)
    for path, why in ran.kept.items():
        lines += terminal.wrap(clean(f"! {path} could not be removed: {why}"), 0)
    if ran.refused:
        return terminal.page([*lines, *_refused(ran, program, terminal)])
    if ran.warmup is None:
        cause = text(found, terminal) if found is not None else ""
        return terminal.page([*lines, *_failed(ran, program, terminal), ""]) + cause
    lines += _done(ran, ran.warmup, program, terminal, exported=exported)
    return terminal.page(lines)


def planned_text(program: Program, why: str, terminal: Terminal) -> str:
    """What would be run, and why; for `--dry-run` and `--check`."""
    there = f" for {program.target.title}, on a stub GPU" if program.target else ""
    words = f"would run{there}" if why else f"up to date{there}, and run again only with --force"
    lines = [
        f"{words}, with TORCHINDUCTOR_CACHE_DIR={commands.word(str(program.folder))}:",
        f"  {commands.line(program.argv)}",
        *([f"  {why}"] if why else []),
    ]
    return terminal.page(map(clean, lines))


def _failed(ran: WarmupResult, program: Program, terminal: Terminal) -> Iterator[str]:
    why = f"was ended after {program.limit:g} s" if ran.late and program.limit else ""
    why = why or f"ended with exit code {ran.code}"
    mark = terminal.style("✗", "bold", "red")
    yield f"{mark} {terminal.style(clean(' '.join(program.argv)), 'bold')}"
    yield from terminal.wrap(f"The program {why}; nothing is recorded. Its errors: {ran.log}", 2)


def _refused(ran: WarmupResult, program: Program, terminal: Terminal) -> Iterator[str]:
    mark = terminal.style("✗", "bold", "red")
    yield f"{mark} {terminal.style(clean(' '.join(program.argv)), 'bold')}"
    words = "Refused: what it compiled depends on values that no GPU has computed. No file is kept."
    yield from terminal.wrap(words, 2)
    for sentence in ran.refused[:_SHOWN]:
        yield from terminal.wrap(clean(f"- {sentence}"), 2)
    if len(ran.refused) > _SHOWN:
        yield f"  and {len(ran.refused) - _SHOWN} more"
    yield ""
    words = (
        "Next: compute such values on the CPU, or leave them out of the warm-up, then run the same"
        " command again."
    )
    yield from terminal.wrap(words, 0)


def _done(
    ran: WarmupResult, warmup: Warmup, program: Program, terminal: Terminal, *, exported: bool
) -> Iterator[str]:
    good = not ran.wrong and (warmup.verified or warmup.reuse_seconds is None)
    colour = "yellow" if warmup.unverified else "green"
    mark = terminal.style("✓", "bold", colour) if good else terminal.style("✗", "bold", "red")
    yield f"{mark} {terminal.style(clean(' '.join(warmup.argv)), 'bold')}"
    total = size(sum(warmup.files.values()))
    words = f"{warmup.seconds:.1f} s; {_lookups(ran.first)}; {plural(ran.added, 'new file')}"
    yield from terminal.wrap(f"first   {words}; {plural(len(warmup.files), 'file')}, {total}", 2)
    if warmup.reuse_seconds is not None:
        yield from terminal.wrap(
            f"again   {warmup.reuse_seconds:.1f} s; {_lookups(warmup.hits)}", 2
        )
    if warmup.message:
        word = "" if good or ran.wrong else "not reused: "
        yield from terminal.wrap(clean(f"{word}{warmup.message}"), 2)
    for note in ran.notes[:_SHOWN]:
        yield from terminal.wrap(clean(f"note    {note}"), 2)
    if len(ran.notes) > _SHOWN:
        yield f"  and {len(ran.notes) - _SHOWN} notes more"
    yield ""
    if good and program.target is not None:
        yield from next_steps(str(program.folder), [program.target], terminal, exported=exported)
        return
    if good:
        place = commands.word(str(program.folder))
        next = f"Next: start training with TORCHINDUCTOR_CACHE_DIR={place}."
    elif ran.wrong == NOTHING:
        next = (
            "Next: make it call what training calls, with torch.compile(…) around the attention or"
            " the block, then run the same command again."
        )
    elif ran.wrong:
        next = (
            "Next: give each kind of call a torch.compile of its own, or raise"
            " torch._dynamo.config.recompile_limit, in training as well; then run the same command"
            " again."
            if "limit" in ran.wrong
            else "Next: change that, then run the same command again."
        )
    else:
        next = "Next: remove what differs between two runs, then run the same command again."
    yield from terminal.wrap(clean(next), 0)


def _lookups(counts: Mapping[str, int]) -> str:
    """Cache lookups in words: `3 found, 2 compiled`."""
    by_word = {"hit": "found", "miss": "compiled", "bypass": "not cacheable"}
    numbers: dict[str, int] = {}
    for name, number in counts.items():
        word = by_word[name.rpartition(".")[2]]
        numbers[word] = numbers.get(word, 0) + number
    output = ", ".join(f"{number} {word}" for word, number in numbers.items())
    return f"cache lookups: {output}" if output else "no cache lookups"
