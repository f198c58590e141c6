"""What came of running built kernels, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from attn_doctor.caches.proof import Proof
from attn_doctor.render.grouping import plural
from attn_doctor.render.paper import Paper, clean

__all__ = ["proof_text"]


def proof_text(results: Sequence[Proof], paper: Paper) -> str:
    """One line a kernel, and what to do if one does not hit."""
    lines = []
    for one in results:
        mark = paper.style("✓", "green") if one.hit else paper.style("✗", "red")
        text = clean(f"{one.title} {one.place}".strip())
        if one.hit:
            error = max(one.errors.values(), default=None)
            text += f": hit in {one.seconds:.2f} s" if one.seconds is not None else ": hit"
            text += f", error {error:.1e}" if error is not None else ""
        else:
            text += f": {clean(one.message) or 'it did not hit'}"
        first, *rest = paper.wrap(text, 2) or [""]
        lines += [f"{mark} {first.strip()}", *rest]
    kernels = [one for one in results if one.key]
    missed = sum(not one.hit for one in kernels)
    if missed or len(kernels) < len(results):
        told = (
            f"{missed} of {plural(len(kernels), 'kernel')} did not hit."
            " Next: `attn-doctor build-kernels` builds and records them; start the run after that."
        )
    else:
        told = f"Every cache hit and no compiler ran: {plural(len(kernels), 'kernel')}."
    lines += ["", *paper.wrap(told, 0)]
    return paper.glyphs("\n".join(lines)) + "\n"
