"""What the catalogue of backends holds: names, backends, their demands, and figures."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from attn_doctor.rulebook.conditions import Condition
from attn_doctor.rulebook.rule import Group

Text = Annotated[str, Meta(min_length=1)]
Link = Annotated[str, Meta(pattern="^https://")]
Otherwise = Literal["not ready", "slow", "unknown"]


class Example(Struct, frozen=True, forbid_unknown_fields=True):
    """Facts, and what a requirement must say of them."""

    name: Text
    expect: Literal["met", "unmet", "unknown", "not demanded"]
    facts: dict[str, Any] = {}
    wish: dict[str, Any] = {}
    use: dict[str, Any] = {}
    verdict: Literal["", "problem", "ok", "unknown"] = ""
    """Verdict of the rule that `problem` names."""


class Name(Struct, frozen=True, forbid_unknown_fields=True):
    """What one framework calls a backend."""

    framework: Text
    name: Text
    backend: Text
    since: Text
    before: str = ""
    """The first version without it; empty while there is none."""
    note: str = ""


class Framework(Struct, frozen=True, forbid_unknown_fields=True):
    """A framework and what is known of its releases."""

    name: Text
    title: Text
    option: Text
    """Where the user writes the name."""
    newest: Text
    """Last release that the table was compared with."""
    compared: tuple[Text, ...]
    """Releases whose names were read from their wheels or tags."""
    source: Link
    note: str = ""


class Timing(Struct, frozen=True, forbid_unknown_fields=True):
    """One backend's figures in a measurement."""

    backend: Text
    ms: float
    mib: int | None = None
    error: float | None = None
    """Relative error against float64."""
    compiled: bool = False


class Order(Struct, frozen=True, forbid_unknown_fields=True):
    """A measurement of several backends on one GPU, or the order to go by without one."""

    gpu: Text
    sm: tuple[int, ...]
    what: Text
    """Software and shape."""
    source: Text
    """Who measured, and when."""
    timing: tuple[Timing, ...] = ()


class Preference(Struct, frozen=True, forbid_unknown_fields=True):
    """The order where nothing was measured."""

    why: Text
    backends: tuple[Text, ...]


class Requirement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One demand, ready to be judged."""

    id: str
    text: str
    source: str
    when: tuple[Condition, ...] = ()
    needs: Group = Group()
    problem: str = ""
    """A rule whose problem is what is wrong, in place of `needs`."""
    never: bool = False
    """It is never met where it is demanded."""
    otherwise: Otherwise = "not ready"
    silent: bool = False
    """It fails without any message: the result is wrong."""
    by: str = "library"
    """Who refuses: the `library` itself, a `framework` that calls it, or the `package` here."""
    rule: str = ""
    """The rule that explains more."""
    remedy: str = ""
    code: str = ""
    """Lines for the remedy, to be copied as they are."""
    examples: tuple[Example, ...] = ()


class Backend(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One backend under its canonical name, which is that of Diffusers where it has one."""

    name: str
    title: str
    source: str
    requires: tuple[str, ...]
    compiled: tuple[str, ...] = ()
    """What it demands besides when the call is compiled."""
    tags: tuple[str, ...] = ()
    """Families that rules may name in `backends`."""
    package: str = ""
    """Facts of the package behind it, such as `flash_attn`; empty for torch's own."""
    module: str = ""
    function: str = ""
    """What a dispatcher calls in the end, for those who want to run it themselves."""
    layout: str = ""
    """Order of that function's dimensions: batch, sequence, heads, size or batch, heads, …"""
    approximate: bool = False
    """It rounds to 8 bits on the way, which costs exactness."""
    hardware: str = ""
    """What it is made for, if that is not an NVIDIA GPU or the CPU."""
    declares: dict[str, str] = {}
    """What frameworks say it needs, by their names."""
    truth: str = ""
    """What the library really takes, where that differs."""
    note: str = ""


class Catalogue(Struct, frozen=True, kw_only=True):
    """Everything of `rules/tables/backends/`, references checked."""

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
