"""Finds configurations in the folder that SimpleTuner would read, as its variables say.

Source: simpletuner/helpers/configuration/loader.py and json_file.py (v4.8.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from attn_doctor.configs.readers.files import shown
from attn_doctor.configs.readers.settings import ConfigError
from attn_doctor.files import TEXT, is_file, is_folder, read_bytes
from attn_doctor.worker import reach

_ENVIRONMENTS = ("SIMPLETUNER_ENVIRONMENT", "SIMPLETUNER_ENV", "ENV")
_BACKENDS = ("SIMPLETUNER_CONFIG_BACKEND", "CONFIG_BACKEND", "CONFIG_TYPE")
_FORMS = ("json", "toml", "env")


def named(path: Path, variables: Mapping[str, str]) -> tuple[Path, str]:
    """The file that the user's PATH leads to, and why. Raises `ConfigError` if there is none."""
    reach.refuse(path)
    if not is_folder(path):
        return path, ""
    places = [*_simpletuner(path, variables)]
    for place, why in places:
        if is_file(place):
            return place, why
    for name in ("config.json", "config.toml", "config.env"):
        if is_file(path / name):
            return path / name, f"found in {shown(path)}"
    tried = ", ".join(shown(place) for place, _ in places)
    raise ConfigError(f"{path}: has no configuration of SimpleTuner; looked for {tried}")


def found_in(folder: Path, variables: Mapping[str, str]) -> tuple[Path, str] | None:
    """The configuration that SimpleTuner would read if it were started in `folder`, if any.

    A `config.json` outside `config/` counts only if it speaks of a model family, as many programs
    have a file of that name.
    """
    if reach.dead(folder):
        return None
    for place, why in _simpletuner(folder, variables):
        if not is_file(place):
            continue
        if place.suffix != ".json" or _speaks(place):
            return place, why
    loose = folder / "config.json"
    if is_file(loose) and _speaks(loose):
        return loose, "found here, with settings of SimpleTuner"
    return None


def _simpletuner(folder: Path, variables: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Candidates in SimpleTuner's own order, with what led there."""
    name = next((one for one in _ENVIRONMENTS if variables.get(one)), "")
    environment = variables.get(name, "") if name else ""
    asked = next((variables[one].lower() for one in _BACKENDS if variables.get(one)), "")
    base = folder / "config"
    why = "SimpleTuner reads it by default"
    if variables.get("CONFIG_PATH") and asked in ("", "json"):
        own = folder / variables["CONFIG_PATH"]
        reason = "CONFIG_PATH names it"
        if is_folder(own):
            yield own / "config.json", reason
        else:
            yield own if own.suffix else own.with_suffix(".json"), reason
    if environment and environment != "default":
        base, why = base / environment, f"{name} is {environment}"
    for form in (asked,) if asked in _FORMS else _FORMS:
        yield base / f"config.{form}", why


def _speaks(path: Path) -> bool:
    """The text of the file names a model family."""
    try:
        return b'model_family"' in read_bytes(path, TEXT)
    except OSError:
        return False
