"""Outputs of a check: `--format NAME[:FILE]`, which may be repeated, and GitHub's job summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from attn_doctor.errors import AttnDoctorError
from attn_doctor.render import edge

#: The formats of a diagnosis; the first is the default.
FORMATS = ("text", "json", "agent", "markdown", "html", "github", "sarif", "junit", "gitlab")
#: Bytes that GitHub takes of one step's summary.
SUMMARY_LIMIT = 1 << 20


class Output(Struct, frozen=True):
    """One format, and the file that it goes to; "" is standard output."""

    name: str
    path: str = ""


def outputs(given: Sequence[str], known: Sequence[str], path: str = "") -> tuple[Output, ...]:
    """The outputs that `--format` names; the first of `known` if it names none.

    `path`, of `--output`, is the file of the one that names none. Raises `typer.BadParameter` for
    an unknown format, and if two would go to the same place, where a reader could not part them.
    """
    asked = [_output(word, known) for word in given] or [Output(known[0])]
    asked = [one if one.path else Output(one.name, path) for one in asked]
    same = [one.name for one in asked if one.path == path]
    if len(same) > 1:
        import typer

        raise typer.BadParameter(
            f"{' and '.join(same)} would both go to {path or 'standard output'}: give all but one"
            f" a file, such as --format {same[1]}:FILE",
            param_hint="--format",
        )
    return tuple(asked)


def _output(text: str, known: Sequence[str]) -> Output:
    name, colon, path = text.partition(":")
    if name in known and (path or not colon):
        return Output(name, path)
    import typer

    if name not in known:
        from attn_doctor.suggest import did_you_mean

        hint = did_you_mean(name, known, f"choose from {', '.join(known)}", 1)
        raise typer.BadParameter(f"no format {name!r}; {hint}", param_hint="--format")
    raise typer.BadParameter(f"{text!r} names no file: write {name}:FILE", param_hint="--format")


def deliver(asked: Sequence[Output], render: Callable[[Output], str]) -> None:
    """Render each output and write it. Files come first, so that a pipe that closes loses none.

    Raises `AttnDoctorError` if a file cannot be written.
    """
    for one in sorted(asked, key=lambda each: not each.path):
        text, commands = render(one), one.name == "github"
        if one.path:
            from attn_doctor.cli.output_file import write

            write(one.path, text, commands=commands)
        else:
            edge.show(text, commands=commands)


def append_summary(markdown: str, environ: Mapping[str, str]) -> None:
    """Append `markdown` to the job summary; do nothing outside GitHub Actions.

    Raises `AttnDoctorError` if the file that GitHub names cannot be written.
    """
    path = environ.get("GITHUB_STEP_SUMMARY", "")
    if not path:
        return
    from attn_doctor.cli.output_file import append, encoded

    data = encoded(markdown)
    if len(data) > SUMMARY_LIMIT:
        data = (
            data[: SUMMARY_LIMIT - 100].rsplit(b"\n", 1)[0]
            + b"\n\n(cut here: GitHub takes 1 MiB)\n"
        )
    try:
        append(path, data)
    except OSError as error:
        raise AttnDoctorError(
            f"GITHUB_STEP_SUMMARY={path}: cannot be written: {error.strerror}"
        ) from None
