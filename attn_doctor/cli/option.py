"""Declarations of options that do not need typer, whose import takes a third of a check."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin


class Option:
    """An option of a command; its arguments are those of `typer.Option`.

    But `autocompletion` is the name of a function of `completion`.
    """

    def __init__(self, *names: str, **settings: Any) -> None:
        self.names = names
        self.settings = settings


def for_typer(hint: Any) -> Any:
    """The type of a parameter, its `Option` replaced by typer's."""
    if get_origin(hint) is not Annotated:
        return hint
    import typer

    kind, option = get_args(hint)
    if isinstance(option, Option):
        settings = dict(option.settings)
        if named := settings.get("autocompletion"):
            from attn_doctor.cli import completion

            settings["autocompletion"] = getattr(completion, named)
        return Annotated[kind, typer.Option(*option.names, **settings)]
    return hint
