"""Loads the catalogue of backends, and finds the backend that a user's name means.

The catalogue is the prebuilt index in a wheel, or the files of `rules/tables/backends/` in a
checkout.
"""

from __future__ import annotations

import os
from functools import cache

import msgspec

from attn_doctor.backends.catalogue_entries import Catalogue, Name
from attn_doctor.errors import AttnDoctorError
from attn_doctor.files import DATA, read_bytes
from attn_doctor.rulebook.library import folder

#: The prebuilt catalogue's file name in the wheel's `_rules`.
INDEX = "backends.json"


@cache
def load() -> Catalogue:
    """The catalogue of backends. The index has no examples."""
    path = os.path.join(folder(), INDEX)
    try:
        return msgspec.json.decode(read_bytes(path, DATA), type=Catalogue)
    except FileNotFoundError:
        # Only without an index: reading TOML files and checking each fact takes time.
        from attn_doctor.backends.catalogue_files import read

        return read(folder())


def find_name(name: str, framework: str, catalogue: Catalogue) -> Name:
    """The framework's name that `name` is, or that another framework's name leads to.

    Raises `AttnDoctorError` with the nearest names if there is none.
    """
    own = {entry.name: entry for entry in catalogue.names_of(framework)}
    if name in own:
        return own[name]
    plain = {_plain(known): entry for known, entry in own.items()}
    if _plain(name) in plain:
        return plain[_plain(name)]
    title = catalogue.framework(framework).title
    for other in catalogue.names:
        if other.name != name:
            continue
        for entry in own.values():
            if entry.backend == other.backend:
                return entry
        home = catalogue.framework(other.framework).title
        raise AttnDoctorError(
            f"{name} is a name of {home}, and {title} has no name for that backend; add"
            f" --framework {other.framework}"
        )
    from attn_doctor.suggest import did_you_mean

    hint = did_you_mean(name, own, f"it has {', '.join(own)}")
    raise AttnDoctorError(f"{title} has no backend {name!r}; {hint}")


def _plain(name: str) -> str:
    return name.lower().strip("_").replace("-", "_")
