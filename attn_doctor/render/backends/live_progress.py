"""The lines of a live run's progress."""

from __future__ import annotations

from attn_doctor.backends.live.run import Step
from attn_doctor.render.backends.figures import millis
from attn_doctor.render.terminal import clean


def ended(step: Step) -> str:
    """One line on the step that has just ended; empty if none has."""
    if step.imported is not None:
        one = step.imported
        words = one.version if one.verdict.works else one.sentence
        return clean(f"import {one.module}: {words} ({one.seconds:.1f} s)")
    if step.device:
        return clean(f"device: {step.device}")
    if step.result is None:
        return ""
    parts = []
    for phase, outcome in step.result.outcomes.items():
        time = millis(outcome.figures[-1].milliseconds) if outcome.figures else ""
        parts.append(f"{phase} {outcome.verdict.value}" + (f", {time}" if time else ""))
    return clean(f"{step.result.title}: {'; '.join(parts)} ({step.result.seconds:.1f} s)")
