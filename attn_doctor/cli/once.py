"""Commands that refuse an option with one value that is given twice.

click takes the last value and says nothing, so that part of what was asked for is not done. Of a
path on a disk that does not answer it says that there is none.
"""

from __future__ import annotations

import os
from collections import Counter

import typer
from typer.core import TyperCommand, TyperOption

from attn_doctor.cli.help_page import HelpPage
from attn_doctor.worker import reach


class Once(HelpPage, TyperCommand):
    """A command each of whose options is given once, unless it may be repeated."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse the words.

        Raises `typer.BadParameter` for an option that is given twice, and `NoAnswerError` for a
        refused path that leads to what does not answer.
        """
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter(order).items():
            if times > 1 and not _may_repeat(option):
                raise typer.BadParameter(
                    f"it is given {times} times; give one value, or a list with commas where its"
                    " help shows one",
                    ctx,
                    option,
                )
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter:
            for word in words:
                path = word.partition("=")[2] if word.startswith("-") else word
                if os.path.isabs(path):
                    reach.refuse(path)
            raise


def _may_repeat(parameter: object) -> bool:
    """Whether each further value counts, or a further one changes nothing."""
    if not isinstance(parameter, TyperOption):
        return True
    return parameter.multiple or parameter.count or parameter.is_flag
