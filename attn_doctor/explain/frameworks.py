"""A guess at another framework than torch, whose use of the GPU failed at the end of a log.

JAX, ONNX Runtime or llama.cpp need the same driver and libraries. No rule is about them, but a
reader wants to know which line says why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attn_doctor.explain.components import Framework, component_table
from attn_doctor.explain.explanation import Guess
from attn_doctor.explain.log_signals import log_signals
from attn_doctor.explain.normalize import LogLine
from attn_doctor.explain.survived import reports_another
from attn_doctor.explain.symptom_match import excerpt
from attn_doctor.explain.tracebacks import LineKind, TraceLog
from attn_doctor.findings import Fix, Safety

#: Lines at the end of a log that are searched, and lines of other software that may follow. Some
#: frameworks print a notice and use the CPU.
_END, _AFTER, _AFTER_NOTICE = 60, 6, 1
#: An exception of which the lines above say the reason, and one that stands for a crash.
_ABOVE = re.compile(r"errors? above|\bDNN library\b|NoneType|EnforceNotMet|\bunwrap\(\)")
#: torch, which is not what failed if the line names another framework.
_TORCH = re.compile(r"(?i)\b(?:py)?torch\b")


def of_framework(name: str, trace: TraceLog) -> Guess | None:
    """The framework that could not use the GPU at the end of a log; None if none is named."""
    table, end = component_table(), trace.lines[-_END:]
    found = [line for line in end if table.gpu_fails(line.text)]
    for line in found:
        if (framework := _framework(line, end)) is not None:
            ended = not _goes_on(trace, found[-1], framework)
            return _in_words(name, line, framework) if ended else None
    return None


def _goes_on(trace: TraceLog, last: LogLine, framework: Framework) -> bool:
    """The program worked after the line, or ended in another failure."""
    raised = [line.number for line, _ in next(iter(trace.failures()), [])]
    if last.number in raised:
        return False
    if raised and raised[-1] > last.number:
        said = "\n".join(line.text for line in trace.last_message())
        return not (_ABOVE.search(said) or reports_another(said))
    others, most = 0, _AFTER_NOTICE if framework.falls_back else _AFTER
    for line, position in zip(trace.lines, trace.positions, strict=True):
        if line.number <= last.number or not line.text.strip() or _named(line.text):
            continue
        others += 1
        informs = line.stamped and position.kind is LineKind.TEXT
        if informs or others > most or log_signals().progress.search(line.text):
            return True
    return False


def _framework(line: LogLine, end: Sequence[LogLine]) -> Framework | None:
    """The framework that the line names, or the lines around it, if these do not name torch."""
    named = _named(line.text)
    around = "\n".join(one.text for one in end)
    return named if named is not None or _TORCH.search(around) else _named(around)


def _named(text: str) -> Framework | None:
    return next((one for one in component_table().framework if one.is_named_in(text)), None)


def _in_words(name: str, line: LogLine, framework: Framework) -> Guess:
    check = "Run `attn-doctor check` to examine the driver and the CUDA libraries"
    return Guess(
        component=framework.id,
        name=framework.name,
        kind="framework",
        file=name,
        line=line.number,
        excerpt=excerpt(line.text, line.text.strip()),
        rank=line.rank,
        title=f"{framework.name} seems unable to use the GPU; it does not use torch's attention",
        fixes=tuple(
            Fix(title=title, safety=Safety.MANUAL)
            for title in (framework.advice.rstrip("."), check)
        ),
    )
