"""What `fix` would do: steps in order, and what keeps some of them from being carried out."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from attn_doctor.findings import Fix, Safety
from attn_doctor.fixes.distributions import Change

Kind = Literal["install", "build", "command", "variables", "manual"]


class Estimate(Struct, frozen=True, kw_only=True):
    """What a step takes. Each figure comes with what it rests on."""

    minutes: tuple[float, float] | None = None
    """From, to; None if nothing is known."""
    disk_mib: int = 0
    """0 if nothing is known, as of `ram_mib`."""
    disk_basis: str = ""
    ram_mib: int = 0
    ram_basis: str = ""
    basis: str = ""
    """What `minutes` rests on, or why nothing is known."""


class Stale(Struct, frozen=True):
    """A folder of compiled things that is of no use after a step."""

    kind: str
    path: str
    bytes: int | None = None


class Step(Struct, frozen=True, kw_only=True):
    """One remedy, for one or several rules."""

    number: int = 0
    rules: tuple[str, ...]
    title: str
    kind: Kind
    safety: Safety
    """The strictest of its fixes."""
    fixes: tuple[Fix, ...] = ()
    """The remedies of its rules, with the conditions that hold once it worked."""
    run: tuple[tuple[str, ...], ...] = ()
    """argv lists as rules write them; leading `NAME=value` elements are variables."""
    exports: dict[str, str] = {}
    """Variables for the user's shell and for the later commands of this run."""
    manual: str = ""
    needs: str = ""
    clears: tuple[str, ...] = ()
    stale: tuple[Stale, ...] = ()
    packages: tuple[str, ...] = ()
    """Distributions that its commands name."""
    rank: int = 0
    """Its place: drivers before torch before extensions."""
    estimate: Estimate = Estimate()
    variables: dict[str, str] = {}
    """Set for its commands by attn-doctor, such as TORCH_CUDA_ARCH_LIST of a build."""
    blocked_by: str = ""
    """Why it is not carried out; empty if it can be."""
    undoable: bool = True
    """`fix undo` takes it back."""
    alternatives: tuple[str, ...] = ()
    """Titles of the other remedies of its rules."""
    changes: tuple[Change, ...] | None = None
    """What the installer says it would change; None if it was not asked, or could not tell."""
    unresolved: str = ""
    """Why the installer could not tell."""
    strict: bool = True
    """Whatever it does not name stays as it is; else only torch and what is built for it does."""

    @property
    def ready(self) -> bool:
        """It can be carried out."""
        return not self.blocked_by and self.kind in ("install", "build", "command")


class Clash(Struct, frozen=True, kw_only=True):
    """Rules whose remedies exclude each other; the user has to choose one."""

    about: str
    """The package or variable on which they differ."""
    rules: tuple[str, ...]
    wants: tuple[str, ...]
    """What each of them wants, in the order of `rules`."""


class Plan(Struct, frozen=True, kw_only=True):
    """All steps, in order."""

    steps: tuple[Step, ...] = ()
    clashes: tuple[Clash, ...] = ()
    explained: dict[str, tuple[str, ...]] = {}
    """For a rule with a step, the problems that should go away with it."""
    without: tuple[str, ...] = ()
    """Problems for which no remedy is known."""
    notes: tuple[str, ...] = ()
    """Rules of severity info, which are planned only if named."""
    follows: tuple[tuple[str, str], ...] = ()
    """Rules and titles of problems that moving torch would bring, by the tables."""
    together: str = ""
    """Why the packages of all steps do not fit together; empty if they do, or were not asked."""

    @property
    def ready(self) -> tuple[Step, ...]:
        """The steps that can be carried out."""
        return tuple(step for step in self.steps if step.ready)
