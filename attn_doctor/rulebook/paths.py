"""The files of the rulebook: where they lie, and reading one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from attn_doctor.errors import RuleError

#: The folder of attn-doctor's own code.
PACKAGE = Path(__file__).resolve().parent.parent


def folder() -> Path:
    """The folder of the rule files that belong to this installation."""
    packed = PACKAGE / "_rules"
    return packed if packed.is_dir() else PACKAGE.parent / "rules"


def rule_files(rules: Path) -> list[Path]:
    """The files below a folder that are rules, in the order of their ids."""
    return sorted(
        path for path in rules.glob("*/*.toml") if path.parent.name not in ("tables", "i18n")
    )


def read_tables(rules: Path) -> dict[str, Any]:
    """The tables of a `rules/` folder by file name."""
    return {path.stem: read_toml(path) for path in sorted((rules / "tables").glob("*.toml"))}


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file. Raises `RuleError` naming the file and the place."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10
        import tomli as tomllib
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return data
    except OSError as error:
        raise RuleError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise RuleError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        place = re.sub(r"^(.*) \(at (.*)\)$", r"\2: \1", str(error))
        raise RuleError(f"{path}: {place}; this is not valid TOML") from None
