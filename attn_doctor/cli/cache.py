"""`attn-doctor cache`: look at the caches of compiled kernels, and keep them honest."""

from __future__ import annotations

import typer

from attn_doctor.cli import (
    cache_clear,
    cache_env,
    cache_portable,
    cache_status,
    cache_verify,
    cache_why,
)
from attn_doctor.cli.split import WithProgram

__all__ = ["app"]

app = typer.Typer(
    help="Look at the caches of compiled kernels: what is in them, what is broken, clearing.",
    no_args_is_help=True,
)
app.command("status")(cache_status.status)
app.command("verify", cls=WithProgram)(cache_verify.verify)
app.command("clear")(cache_clear.clear)
app.command("env")(cache_env.env)
app.command("export")(cache_portable.export)
app.command("import")(cache_portable.import_)
app.command("why")(cache_why.why)


@app.callback()
def _cache() -> None:
    """Look at the caches of compiled kernels: what is in them, what is broken, clearing."""
