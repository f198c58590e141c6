"""The plan of `fix`: steps in order, and what blocks some of them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from attn_doctor.findings import Fix, Safety
from attn_doctor.fixes.distributions import Change

Kind = Literal["install", "build", "command", "variables", "manual"]


class Estimate(Struct, frozen=True, kw_only=True):
    """Time and space that a step needs, each figure with its source."""

    minutes: tuple[float, float] | None = None
    """From, to; None if nothing is known."""
    disk_mib: int = 0
    """0 if nothing is known, as of `ram_mib`."""
    disk_basis: str = ""
    ram_mib: int = 0
    ram_basis: str = ""
    basis: str = ""
    """The source of `minutes`, or why nothing is known."""


class Stale(Struct, frozen=True):
    """A folder of compiled kernels that a step makes useless."""

    kind: str
    path: str
    bytes: int | None = None


class Step(Struct, frozen=True, kw_only=True):
    """One fix, for one or several rules."""

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
    """Position in the order: drivers before torch before extensions."""
    estimate: Estimate = Estimate()
    variables: dict[str, str] = {}
    """Set for its commands by attn-doctor, such as TORCH_CUDA_ARCH_LIST of a build."""
    blocked_by: str = ""
    """Why it cannot be applied; empty if it can."""
    undoable: bool = True
    """`fix undo` can undo it."""
    better: tuple[str, ...] = ()
    """Better fixes of its rules, which only a person can apply."""
    alternatives: tuple[str, ...] = ()
    """Titles of the other fixes of its rules."""
    changes: tuple[Change, ...] | None = None
    """What the installer would change; None if it was not asked or has no answer."""
    unresolved: str = ""
    """Why the installer has no answer."""
    strict: bool = True
    """Packages that it does not name stay unchanged; if False, only torch and its extensions do."""

    @property
    def ready(self) -> bool:
        """It can be applied."""
        return not self.blocked_by and self.kind in ("install", "build", "command")


class Clash(Struct, frozen=True, kw_only=True):
    """Rules whose fixes exclude each other; the user has to choose one."""

    about: str
    """The package or variable that they need in different versions."""
    rules: tuple[str, ...]
    wants: tuple[str, ...]
    """What each of them needs, in the order of `rules`."""


class Plan(Struct, frozen=True, kw_only=True):
    """All steps, in order."""

    steps: tuple[Step, ...] = ()
    clashes: tuple[Clash, ...] = ()
    explained: dict[str, tuple[str, ...]] = {}
    """For a rule with a step, the problems that it should resolve too."""
    without: tuple[str, ...] = ()
    """Problems without a known fix."""
    notes: tuple[str, ...] = ()
    """Rules of severity info, which are planned only if named."""
    follows: tuple[tuple[str, str], ...] = ()
    """Rules and titles of problems that another torch would introduce, by the tables."""
    together: str = ""
    """Why the packages of all steps do not fit together; empty if they do or nothing was asked."""

    @property
    def ready(self) -> tuple[Step, ...]:
        """The steps that can be applied."""
        return tuple(step for step in self.steps if step.ready)
