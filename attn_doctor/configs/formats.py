"""The formats of many programs, each a file in `rules/tables/formats/`: who is asked for what.

A file says how to recognise the program, which of its settings name a backend, what each value
leads to, and what the program does where the backend cannot run. All was read from the program's
source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec
from msgspec import Struct

from attn_doctor.configs.prediction import PhaseName
from attn_doctor.configs.readers.commands import ARGUMENTS, Command
from attn_doctor.configs.readers.settings import Setting
from attn_doctor.rulebook import library

#: Programs that name others without starting them, and commands that start nothing.
_FETCH = (
    "git", "cd", "pip", "pip3", "wget", "curl", "aria2c", "cp", "mv", "rm", "mkdir", "ln", "ls",
    "cat", "echo", "printf", "chmod", "chown", "tar", "unzip", "apt", "apt-get", "pushd", "source",
    "exist", "not", "[", "[[", "test",
    "kubectl", "helm", "rsync", "sed", "grep", "pkill", "pgrep", "kill", "killall", "ps",
)  # fmt: skip
#: Words of a shell before a command.
_BEFORE = ("if", "then", "else", "elif", "do", "while", "until", "!", "sudo")
_STARTERS = ("docker", "podman", "conda", "mamba", "uv")
_NOT_STARTED = (
    "pull", "push", "tag", "build", "buildx", "rmi", "image", "images", "save", "load", "rm",
    "stop", "logs", "ps", "install", "create", "activate", "env", "remove", "pip", "venv",
)  # fmt: skip
#: Words before the name of a program, and words behind it.
_LEADS = ("exec", "nohup", "run", "uvx", "sudo", "time", "env", "-m", "--", "call", "start", "&")
_TASKS = (
    "serve", "vllm-serve", "train", "sft", "pt", "rlhf", "rollout", "infer", "deploy", "dpo",
    "grpo", "kto", "reward", "rloo", "chat", "export", "api", "webchat", "webui", "preprocess",
    "inference", "launch", "run-batch",
)  # fmt: skip
#: Names of settings that speak of attention, without those of its shape, weights and masks.
_SPEAKS = re.compile(
    r"(?i)(?:^|_)(?:attn|attention|sdpa|sdp|flash|flash_?attn|flash_?attention|xformers|sage|sage_?attn"
    r"|sage_?attention|flashinfer)\d?(?:_|$)"
)
_ASIDE = re.compile(
    r"(?i)mask|head|dropout|slic|window|lr|rank|dim|alpha|modul|layer|block|target|preset|scale|bias"
    r"|check|resol|logit|sink|kwarg|weight|upcast|precision|dtype|ckpt|train|chunk|loss|lora|freeze"
)
#: Values of a setting that is not used.
OFF = ("", "false", "no", "off", "0", "none", "null", "~")
#: Options with which a program shows its help or version, and ends.
_ASKED = ("--help", "--version")
#: Programs that only their folder names.
_GENERIC = ("main.py", "./main.py", "launch.py", "src/train.py", "src/train_bash.py")
_BLANK = re.compile(r"\s")
#: `$COMFY`, `%~dp0`, `~`: a folder that is not known.
_OPEN = re.compile(r"[$%~{]")
#: `me/comfyui:1`, the image of a container, but not `C:/ComfyUI/main.py`.
_TAGGED = re.compile(r":(?!/)")
#: Words of a command among which its program is looked for.
_FIRST = 40


class Target(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a value leads to."""

    backend: str = ""
    """The canonical name; empty if there is none."""
    shown: str = ""
    stops: str = ""
    """Why the program stops."""
    fallback: str = ""
    """What it does if the backend cannot run; empty if it stops."""
    undecided: str = ""
    """Why the backend is not known before the run."""
    when: str = ""
    """The condition under which it is that."""
    package: str = ""
    """`other` runs in its place if this package is installed."""
    unless: str = ""
    """A setting that keeps the program from that."""
    other: Target | None = None
    """What runs in its place: with the package, or under another condition."""


class Choice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting that chooses a backend."""

    key: str
    values: dict[str, Target] = {}
    """By value, in small letters; `true` for a flag."""
    names: str = ""
    """The framework whose names it takes beside them: `transformers` or `diffusers`."""
    others: str = ""
    """Why the program stops with any other value; empty if that is not known."""
    phases: tuple[PhaseName, ...] = ()
    """The phases that it is for; empty for all."""
    variable: bool = False
    """It is an environment variable."""
    when: str = ""
    """The condition under which the program reads it; empty if it always does."""
    other: Target | None = None
    """What runs where the program does not read it."""
    part: str = ""
    """The part of the work that it is for: another setting is for the rest."""
    apart: bool = False
    """It may be given beside the others of an exclusive program."""
    same: str = ""
    """Another setting, whose values it has too."""
    own: bool = False
    """It counts only with one of `values`, for which the program has its own code and no masks."""
    pattern: str = ""
    """It counts only with a value in which this is found, such as a model's name."""
    beside: str = ""
    """Another setting that decides with it: a value may be both, `lumina_2 float32`."""

    def counts(self, text: str) -> bool:
        """A value is one that the choice is for."""
        return not self.pattern or re.search(self.pattern, text, re.IGNORECASE) is not None


class Format(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One program's configurations."""

    title: str
    release: str
    """The release whose source was read."""
    schema: int
    checked: object
    source: str
    order: int = 50
    """Programs with a lower number are looked for first."""
    phases: tuple[PhaseName, ...] = ("training",)
    settings: tuple[str, ...] = ()
    """Files of `rules/tables/settings/` with all settings that it knows."""
    unrelated: tuple[str, ...] = ()
    """Settings whose names speak of attention, and that do not choose its backend."""
    trains: str = ""
    """A setting that a file for training has; another file is for inference."""
    programs: tuple[str, ...] = ()
    """Patterns of the words that start it: a path, or the last part of one."""
    clients: tuple[str, ...] = ()
    """Patterns of words of commands that only ask a server that runs."""
    maybe: tuple[str, ...] = ()
    """Patterns of words that start it if one of `flags` is given too."""
    flags: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    """Those of `flags` that count only where the program is named without a folder."""
    alike: tuple[str, ...] = ()
    """Patterns of words of scripts that users write themselves, under the program's names."""
    reads: dict[str, str] = {}
    """Patterns of words that start it, and the file with further options that each reads."""
    config: tuple[str, ...] = ()
    """Options of its command that name a file with further options."""
    supplied: tuple[str, ...] = ()
    """Patterns of names that `config` takes for files which the program brings with it."""
    overrides: bool = False
    """Words of its command lines are settings: `flash_attn=fa2`."""
    files: bool = False
    """Its command lines name a file with its settings."""
    keys: tuple[str, ...] = ()
    """Settings of which one has to be there, in a file of settings."""
    beside: tuple[str, ...] = ()
    """Settings of which one has to be there too."""
    without: tuple[str, ...] = ()
    """Settings of other programs' files."""
    shared: bool = False
    """Scripts of the user have files with the same settings."""
    flat: bool = False
    """Its files have no levels: a setting below another key is not its own."""
    nested: bool = False
    """The settings of its files are named by their whole paths: `rollout.name`."""
    tasks: dict[str, tuple[str, ...]] = {}
    """Patterns of words that start it, and the words of which one has to follow each."""
    strict: bool = False
    """One of the words of `tasks` has to be written: other programs have its name."""
    variables: tuple[str, ...] = ()
    """Environment variables that identify it by themselves."""
    exclusive: bool = False
    """It stops if several of its flags are given."""
    serves_both: bool = False
    """Its settings are those of a model, for training as for inference."""
    each: bool = False
    """Every setting counts, for the models that it is for."""
    via: str = ""
    """`diffusers`: the names go to Diffusers' dispatcher, with masks that depend on the model."""
    classes: tuple[str, ...] = ()
    """Settings with the model's class in Transformers, by which sdpa or eager runs by itself."""
    masks: str = ""
    """The framework of the catalogue that says what its own code does to a mask."""
    choice: tuple[Choice, ...] = ()
    default: Target = Target(backend="native")
    defaults: dict[PhaseName, Target] = {}
    """What runs in a phase in place of `default`."""

    def starts(self, words: Sequence[str], options: Sequence[str]) -> bool:
        """A command of these words, paths and their last parts, starts this program."""
        if any(re.fullmatch(one, word) for one in self.clients for word in words):
            return False
        every = (*self.programs, *self.alike)
        if any(re.fullmatch(one, word) for one in every for word in words):
            return True
        return self._surely(words, options)

    def _surely(self, words: Sequence[str], options: Sequence[str]) -> bool:
        """One of `flags` is given, with a name of `maybe`."""
        named = [word for word in words if any(re.fullmatch(one, word) for one in self.maybe)]
        given = [one for one in self.flags if one in options]
        if not named or not given:
            return False
        folders = [word.rpartition("/")[0] for word in words if word.endswith(f"/{named[0]}")]
        elsewhere = any(one.strip("./") and not _OPEN.search(one) for one in folders)
        return not elsewhere or any(one not in self.weak for one in given)

    def works(self, words: Sequence[str]) -> bool:
        """What follows a word that starts it is a task, or is not written (`$TASK`)."""
        found = []
        for raw, after in zip(words, [*words[1:], ""], strict=False) if self.tasks else ():
            word = raw.rpartition("/")[2]
            tasks = next((one for key, one in self.tasks.items() if re.fullmatch(key, word)), None)
            open_ = not self.strict and after[:1] in ("$", "%", "{")
            if tasks is not None:
                found.append(after in tasks or open_)
        return any(found) or not found

    def may_be_own(self, command: Command) -> str:
        """The script of a command that the user may have written; empty if the program is known."""
        words = named_in(command)
        if any(re.fullmatch(one, word) for one in self.programs for word in words):
            return ""
        if self._surely(words, [*command.options()]):
            return "" if not self.names_of_others else self._named(words)
        return self._named(words)

    def _named(self, words: Sequence[str]) -> str:
        """The script that a command starts."""
        found = (word for one in self.alike for word in words if re.fullmatch(one, word))
        alike = next(found, "")
        if alike or not self.names_of_others:
            return alike
        return next((word for word in words if word.endswith(".py")), words[0] if words else "")

    def foreign(self, settings: Mapping[str, Setting]) -> Setting | None:
        """A setting that speaks of attention and is none of this program's."""
        known = {*self.unrelated, *self.flags, *(one.key for one in self.choice)}
        for key, one in settings.items():
            speaks = _SPEAKS.search(key) and not _ASIDE.search(key)
            if speaks and key not in known and one.text.lower() not in OFF:
                return one
        return None

    @property
    def known(self) -> frozenset[str]:
        """All settings that it knows; empty if they are not listed."""
        own = (
            "config",
            "config_file",
            *self.unrelated,
            *self.flags,
            *self.keys,
            *(one.key for one in self.choice),
        )
        return _settings_of(self.settings) | {*own} if self.settings else frozenset()

    @property
    def names_of_others(self) -> bool:
        """Its options are known by their names alone, in commands of any program."""
        return ".*" in self.maybe

    def is_certain(self, command: Command) -> bool:
        """A word of a command names the program, and nothing else."""
        # COMMANDLINE_ARGS is a variable that other programs' launchers have too.
        words = [word for word in named_in(command) if word not in ARGUMENTS]
        named = any(re.fullmatch(one, word) for one in self.programs for word in words)
        return named or any(one in command.variables for one in self.variables)

    def begins(self, command: Command) -> int:
        """The place of the program among the words of a command; 0 if it is not known."""
        maybe = () if self.names_of_others else self.maybe
        every = (*self.programs, *self.alike, *maybe)
        for at, (word, _) in enumerate(command.words[:_FIRST]):
            path = word.replace("\\", "/")
            several = (path, path.rpartition("/")[2])
            if any(re.fullmatch(one, each) for one in every for each in several):
                return at
        return 0

    def evidence(self, settings: Mapping[str, Setting]) -> Setting | None:
        """The setting of a file that says that it is this program's."""
        return next((settings[one] for one in (*self.keys, *self.beside) if one in settings), None)

    def doubt(self, settings: Mapping[str, Setting]) -> tuple[int, list[Setting]]:
        """How many of the settings it knows, and those that it does not know."""
        own = [one for key, one in settings.items() if "." not in key]
        foreign = [one for one in own if one.key not in self.known]
        return len(own) - len(foreign), foreign

    def has(self, settings: Mapping[str, Setting]) -> bool:
        """The settings of a file are those of this program."""
        return (
            any(one in settings for one in self.keys)
            and (not self.beside or any(one in settings for one in self.beside))
            and not any(one in settings for one in self.without)
        )


@cache
def formats() -> Mapping[str, Format]:
    """All formats by name, those that are looked for first at the beginning."""
    table = library.tables()["formats"]
    found = {name: msgspec.convert(one, Format) for name, one in table.items()}
    return dict(sorted(found.items(), key=lambda one: (one[1].order, one[0])))


@cache
def _settings_of(names: tuple[str, ...]) -> frozenset[str]:
    tables = library.tables()["settings"]
    return frozenset(one for name in names for one in tables[name]["names"])


@cache
def _programs() -> re.Pattern[str]:
    """The patterns of all programs as one: most words of a script are none of them."""
    every = [f"(?:{each})" for one in formats().values() for each in (*one.programs, *one.alike)]
    return re.compile("|".join(every))


def of_command(command: Command) -> str:
    """The format of a command, by its program or by variables; empty if it is not known."""
    paths = [word.replace("\\", "/") for word, _ in command.words[:_FIRST]]
    if _fetches(paths) or any(word in _ASKED for word in paths):
        return ""
    words = named_in(command)
    options = [*command.options()] if any(word.startswith("--") for word in paths) else []
    if options or any(_programs().fullmatch(word) for word in words):
        for name, one in formats().items():
            if one.starts(words, options) and one.works(paths):
                return name
    for name, one in formats().items():
        if any(variable in command.variables for variable in one.variables):
            return name
    return ""


def named_in(command: Command) -> list[str]:
    """The first words of a command that may start a program, and the last parts of paths.

    A bare name inside a command counts where a starter is before it or a task behind it:
    `--backend vllm` starts nothing.
    """
    first = [word.replace("\\", "/") for word, _ in command.words[:_FIRST]]
    paths = [
        word
        for at, (word, after) in enumerate(zip(first, [*first[1:], ""], strict=False))
        # /opt/venv/bin/vllm starts a program as vllm does; `find /var/log/vllm` does not.
        if not word.rpartition("/")[2].isidentifier()
        or not at
        or first[at - 1] in _LEADS
        or after in _TASKS
        if not _BLANK.search(word) and (at or command.contained or not _TAGGED.search(word))
    ]
    inside = [f"{command.folder}/{one}" for one in paths if command.folder and one in _GENERIC]
    return [*paths, *inside, *(one.rpartition("/")[2] for one in paths if "/" in one)]


def _fetches(words: Sequence[str]) -> bool:
    """The command gets, builds or moves something, and starts no program of the table."""
    # stop() { pkill -f sglang.launch_server
    start = next((at + 1 for at, word in enumerate(words[:3]) if word.endswith("{")), 0)
    while start < len(words) and words[start] in _BEFORE:
        start += 1
    words = words[start:]
    first = words[0].rpartition("/")[2].lower().removesuffix(".exe") if words else ""
    if first in _STARTERS:
        return len(words) > 1 and words[1] in _NOT_STARTED
    return first in _FETCH


def titles() -> Iterator[str]:
    """The names of all programs, for a message."""
    yield from dict.fromkeys(one.title for one in formats().values())
