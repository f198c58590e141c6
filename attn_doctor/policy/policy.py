"""Reads the policy file: `attn-doctor.toml`, or `[tool.attn-doctor]` in `pyproject.toml`.

The nearest one counts, from the working directory upwards; an `attn-doctor.toml` beside a
`pyproject.toml` wins. Files are not merged, so one file holds the whole policy.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.requirement import parsed
from attn_doctor.suggest import did_you_mean

Text = Annotated[str, Meta(min_length=1)]


class PolicyError(AttnDoctorError):
    """A policy file with an error."""


class Ignore(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule whose problems are accepted, for a reason and for a time."""

    rule: Text
    """Id of a rule, or `area/*`."""
    reason: Text
    until: date
    """The last day on which it is accepted; afterwards the entry itself is a problem."""
    subject: str = ""
    """Only this subject, such as `GPU 1`; empty for all."""


class Policy(Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """The demands. Each field is a key of the file, with `-` for `_`."""

    fail_on: Literal["error", "warning", "info", "never"] | None = None
    require: tuple[Text, ...] = ()
    """Backends that must be ready."""
    training: bool = False
    """They must be ready for training, not only for inference."""
    framework: str = ""
    """The framework whose names these are; default: Diffusers."""
    minimum: dict[str, Text] = {}
    """Minimum versions: `driver`, `python`, `torch` or another package that is a fact."""
    allowed_gpus: tuple[Text, ...] = ()
    """Parts of GPU names (`H100`), or architectures (`sm_90`)."""
    rules: tuple[Text, ...] = ()
    """Folders of rules of the team's own, relative to the file."""
    ignore: tuple[Ignore, ...] = ()
    path: Annotated[str, Meta(description="The file; not a key.")] = ""

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders of `rules`, absolute."""
        return tuple(Path(self.path).parent / one for one in self.rules)


def read(path: Path) -> Policy:
    """Return the policy in `path`. Raises `PolicyError` with the file, the key and the fix."""
    section = section_of(path, data_of(path))
    if section is None:
        raise PolicyError(f"{path}: has no [tool.attn-doctor] table; add one, or name another file")
    _known(path, section, Policy, "")
    for number, one in enumerate(section.get("ignore", ()), 1):
        if isinstance(one, dict):
            _known(path, one, Ignore, f"ignore {number}: ")
    try:
        policy = msgspec.convert(section, Policy)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        at = f"{place.rstrip('`')}: " if place else ""
        raise PolicyError(f"{path}: {at}{what}") from None
    for name, version in policy.minimum.items():
        try:
            parsed(version)
        except ValueError:  # also a number of more digits than Python converts
            raise PolicyError(
                f'{path}: minimum.{name}: {version!r} is not a version; write one such as "2.8"'
            ) from None
    return msgspec.structs.replace(policy, path=str(path))


def section_of(path: Path, data: dict[str, Any]) -> dict[str, Any] | None:
    """The policy's table; None where a pyproject.toml has none."""
    if path.name != "pyproject.toml":
        return data
    tool = data.get("tool")
    section = tool.get("attn-doctor") if isinstance(tool, dict) else None
    return section if isinstance(section, dict) else None


def data_of(path: Path) -> dict[str, Any]:
    """The content of the file. Raises `PolicyError`."""
    from attn_doctor.toml_files import read_toml

    return read_toml(path, PolicyError)


def _known(path: Path, section: dict[str, Any], struct: type[Struct], place: str) -> None:
    """Raise `PolicyError` for an unknown key, with the nearest known one."""
    keys = [name for name in struct.__struct_encode_fields__ if name != "path"]
    for key in section:
        if key not in keys:
            hint = did_you_mean(key, keys, f"write one of {', '.join(keys)}", 1)
            raise PolicyError(f"{path}: {place}unknown key {key!r}; {hint}")
