"""Writes the choice of a CUDA toolkit as text for a person, and as JSON for a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attn_doctor.facts import Facts
from attn_doctor.fixes.cuda_home.candidate import Candidate, Report
from attn_doctor.fixes.cuda_home.start_files import FileChanges
from attn_doctor.render.json_text import json_text
from attn_doctor.render.terminal import Terminal, clean, width_of

SCHEMA = 1
_HEADERS = ("headers", "crt", "cublas", "cusparse", "cusolver", "cccl")
_LIBRARIES = ("cudart", "nvvm", "ptxas")
_STYLES = {"chosen": "green", "fits": "dim", "rejected": "red"}


def as_text(report: Report, terminal: Terminal) -> str:
    """Return the explanation: torch and the GPUs, every toolkit, the choice and its check."""
    lines = [*_wanted(report.facts, report.choice.notes, terminal)]
    if report.choice.candidates:
        lines += ["", *_table(report.choice.candidates, terminal), ""]
        for candidate in report.choice.candidates:
            reasons = "; ".join(candidate.reasons)
            line = f"{candidate.verdict:<9} {candidate.root}: {reasons}"
            lines += terminal.wrap(clean(line), 2)
    else:
        gap = report.facts.gap("toolkits")
        unknown = f"The toolkits could not be listed: {gap or 'they were not examined'}."
        none = "There is no CUDA toolkit on this machine."
        lines += ["", *terminal.wrap(clean(unknown if report.facts.toolkits is None else none), 2)]
    if report.answers:
        lines += ["", *_confirmation(report, terminal)]
    if report.chosen is None and report.advice is not None:
        lines += ["", *_advice(report, terminal)]
    return terminal.page(lines)


def _wanted(facts: Facts, notes: Iterable[str], terminal: Terminal) -> Iterator[str]:
    torch = facts.torch
    if torch.installed and torch.cuda:
        gpus = sorted({f"sm_{one.sm}" for one in facts.gpus or () if one.sm})
        compiler = facts.cxx
        parts = [f"torch {torch.version} is built for CUDA {torch.cuda}"]
        parts += [f"GPU {', '.join(gpus)}"] if gpus else []
        parts += [f"{compiler.path} {compiler.version or ''}".strip()] if compiler.path else []
        for line in terminal.wrap(clean(" · ".join(parts)), 0):
            yield terminal.style(line, "bold")
    for note in notes:
        yield from terminal.wrap(clean(note), 0)


def _table(candidates: Sequence[Candidate], terminal: Terminal) -> Iterator[str]:
    head = ("toolkit", "CUDA", "nvcc", "header files", "library files", "torch", "verdict")
    rows: list[tuple[str, ...]] = [head, *map(_row, candidates)]
    said = [[*map(terminal.say, row)] for row in rows]
    widths = [max(map(width_of, column)) for column in zip(*said, strict=True)]
    for number, (row, words) in enumerate(zip(rows, said, strict=True)):
        cells = [
            one + " " * (width - width_of(one)) for one, width in zip(words, widths, strict=True)
        ]
        if number == 0:
            yield "  " + terminal.style("  ".join(cells).rstrip(), "dim")
        else:
            cells[-1] = terminal.style(words[-1], _STYLES.get(row[-1], "dim"))
            yield "  " + "  ".join(cells)


def _row(candidate: Candidate) -> tuple[str, ...]:
    same = {None: "unknown", True: "same" if candidate.exact else "same major", False: "another"}
    return (
        clean(candidate.root),
        candidate.version or "unknown",
        candidate.nvcc or "not run",
        _there(candidate, _HEADERS),
        _there(candidate, _LIBRARIES),
        same[candidate.matches],
        candidate.verdict,
    )


def _there(candidate: Candidate, parts: Sequence[str]) -> str:
    if candidate.lacks is None:
        return "unknown"
    missing = [part for part in parts if part in candidate.lacks]
    return "yes" if not missing else "none" if len(missing) == len(parts) else "not all"


def _confirmation(report: Report, terminal: Terminal) -> Iterator[str]:
    yield "  With these lines set:"
    marks = {True: ("✓", "green"), False: ("✗", "red"), None: ("·", "dim")}
    for answer in report.answers:
        mark, style = marks[answer.agrees]
        first, *rest = terminal.wrap(clean(f"{answer.name}: {answer.says}"), 4)
        yield f"  {terminal.style(mark, style)} {first.strip()}"
        yield from rest


def _advice(report: Report, terminal: Terminal) -> Iterator[str]:
    advice = report.advice
    if advice is None:
        return
    yield terminal.style(f"  Install CUDA {advice.release}, without root:", "bold")
    for way in advice.ways:
        yield from terminal.wrap(way.title, 2)
        yield from (f"    {command}" for command in way.commands)
    if not advice.ways:
        yield "  no way to install it is known for this system"
    if advice.note:
        yield from terminal.wrap(f"({advice.note}.)", 2)


def changes(plan: FileChanges, terminal: Terminal) -> str:
    """Return the files that would change, and what they set."""
    lines: list[str] = []
    for change in plan.changes:
        link = f" (the target of {change.path})" if change.real != change.path else ""
        state = "unchanged" if not change.needed else "new" if change.before is None else "changed"
        lines.append(clean(f"  {state:<9} {change.real}{link}"))
    exports = plan.exports
    settings = [f"{name}={value}" for name, value in exports.variables.items()]
    settings += [f"{exports.path} first on PATH"] if exports.path else []
    lines += [clean(f"  sets {one}") for one in settings]
    for note in plan.notes:
        lines += terminal.wrap(clean(note), 2)
    return terminal.page(lines)


def as_json(report: Report, plan: FileChanges | None, *, written: bool, undo: str) -> str:
    """Return the same as one JSON object."""
    exports = report.exports
    data = {
        "schema": SCHEMA,
        "torch": {"version": report.facts.torch.version, "cuda": report.facts.torch.cuda},
        "chosen": report.chosen,
        "candidates": report.choice.candidates,
        "notes": report.choice.notes,
        "shell": report.shell,
        "exports": exports.variables if exports else {},
        "path": exports.path if exports else "",
        "lines": report.lines,
        "confirmed": report.answers,
        "advice": report.advice,
        "files": [
            {"path": str(change.real), "changes": change.needed}
            for change in (plan.changes if plan else ())
        ],
        "written": written,
        "undo": undo,
    }
    return json_text(data)
