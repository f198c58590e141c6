"""SimpleTuner's `config.env`: only some variables become settings.

Source: simpletuner/helpers/configuration/env_file.py (v4.8.0), `env_to_args_map`. What is not
listed there has no effect, ATTENTION_MECHANISM among it; TRAINER_EXTRA_ARGS is appended as it is.
"""

from __future__ import annotations

import shlex

from attn_doctor.configs.readers import shell_words
from attn_doctor.configs.readers.settings import Setting

#: Variables that matter here and the settings they become.
_MAPPED = {
    "MODEL_FAMILY": "model_family",
    "MODEL_TYPE": "model_type",
    "MODEL_NAME": "pretrained_model_name_or_path",
    "RESOLUTION": "resolution",
    "RESOLUTION_TYPE": "resolution_type",
    "TRAIN_BATCH_SIZE": "train_batch_size",
    "VALIDATION_RESOLUTION": "validation_resolution",
    "MIXED_PRECISION": "mixed_precision",
    "BASE_MODEL_PRECISION": "base_model_precision",
    "TRAINING_DYNAMO_BACKEND": "dynamo_backend",
    "TRAINER_DYNAMO_BACKEND": "dynamo_backend",
}


def variables_of(text: str) -> dict[str, Setting]:
    """The variables of a `config.env`, as SimpleTuner reads it: line by line, `+=` appends."""
    found: dict[str, Setting] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip().removeprefix("export ")
        if stripped.startswith("#") or "=" not in stripped:
            continue
        key, _, value = stripped.partition("=")
        appended = key.endswith("+")
        key, value = key.removesuffix("+").strip(), value.strip()
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        if appended and key in found:
            value = shell_words.appended(found[key].text, value)
        found[key] = Setting(key, value, number)
    return found


def settings_of(text: str) -> tuple[dict[str, Setting], dict[str, Setting]]:
    """Settings and variables of a `config.env`."""
    variables = variables_of(text)
    settings = {
        _MAPPED[key]: Setting(_MAPPED[key], one.value, one.line, key)
        for key, one in variables.items()
        if key in _MAPPED
    }
    extra = variables.get("TRAINER_EXTRA_ARGS")
    if extra is not None:
        try:
            words = shlex.split(extra.text)
        except ValueError:
            words = extra.text.split()
        options = shell_words.options_of([(word, extra.line) for word in words])
        settings |= {
            key: Setting(key, one.value, one.line, f"TRAINER_EXTRA_ARGS --{key}")
            for key, one in options.items()
        }
    return settings, variables
