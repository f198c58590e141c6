"""Finds out the kind of a configuration file, and reads it.

The name decides first, then the content: a shell script may start any of the programs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from attn_doctor.configs.formats import formats, titles
from attn_doctor.configs.readers import (
    batch,
    commands,
    env_file,
    flat,
    makefile,
    powershell,
    shell_words,
    unit_file,
    workflow,
    yaml_lines,
)
from attn_doctor.configs.readers.code_settings import settings_in
from attn_doctor.configs.readers.commands import Command
from attn_doctor.configs.readers.data_files import json_settings, toml_settings
from attn_doctor.configs.readers.files import shown, text_of
from attn_doctor.configs.readers.settings import ConfigError, Form, Kind, Reading, Setting
from attn_doctor.configs.readers.starts import known_in, started
from attn_doctor.files import TEXT, read_bytes
from attn_doctor.toml_files import parse_toml

#: Variables that choose a backend by themselves.
VARIABLES = (
    "DIFFUSERS_ATTN_BACKEND",
    "DIFFUSERS_ATTN_CHECKS",
    "FINETRAINERS_ATTN_PROVIDER",
    "FINETRAINERS_ATTN_CHECKS",
)
#: Options that identify the program of a command line.
_FINETRAINERS = (
    "attn_provider_training", "attn_provider_inference", "attn_provider", "training_type",
)  # fmt: skip
_LAUNCHES = re.compile(r"(?:.*/)?finetrainers[\w-]*/(?:.*/)?(?:train|inference)\w*\.py")
_SIMPLETUNER = ("model_family", "attention_mechanism", "data_backend_config")
_WORKFLOW = "comfyui-workflow"
_NO_MODEL = "no node loads or samples a model through ComfyUI, so the code of other nodes decides"
_SD_SCRIPTS = "sd-scripts"
_FORMS: dict[str, Form] = {
    ".json": "json",
    ".toml": "toml",
    ".env": "env",
    ".py": "python",
    ".ipynb": "notebook",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".bat": "batch",
    ".cmd": "batch",
    ".ps1": "batch",
    ".sh": "shell",
    ".bash": "shell",
    ".slurm": "shell",
    ".sbatch": "shell",
    ".txt": "shell",
    ".service": "unit",
}
#: Kinds of which each line is followed, and the most letters of one. Start scripts have some
#: thousand, and 2 MiB of branches and variables took minutes and gigabytes.
_FOLLOWED, _LONGEST = ("shell", "batch", "make", "docker"), 1 << 17
#: Words in files that choose attention.
_SPEAKS = re.compile(rb"(?i)attention|attn|xformers|sdpa|sage|flash|model_family|vllm|sglang")
_CHOOSE = (
    "set_attention_backend", "attention_backend", "attention_provider", "attn_implementation",
    "xformers", "set_attn_processor", "sdpa_kernel", "sdpa switch", "sdpa replaced", "vllm",
    "variable",
)  # fmt: skip
#: Programs that notebooks start with settings in their code.
_FROM_CODE = ("axolotl", "llama-factory", "ai-toolkit")
#: Names, in small letters, of files without an ending that is known.
_NAMED = ("dockerfile", "makefile")
#: Files beside a script that set variables of its container.
_BESIDE = ("Dockerfile", "docker-compose.yml", "docker-compose.yaml", "compose.yml", "compose.yaml")


def read(path: Path, why: str = "") -> Reading:
    """The configuration in a file, the first one if it has several. Raises `ConfigError`."""
    return read_all(path, why)[0]


def read_all(path: Path, why: str = "") -> list[Reading]:
    """The configurations in a file. Raises `ConfigError` naming file, place and remedy."""
    name = shown(path)
    text, form = _read(path)
    base = Reading(kind="format", file=name, why=why, form=form)
    if form in ("python", "notebook"):
        return _script(base, text)
    if form in ("json", "toml"):
        return [_data(base, text, path)]
    if form == "yaml":
        return _yaml(base, text)
    if form == "env":
        return _env(base, text)
    if form == "unit":
        found = _named(base, started(base, unit_file.as_shell(text)))
        return [replace(one, unset=one.unset or unit_file.outside(text)) for one in found]
    if form == "batch":
        translated = powershell if path.suffix.lower() == ".ps1" else batch
        return _followed(_named(base, started(base, translated.as_shell(text))), path)
    if form == "make":
        return _followed(_named(base, started(base, makefile.as_shell(text))), path)
    if form == "docker":
        return _named(base, known_in(base, commands.of_docker(text)))
    return _followed(_shell(base, text, path), path)


def may_choose(path: Path) -> bool:
    """The file says something of attention: for the files of a folder, which no one named."""
    if path.suffix.lower() not in _FORMS and not path.name.lower().startswith(_NAMED):
        return False
    if (
        path.suffix.lower() in (".py", ".txt", ".json", ".ipynb", ".sh", ".service")
        or path.name == ".env"
    ):
        try:
            if not _SPEAKS.search(read_bytes(path, TEXT)):
                return False
        except OSError:
            return False
    try:
        found = read_all(path)
    except ConfigError:
        return False
    return any(one.kind != "script" or chooses(one) for one in found)


def chooses(reading: Reading) -> bool:
    """A script has a line that chooses, beside those that load or compile."""
    return any(one.what in _CHOOSE for one in reading.calls)


def _read(path: Path) -> tuple[str, Form]:
    """The text of a configuration, and its kind. Raises `ConfigError`."""
    text = text_of(path)
    form = _form(path, text)
    if form in _FOLLOWED and len(text) > _LONGEST:
        raise ConfigError(
            f"{shown(path)}: is longer than scripts that start a program, {_LONGEST >> 10} KiB;"
            " name the script that starts it"
        )
    return text, form


def _form(path: Path, text: str) -> Form:
    form = "env" if path.name == ".env" else _FORMS.get(path.suffix.lower())
    if form:
        return form
    if path.name.lower().startswith(("dockerfile", "containerfile")) or (
        path.suffix.lower() == ".dockerfile"
    ):
        return "docker"
    if path.name in ("Makefile", "makefile", "GNUmakefile") or path.suffix == ".mk":
        return "make"
    first = text[:200].lstrip()
    if first.startswith("{"):
        return "json"
    if first.startswith("#!"):
        return "python" if "python" in first.partition("\n")[0] else "shell"
    raise ConfigError(f"{shown(path)}: unknown kind of file; {_known()}")


def _known() -> str:
    return (
        "name a configuration of SimpleTuner, Finetrainers or Diffusers, a script or notebook, or"
        f" one of {', '.join(titles())}"
    )


def _unknown(name: str) -> ConfigError:
    return ConfigError(f"{name}: nothing in it is known to choose attention; {_known()}")


def _script(base: Reading, text: str) -> list[Reading]:
    from attn_doctor.configs.readers.script import read_script

    cells: Mapping[int, str] = {}
    shell = ""
    if base.form == "notebook":
        from attn_doctor.configs.readers.notebook import read_notebook

        notebook = read_notebook(text, base.file)
        text, shell, cells = notebook.code, notebook.shell, notebook.cells
    script = read_script(text, base.file)
    reading = replace(base, kind="script", calls=script.calls, unread=script.unread, cells=cells)
    if base.form != "notebook":
        return [reading]
    inner = replace(base, cells=cells)
    found = [*started(inner, shell), *_in_code(inner, text)]
    for name, written in notebook.files.items():
        found += _written(inner, name, written)
    return [*([reading] if chooses(reading) or not found else []), *found]


def _in_code(base: Reading, code: str) -> Iterator[Reading]:
    """The settings of programs that start from code: a dictionary, or YAML in a text."""
    for settings in settings_in(code):
        format_, _ = _format_in(settings, [settings])
        spoken = format_ == _SD_SCRIPTS and any(
            one.key in settings for one in formats()[_SD_SCRIPTS].choice
        )
        if format_ in _FROM_CODE or spoken:
            program = formats()[format_].evidence(settings)
            yield replace(base, format=format_, settings=settings, program=program)


def _written(base: Reading, name: str, text: str) -> list[Reading]:
    """What a cell writes to a file of this name; empty if it chooses nothing."""
    suffix = Path(name).suffix.lower()
    try:
        if suffix in (".yaml", ".yml"):
            return _yaml(base, text)
        if suffix in (".sh", ".bash"):
            return started(base, text)
        if suffix == ".toml":
            return [_data(replace(base, form="toml"), text, Path(name))]
    except ConfigError:
        pass
    return []


def _data(base: Reading, text: str, path: Path) -> Reading:
    """JSON or TOML: SimpleTuner's settings, a workflow of ComfyUI, or those of another program."""
    read_settings = json_settings if base.form == "json" else toml_settings
    settings = read_settings(text, base.file)
    data: dict[str, Any] = (
        json.loads(text) if base.form == "json" else parse_toml(text, base.file, ConfigError)
    )
    if base.form == "json" and workflow.is_workflow(data):
        one = formats()[_WORKFLOW]
        wanted = {choice.key: tuple(choice.values) for choice in one.choice}
        found = workflow.choices_of(data, text, wanted)
        own = _NO_MODEL if workflow.without_models(data) else ""
        return replace(base, form="workflow", format=_WORKFLOW, settings=found, own=own)
    every = flat.of_data(data, text)
    format_, nested = _format_in(every, flat.mappings_of_data(data, every))
    family = settings.get("model_family")
    named = {key: one for key, one in settings.items() if not (one is family and " " in one.text)}
    ours = _has(named, _SIMPLETUNER) and format_ != "onetrainer"
    if format_ == _SD_SCRIPTS and base.form == "json" and not _says(format_, nested):
        raise _unknown(base.file)  # it reads TOML; JSON is another program's, with its own default
    if format_ and not ours:
        several = flat.several(data, formats()[format_].beside) if base.form == "toml" else ()
        names = ", ".join(f"[{one}]" for one in several)
        own = (
            f"the file has several configurations, {names}: its program takes one" if names else ""
        )
        program = formats()[format_].evidence(nested)
        return replace(base, format=format_, settings=nested, own=own, program=program)
    if not ours:
        raise _unknown(base.file)
    from attn_doctor.configs.readers.datasets import datasets

    beside = settings.get("data_backend_config")
    return replace(
        base,
        kind="simpletuner",
        settings=settings,
        datasets=datasets(path, beside.text if beside else ""),
    )


def _says(name: str, settings: Mapping[str, Setting]) -> bool:
    """One of the settings that choose attention is given and is not off."""
    keys = [one.key for one in formats()[name].choice]
    return any(key in settings and settings[key].text not in ("", "false") for key in keys)


def _yaml(base: Reading, text: str) -> list[Reading]:
    try:
        entries = yaml_lines.entries(text)
    except yaml_lines.YamlError as error:
        raise ConfigError(
            f"{base.file}, line {error.line}: not YAML, because text follows a closing quote"
        ) from None
    found = known_in(base, commands.of_yaml(entries))
    if found:
        return found
    used = _in_use(entries)
    paths = flat.paths_of_yaml(used)
    format_, settings = _format_in(flat.of_yaml(used), flat.mappings_of_yaml(used), paths)
    if not format_:
        raise _unknown(base.file)
    program = formats()[format_].evidence(settings)
    return [replace(base, format=format_, settings=settings, program=program)]


def _format_in(
    settings: Mapping[str, Setting],
    mappings: Iterable[Mapping[str, Setting]],
    paths: Mapping[str, Setting] = MappingProxyType({}),
) -> tuple[str, Mapping[str, Setting]]:
    """The format of a file and its settings; of a program whose files have no levels, one mapping.

    `mappings`: the settings of each mapping of the file by themselves. `paths`: all settings by
    their whole paths.
    """
    several = [*mappings]
    for name, one in formats().items():
        for each in several if one.flat else [paths if one.nested else settings]:
            if one.has(each):
                return name, each
    return "", settings


def _in_use(entries: Sequence[yaml_lines.Entry]) -> list[yaml_lines.Entry]:
    """The entries without sections that `backend: NAME` passes over for the section NAME.

    What is in that section counts as if it was not.
    """
    sections = {one.path[0] for one in entries if len(one.path) > 1}
    named = {one.value for one in entries if one.path == ("backend",)} & sections
    if not named:
        return [*entries]
    own = [one for one in entries if len(one.path) == 1 or one.path[0] in named]
    return [replace(one, path=one.path[1:]) if one.path[0] in named else one for one in own]


def _followed(readings: list[Reading], path: Path) -> list[Reading]:
    """The readings, with files that they name in their place where those can be read."""
    from attn_doctor.configs.readers.followed import follow

    return [each for one in readings for each in follow(one, path, _named_file)]


def _named_file(path: Path, why: str) -> list[Reading]:
    """A file that another one names, without those that it names itself."""
    text, form = _read(path)
    base = Reading(kind="format", file=shown(path), why=why, form=form)
    if form == "python":
        return _script(base, text)
    if form in ("json", "toml"):
        return [_data(base, text, path)]
    if form == "yaml":
        return _yaml(base, text)
    return _shell(base, text, path)


def _env(base: Reading, text: str) -> list[Reading]:
    settings, variables = env_file.settings_of(text)
    if "model_family" in settings or "ATTENTION_MECHANISM" in variables:
        return [replace(base, kind="simpletuner", settings=settings, variables=variables)]
    if any(one in variables for one in VARIABLES):
        return [replace(base, kind="variables", settings=settings, variables=variables)]
    found = known_in(base, [Command((), variables), *commands.arguments(variables)])
    if found:
        return found
    raise ConfigError(
        f"{base.file}: sets neither MODEL_FAMILY, as SimpleTuner's config.env does, nor any of"
        f" {', '.join(VARIABLES)}"
    )


def _shell(base: Reading, text: str, path: Path) -> list[Reading]:
    script = shell_words.read(text)
    settings = shell_words.options_of(script.words)
    kind = _of_command(settings, script.words)
    if kind:
        # SimpleTuner's own starter takes most of its options from files and the environment.
        command = Command(tuple(script.words), script.variables)
        unset = command.unset() if kind == "simpletuner" else ""
        one = replace(base, kind=kind, settings=settings, variables=script.variables, unset=unset)
        return [one]
    found = started(base, text)
    if path.suffix == ".txt":  # a list of names starts nothing
        found = [one for one in found if one.settings or one.files or one.variables]
    if found:
        open_ = {each.strip("${}") for one in found for each in one.unset.split(" or ") if each}
        return _in_image(base, text, path, open_) or found if open_ else found
    if _has(script.variables, VARIABLES):
        return [replace(base, kind="variables", settings=settings, variables=script.variables)]
    raise _unknown(base.file)


def _in_image(base: Reading, text: str, path: Path, names: set[str]) -> list[Reading]:
    """The commands of a script with what the Dockerfile or the compose file beside it sets.

    It is empty if neither sets one of `names`.
    """
    for folder in (path.parent, path.parent.parent):
        for name in _BESIDE:
            try:
                variables = _container_variables(_read(folder / name)[0], name)
            except ConfigError:
                continue
            known = {key: one.text for key, one in variables.items() if key in names}
            if known:
                image = f"{', '.join(known)} of {shown(folder / name)}"
                return started(replace(base, image=image), text, known)
    return []


def _container_variables(text: str, name: str) -> Mapping[str, Setting]:
    """The variables that a Dockerfile sets, or a compose file, without those of two values."""
    if name == "Dockerfile":
        return commands.image_variables(text)
    found: dict[str, Setting] = {}
    several = set()
    try:
        entries = yaml_lines.entries(text)
    except yaml_lines.YamlError:
        return {}
    for command in commands.of_yaml(entries):
        for key, one in command.variables.items():
            if found.setdefault(key, one).text != one.text:
                several.add(key)
    return {key: one for key, one in found.items() if key not in several}


def _named(base: Reading, readings: list[Reading]) -> list[Reading]:
    """`readings`; an error if there are none."""
    if not readings:
        raise _unknown(base.file)
    return readings


def _of_command(settings: Mapping[str, Setting], words: list[tuple[str, int]]) -> Kind | None:
    if _has(settings, _FINETRAINERS) or any(_LAUNCHES.fullmatch(word) for word, _ in words):
        return "finetrainers"
    return "simpletuner" if _has(settings, _SIMPLETUNER) else None


def _has(settings: Mapping[str, Setting], keys: tuple[str, ...]) -> bool:
    return any(key in settings for key in keys)
