"""`--allow-foreign`: the one option that accepts what other users own or can write."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

_NAME = "allow_foreign"
AllowForeign = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-foreign",
        metavar="PATH",
        help="Use what is at PATH although other users own it or can write to it: they can then run"
        " code as you. May be repeated.",
        show_default=False,
    ),
]


def accepting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return the command with the option `--allow-foreign`, which is applied before it runs."""

    @functools.wraps(command)
    def run(**values: Any) -> Any:
        if accepted := values.pop(_NAME):
            from attn_doctor.ownership import allow

            for path in accepted:
                allow(path)
        return command(**values)

    parameters = inspect.signature(command, eval_str=True).parameters.values()
    if any(one.name == _NAME for one in parameters):
        return command
    option = inspect.Parameter(
        _NAME, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=AllowForeign
    )
    kept = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    run.__signature__ = inspect.Signature([*kept, option])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (*kept, option)}
    return run
