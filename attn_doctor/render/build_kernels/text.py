"""A build of kernels for a person at a terminal: a line for each spec, then failures and fixes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from attn_doctor.facts import Facts
from attn_doctor.kernels.builder.plan import Plan, PlannedBuild
from attn_doctor.kernels.builder.report import Report, Result
from attn_doctor.kernels.bundle.pack import Exported
from attn_doctor.kernels.caches.deletion import ClearedFile
from attn_doctor.record.manifest import Entry
from attn_doctor.render.build_kernels.off_gpu import headings, next_steps
from attn_doctor.render.caches.bundle import exported_text
from attn_doctor.render.definition_list import fix_lines, labelled
from attn_doctor.render.grouping import plural, rows_of_all_heads
from attn_doctor.render.humanize import size, span
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.shell import commands

_INDENT = 11
#: Files that are listed one by one; of more, the rest is counted.
_LISTED = 20
_FIXES = 2
_WORDS = {"not-reused": "not reused"}


def report_text(
    report: Report, terminal: Terminal, *, verbose: bool = False, exported: Exported | None = None
) -> str:
    """All that a build did. `exported`: the artifact that was written of it."""
    lines = [*_head(report, terminal)]
    lines += cleared_lines(report.cleared, "cleared", terminal, verbose)
    for path, why in report.kept.items():
        lines += terminal.wrap(clean(f"! {path} could not be removed: {why}"), 0)
    lines += _table(report.results, terminal)
    lines += _compared(report.results, terminal)
    for result in report.failed:
        if result.entry is not None:
            lines += ["", *_failure(result, result.entry, report.facts, terminal)]
    lines += _remarks(report, terminal)
    lines += ["", *_last(report, terminal, exported=exported is not None)]
    if exported is not None:
        lines += ["", *exported_text(exported, terminal).splitlines()]
    return terminal.page(lines)


def plan_text(
    plan: Plan,
    folder: str,
    facts: Facts,
    terminal: Terminal,
    *,
    verbose: bool = False,
    notes: Sequence[str] = (),
) -> str:
    """What a build would do, for `--dry-run` and `--check`."""
    lines = [_where(folder, facts, terminal), *headings(plan.targets, terminal)]
    lines += [line for change in plan.changes for line in terminal.wrap(clean(change), 2)]
    lines += cleared_lines(plan.cleared, "would clear", terminal, verbose)
    lines.append("")
    for item in plan.kernels:
        lines += _planned(item, plan.kernels, terminal)
    for device in plan.unknown:
        words = f"Which GPU {device} is, only torch knows: entries are looked up while building."
        lines += terminal.wrap(words, 0)
    todo = sum(not item.refused for item in plan.todo)
    refused = len(plan.todo) - todo
    words = f"{plural(len(plan.kernels), 'kernel')}, all up to date"
    if refused and not todo:
        words = f"{refused} of {plural(len(plan.kernels), 'kernel')} cannot be built"
    elif todo:
        words = (
            f"{todo} of {plural(len(plan.kernels), 'kernel')} to build, {plan.jobs} at once"
            f" ({plan.limit}), about {span(plan.seconds)}"
        )
        words += f"; {refused} cannot be built" if refused else ""
    for note in notes:
        lines += ["", *terminal.wrap(clean(f"Note: {note}."), 0)]
    return terminal.page([*lines, "", terminal.style(words, "bold")])


def _planned(
    item: PlannedBuild, items: Sequence[PlannedBuild], terminal: Terminal
) -> Iterator[str]:
    """What would be done with one kernel, and why."""
    words, mark, colour, took = "up to date", "✓", "green", ""
    if item.refused:
        words, mark, colour, took = "will fail", "✗", "red", "at once"
    elif item.todo:
        words = "would verify" if item.state == "unverified" else "would build"
        mark, colour, took = "•", "yellow", f"about {span(item.seconds)}"
    said = f"{terminal.pad(words, 12)} {terminal.pad(took, 14)}"
    yield f"{terminal.style(mark, colour)} {said} {_title(item, items)}"
    why = item.refused or (item.why if item.todo and item.state != "new" else "")
    if why:
        yield from (terminal.style(line, "dim") for line in terminal.wrap(clean(why), _INDENT + 4))


def said(item: PlannedBuild, entry: Entry | None, state: str) -> str:
    """One finished spec in a line, for output without a terminal."""
    build = entry.build if entry is not None else None
    parts = [state, item.spec.title]
    if build is not None:
        parts.append(f"{build.seconds:.1f} s")
        if build.reuse_seconds is not None:
            parts.append(f"again {build.reuse_seconds:.2f} s")
    if entry is not None and entry.message:
        parts.append(clean(entry.message))
    return "  ".join(parts)


def _head(report: Report, terminal: Terminal) -> Iterator[str]:
    yield _where(report.folder, report.facts, terminal)
    yield from headings(report.targets, terminal)
    if report.start_seconds is not None:
        words = f"{report.jobs} at once (limit: {report.limit})"
        yield terminal.style(f"  {words}; torch took {report.start_seconds:.1f} s to import", "dim")


def _where(folder: str, facts: Facts, terminal: Terminal) -> str:
    words = f"torch {facts.torch.version or '?'}, {facts.python.path or '?'}"
    return terminal.style(clean(f"Kernels in {folder}"), "bold") + terminal.style(
        f"  {words}", "dim"
    )


def cleared_lines(
    files: Sequence[ClearedFile], word: str, terminal: Terminal, verbose: bool
) -> Iterator[str]:
    """Files by the reason of their removal."""
    if not files:
        return
    yield ""
    by_reason: dict[str, list[ClearedFile]] = {}
    for one in files:
        by_reason.setdefault(one.why, []).append(one)
    for why, group in by_reason.items():
        total = size(sum(one.bytes for one in group))
        yield from terminal.wrap(clean(f"{word} {plural(len(group), 'file')}, {total}: {why}"), 0)
        shown = group if verbose else group[:_LISTED]
        yield from (terminal.style(f"    {clean(one.path)}", "dim") for one in shown)
        if len(group) > len(shown):
            yield terminal.style(f"    and {len(group) - len(shown)} more (-v lists all)", "dim")


def _table(results: Sequence[Result], terminal: Terminal) -> Iterator[str]:
    yield ""
    head = "".join(terminal.right(name, 9) for name in ("cold", "reused", "max diff"))
    yield terminal.style(f"  {terminal.pad('state', 12)}{head}  {terminal.say('kernel')}", "dim")
    items = [one.kernel for one in results]
    for result in results:
        word, mark, colour = _state(result)
        build = result.entry.build if result.entry is not None else None
        cold = f"{build.seconds:.2f} s" if build else "-"
        again = f"{build.reuse_seconds:.2f} s" if build and build.reuse_seconds is not None else "-"
        errors = build.errors.values() if build else ()
        error = f"{max(errors):.1e}" if errors else "-"
        word = terminal.pad(word, 12)
        line = f"{word}{cold:>9}{again:>9}{error:>9}  {_title(result.kernel, items)}"
        yield f"{terminal.style(mark, 'bold', colour)} {clean(line)}"


def _compared(results: Sequence[Result], terminal: Terminal) -> Iterator[str]:
    """How much of the kernels was compared with float64: at least so much of each."""
    found = [one.entry.build.compared for one in results if one.entry and one.entry.build]
    found = [one for one in found if one and one["calls"]]
    if found:
        calls, share = (min(one[name] for one in found) for name in ("calls", "share"))
        words = (
            f"Compared with float64: {plural(int(calls), 'call')} of each kernel, with other inputs"
            f" each time; {rows_of_all_heads(share)}."
        )
        yield from terminal.wrap(words, 2)


def _state(result: Result) -> tuple[str, str, str]:
    if result.entry is None:
        return "not begun", "•", "yellow"
    if not result.kernel.todo:
        verified = result.entry.state == "built"
        return ("up to date", "✓", "green") if verified else ("unverified", "•", "yellow")
    state = result.entry.state
    if result.ok:
        return (state, "✓", "green") if state == "built" else (state, "•", "yellow")
    return _WORDS.get(state, state), "✗", "red"


def _title(item: PlannedBuild, items: Iterable[PlannedBuild]) -> str:
    """The spec, and the device where there are several; of several GPUs the name as well."""
    gpus = {one.device_slot.partition(" ")[2] for one in items}
    shown = item.device_slot if len(gpus - {""}) > 1 else item.device
    several = len({one.device_slot for one in items}) > 1
    preset = f"  ({item.spec.preset})" if item.spec.preset else ""
    return f"{item.spec.title}{preset}{'  ' + shown if several else ''}"


def _failure(result: Result, entry: Entry, facts: Facts, terminal: Terminal) -> Iterator[str]:
    match = result.match
    reused = entry.state == "not-reused"
    words = "built, but not reused: " if reused else ""
    title = match.title if match else ""
    yield (
        terminal.style("✗", "bold", "red")
        + " "
        + terminal.style(clean(result.kernel.spec.title), "bold")
    )
    yield from terminal.wrap(clean(f"{words}{entry.message}"), 2)
    if match is not None:
        yield from labelled("cause", f"{title} [{match.rule}]", terminal, indent=_INDENT)
        yield from terminal.wrap(clean(match.why), _INDENT)
        yield from fix_lines(match.fixes[:_FIXES], facts, terminal, indent=_INDENT)
    if result.log:
        yield from labelled("log", result.log, terminal, "dim", indent=_INDENT)


def _remarks(report: Report, terminal: Terminal) -> Iterator[str]:
    limits: dict[str, int] = {}
    for result in report.results:
        if result.entry is not None and result.entry.build is not None:
            for limit in result.entry.build.limits:
                limits[limit] = limits.get(limit, 0) + 1
    retried = sum(one.retried for one in report.results)
    words = [f"{limit} ({plural(count, 'kernel')})" for limit, count in limits.items()]
    words += report.notes
    if retried:
        words.append(f"{plural(retried, 'kernel')} ran out of memory beside others and built alone")
    for one in words:
        yield from ["", *terminal.wrap(clean(f"Note: {one}."), 0)]


def _last(report: Report, terminal: Terminal, *, exported: bool) -> Iterator[str]:
    counts: dict[str, int] = {}
    for result in report.results:
        word = _state(result)[0]
        counts[word] = counts.get(word, 0) + 1
    printed = ", ".join(f"{number} {word}" for word, number in counts.items())
    total = plural(len(report.results), "kernel")
    words = f"{total}: {printed}; {report.seconds:.1f} s{_parts_of_time(report.phases)}"
    yield terminal.style(words, "bold")
    if report.targets and not report.failed:
        yield from next_steps(report.folder, report.targets, terminal, exported=exported)
    else:
        yield from terminal.wrap(_next(report), 0)


def _parts_of_time(phases: Mapping[str, float]) -> str:
    """What took the time of a build on one device, in parentheses; empty if it is not known."""
    ends = [phases.get(name) for name in ("torch_imported", "last_build_ended", "all_done")]
    torch, built, done = (end or 0.0 for end in ends)
    if not 0 < torch <= built <= done:
        return ""
    spent = {"importing torch": torch, "compiling": built - torch, "verifying": done - built}
    return f" ({', '.join(f'{name} {seconds:.1f}' for name, seconds in spent.items())})"


def _next(report: Report) -> str:
    if any(one.entry is None for one in report.results):
        return "Next: run the same command again; what is finished is kept."
    if report.failed:
        printed = any(one.match is not None and one.match.fixes for one in report.failed)
        first = "do what the fix says" if printed else "read the log"
        return f"Next: {first}, then run the same command again; only these are built."
    folder = commands.word(str(PurePath(report.folder)))
    phases = {one.kernel.spec.phase for one in report.results}
    what = "training" if "training" in phases else "your program"
    return (
        f"Next: start {what} with TORCHINDUCTOR_CACHE_DIR={folder}; only the same shapes, dtype,"
        " strides and mask reuse these kernels."
    )
