"""Rules that `attn-doctor rules update` took, in a folder of the user's own.

Each update is a folder with rule files and the indexes that this attn-doctor made of them.
`current.json` names the one in use. An update is used only if it is newer than the rules that
attn-doctor has itself, and if this very release of attn-doctor made its indexes.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from attn_doctor._version import __version__
from attn_doctor.errors import OwnershipError, RuleError
from attn_doctor.files import TEXT, read_bytes
from attn_doctor.json_files import JsonError, decode
from attn_doctor.toml_files import read_toml
from attn_doctor.worker.ownership import danger

#: Version of the form of rule files that this attn-doctor reads.
SCHEMA = 1
#: Names the release of a folder of rules.
RELEASE = "tables/release.toml"
_CURRENT = "current.json"
_VERSION = r"\d{1,9}(\.\d{1,9}){0,5}"


class Release(Struct, frozen=True):
    """The release of a folder of rules."""

    schema: int
    version: str


class Current(Struct, frozen=True, kw_only=True):
    """The update in use."""

    version: str = ""
    """Empty for the rules that attn-doctor has itself."""
    attn_doctor: str = ""
    """The release of attn-doctor that made its indexes."""
    previous: str = ""
    """The version before it; empty for attn-doctor's own."""


def place(environ: Mapping[str, str] = os.environ) -> Path | None:
    r"""The folder of updates; None without a home.

    `$XDG_DATA_HOME/attn-doctor/rules`, else `~/.local/share/attn-doctor/rules`; on Windows
    `%LOCALAPPDATA%\attn-doctor\rules`.
    """
    data = environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(data):  # the specification says to ignore a relative one
        return Path(data, "attn-doctor", "rules")
    if sys.platform == "win32":
        local = environ.get("LOCALAPPDATA", "")
        return Path(local, "attn-doctor", "rules") if local else None
    home = environ.get("HOME", "")
    return Path(home, ".local", "share", "attn-doctor", "rules") if os.path.isabs(home) else None


def release_of(folder: Path) -> Release:
    """The release of a folder of rules. Raises `RuleError`."""
    file = folder / RELEASE
    try:
        found = msgspec.convert(read_toml(file, RuleError), Release)
    except msgspec.ValidationError as error:
        raise RuleError(f"{file}: {error}") from None
    if not re.fullmatch(_VERSION, found.version):
        raise RuleError(f"{file}: {found.version!r} is not a version such as 2026.11.23")
    return found


def order(version: str) -> tuple[int, ...]:
    """A key by which versions are ordered."""
    return tuple(map(int, version.split("."))) if version else ()


def current() -> Current:
    """What `current.json` says; the rules of attn-doctor itself where there is none.

    Raises `OwnershipError` if another user decides what is in the folder.
    """
    folder = place()
    if folder is None:
        return Current()
    file = folder / _CURRENT
    try:
        text = read_bytes(str(file), TEXT)
    except OSError:
        return Current()
    _require_own(file)
    try:
        found = decode(text, Current)
    except JsonError:
        raise RuleError(f"{file} is damaged; delete it to use attn-doctor's own rules") from None
    if not all(re.fullmatch(_VERSION, one) for one in (found.version, found.previous) if one):
        raise RuleError(f"{file} is damaged; delete it to use attn-doctor's own rules")
    return found


def in_use(own: Path) -> Path | None:
    """The folder of the update to use in place of `own`, the rules in attn-doctor's wheel."""
    chosen = current()
    if not chosen.version or why_not(chosen, own):
        return None
    folder = _folder(chosen.version)
    _require_own(folder)
    return folder


def why_not(chosen: Current, own: Path) -> str:
    """Why an update is not used, as a clause; empty if it is."""
    if chosen.attn_doctor != __version__:
        return f"attn-doctor {chosen.attn_doctor} took it, and this is {__version__}"
    version = release_of(own).version
    if order(chosen.version) <= order(version):
        return f"attn-doctor has {version} itself"
    if not (_folder(chosen.version) / "index.jsonl").is_file():
        return f"{_folder(chosen.version)} is missing"
    return ""


def _folder(version: str) -> Path:
    return (place() or Path()) / version


def _require_own(path: Path) -> None:
    """Raise `OwnershipError` if another user decides what is at `path`."""
    found = danger(str(path))
    if found:
        raise OwnershipError(
            f"{path} is not used: {found}; delete it, or name it with --allow-foreign if you trust"
            " all who can change it"
        )
