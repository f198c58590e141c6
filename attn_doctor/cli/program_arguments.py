"""Commands that take a program after `--`, beside their own arguments.

click forgets the position of `--`; the words after it must never be read as arguments.
"""

from __future__ import annotations

import typer

from attn_doctor.cli.once import Once

_KEY = "attn_doctor.program"


class WithProgram(Once):
    """A command that treats the words after `--` as a program with its arguments."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Remove these words before the rest is parsed."""
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
    """The words after `--`; an empty list if there are none."""
    return list(context.meta.get(_KEY, []))
