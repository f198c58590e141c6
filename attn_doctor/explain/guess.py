"""A guess from the structure of a failure that no rule knows.

The last failure, its innermost frames and its message name a component and a kind of failure. The
result says where the failure is, and what was checked there; it never claims a cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attn_doctor.explain.blame import component_beside, component_of, innermost, is_unrelated
from attn_doctor.explain.build_failure import at_its_compiler, failed_build
from attn_doctor.explain.components import Component, component_table
from attn_doctor.explain.explanation import Guess
from attn_doctor.explain.failures import AFTER, BUILD, CHARACTERS, LOOK_BACK, Failure, failures
from attn_doctor.explain.frameworks import of_framework
from attn_doctor.explain.guess_words import in_words
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.explain.messages import KnownMessage, known_message
from attn_doctor.explain.normalize import LogLine, NormalizedLog
from attn_doctor.explain.outside import outside
from attn_doctor.explain.survived import gone_past, ran_on, reports_another, survived
from attn_doctor.explain.tracebacks import LineKind, TraceLog
from attn_doctor.rulebook.frames import Frame, frames_of

#: An exception with its message.
_RAISED = re.compile(r"[\w.]*(?:Error|Exception): ")
#: Code that raises an exception itself.
_RAISES = re.compile(r"(?:raise|assert)\b")
#: What a server prints once it has started, also without the plugins that failed to load.
_STARTED = re.compile(r"To see the GUI go to: ")
#: The code of a frame, on the line after its place.
_CODE = re.compile(r"\s+(?!File \"|During |The above )\S*\w")
#: The line of code that a notebook marks, and lines of code that it shows below a frame.
_MARKED, _SHOWN = re.compile(r"\s*(?:-+> ?\d|❱)"), 8
#: Lines of a log that is only a message, as a person types one.
_TYPED = 5


def guess(name: str, log: NormalizedLog) -> Guess | None:
    """The component at which the end of a log failed; None if no component is named."""
    trace = TraceLog(log.lines, log.stepped)
    found = _guess(name, log, trace)
    return None if found is None or _is_over(found.line, trace) else found


def _is_over(number: int, trace: TraceLog) -> bool:
    """The line quotes a failure, is only shown in a search for faults, or the run went on."""
    index = next((at for at, line in enumerate(trace.lines) if line.number == number), None)
    if index is None:
        return False
    line, outside = trace.lines[index], trace.positions[index].failure < 0
    if log_signals().quoted.search(line.text) or number < ran_on(trace):
        return True
    return outside and (line.quiet or number < gone_past(trace).get(line.rank, 0))


def _guess(name: str, log: NormalizedLog, trace: TraceLog) -> Guess | None:
    near: Guess | None = None
    about = list(_about_attention(trace))
    for index, failure in enumerate(about):
        known = _known(failure)
        component, frame = component_of(failure, known)
        beside = component_beside(failure)
        kind = component_table().kind_of(failure.message).id
        if kind in ("build", "compile"):
            failure = at_its_compiler(failure, log.lines)
        if component is not None and component.fallback and _started_without(failure, log.lines):
            continue
        if component is not None:
            if component.fallback and frame is None and beside is not None and kind != "build":
                component = beside
            failure, known = _first(failure, about[index + 1 :], component, known)
            shown = _at_its_frame(failure, frame, log.lines)
            return in_words(name, shown, component, frame, known)
        if near is None and beside is not None:
            near = in_words(name, failure, beside, None, known)
    built = failed_build(log.lines)
    if built is None:
        return near or _of_index(name, trace) or outside(name, trace) or of_framework(name, trace)
    if near is not None:
        # The lines of a build are near each other; its first error says more than its last.
        ended = max((line.number for line in log.lines if BUILD.search(line.text)), default=0)
        if built.component.id != near.component or near.line > ended + AFTER:
            return near
    return in_words(name, built.failure, built.component, None, package=built.package)


def _known(failure: Failure) -> KnownMessage | None:
    """The entry of the message, unless the code that is shown raises it in another file."""
    known = known_message(failure.message, tuple(frame.path for frame in failure.frames))
    inner = failure.frames[-1] if failure.frames else None
    if known is None or inner is None or not _RAISES.match(inner.code):
        return known
    return known if known.file.rsplit("/", 1)[-1] == inner.path.rsplit("/", 1)[-1] else None


def _first(
    last: Failure, before: Sequence[Failure], component: Component, known: KnownMessage | None
) -> tuple[Failure, KnownMessage | None]:
    """The first of exceptions of one component that follow each other without their frames."""
    root = next((one for one in before if one.line.number == last.line.number - 1), last)
    if last.frames or root.frames or not all(map(_RAISED.match, (last.message, root.message))):
        return last, known
    meant = known_message(root.message)
    return (root, meant) if component_of(root, meant)[0] is component else (last, known)


def _about_attention(trace: TraceLog) -> Iterator[Failure]:
    """The failures that may be about attention, the last one first.

    What came before a failure of other software does not explain it.
    """
    over = survived(trace)
    for failure in failures(trace):
        if any(first <= failure.line.number <= last for first, last in over):
            continue
        if is_unrelated(failure) or component_table().is_other_work(innermost(failure)):
            if not reports_another(failure.message):
                return
            continue
        yield failure


def _started_without(failure: Failure, lines: Sequence[LogLine]) -> bool:
    """A plugin could not be imported, and the program has started without it."""
    later = (line for line in lines if line.number > failure.line.number)
    return "import" in failure.message.lower() and any(_STARTED.search(one.text) for one in later)


def _at_its_frame(failure: Failure, frame: Frame | None, lines: Sequence[LogLine]) -> Failure:
    """The failure at the call in the component's frame, if it has no message of its own."""
    if failure.message or frame is None:
        return failure
    place = frame.path, frame.line
    end = lines[-LOOK_BACK:]
    for at in range(len(end) - 1, -1, -1):
        if any((one.path, one.line) == place for one in frames_of([end[at].text])):
            below = end[at + 1 : at + 1 + _SHOWN]
            marked = (one for one in below if _MARKED.match(one.text))
            code = (one for one in below[:1] if _CODE.match(one.text))
            return failure._replace(line=next(marked, next(code, end[at])))
    return failure


def _of_index(name: str, trace: TraceLog) -> Guess | None:
    """The component whose sources have a message that a person gave without its traceback."""
    given = [
        (line, position)
        for line, position in zip(trace.lines, trace.positions, strict=True)
        if line.text.strip()
    ]
    if len(given) > _TYPED:
        return None
    frames = tuple(frames_of([line.text for line, _ in given]))
    for line, position in reversed(given):
        failure = Failure(line, line.text.strip()[:CHARACTERS], frames)
        said = log_signals().benign.search(line.text) or position.kind is LineKind.WARNING
        if said or is_unrelated(failure) or component_table().is_other_work(failure.message):
            continue
        known = _known(failure)
        if known is not None and known.names_its_component:
            component = next(c for c in component_table().component if c.id == known.component)
            return in_words(name, failure, component, None, known)
    return None
