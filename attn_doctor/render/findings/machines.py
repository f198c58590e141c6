"""The results of many machines: a line for each, and how many machines have each problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from attn_doctor.clean import clean
from attn_doctor.findings import Diagnosis, Severity
from attn_doctor.render.grouping import plural, problems, tally
from attn_doctor.render.json_text import result
from attn_doctor.render.terminal import Terminal

_MARKS = {
    Severity.ERROR: ("✗", "red"),
    Severity.WARNING: ("!", "yellow"),
    Severity.INFO: ("i", "cyan"),
}


class RootProblem(Struct, frozen=True):
    """A root problem of a machine."""

    rule: str
    severity: Severity
    title: str


class MachineResult(Struct, frozen=True, kw_only=True):
    """The result of one snapshot."""

    file: str
    exit_code: int
    tally: str = ""
    """`1 error, 2 warnings`."""
    problems: tuple[RootProblem, ...] = ()
    error: str = ""
    """Why the file could not be evaluated."""

    @classmethod
    def of(cls, file: str, diagnosis: Diagnosis, code: int) -> MachineResult:
        """The result of a diagnosis."""
        found = tuple(
            RootProblem(one.finding.rule, one.severity, one.finding.title)
            for one in problems(diagnosis)
        )
        return cls(file=file, exit_code=code, tally=tally(diagnosis), problems=found)


def text(
    machines: Sequence[MachineResult],
    terminal: Terminal,
    seconds: float,
    *,
    verbose: bool = False,
    quiet: bool = False,
) -> str:
    """The whole report. `verbose` adds the titles of problems; `quiet` leaves healthy ones out."""
    return terminal.page(_lines(machines, terminal, seconds, verbose=verbose, quiet=quiet))


def _lines(
    machines: Sequence[MachineResult],
    terminal: Terminal,
    seconds: float,
    *,
    verbose: bool,
    quiet: bool,
) -> Iterator[str]:
    for one in machines:
        if quiet and not one.exit_code:
            continue
        rules = dict.fromkeys(
            each.rule for each in one.problems if each.severity is not Severity.INFO
        )
        names = "" if verbose or not rules else f": {', '.join(rules)}"
        mark, *styles = _mark(one)
        yield from terminal.marked(mark, f"{one.file}: {one.error or one.tally}{names}", *styles)
        for each in one.problems if verbose else ():
            yield from terminal.wrap(clean(f"{each.severity.value} {each.rule}: {each.title}"), 4)
    counted = _by_rule(machines)
    if counted:
        yield ""
        width = len(str(max(counted.values())))
        for rule, number in counted.items():
            yield f"  {number:{width}}  {rule}"
    yield ""
    failing = sum(bool(one.exit_code) for one in machines)
    mark, colour = ("✗", "red") if failing else ("✓", "green")
    verdict = f"{mark} {failing} of {plural(len(machines), 'machine')} with problems that count"
    yield terminal.style(verdict, "bold", colour) + terminal.style(f"  ({seconds:.2f} s)", "dim")


def _mark(machine: MachineResult) -> tuple[str, str]:
    """The glyph and the colour of a machine: those of its worst problem."""
    if machine.error:
        return _MARKS[Severity.ERROR]
    worst = max((one.severity for one in machine.problems), key=lambda one: one.rank, default=None)
    return ("✓", "green") if worst in (None, Severity.INFO) else _MARKS[worst]


def _by_rule(machines: Sequence[MachineResult]) -> dict[str, int]:
    """How many machines have each problem, the most frequent first; notes are left out."""
    names = (
        {each.rule for each in one.problems if each.severity is not Severity.INFO}
        for one in machines
    )
    counted = Counter(name for some in names for name in some)
    return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def json(machines: Sequence[MachineResult], code: int, seconds: float) -> str:
    """The same as JSON."""
    return result(
        exit_code=code,
        summary={
            "machines": len(machines),
            "failing": sum(bool(one.exit_code) for one in machines),
            "unread": sum(bool(one.error) for one in machines),
            "seconds": round(seconds, 3),
        },
        rules=_by_rule(machines),
        machines=machines,
    )
