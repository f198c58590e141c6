"""SimpleTuner's model families and releases, from `rules/tables/families.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from packaging.version import Version

from attn_doctor.facts import Facts
from attn_doctor.rulebook import library

if TYPE_CHECKING:
    from attn_doctor.configs.simpletuner.source_code import Source

#: Names that SimpleTuner takes for another family's.
_SAME = {
    "sd2x": "sd1x", "sd1": "sd1x", "sd2": "sd1x", "pixart_sigma": "pixart",
    "cosmos2image": "cosmos", "kandinsky5-image": "kandinsky5_image",
    "kandinsky5-video": "kandinsky5_video", "z-image": "z_image", "z-image-omni": "z_image_omni",
}  # fmt: skip


class Flavour(Struct, frozen=True, forbid_unknown_fields=True):
    """A size of a family."""

    match: str
    """Part of `model_flavour`."""
    preset: str
    """Its family in presets.toml; empty if that has none."""
    heads: int = 0
    """Its heads, if they differ from the family's."""


class DefaultFlavour(Struct, frozen=True, forbid_unknown_fields=True):
    """The size without a `model_flavour`, from a release on."""

    since: str
    flavour: str


class Family(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family; see the table's head for the meaning of each field."""

    name: str
    title: str
    routed: str
    unet: bool = False
    mask: str = ""
    masked: str = ""
    dense: str = ""
    heads: int = 0
    head_dim: int = 0
    kv_heads: int = 0
    causal: bool = False
    preset: str = ""
    flavours: tuple[Flavour, ...] = ()
    default_flavours: tuple[DefaultFlavour, ...] = ()
    packed: str = ""
    note: str = ""

    def packed_in(self, version: str) -> bool:
        """It has packed FlashAttention for `fuse_qkv_projections` in a release."""
        return bool(self.packed) and Version(version) >= Version(self.packed)

    def flavour_in(self, version: str, chosen: str) -> Flavour:
        """The size of a `model_flavour` in a release; of an empty one, of the release's default."""
        this = Version(version)
        defaults = [each for each in self.default_flavours if this >= Version(each.since)]
        name = chosen or (defaults[-1].flavour if defaults else "")
        fitting = (one for one in self.flavours if one.match in name)
        return next(fitting, Flavour("", self.preset, self.heads))

    def dense_in(self, version: str) -> bool:
        """Its mask has a row for each query in a release; for releases that were looked at."""
        if self.dense in ("", "always"):
            return bool(self.dense)
        return Version(version) < Version(self.dense)

    def routed_in(self, version: str) -> bool:
        """It goes through the dispatcher in a release; for releases that were looked at."""
        return bool(self.routed) and Version(version) >= Version(self.routed)


class Release(Struct, frozen=True, kw_only=True):
    """What a release of SimpleTuner does for every family."""

    version: str
    known: bool
    """It is not newer than the last release that was looked at."""
    holds_sdpa: bool
    kohaku: bool
    default: str
    """The mechanism without a setting."""
    source: Source | None = None
    """Its own source, of a release that was not looked at and whose files are here."""

    @property
    def looked_at(self) -> bool:
        """What it does for each family is known, from the table or from its own source."""
        return self.known or self.source is not None


@cache
def families() -> Mapping[str, Family]:
    """All families by name."""
    found = msgspec.convert(_table()["family"], tuple[Family, ...])
    return {one.name: one for one in found}


def family(name: str) -> Family | None:
    """The family of a `model_family`, or None if the table lacks it."""
    return families().get(_SAME.get(name, name))


def newest() -> str:
    """The last release that was looked at."""
    last: str = _table()["compared"][-1]
    return last


def installed_release(facts: Facts) -> Release:
    """The installed release, the newest known one if none is.

    Of a release that was not looked at its own source decides, where its files are here.
    """
    version = facts.simpletuner.version or newest()
    found = release(version)
    if version in _table()["compared"]:
        return found
    from attn_doctor.configs.simpletuner.source_code import installed

    source = installed(facts)
    if source is None:
        return found
    return replace(
        found,
        source=source,
        holds_sdpa=source.holds_sdpa,
        kohaku=source.kohaku,
        default=source.default or found.default,
    )


def release(version: str) -> Release:
    """What is known of a release; of one that cannot be parsed, or a newer one, the last known."""
    try:
        this = Version(version)
    except ValueError:  # also a number of more digits than Python converts
        return _release(version, Version(newest()), known=False)
    return _release(version, this, known=this <= Version(newest()))


def _release(version: str, this: Version, *, known: bool) -> Release:
    table = _table()
    defaults = [one for one in table["default"] if this >= Version(one["since"])]
    return Release(
        version=version,
        known=known,
        holds_sdpa=this >= Version(table["holds_sdpa"]),
        kohaku=this >= Version(table["kohaku"]),
        default=defaults[-1]["mechanism"] if defaults else "diffusers",
    )


def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = library.tables()["families"]
    return table
