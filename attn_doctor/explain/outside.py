"""A guess at the part of the GPU's software, outside attention, in which a log ends."""

from __future__ import annotations

import re

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
_CHECK = "Run `attn-doctor check` to examine the environment"


def outside(name: str, trace: TraceLog) -> Guess | None:
    """The part in which the last failure of a log is; None if it is elsewhere."""
    table = component_table()
    over = survived(trace)
    for failure in failures(trace):
        if any(first <= failure.line.number <= last for first, last in over):
            continue
        if log_signals().unrelated.search(failure.message):
            return None
        said = "\n".join((failure.message, *(f"{one.path} {one.code}" for one in failure.frames)))
        if re.search(table.foreign, f"{said}\n{failure.near}") or table.other_software(said):
            return None
        for one in table.outside:
            if matched := one.named_in(failure.message):
                shown = at_its_compiler(failure, trace.lines)
                return _in_words(name, shown if one.id == _BUILD else failure, one, matched)
        # Python itself fails at its exit, after a crash of a library.
        at_exit = failure.frames and all(one.path.startswith("<") for one in failure.frames)
        reports = reports_another(failure.message) or _ENDED.search(failure.message)
        if not (at_exit or reports):
            return None
    return None


def _in_words(name: str, failure: Failure, part: Outside, matched: str) -> Guess:
    titles = (part.advice.rstrip("."), _CHECK)
    return Guess(
        component=part.id,
        name=part.name,
        kind="outside",
        file=name,
        line=failure.line.number,
        excerpt=excerpt(failure.line.text, matched),
        rank=failure.line.rank,
        title=f"The failure seems to come from {part.name}, not from an attention kernel",
        fixes=tuple(Fix(title=title, safety=Safety.MANUAL) for title in titles),
    )
