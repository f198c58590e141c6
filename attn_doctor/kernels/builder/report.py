"""What a build did: one result for each kernel, and the cause of each failure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.explain.explanation import Explanation, RankedCause
from attn_doctor.facts import Facts
from attn_doctor.kernels.builder.plan import PlannedBuild
from attn_doctor.kernels.builder.target import Target
from attn_doctor.kernels.caches.deletion import ClearedFile
from attn_doctor.record.manifest import Entry
from attn_doctor.rulebook.rule import Rule


class Result(Struct, frozen=True, kw_only=True):
    """One kernel of a report."""

    kernel: PlannedBuild
    entry: Entry | None
    """None: it was not built, because the build was interrupted."""
    match: RankedCause | None = None
    """The rule that explains a failure."""
    log: str = ""
    """The file with the output of its process."""
    retried: bool = False
    """It ran out of memory beside others and was built again alone."""

    @property
    def ok(self) -> bool:
        """Built and verified, as far as that can be done here."""
        return self.entry is not None and self.entry.state in ("built", "unverified")


class Report(Struct, frozen=True, kw_only=True):
    """The result of one call of build-kernels."""

    facts: Facts
    folder: str
    jobs: int
    limit: str
    """What limits the number of jobs."""
    results: tuple[Result, ...]
    cleared: tuple[ClearedFile, ...] = ()
    kept: dict[str, str] = {}
    """Files that should have been removed and could not → why."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    start_seconds: float | None = None
    """How long importing torch took; None if nothing had to be built."""
    phases: dict[str, float] = {}
    """When each phase began or ended, in seconds since the start; `writing_down` is a sum."""
    stages: dict[str, dict[str, dict[str, float]]] = {}
    """Manifest key → `build` or `verify` → what its process spent its time on, in seconds."""
    targets: tuple[Target, ...] = ()
    """GPUs of other machines that it was built for, in place of one of this machine."""

    @property
    def failed(self) -> tuple[Result, ...]:
        """Kernels that failed, are not reused, or were not begun."""
        return tuple(result for result in self.results if not result.ok)


def joined(reports: Sequence[Report]) -> Report:
    """Join the reports of several targets."""
    first = reports[0]
    if len(reports) == 1:
        return first
    started = [one.start_seconds for one in reports if one.start_seconds is not None]
    named = [(one.targets[0].descriptor.id if one.targets else "", one) for one in reports]
    return replace(
        first,
        results=tuple(result for report in reports for result in report.results),
        cleared=tuple(file for report in reports for file in report.cleared),
        kept={path: why for report in reports for path, why in report.kept.items()},
        notes=tuple(dict.fromkeys(note for report in reports for note in report.notes)),
        jobs=max(report.jobs for report in reports),
        seconds=max(report.seconds for report in reports),
        start_seconds=sum(started) if started else None,
        phases={f"{id}.{name}": at for id, one in named for name, at in one.phases.items()},
        stages={key: stage for report in reports for key, stage in report.stages.items()},
        targets=tuple(target for report in reports for target in report.targets),
    )


def explained(
    logs: Sequence[Path], message: str, facts: Facts, rules: Sequence[Rule] | None = None
) -> Explanation | None:
    """Explain logs and the message of a failure by the rules; None if no rule fits.

    The message is appended to the last log first: not all of it was printed.
    """
    from attn_doctor.explain.engine import explain
    from attn_doctor.rulebook import library

    existing = [path for path in logs if path.exists()]
    if existing and message:
        with existing[-1].open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"\n{message}\n")
    rules = library.load(()) if rules is None else rules
    found = explain([str(path) for path in existing], rules, facts)
    return found if found.matches else None
