"""The command line: one module a command, each thin: parse, call, render, exit code.

Only the command that was asked for imports what it needs; `attn-doctor check` has to be quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from attn_doctor.cli import backends, build_kernels, cache, check, explain, fix, report, rules

__all__ = ["app"]

app = typer.Typer(
    name="attn-doctor",
    help="Which attention kernels work on this machine, why the others do not, and the fix.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("check")(check.check)
app.command("backends")(backends.backends)
app.command("explain")(explain.explain)
app.command("fix")(fix.fix)
app.command("report")(report.report)
app.command("build-kernels", epilog=build_kernels.EPILOG)(build_kernels.build_kernels)
app.add_typer(cache.app, name="cache")
app.add_typer(rules.app, name="rules")


def _version(wanted: bool) -> None:
    if wanted:
        from attn_doctor import __version__

        typer.echo(f"attn-doctor {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Which attention kernels work on this machine, why the others do not, and the fix."""
