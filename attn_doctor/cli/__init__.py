"""The command line: each command parses, calls, renders and returns an exit code.

Only what a command needs is imported, because `attn-doctor check` has to be quick.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

#: Options of `attn-doctor` itself. A command line that begins with another option, or is empty,
#: means `check`.
_OWN_OPTIONS = ("-h", "--help", "-V", "--version", "--install-completion", "--show-completion")
#: What people type for an option, as other tools have it.
_ALIASES = {"-V": "--version", "version": "--version", "help": "--help"}


def run() -> None:
    """Run the command line. Raises `SystemExit`."""
    words = sys.argv[1:]
    if any(word.partition("=")[0] == "--lang" for word in words):
        from attn_doctor.language import take_option

        words = take_option(words)
    columns = os.environ.get("COLUMNS")
    if columns is not None and not re.fullmatch("[1-9][0-9]{0,3}", columns):
        del os.environ["COLUMNS"]  # rich would fill lines of a hundred megabytes
    if not words or (words[0].startswith("-") and words[0] not in _OWN_OPTIONS):
        words = ["check", *words]
    if words[0].endswith("-completion") and len(words) > 1:
        # typer then takes the shell that is named, instead of the one that runs this.
        os.environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    words = with_folder(_without_aliases(words))
    if words == ["--version"]:
        from attn_doctor._version import __version__

        sys.stdout.write(f"attn-doctor {__version__}\n")
    elif words[0] != "check" or not _ran_plain(words):
        from attn_doctor.cli.application import app_for

        app_for(words)(args=words)


def _without_aliases(words: list[str]) -> list[str]:
    """Return the words with `help` and `version` as options: `help check` is `check --help`."""
    option = _ALIASES.get(words[0])
    if option == "--help":
        return [*words[1:], option]
    return [option] if option is not None and len(words) == 1 else words


def _ran_plain(words: Sequence[str]) -> bool:
    """Run a plain `check`; false if typer has to read the words. Raises `SystemExit`."""
    _import_packages()
    from attn_doctor import interpreter_child
    from attn_doctor.cli.plain import COMPLETION, arguments

    if COMPLETION in os.environ:
        return False
    interpreter_child.begin(words[1:], os.environ)
    try:
        from attn_doctor.cli.check.command import check

        values = arguments(check, words[1:])
        if values is None:
            return False
        check(**values)
    except Exception as error:
        if "typer" not in sys.modules:
            raise
        from attn_doctor.cli.application import app_for, is_mistake

        if not is_mistake(error):
            raise
        app_for(words, error)(args=words)
    finally:
        interpreter_child.end()
    return True


def _import_packages() -> None:
    """Import msgspec and `subprocess` without modules that a check does not need.

    msgspec takes typing_extensions where it is installed, and does without it elsewhere: 5 ms.
    """
    from attn_doctor.lean_imports import put_off

    name = "typing_extensions"
    hidden = name not in sys.modules
    if hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        with put_off():
            import msgspec  # noqa: F401

            from attn_doctor import processes  # noqa: F401
    finally:
        if hidden:
            del sys.modules[name]


def with_folder(words: Sequence[str]) -> list[str]:
    """The words with this folder behind a `--config` that no path follows."""
    found = []
    for word, following in zip(words, [*words[1:], "-"], strict=True):
        found.append(word)
        if word == "--config" and following.startswith("-"):
            found.append(".")
    return found
