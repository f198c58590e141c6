"""The group of all commands: a word that other tools use is answered with the command of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_doctor.cli.help_page import Group

if TYPE_CHECKING:
    import typer

#: What users of other tools type → our command.
_ELSEWHERE = {
    **dict.fromkeys(
        ("collect-env", "collect_env", "diagnose", "doctor", "env", "info", "status", "test"),
        "check",
    ),
    **dict.fromkeys(("list", "ls"), "backends"),
    **dict.fromkeys(("repair", "heal"), "fix"),
    **dict.fromkeys(("undo", "rollback"), "fix undo"),
    **dict.fromkeys(("build", "compile", "precompile", "warmup"), "build-kernels"),
    **dict.fromkeys(("clean", "clear"), "cache clear"),
    **dict.fromkeys(("update", "upgrade"), "rules update"),
}


class Commands(Group):
    """Names the command that a mistyped or foreign word probably means."""

    def resolve_command(  # type: ignore[override]
        self, ctx: typer.Context, args: list[str]
    ) -> tuple[str | None, object, list[str]]:
        """Find the command; for a word of other tools, name ours."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:  # click's UsageError, which typer does not export
            meant = _ELSEWHERE.get(args[0] if args else "")
            if meant is not None:
                error.__dict__["message"] = (
                    f"No such command '{args[0]}'. Run `attn-doctor {meant}`."
                )
            raise
