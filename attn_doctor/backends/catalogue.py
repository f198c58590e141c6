"""Where the catalogue comes from: the index in the wheel, or the files in a checkout."""

from __future__ import annotations

import os
from functools import cache

import msgspec

from attn_doctor.backends.catalogue_entries import Catalogue
from attn_doctor.rulebook.paths import PACKAGE, folder

#: The prebuilt catalogue's file name in the wheel's `_rules`.
INDEX = "backends.json"


@cache
def load() -> Catalogue:
    """The catalogue of backends; from the index its examples are left out."""
    path = os.path.join(PACKAGE, "_rules", INDEX)
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=Catalogue)
    except FileNotFoundError:
        # Only without an index: reading TOML files and checking each fact takes time.
        from attn_doctor.backends.catalogue_files import read

        return read(folder())
