"""Groups of options: a command takes a struct, and each of its fields is an option.

Commands that share options share the struct, so that an option has one name and one help text.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import msgspec

from attn_doctor.cli.common_options import OnlyLog
from attn_doctor.cli.option import for_typer

Command = TypeVar("Command", bound=Callable[..., None])


def grouped(command: Command) -> Command:
    """Return the command with the options that typer has to see: for a struct, its fields.

    A field is written as an option: `Annotated[type, typer.Option(…)] = default`. A command
    without `--verbose` gets one that only logs.
    """
    groups: dict[str, type[msgspec.Struct]] = {}
    parameters: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        hint = for_typer(hints[name])
        if not (isinstance(hint, type) and issubclass(hint, msgspec.Struct)):
            parameters.append(parameter.replace(annotation=hint))
            continue
        groups[name] = hint
        fields = get_type_hints(hint, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=for_typer(fields[field.name]),
            )
            for field in msgspec.structs.fields(hint)
        ]
    has_verbose = any(one.name == "verbose" for one in parameters)
    if not has_verbose:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter("verbose", kind, default=0, annotation=for_typer(OnlyLog))
        )

    @functools.wraps(command)
    def run(**values: Any) -> None:
        if not has_verbose:
            del values["verbose"]
        for name, group in groups.items():
            fields = group.__struct_fields__
            values[name] = group(**{field: values.pop(field) for field in fields})
        command(**values)

    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    )
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run  # type: ignore[return-value]
