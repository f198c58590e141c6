"""Commands that take a program after `--`, beside arguments of their own.

click forgets where `--` stood; what follows it must never be taken for an argument.
"""

from __future__ import annotations

import typer
from typer.core import TyperCommand

_KEY = "attn_doctor.program"


class WithProgram(TyperCommand):
    """A command whose words after `--` are a program with its arguments."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Take them out before the rest is read."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_KEY] = args[at + 1 :]
            if not args[at + 1 :]:
                raise typer.BadParameter(
                    "after -- a program is expected, as in -- python warmup.py"
                )
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Show it in the usage line too."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND…]"]


def program_of(context: typer.Context) -> list[str]:
    """The words after `--`; none if there were none."""
    return list(context.meta.get(_KEY, []))
