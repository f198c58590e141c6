"""The common form of all configurations: settings and calls, each with its line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError

Kind = Literal["simpletuner", "finetrainers", "script", "variables", "format"]
Form = Literal[
    "json",
    "toml",
    "env",
    "shell",
    "python",
    "yaml",
    "unit",
    "batch",
    "docker",
    "notebook",
    "workflow",
    "make",
]
#: A value as a configuration holds it; lists are those of options that take several.
Value = str | int | float | bool | tuple[str, ...] | None


class ConfigError(AttnDoctorError):
    """A configuration that cannot be read."""


class Setting(Struct, frozen=True):
    """One value with its line."""

    key: str
    value: Value
    line: int = 1
    written: str = ""
    """The key as the user wrote it, if that differs."""

    @property
    def name(self) -> str:
        """The key as the user wrote it."""
        return self.written or self.key

    @property
    def text(self) -> str:
        """The value as text, booleans in small letters."""
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, tuple):
            return " ".join(self.value)
        return "" if self.value is None else str(self.value).strip()


class Branch(Struct, frozen=True):
    """A condition under which a line of a script is reached."""

    kind: Literal["call", "option", "default", "try", "import", "called", "any", "all", "other"]
    """`call` of a function; `option` of the command line that is given; `default`: one that is not
    given; `try`: the lines before it raise nothing; `import`: the packages of `text` are there;
    `called`: a function that nothing in the script calls; `any` or `all` of `parts`."""
    text: str
    """As written."""
    line: int
    name: str = ""
    """The function, or the option."""
    negated: bool = False
    parts: tuple[Branch, ...] = ()

    def opposite(self) -> Branch:
        """The other branch."""
        if self.kind in ("any", "all"):
            parts = tuple(one.opposite() for one in self.parts)
            return replace(self, kind="any" if self.kind == "all" else "all", parts=parts)
        return replace(self, negated=not self.negated)


def plain(when: tuple[Branch, ...]) -> tuple[Branch, ...] | None:
    """The same conditions without what the others say already; `None` if they contradict."""
    each = ((one,) if one.kind != "all" else one.parts for one in when)
    when = tuple(dict.fromkeys(part for parts in each for part in parts))
    rest = list[Branch]()
    for one in when:
        if one.opposite() in when:
            return None
        if one.kind == "any":
            if any(part in when for part in one.parts):
                continue
            parts = tuple(part for part in one.parts if part.opposite() not in when)
            if not parts:
                return None
            one = parts[0] if len(parts) == 1 else replace(one, parts=parts)
        rest.append(one)
    return tuple(dict.fromkeys(rest))


class Call(Struct, frozen=True):
    """A call or a name in a Python script that concerns attention."""

    what: str
    """`set_attention_backend`, `attention_backend`, `attn_implementation`, `compile`, …"""
    value: str = ""
    """Its text argument; empty if only running the script would give it."""
    on: str = ""
    """The object of the call, as written."""
    line: int = 1
    when: tuple[Branch, ...] = ()
    """The branches that lead to it."""
    detail: str = ""
    """The dtype of an object that is loaded: empty if it is not given, `unknown` if it is not
    written in the script. Of a choice: `option` if one of the command line decides, `none` if that
    has no default, `unsloth` if Unsloth decides."""

    def under(self, branches: tuple[Branch, ...]) -> Call:
        """The same within further branches."""
        return replace(self, when=(*branches, *self.when))


class Dataset(Struct, frozen=True, kw_only=True):
    """The training size of a dataset."""

    resolution: str
    resolution_type: str
    frames: int = 0
    """0 for images, and if it is not given."""


class Reading(Struct, frozen=True, kw_only=True):
    """One configuration."""

    kind: Kind
    """Who reads it; `variables` sets environment variables only."""
    file: str
    """For readers: relative to the working directory if it is below it."""
    format: str = ""
    """The file of `rules/tables/formats/`, for the kind `format`."""
    files: tuple[str, ...] = ()
    """Files with settings that a command line names."""
    abridged: bool = False
    """The command leaves something out, as examples do: `(... other options ...)`."""
    unset: str = ""
    """A variable in the command that holds further options and is not set in the file."""
    when: str = ""
    """The condition of a script under which its command is reached; empty if it always is."""
    branches: str = ""
    """A variable with the options of a command, and the lines on which branches set it."""
    branched: Mapping[str, str] = {}
    """Variables that branches change, each with its lines as `branches` has them."""
    program: Setting | None = None
    """The word or setting that says which program it is for."""
    started: bool = False
    """It is a command that starts the program, not a file of its settings."""
    loose: bool = False
    """The program is known by names that others have too."""
    own: str = ""
    """Why another program may read it: several sections, of which a program takes one."""
    script: str = ""
    """A script of the command that the user may have written, whose code decides."""
    functions: tuple[str, ...] = ()
    """The functions of a start script."""
    image: str = ""
    """Variables that a Dockerfile or compose file beside it sets, with that file; else empty."""
    why: str = ""
    """Why this file was read, if the user did not name it."""
    form: Form
    """The format of the file."""
    settings: Mapping[str, Setting] = {}
    variables: Mapping[str, Setting] = {}
    """Environment variables that it sets."""
    calls: tuple[Call, ...] = ()
    unread: tuple[tuple[int, int, str], ...] = ()
    """First and last line of the parts of a script that cannot be parsed, each with the reason."""
    cells: Mapping[int, str] = {}
    """Where a line of a notebook is for its reader: `cell 3, line 2`."""
    datasets: tuple[Dataset, ...] = ()
    """Datasets of SimpleTuner with their own sizes."""

    def get(self, key: str, default: str = "") -> str:
        """A setting as text, or `default` where it is not set."""
        setting = self.settings.get(key)
        return setting.text if setting is not None and setting.text else default

    def line(self, key: str) -> int:
        """The line of a setting; 1 where it is not set."""
        setting = self.settings.get(key) or self.variables.get(key)
        return setting.line if setting is not None else 1

    def place(self, line: int) -> str:
        """A line for readers: `line 12`, or `cell 3, line 2` of a notebook."""
        return self.cells.get(line, f"line {line}")
