"""`attn-doctor cache`: look at the caches of compiled kernels, and keep them honest."""

from __future__ import annotations

import typer

from attn_doctor.cli.cache import clear, env, portable, status, verify, why
from attn_doctor.cli.split import WithProgram

__all__ = ["app"]

app = typer.Typer(
    help="Look at the caches of compiled kernels: what is in them, what is broken, clearing.",
    no_args_is_help=True,
)
app.command("status")(status.status)
app.command("verify", cls=WithProgram)(verify.verify)
app.command("clear")(clear.clear)
app.command("env")(env.env)
app.command("export")(portable.export)
app.command("import")(portable.import_)
app.command("why")(why.why)


@app.callback()
def _cache() -> None:
    """Look at the caches of compiled kernels: what is in them, what is broken, clearing."""
