"""The catalogue of backends: names, backends, requirements and measurements.

Annotations are objects here, and texts in other modules: msgspec compiles each text when it
decodes an index.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from attn_doctor.rulebook.conditions import Condition
from attn_doctor.rulebook.rule import Group

Text = Annotated[str, Meta(min_length=1)]
Link = Annotated[str, Meta(pattern="^https://")]
Otherwise = Literal["not ready", "slow", "unknown"]
Party = Literal["library", "framework", "package"]


class Example(Struct, frozen=True, forbid_unknown_fields=True):
    """Facts, and the outcome of a requirement on them."""

    name: Text
    expect: Literal["satisfied", "unsatisfied", "unknown", "not applicable"]
    facts: dict[str, Any] = {}
    call: dict[str, Any] = {}
    context: dict[str, Any] = {}
    verdict: Literal["", "problem", "ok", "unknown"] = ""
    """Verdict of the rule that `problem` names."""


class Name(Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a backend in one framework."""

    framework: Text
    name: Text
    backend: Text
    since: Text
    before: str = ""
    """The first version without it; empty while there is none."""
    note: str = ""
    requires: tuple[Text, ...] = ()
    """Ids of requirements that the framework adds."""
    instead: str = ""
    """The backend that it takes from the package `kernels` where the package of `backend` is
    missing."""
    fallback: str = ""
    """What the framework does where the backend fails."""
    compiled: bool = False
    """The framework compiles it, whatever the model does."""


class Framework(Struct, frozen=True, forbid_unknown_fields=True):
    """A framework and the releases that are known."""

    name: Text
    title: Text
    option: Text
    """Where the user writes the name."""
    newest: Text
    """The last release that the table was compared with."""
    compared: tuple[Text, ...]
    """Releases whose names were read from their wheels or tags."""
    source: Link
    note: str = ""
    phases: tuple[Literal["inference", "training"], ...] = ("inference", "training")
    """What it is used for."""
    direct: bool = False
    """It calls the libraries itself: requirements of Diffusers' dispatcher do not count."""


class Timing(Struct, frozen=True, forbid_unknown_fields=True):
    """Figures of one backend in a measurement."""

    backend: Text
    ms: float
    mib: int | None = None
    error: float | None = None
    """Relative error against float64."""
    compiled: bool = False


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """A measurement of several backends on one GPU."""

    gpu: Text
    sm: tuple[int, ...]
    what: Text
    """Software and shape."""
    source: Text
    """The source and date of the measurement."""
    timing: tuple[Timing, ...] = ()


class Preference(Struct, frozen=True, forbid_unknown_fields=True):
    """The order to use where nothing was measured."""

    why: Text
    backends: tuple[Text, ...]


class Requirement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One requirement of backends, with parsed conditions."""

    id: str
    text: str
    source: str
    label: str = ""
    """What holds if it is satisfied, in a few words."""
    when: tuple[Condition, ...] = ()
    needs: Group = Group()
    problem: str = ""
    """A rule whose verdict decides, in place of `needs`."""
    never: bool = False
    """Nothing satisfies it where it applies."""
    otherwise: Otherwise = "not ready"
    silent: bool = False
    """It fails without a message: the result is wrong."""
    by: Party = "library"
    """What refuses: the `library` itself, a `framework` that calls it, or the `package` here."""
    rule: str = ""
    """The rule that explains more."""
    remedy: str = ""
    run: tuple[tuple[Text, ...], ...] = ()
    """Commands of the remedy, as rules write them."""
    unset: tuple[Text, ...] = ()
    """Environment variables that the remedy unsets."""
    code: str = ""
    """Lines of the remedy to copy into the user's program."""
    examples: tuple[Example, ...] = ()


class Backend(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One backend under its canonical name: the name of Diffusers if it has one."""

    name: Text
    title: Text
    source: Link
    requires: tuple[Text, ...]
    """Ids of requirements; in a file also `@set`."""
    compiled: tuple[Text, ...] = ()
    """Further requirements of a compiled call."""
    tags: tuple[str, ...] = ()
    """Families that rules may name in `backends`."""
    package: str = ""
    """Facts of the package behind it, such as `flash_attn`; empty for torch's own."""
    module: str = ""
    function: str = ""
    """The function that a dispatcher calls in the end, for readers who run it themselves."""
    layout: Literal["", "bshd", "bhsd"] = ""
    """Order of that function's dimensions: batch, sequence, heads, size or batch, heads, …"""
    approximate: bool = False
    """It rounds to 8 bits internally, which costs precision."""
    hardware: str = ""
    """The hardware it is made for, if that is not an NVIDIA GPU or the CPU."""
    declares: dict[str, str] = {}
    """The requirements that frameworks state, by framework."""
    truth: str = ""
    """What the library really accepts, where that differs."""
    note: str = ""


class Catalogue(Struct, frozen=True, kw_only=True):
    """All entries of `rules/tables/backends/`, with references checked."""

    frameworks: tuple[Framework, ...]
    names: tuple[Name, ...]
    backends: tuple[Backend, ...]
    requirements: tuple[Requirement, ...]
    orders: tuple[Order, ...]
    preference: Preference
    ignored: tuple[str, ...] = ()

    def backend(self, name: str) -> Backend:
        """The backend of a canonical name. Raises `KeyError`."""
        return next(one for one in self.backends if one.name == name)

    def framework(self, name: str) -> Framework:
        """The framework of a name."""
        return next(one for one in self.frameworks if one.name == name)

    def names_of(self, framework: str) -> tuple[Name, ...]:
        """Every name that any release of a framework accepts, in the table's order."""
        return tuple(one for one in self.names if one.framework == framework)
