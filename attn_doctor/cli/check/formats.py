"""The option `--format NAME[:FILE]`, which may be repeated: several readers, one examination."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import typer
from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import write_atomic
from attn_doctor.suggest import did_you_mean


class Output(Struct, frozen=True):
    """One format, and the file that it goes to; "" is standard output."""

    name: str
    path: str = ""


def outputs(given: Sequence[str], known: Sequence[str]) -> tuple[Output, ...]:
    """What `--format` asks for; the first of `known` if nothing does.

    Raises `typer.BadParameter` for a format that does not exist, and if two would go to standard
    output, where a reader could not part them.
    """
    asked = [_output(one, known) for one in given] or [Output(known[0])]
    on_screen = [one.name for one in asked if not one.path]
    if len(on_screen) > 1:
        raise typer.BadParameter(
            f"{' and '.join(on_screen)} would both go to standard output: give all but one a file,"
            f" such as --format {on_screen[1]}:FILE",
            param_hint="--format",
        )
    return tuple(asked)


def _output(text: str, known: Sequence[str]) -> Output:
    name, colon, path = text.partition(":")
    if name not in known:
        hint = did_you_mean(name, known, f"choose from {', '.join(known)}", 1)
        raise typer.BadParameter(f"no format {name!r}; {hint}", param_hint="--format")
    if colon and not path:
        raise typer.BadParameter(
            f"{text!r} names no file: write {name}:FILE", param_hint="--format"
        )
    return Output(name, path)


def deliver(asked: Sequence[Output], render: Callable[[Output], str]) -> None:
    """Render each output and write it. Files come first, so that a pipe that closes loses none.

    Raises `AttnDoctorError` if a file cannot be written.
    """
    for one in sorted(asked, key=lambda each: not each.path):
        text = render(one)
        if one.path:
            _write(Path(one.path), text)
        else:
            sys.stdout.write(text)


def _write(path: Path, text: str) -> None:
    """Write by one rename, so that nobody reads half a file; in place where that fails.

    Kubernetes mounts /dev/termination-log as a file that cannot be replaced, and a device or a
    pipe is no file at all.
    """
    path = path.resolve()  # a link stays a link
    try:
        if path.is_file() or not path.exists():
            with suppress(OSError):
                write_atomic(path, text.encode(), durable=False)
                return
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise AttnDoctorError(f"{path}: cannot be written: {error.strerror}") from None
