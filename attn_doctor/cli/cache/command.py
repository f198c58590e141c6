"""`attn-doctor cache`: examine, verify, clear and copy the caches of compiled kernels."""

from __future__ import annotations

import typer

from attn_doctor.cli.cache import (
    bundle,
    clear,
    env,
    status,
    trash,
    verify,
    why,
)
from attn_doctor.cli.help_page import Group
from attn_doctor.cli.program_arguments import WithProgram

app = typer.Typer(
    cls=Group,
    help="Examine, verify, clear and copy the caches of compiled kernels.",
    no_args_is_help=True,
)
app.command("status")(status.status)
app.command("verify", cls=WithProgram)(verify.verify)
app.command("clear")(clear.clear)
app.command("restore")(trash.restore)
app.command("empty-trash")(trash.empty_trash)
app.command("env")(env.env)
app.command("export")(bundle.export)
app.command("import")(bundle.import_)
app.command("why")(why.why)


@app.callback()
def _cache() -> None:
    """Examine, verify, clear and copy the caches of compiled kernels."""
