"""One toolkit and its evaluation, and the result of one run of `fix --cuda-home`."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from attn_doctor.facts import Facts
from attn_doctor.fixes.cuda_home.advice import Advice
from attn_doctor.fixes.cuda_home.confirm import Answer
from attn_doctor.shell.exports import Exports
from attn_doctor.shell.quote import Shell


class Compiler(Struct, frozen=True, kw_only=True):
    """The host compilers that a build uses, where they have to be named for nvcc to accept them."""

    cc: str = ""
    cxx: str = ""


class Candidate(Struct, frozen=True, kw_only=True):
    """One evaluated toolkit."""

    root: str
    """The directory CUDA_HOME would point to."""
    source: str
    """How it was found."""
    version: str | None = None
    """Its CUDA version; None if unknown."""
    nvcc: str = ""
    """Version that its nvcc printed, or one word why there is none; empty if it was not run."""
    lacks: tuple[str, ...] | None = None
    """What a build would miss (`toolkits[].missing_components`); None if that could not be read."""
    matches: bool | None = None
    """Of the same major version as torch's CUDA; None if either is unknown."""
    exact: bool = False
    """Of the same minor version too."""
    verdict: Literal["chosen", "fits", "rejected"] = "rejected"
    """`fits`: another one is better."""
    reasons: tuple[str, ...] = ()
    """Why, in sentences without full stop."""
    compiler: Compiler = Compiler()
    """Host compilers to name, if the usual ones are not accepted."""


class Choice(Struct, frozen=True, kw_only=True):
    """All evaluated toolkits, the chosen one first if there is one."""

    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()
    """What was not compared, and why."""

    @property
    def chosen(self) -> Candidate | None:
        """The toolkit to use."""
        return next((one for one in self.candidates if one.verdict == "chosen"), None)


class Report(Struct, frozen=True, kw_only=True):
    """The result of `fix --cuda-home`, which is printed as text or as JSON."""

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
    """What to install if nothing fits."""

    @property
    def chosen(self) -> Candidate | None:
        """The toolkit to use."""
        return self.choice.chosen

    @property
    def refuted(self) -> bool:
        """Whether torch resolves another toolkit than the chosen one, in spite of the lines."""
        return any(one.name == "torch" and one.agrees is False for one in self.answers)
