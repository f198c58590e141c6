"""What every kind of configuration is read into: settings and calls, each with its line."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError

#: A value as a configuration holds it; lists are those of options that take several.
Value = str | int | float | bool | tuple[str, ...] | None


class ConfigError(AttnDoctorError):
    """A configuration that cannot be read."""


class Setting(Struct, frozen=True):
    """One value, and where it is written."""

    key: str
    value: Value
    line: int = 1
    written: str = ""
    """The key as the user wrote it, if that differs."""

    @property
    def name(self) -> str:
        """The key as the user knows it."""
        return self.written or self.key

    @property
    def text(self) -> str:
        """The value as text, booleans in small letters."""
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, tuple):
            return " ".join(self.value)
        return "" if self.value is None else str(self.value).strip()


class Call(Struct, frozen=True):
    """A call or a name in a Python script that has to do with attention."""

    what: str
    """`set_attention_backend`, `attention_backend`, `attn_implementation`, `compile`, …"""
    value: str = ""
    """Its text argument; empty if it is none that can be read without running the script."""
    on: str = ""
    """What it is called on, as written."""
    line: int = 1


class Dataset(Struct, frozen=True, kw_only=True):
    """The size that a dataset is trained at."""

    resolution: str
    resolution_type: str
    frames: int = 0
    """0 for images, and where it is not said."""


class Reading(Struct, frozen=True, kw_only=True):
    """One configuration."""

    kind: str
    """`simpletuner`, `finetrainers`, `script` or `variables`."""
    file: str
    """As it is shown: relative to the working directory where it lies below it."""
    why: str = ""
    """Why this file was read, if the user did not name it."""
    form: str = ""
    """How it is written: `json`, `toml`, `env`, `shell`, `python`, `environment`."""
    settings: Mapping[str, Setting] = {}
    variables: Mapping[str, Setting] = {}
    """Environment variables that it sets."""
    calls: tuple[Call, ...] = ()
    datasets: tuple[Dataset, ...] = ()
    """Of SimpleTuner: those with sizes of their own."""

    def get(self, key: str, default: str = "") -> str:
        """A setting as text, or `default` where it is not set."""
        setting = self.settings.get(key)
        return setting.text if setting is not None and setting.text else default

    def line(self, key: str) -> int:
        """The line of a setting; 1 where it is not set."""
        setting = self.settings.get(key) or self.variables.get(key)
        return setting.line if setting is not None else 1
