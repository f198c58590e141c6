"""Tells which symptoms in a log can explain how it ends, and which are only beside that.

A line of a run that went on, a notice, or a failure that the run survived explains no later failure
of another kind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.explain.components import component_table
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.explain.survived import ABSENT, gone_past, is_killed, ran_on, survived
from attn_doctor.explain.symptom_match import SymptomMatch
from attn_doctor.explain.tracebacks import LineKind, TraceLog
from attn_doctor.rulebook.rule import Rule

#: Who asks what a notice means quotes no more lines after it.
_ASKED = 2
#: Areas of rules on warnings of a package, and how an exception names it.
_PACKAGES = {"xformers": re.compile(r"(?i:xformers)|memory_efficient|_operator_|\b[Oo]perator\b")}
#: How nvcc ends after it found errors.
_COMPILED = re.compile(r"^\s*\d+ errors? detected in the compilation of ")


class LogEnd(Struct, frozen=True):
    """The end of a log: the message of its last failure, if it ends in one."""

    file: str
    text: str = ""
    first: int = 0
    last: int = 0
    progress: int = 0
    """The last line of a run that goes on; 0 if there is none."""
    survived: tuple[tuple[int, int], ...] = ()
    """The first and the last line of each failure that the run survived."""
    gone_past: dict[str, int] = {}
    """For each process that ends in a traceback: a line at which it still went on."""
    installed: int = 0
    """The last line that reports an installation that succeeded, in a log without a failure."""
    unreached: bool = False
    """The installer read no index, so that it does not know what an index has."""
    ran_on: int = 0
    """A line after which a run only went on, by many steps; 0 if it did not."""
    killed: bool = False
    """The system stopped the run, for its memory."""
    compiled: int = 0
    """The last line in which nvcc counts the errors of a file; 0 if there is none."""

    def went_past(self, match: SymptomMatch) -> bool:
        """A process reported the match outside a failure, went on, and ended in another line."""
        return (
            match.file == self.file
            and match.position.failure < 0
            and match.line < self.gone_past.get(match.rank, 0)
        )

    def compiled_after(self, match: SymptomMatch) -> bool:
        """The line warns before a compiler ran, which found errors in the sources."""
        warns = match.position.kind is LineKind.WARNING
        return warns and match.file == self.file and match.line < self.compiled

    def ran_past(self, match: SymptomMatch, rule: Rule) -> bool:
        """The match is an exception, or says what is used instead, and the run went on well."""
        if match.file != self.file or match.line >= self.ran_on:
            return False
        if self.killed:
            return rule.cause not in log_signals().memory_causes
        instead = rule.severity == "error" and log_signals().harmless.search(match.said)
        return match.position.failure >= 0 or bool(instead)

    def has_survived(self, match: SymptomMatch) -> bool:
        """The match is in a failure that the run survived."""
        lines = match.file == self.file and self.survived
        return any(first <= match.line <= last for first, last in lines or ())


def log_end(file: str, trace: TraceLog) -> LogEnd:
    """How a log ends."""
    end = _log_end(file, trace)
    compiled, on = _last(_COMPILED, trace), ran_on(trace)
    return replace(end, compiled=compiled, ran_on=on, killed=is_killed(trace))


def _log_end(file: str, trace: TraceLog) -> LogEnd:
    """The exception in which a log ends, or a later line that ends the run in another way."""
    message = trace.last_message()
    before, past, unreached = survived(trace), gone_past(trace), _is_unreached(trace)
    progress = max(trace.stepped, _last(log_signals().progress, trace))
    fatal = next(
        (
            line
            for line, position in zip(reversed(trace.lines), reversed(trace.positions), strict=True)
            if position.kind not in (LineKind.NOISE, LineKind.WARNING)
            and log_signals().fatal.search(line.text)
        ),
        None,
    )
    if fatal is not None and fatal.number > max((line.number for line in message), default=0):
        number = fatal.number
        return LogEnd(file, fatal.text, number, number, progress, before, past, 0, unreached)
    if not message:
        if any(log_signals().chosen.search(line.text) for line in trace.lines):
            # The program says which attention it uses, and nothing fails.
            progress = trace.lines[-1].number + 1
        installed = _last(log_signals().installed, trace)
        return LogEnd(file, progress=progress, installed=installed, unreached=unreached)
    numbers = [line.number for line in message]
    text = "\n".join(line.text for line in message)
    return LogEnd(file, text, min(numbers), max(numbers), progress, before, past, 0, unreached)


def _last(pattern: re.Pattern[str], trace: TraceLog) -> int:
    """The number of the last line that the pattern matches; 0 if there is none."""
    found = (line.number for line in reversed(trace.lines) if pattern.search(line.text))
    return next(found, 0)


def _is_unreached(trace: TraceLog) -> bool:
    signals = log_signals()
    lines = [line.text for line in trace.lines]
    return any(map(signals.unreached.search, lines)) and not any(map(signals.reached.search, lines))


def relevant(
    matches: Sequence[SymptomMatch], rules: Mapping[str, Rule], ends: Sequence[LogEnd]
) -> list[SymptomMatch]:
    """The matches without those that report no failure, or precede an unrelated one."""
    kept = [match for match in matches if not _is_incidental(match, matches, rules, ends)]
    kept = [match for match in kept if not any(end.has_survived(match) for end in ends)]
    kept = [
        match for match in kept if not any(end.ran_past(match, rules[match.rule]) for end in ends)
    ]
    kept = [match for match in kept if not _is_added(match, kept, rules)]
    kept = [match for match in kept if not _is_beside(match, kept, rules, ends)]
    kept = [match for match in kept if not any(end.compiled_after(match) for end in ends)]
    # What only warnings and reports before it say does not explain the exception of the end.
    if all(_is_before_end(match, rules, ends) for match in kept):
        return []
    return [match for match in kept if not any(end.went_past(match) for end in ends)] or kept


def _is_added(
    match: SymptomMatch, matches: Sequence[SymptomMatch], rules: Mapping[str, Rule]
) -> bool:
    """The line below an exception with another cause only says that an optional part is absent."""
    cause, at = rules[match.rule].cause, match.position
    if at.kind is not LineKind.MESSAGE or cause not in log_signals().optional_causes:
        return False
    return any(
        (other.file, other.rank, other.position.failure, other.position.link)
        == (match.file, match.rank, at.failure, at.link)
        and other.position.kind is LineKind.EXCEPTION
        and rules[other.rule].cause != cause
        for other in matches
    )


def _is_beside(
    match: SymptomMatch,
    matches: Sequence[SymptomMatch],
    rules: Mapping[str, Rule],
    ends: Sequence[LogEnd],
) -> bool:
    """The line warns of something, and the exception in which the log ends says another reason."""
    signals, cause = log_signals(), rules[match.rule].cause
    area = match.rule.partition("/")[0]
    warns = match.position.kind is LineKind.WARNING or match.position.failure < 0
    if not warns or not any(
        each.search(match.said) for each in (signals.harmless, signals.standing, signals.replaced)
    ):
        return False
    return any(
        end.file == other.file == match.file
        and _ends_there(end, match, other)
        and (not other.general or _cannot_be(cause, area, end))
        and rules[other.rule].cause != cause
        and other.rule.partition("/")[0] != area
        and not _leads_to(cause, end)
        for end in ends
        for other in matches
    )


def _ends_there(end: LogEnd, match: SymptomMatch, other: SymptomMatch) -> bool:
    """The log ends at another match; without an exception, at the end of a build after it."""
    kind = other.position.kind
    if not end.first:
        return kind is LineKind.NOISE and other.line > match.line
    raised = kind in (LineKind.EXCEPTION, LineKind.MESSAGE)
    return raised and end.first <= other.line <= end.last


def _cannot_be(cause: str, area: str, end: LogEnd) -> bool:
    """The cause of a warning cannot be that of the exception in which the log ends.

    An optional part is never its cause; a defect of a package is only if the exception names it.
    """
    if cause in log_signals().optional_causes:
        return True
    return area in _PACKAGES and not _PACKAGES[area].search(end.text)


def standing(matches: Sequence[SymptomMatch]) -> list[SymptomMatch]:
    """The matches that state a defect which stays, although the log ends in another failure."""
    signals = log_signals()
    stated = (match for match in matches if signals.standing.search(match.said))
    return [match for match in stated if not signals.quoted.search(match.said)]


def _is_before_end(match: SymptomMatch, rules: Mapping[str, Rule], ends: Sequence[LogEnd]) -> bool:
    """The match is a warning, or the run went on after it, and its log ends in an exception."""
    cause, warned = rules[match.rule].cause, match.position.kind is LineKind.WARNING
    return any(
        end.file == match.file
        and match.line < end.first
        and (warned or end.went_past(match))
        and not _leads_to(cause, end)
        for end in ends
    )


def _leads_to(cause: str, end: LogEnd) -> bool:
    """The log ends in a lack of memory, of operators, or of a GPU, which the cause can have."""
    signals = log_signals()
    if cause in signals.memory_causes and "memory" in end.text.lower():
        return True
    if cause in signals.gpu_causes and signals.no_gpu.search(end.text):
        return True
    return cause in signals.operator_causes and signals.no_operator.search(end.text) is not None


def _is_incidental(
    match: SymptomMatch,
    matches: Sequence[SymptomMatch],
    rules: Mapping[str, Rule],
    ends: Sequence[LogEnd],
) -> bool:
    """True for informational lines, and for lines before a failure that they do not explain."""
    signals = log_signals()
    if _reports_nothing(match, rules[match.rule], ends):
        return True
    harmless = signals.harmless.search(match.said) is not None
    optional = match.position.failure < 0 and rules[match.rule].cause in signals.optional_causes
    outside = match.position.failure < 0
    if match.position.kind > LineKind.TEXT and not harmless and not outside:
        return False
    reported = match.position.kind > LineKind.TEXT and not optional
    if not harmless and not reported and signals.benign.search(match.said):
        return True
    for end in ends:
        if end.file != match.file or match.line >= end.first:
            continue
        elsewhere = optional and _is_of_something_else(end.text)
        elsewhere = elsewhere or (outside and signals.own.search(end.text) is not None)
        unrelated = not reported and signals.unrelated.search(end.text) is not None
        if not harmless and not elsewhere and not unrelated:
            continue
        explained = any(
            other.file == end.file and end.first <= other.line <= end.last for other in matches
        )
        if not explained and not _leads_to(rules[match.rule].cause, end):
            return True
    return False


def _reports_nothing(match: SymptomMatch, rule: Rule, ends: Sequence[LogEnd]) -> bool:
    """The line quotes a failure, denies it, or is of a run that knows nothing of it or goes on."""
    signals = log_signals()
    if signals.quoted.search(match.said):
        return True
    if match.quiet and _is_only_shown(match, rule, ends):
        return True
    if match.position.kind < LineKind.EXCEPTION and signals.passed.search(match.said):
        return True
    if signals.not_found.search(match.excerpt) and _read_no_index(match, ends):
        return True
    if rule.cause in signals.installing_causes and _was_installed(match, ends):
        return True
    return _is_note(match, rule) and _goes_on(match, rule, ends)


def _is_only_shown(match: SymptomMatch, rule: Rule, ends: Sequence[LogEnd]) -> bool:
    """The line is of a search for faults, in a run without a failure; the symptom is not of one."""
    if match.position.failure >= 0 or any(
        "DEBUG" in one for one in rule.symptoms[match.symptom].logs
    ):
        return False
    return not any(end.file == match.file and end.first for end in ends)


def _was_installed(match: SymptomMatch, ends: Sequence[LogEnd]) -> bool:
    """The installation that the line is of succeeded."""
    return any(end.file == match.file and match.line < end.installed for end in ends)


def _read_no_index(match: SymptomMatch, ends: Sequence[LogEnd]) -> bool:
    return any(end.file == match.file and end.unreached for end in ends)


def _is_of_something_else(text: str) -> bool:
    """The exception names neither attention nor something that is absent."""
    said = text.partition(":")[2].strip()
    return bool(said) and not component_table().is_about_attention(text) and not ABSENT.search(text)


def _is_note(match: SymptomMatch, rule: Rule) -> bool:
    """The line says what a program does without, or instead; the symptom is not just that."""
    signals = log_signals()
    optional = rule.cause in signals.optional_causes
    kind = match.position.kind
    of_frame = kind is LineKind.NOISE and match.position.failure >= 0
    if of_frame or kind in (LineKind.MESSAGE, LineKind.EXCEPTION):
        # A program may print the exception by which it knows that an optional part is absent.
        return optional and rule.severity == "info"
    if optional:
        return True
    if not signals.replaced.search(match.said):
        return False
    return not any(map(signals.replaced.search, rule.symptoms[match.symptom].lines))


def _goes_on(match: SymptomMatch, rule: Rule, ends: Sequence[LogEnd]) -> bool:
    """The run continues after the line. What ends it later has its own line."""
    info = rule.severity == "info"
    after = match.line + (_ASKED if info else 0)
    return any(
        end.file == match.file and (end.progress > after or (info and end.first > after))
        for end in ends
    )
