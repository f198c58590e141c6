"""A guess at the part of the GPU's software, outside attention, in which a log ends."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attn_doctor.explain.build_failure import at_its_compiler
from attn_doctor.explain.components import Outside, component_table
from attn_doctor.explain.explanation import Guess
from attn_doctor.explain.failures import Failure, failures
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.explain.survived import reports_another, survived
from attn_doctor.explain.symptom_match import excerpt
from attn_doctor.explain.tracebacks import TraceLog
from attn_doctor.findings import Fix, Safety

#: How a shell reports that a program ended, below the reason.
_ENDED = re.compile(
    r"\bcore dumped\b|^\s*(?:Aborted|Abort trap|Segmentation fault|LLVM ERROR: Failed to infer)\b"
)
#: The part whose reason a compiler prints.
_BUILD = "extension-build"
#: A module that a build was to make: the build failed before.
_NOT_BUILT = re.compile(r"torch_extensions/\S+: cannot open shared object")
_CHECK = "Run `attn-doctor check` to examine the environment"


def outside(name: str, trace: TraceLog) -> Guess | None:
    """The part in which the last failure of a log is; None if it is elsewhere."""
    table = component_table()
    over = survived(trace)
    ended = [
        one
        for one in failures(trace)
        if not any(first <= one.line.number <= last for first, last in over)
    ]
    for index, failure in enumerate(ended):
        if log_signals().unrelated.search(failure.message):
            return None
        said = "\n".join((failure.message, *(f"{one.path} {one.code}" for one in failure.frames)))
        if re.search(table.foreign, f"{said}\n{failure.near}") or table.other_software(said):
            return None
        part = next((one for one in table.outside if one.named_in(failure.message)), None)
        if part is not None:
            first = _first(ended[index:], part)
            return _in_words(
                name, at_its_compiler(first, trace.lines) if part.id == _BUILD else first, part
            )
        # Python itself fails at its exit, after a crash of a library.
        at_exit = failure.frames and all(one.path.startswith("<") for one in failure.frames)
        follows = any(one.search(failure.message) for one in (_ENDED, _NOT_BUILT))
        if not (at_exit or follows or reports_another(failure.message)):
            return None
    return None


def _first(ended: Sequence[Failure], part: Outside) -> Failure:
    """The first of the lines about the part that follow each other: it says the reason."""
    first = ended[0]
    for failure in ended[1:]:
        if failure.line.number != first.line.number - 1 or not part.named_in(failure.message):
            break
        first = failure
    return first


def _in_words(name: str, failure: Failure, part: Outside) -> Guess:
    titles = (part.advice.rstrip("."), _CHECK)
    return Guess(
        component=part.id,
        name=part.name,
        kind="outside",
        file=name,
        line=failure.line.number,
        excerpt=excerpt(failure.line.text, part.named_in(failure.line.text)),
        rank=failure.line.rank,
        title=f"The failure seems to come from {part.name}, not from an attention kernel",
        fixes=tuple(Fix(title=title, safety=Safety.MANUAL) for title in titles),
    )
