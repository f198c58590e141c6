"""Finds out the kind of a configuration file, and reads it.

The name decides first, then the content: a shell script may start SimpleTuner or Finetrainers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attn_doctor.configs.readers import (
    env_file,
    shell_words,
)
from attn_doctor.configs.readers.data_files import json_settings, toml_settings
from attn_doctor.configs.readers.files import shown, text_of
from attn_doctor.configs.readers.settings import ConfigError, Form, Kind, Reading, Setting

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
_SIMPLETUNER = ("model_family", "attention_mechanism", "data_backend_config")
#: Settings of OneTrainer, which has a setting of the same name as SimpleTuner.
_ONETRAINER = ("training_method", "__version")
_FORMS: dict[str, Form] = {
    ".json": "json",
    ".toml": "toml",
    ".env": "env",
    ".py": "python",
    ".sh": "shell",
    ".bash": "shell",
    ".slurm": "shell",
    ".sbatch": "shell",
    ".txt": "shell",
}
_KNOWN = "config.json, config.toml or config.env of SimpleTuner, a shell script, or a Python script"


def read(path: Path, why: str = "") -> Reading:
    """The configuration in a file. Raises `ConfigError` naming file, place and remedy."""
    name = shown(path)
    text = text_of(path)
    form = _form(path, text)
    if form == "python":
        from attn_doctor.configs.readers.script import read_script

        script = read_script(text, name)
        return Reading(
            kind="script",
            file=name,
            why=why,
            form=form,
            calls=script.calls,
            unread=script.unread,
        )
    if form == "env":
        return _env(text, name, why)
    if form == "shell":
        return _shell(text, name, why)
    settings = (json_settings if form == "json" else toml_settings)(text, name)
    other = _has(settings, _ONETRAINER) and "model_family" not in settings
    if not _has(settings, _SIMPLETUNER) or other:
        raise ConfigError(
            f"{name}: none of SimpleTuner's settings ({', '.join(_SIMPLETUNER)}) are in it;"
            f" name {_KNOWN}"
        )
    from attn_doctor.configs.readers.datasets import datasets

    beside = settings.get("data_backend_config")
    return Reading(
        kind="simpletuner",
        file=name,
        why=why,
        form=form,
        settings=settings,
        datasets=datasets(path, beside.text if beside else ""),
    )


def _form(path: Path, text: str) -> Form:
    form = "env" if path.name == ".env" else _FORMS.get(path.suffix.lower())
    if form:
        return form
    first = text[:200].lstrip()
    if first.startswith("{"):
        return "json"
    if first.startswith("#!"):
        return "python" if "python" in first.partition("\n")[0] else "shell"
    raise ConfigError(f"{shown(path)}: unknown kind of file; name {_KNOWN}")


def _env(text: str, name: str, why: str) -> Reading:
    settings, variables = env_file.settings_of(text)
    if "model_family" in settings or "ATTENTION_MECHANISM" in variables:
        kind: Kind = "simpletuner"
    elif any(one in variables for one in VARIABLES):
        kind = "variables"
    else:
        raise ConfigError(
            f"{name}: sets neither MODEL_FAMILY, as SimpleTuner's config.env does, nor any of"
            f" {', '.join(VARIABLES)}"
        )
    return Reading(
        kind=kind, file=name, why=why, form="env", settings=settings, variables=variables
    )


def _shell(text: str, name: str, why: str) -> Reading:
    script = shell_words.read(text)
    settings = shell_words.options_of(script.words)
    kind = _of_command(settings, script.words, script.variables)
    if not kind:
        raise ConfigError(
            f"{name}: starts neither SimpleTuner (--model_family) nor Finetrainers"
            f" (--attn_provider_training), and sets none of {', '.join(VARIABLES)}"
        )
    return Reading(
        kind=kind,
        file=name,
        why=why,
        form="shell",
        settings=settings,
        variables=script.variables,
    )


def _of_command(
    settings: Mapping[str, Setting],
    words: list[tuple[str, int]],
    variables: Mapping[str, Setting],
) -> Kind | None:
    if _has(settings, _FINETRAINERS) or any("finetrainers" in word for word, _ in words):
        return "finetrainers"
    if _has(settings, _SIMPLETUNER):
        return "simpletuner"
    return "variables" if _has(variables, VARIABLES) else None


def _has(settings: Mapping[str, Setting], keys: tuple[str, ...]) -> bool:
    return any(key in settings for key in keys)
