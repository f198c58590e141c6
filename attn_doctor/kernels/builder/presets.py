"""Model families by name: the attention that they run at a size, from `rules/tables/presets.toml`.

The table describes what diffusers does. A trainer with attention code of its own may use other
strides or masks; a warm-up with the user's own program then compiles the right kernels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from attn_doctor import suggest
from attn_doctor.errors import AttnDoctorError
from attn_doctor.rulebook import library

_SIZE = re.compile(r"(\d{1,9})(?:x(\d{1,9})(?:x(\d{1,9}))?)?(?::(\d{1,9}))?")


class Size(Struct, frozen=True, kw_only=True):
    """A size as it was asked for, in tokens."""

    tokens: int
    """Image or video tokens, without text."""
    text: int
    frames: int = 1
    rows: int = 0
    columns: int = 0
    cross: int = 0
    """Text tokens where they are cross-attended and were asked for; 0: as the table says."""


def families() -> Mapping[str, dict[str, Any]]:
    """The families by name, as the table has them."""
    table = library.tables()["presets"]
    return {family["name"]: family for family in table["family"]}


def listing() -> list[tuple[str, str, int]]:
    """Name, title and number of kernels of each family."""
    return [
        (name, family["title"], len(family["attention"])) for name, family in families().items()
    ]


def recipe(name: str) -> dict[str, Any]:
    """How the worker builds the transformer block of a family; empty if it cannot."""
    return dict(families().get(name, {}).get("block", {}))


def rows(text: str, block: bool, where: str = "") -> tuple[list[dict[str, Any]], list[str]]:
    """Fields of the specs that `text` asks for, such as `wan22@832x480x81`, and remarks.

    Several sizes that one process sees in this order are joined by `+`. With `block`, the real
    transformer block replaces its attention. Raises `AttnDoctorError`.
    """
    start = f"{where}: " if where else ""
    name, _, sizes = text.strip().partition("@")
    known = families()
    absent = {one["name"]: one for one in library.tables()["presets"]["absent"]}
    if name in absent:
        raise AttnDoctorError(
            f"{start}no preset {name} ({absent[name]['title']}): {absent[name]['why']}"
        )
    if name not in known:
        near = suggest.hint(name, known) or ";"
        raise AttnDoctorError(
            f"{start}no preset {name!r}{near} `attn-doctor build-kernels --list-presets` shows them"
        )
    family = known[name]
    wanted = sizes or family.get("default", "")
    if not wanted:
        raise AttnDoctorError(f"{start}preset {name}: {family['note']}")
    found = [_size(family, one, start) for one in wanted.split("+")]
    notes = []
    if not family["since"]:
        notes.append(
            f"{name}: diffusers never sends {family['title']} through its attention dispatcher, so "
            "FlexAttention serves it only in code that calls it itself"
        )
    if "note" in family and not sizes:
        notes.append(f"{name}: {family['note']}")
    if block:
        return [_block(family, found, start)], notes
    return [_attention(family, one, found) for one in family["attention"]], notes


def tokens(family: Mapping[str, Any], width: int, height: int, frames: int) -> Size:
    """Tokens of an image or video; `AttnDoctorError` where the size does not divide evenly."""
    side, temporal = family["spatial"], family.get("temporal", 0)
    name = family["name"]
    if width < side or height < side or width % side or height % side:
        raise AttnDoctorError(
            f"preset {name}: {width}x{height} is not a multiple of {side} pixels; use "
            f"{max(side, width // side * side)}x{max(side, height // side * side)}"
        )
    if frames != 1 and not temporal:
        raise AttnDoctorError(f"preset {name}: makes images, so a size has no frames")
    if temporal and (frames - 1) % temporal:
        near = (frames - 1) // temporal * temporal + 1
        raise AttnDoctorError(
            f"preset {name}: {frames} frames are not {temporal} × n + 1; use {near}"
        )
    latent = (frames - 1) // temporal + 1 if temporal else 1
    rows, columns = height // side, width // side
    multiple = family.get("multiple", 1)
    count = -(-latent * rows * columns // multiple) * multiple
    text = -(-family.get("joint", 0) // multiple) * multiple
    return Size(tokens=count, text=text, frames=latent, rows=rows, columns=columns)


def _size(family: Mapping[str, Any], text: str, start: str) -> Size:
    name = family["name"]
    match = _SIZE.fullmatch(text.strip())
    shape = "WIDTHxHEIGHTxFRAMES" if family.get("temporal") else "WIDTHxHEIGHT"
    if match is None:
        raise AttnDoctorError(
            f"{start}preset {name}: {text[:40]!r} is not {shape}, or a number of tokens"
        )
    width, height, frames, words = (int(one) if one else 0 for one in match.groups())
    if not height:
        size = Size(tokens=width, text=0)
    elif "spatial" not in family:
        raise AttnDoctorError(f"{start}preset {name}: {family['note']}")
    elif family.get("temporal") and not frames:
        raise AttnDoctorError(f"{start}preset {name}: give {shape}, such as {family['default']}")
    else:
        try:
            size = tokens(family, width, height, frames or 1)
        except AttnDoctorError as error:
            raise AttnDoctorError(f"{start}{error}") from None
    if match.group(4):
        size = _with_text(family, size, words, start)
    if not 0 < size.tokens + size.text <= 1 << 24:
        raise AttnDoctorError(f"{start}preset {name}: {size.tokens} tokens are out of range")
    return size


def _with_text(family: Mapping[str, Any], size: Size, words: int, start: str) -> Size:
    """`size` with `words` tokens of text, padded as the family does."""
    if family.get("joint"):
        multiple = family.get("multiple", 1)
        return structs.replace(size, text=-(-words // multiple) * multiple)
    if not any(one.get("prompt") for one in family["attention"]):
        raise AttnDoctorError(
            f"{start}preset {family['name']}: its text is cross-attended, without `:`"
        )
    return structs.replace(size, cross=words)


def _cross(attention: Mapping[str, Any], size: Size) -> int:
    """Length of the keys of a cross-attention."""
    length: int = attention["cross"]
    return (size.cross or length) if attention.get("prompt") else length


def _attention(
    family: Mapping[str, Any], attention: Mapping[str, Any], sizes: list[Size]
) -> dict[str, Any]:
    """Fields of one spec of the family, each with one value."""
    heads = attention.get("heads", family["heads"])
    head_dim = attention.get("head_dim", family["head_dim"])
    joined = not attention.get("alone", False)
    fields = {
        "heads": heads,
        "head_dim": head_dim,
        "lengths": [[size.tokens + size.text * joined for size in sizes]],
        "layout": attention["layout"],
        "preset": family["name"],
    }
    if "kv_heads" in family:
        fields["kv_heads"] = family["kv_heads"]
    if "cross" in attention:
        fields["kv_length"] = _cross(attention, sizes[0])
    for name in ("mask", "mask_rows", "kv_heads"):
        if name in attention:
            fields[name] = attention[name]
    if "fused" in attention:
        fields["fused_width"] = attention["fused"] * heads * head_dim
    return fields


def _block(family: Mapping[str, Any], sizes: list[Size], start: str) -> dict[str, Any]:
    """Fields of the spec that builds the family's real block."""
    name = family["name"]
    if "block" not in family:
        if not family["since"]:
            raise AttnDoctorError(
                f"{start}preset {name}: its block calls torch's own attention, so a compiled one "
                "holds no kernel of FlexAttention"
            )
        able = [one for one, row in families().items() if "block" in row]
        raise AttnDoctorError(
            f"{start}preset {name}: --block cannot build it: {family['unbuilt']}; it knows"
            f" {', '.join(able)}"
        )
    if len(sizes) > 1 or not sizes[0].rows:
        raise AttnDoctorError(f"{start}preset {name}: --block takes one size, in pixels")
    size = sizes[0]
    crossed = [_cross(one, size) for one in family["attention"] if "cross" in one]
    return {
        "heads": family["heads"],
        "head_dim": family["head_dim"],
        "lengths": [[size.tokens + size.text]],
        "layout": "bshd",
        "preset": name,
        "block": name,
        "sizes": {
            "tokens": size.tokens,
            "text": size.text,
            "frames": size.frames,
            "rows": size.rows,
            "columns": size.columns,
            "cross": crossed[0] if crossed else 0,
            **_audio(family, size),
        },
    }


def _audio(family: Mapping[str, Any], size: Size) -> dict[str, int]:
    """Tokens of the sound that lasts as long as the video; none where a family has no sound."""
    if "audio" not in family:
        return {}
    frames = (size.frames - 1) * family["temporal"] + 1
    return {"audio": round(frames / family["audio"]["fps"] * family["audio"]["rate"])}
