"""A folder that a `.pth` file or `sitecustomize.py` adds to the import path."""

from __future__ import annotations

from msgspec import Struct

#: Where on the path an added folder goes if it goes to the end.
END = 1 << 30


class Added(Struct, frozen=True, kw_only=True):
    """A folder that a `.pth` file or `sitecustomize.py` adds to the import path."""

    folder: str
    at: int = END
    """Its index on `sys.path`, negative ones from the end."""
    code: bool = False
    """A line of code adds it."""
    is_site: bool = False
    """The `.pth` files in it are read too."""
