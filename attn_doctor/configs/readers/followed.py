"""Files that a start script names: its settings, its program's own options, a script of the user.

They are looked for beside the start script, in the folder above it, and where attn-doctor was
started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from attn_doctor.configs.formats import formats
from attn_doctor.configs.readers import flat, yaml_lines
from attn_doctor.configs.readers.files import shown, text_of
from attn_doctor.configs.readers.settings import ConfigError, Reading
from attn_doctor.files import is_file

#: `$SCRIPT_DIR/`, `${ROOT}/`: the folder of the script, or one above it.
_BESIDE = re.compile(
    r"(?i)\$\{?(?:\w*(?:script|here|this|self|current|root|project|repo|base|work)\w*|pwd|dir|cwd)\}?/"
)

Reader = Callable[[Path, str], list[Reading]]


def follow(reading: Reading, path: Path, read: Reader) -> list[Reading]:
    """What the file says that decides in place of `reading`; `reading` itself if none is found.

    `path`: the start script. `read`: reads a file, and notes why.
    """
    if reading.kind != "format":
        return [reading]
    if reading.script:
        return _script(reading, path, read)
    if _chooses(reading):
        return [reading]
    options = _options(reading, path)
    if options is not None:
        return [options]
    for name in _names(reading):
        for place in _places(path, name):
            try:
                found = read(place, f"{reading.file} names it")
            except ConfigError:
                continue
            return [replace(one, when=reading.when) for one in found]
    return [reading]


def _script(reading: Reading, path: Path, read: Reader) -> list[Reading]:
    """A script of the user: its own choice, or that it hands the option of the command on."""
    for place in _places(path, reading.script):
        try:
            (script,) = read(place, f"{reading.file} starts it")
        except (ConfigError, ValueError):
            continue
        calls = [one for one in script.calls if one.what == "attn_implementation"]
        if _chooses(reading):
            handed = any(one.detail in ("option", "none") for one in calls)
            return [replace(reading, script="")] if handed else [reading]
        return [replace(script, when=reading.when)] if calls else [reading]
    return [reading]


# vllm serve --config serve.yaml
def _options(reading: Reading, path: Path) -> Reading | None:
    """The YAML file with further options of a command where it chooses; the command without it.

    None if the command names none, or it is not found.
    """
    one = formats()[reading.format]
    name = next((reading.get(option) for option in one.config if reading.get(option)), "")
    if one.nested or not name.endswith((".yaml", ".yml")):
        return None
    for place in _places(path, name):
        try:
            entries = yaml_lines.entries(text_of(place))
        except (ConfigError, yaml_lines.YamlError):
            continue
        paths = flat.paths_of_yaml(entries).items()
        settings = {key.replace("-", "_"): each for key, each in paths}
        file = replace(
            reading,
            file=shown(place),
            form="yaml",
            settings=settings,
            unset="",
            program=None,
            why=f"{reading.file} names it",
        )
        if _chooses(file):
            return file
        further = [each for each in reading.unset.split(" or ") if each != name]
        return replace(reading, unset=" or ".join(further))
    return None


def _chooses(reading: Reading) -> bool:
    """One of its settings chooses by itself."""
    for one in formats()[reading.format].choice:
        setting = (reading.variables if one.variable else reading.settings).get(one.key)
        if setting is not None and one.counts(setting.text):
            return True
    return False


def _names(reading: Reading) -> Iterator[str]:
    """The files that may choose in its place."""
    one = formats()[reading.format]
    option = reading.get("config_file")
    if option:
        yield option
    elif one.files:
        yield from reading.files
    yield from (each for each in reading.unset.split(" or ") if each in one.reads.values())


def _places(path: Path, name: str) -> Iterator[Path]:
    beside = _BESIDE.match(name)
    name = name[beside.end() :] if beside is not None else name
    if "$" in name or "\\" in name:
        return
    for folder in dict.fromkeys((path.parent, path.parent.parent, Path())):
        place = folder / name
        if is_file(place) and place != path:
            yield place
