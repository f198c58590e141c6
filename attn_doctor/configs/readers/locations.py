"""Finds configurations in the folder that SimpleTuner would read, as its variables say.

Source: simpletuner/helpers/configuration/loader.py and json_file.py (v4.8.0).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from attn_doctor.files import TEXT, is_file, is_folder, read_bytes
from attn_doctor.worker import reach

_ENVIRONMENTS = ("SIMPLETUNER_ENVIRONMENT", "SIMPLETUNER_ENV", "ENV")
_BACKENDS = ("SIMPLETUNER_CONFIG_BACKEND", "CONFIG_BACKEND", "CONFIG_TYPE")
_FORMS = ("json", "toml", "env")
#: Folders that are not a project's own.
_PASSED = ("node_modules", "site-packages", "venv", "env", "__pycache__", "build", "dist", "tests")
#: Files of a folder that are read as configurations, and entries of folders that are looked at.
_MOST, _LOOKED_AT = 20, 20_000


def named(path: Path, variables: Mapping[str, str]) -> list[tuple[Path, str]]:
    """The files that the user's PATH leads to, and why each. Raises `ConfigError` if none does.

    Of a folder, the one that SimpleTuner would read there, else all that are known to choose
    attention.
    """
    reach.refuse(path)
    if not is_folder(path):
        return [(path, "")]
    places = [*_simpletuner(path, variables)]
    for place, why in places:
        if is_file(place) and (place.suffix != ".json" or _speaks(place)):
            return [(place, why)]
    # What follows is for a path that the user names.
    from attn_doctor.configs.readers.files import shown
    from attn_doctor.configs.readers.settings import ConfigError

    found = [*walked(path)]
    if found:
        return [(one, f"found in {shown(path)}") for one in found]
    raise ConfigError(
        f"{path}: none of its files chooses attention in a way that is known here; name the file"
    )


def walked(folder: Path) -> Iterator[Path]:
    """The files of a project that choose attention, up to `_MOST` of them, in order of their paths.

    Folders of packages, of version control and of environments are passed over.
    """
    from attn_doctor.configs.readers import kinds

    left = _LOOKED_AT
    pending, count = [folder], 0
    while pending and count < _MOST and left > 0:
        here = pending.pop()
        if reach.dead(here):
            continue
        try:
            entries = sorted(os.scandir(here), key=lambda one: one.name)
        except OSError:
            continue
        for entry in entries:
            left -= 1
            path = here / entry.name
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _PASSED:
                    pending.append(path)
            elif kinds.may_choose(path) and count < _MOST:
                count += 1
                yield path
        pending.sort(reverse=True)


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
