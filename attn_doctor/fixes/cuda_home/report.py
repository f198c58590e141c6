"""All that one run of `fix --cuda-home` found out and did, for the renderers."""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.facts import Facts
from attn_doctor.fixes.cuda_home.advice import Advice
from attn_doctor.fixes.cuda_home.candidate import Candidate, Choice
from attn_doctor.fixes.cuda_home.confirm import Answer
from attn_doctor.shell.exports import Exports
from attn_doctor.shell.quote import Shell


class Report(Struct, frozen=True, kw_only=True):
    """What is printed, as text or as JSON."""

    facts: Facts
    choice: Choice
    shell: Shell
    exports: Exports | None = None
    """None if no toolkit was chosen."""
    lines: tuple[str, ...] = ()
    """The lines for the user's shell."""
    answers: tuple[Answer, ...] = ()
    """What torch, Triton and cuda.pathfinder resolve to after these lines."""
    advice: Advice | None = None
    """What to install, where nothing fits."""

    @property
    def chosen(self) -> Candidate | None:
        """The toolkit to use."""
        return self.choice.chosen

    @property
    def refuted(self) -> bool:
        """Another toolkit than the chosen one is what torch resolves to, in spite of the lines."""
        return any(one.name == "torch" and one.agrees is False for one in self.answers)
