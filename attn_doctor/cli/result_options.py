"""The options of most commands for the form of the result."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from msgspec import Struct

from attn_doctor.cli.common_options import Json
from attn_doctor.cli.option import Option


class Format(str, Enum):
    """Formats of the result."""

    text = "text"
    json = "json"


class PageFormat(str, Enum):
    """Formats of a result that also fits into an issue or a wiki."""

    text = "text"
    json = "json"
    markdown = "markdown"


class LogFormat(str, Enum):
    """Formats of an explanation."""

    text = "text"
    json = "json"
    markdown = "markdown"
    html = "html"


class MatrixFormat(str, Enum):
    """Formats of the matrix of backends."""

    text = "text"
    json = "json"
    markdown = "markdown"
    html = "html"
    svg = "svg"


class TableFormat(str, Enum):
    """Formats of a table."""

    text = "text"
    json = "json"
    html = "html"


class ResultOptions(Struct, frozen=True, kw_only=True):
    """Options for the form of a result."""

    format: Annotated[Format, Option(help="Format of the result.")] = Format.text
    json: Json = False

    @property
    def as_json(self) -> bool:
        """The result is JSON, whichever option says so."""
        return self.json or self.format is Format.json


class PageOptions(Struct, frozen=True, kw_only=True):
    """Options for the form of a result that can be Markdown."""

    format: Annotated[PageFormat, Option(help="Format of the result.")] = PageFormat.text
    json: Json = False

    @property
    def chosen(self) -> PageFormat:
        """The format, whichever option names it."""
        return PageFormat.json if self.json else self.format


class LogOptions(Struct, frozen=True, kw_only=True):
    """Options for the form of an explanation."""

    format: Annotated[LogFormat, Option(help="Format of the result.")] = LogFormat.text
    json: Json = False

    @property
    def chosen(self) -> LogFormat:
        """The format, whichever option names it."""
        return LogFormat.json if self.json else self.format


class MatrixOptions(Struct, frozen=True, kw_only=True):
    """Options for the form of the matrix of backends."""

    format: Annotated[MatrixFormat, Option(help="Format of the result.")] = MatrixFormat.text
    json: Json = False

    @property
    def chosen(self) -> MatrixFormat:
        """The format, whichever option names it."""
        return MatrixFormat.json if self.json else self.format


class TableOptions(Struct, frozen=True, kw_only=True):
    """Options for the form of a table."""

    format: Annotated[TableFormat, Option(help="Format of the result.")] = TableFormat.text
    json: Json = False

    @property
    def chosen(self) -> TableFormat:
        """The format, whichever option names it."""
        return TableFormat.json if self.json else self.format
