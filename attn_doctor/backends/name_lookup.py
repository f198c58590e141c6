"""Finding the name that a user means, in whichever framework it is at home."""

from __future__ import annotations

from attn_doctor.backends.catalogue_entries import Catalogue, Name
from attn_doctor.errors import AttnDoctorError
from attn_doctor.suggest import did_you_mean


def meant(name: str, framework: str, table: Catalogue) -> Name:
    """The framework's name that `name` is, or that another framework's name leads to.

    Raises `AttnDoctorError` with the nearest names if there is none.
    """
    own = {one.name: one for one in table.names_of(framework)}
    if name in own:
        return own[name]
    plain = {_plain(one): entry for one, entry in own.items()}
    if _plain(name) in plain:
        return plain[_plain(name)]
    title = table.framework(framework).title
    for other in table.names:
        if other.name != name:
            continue
        fitting = [one for one in own.values() if one.backend == other.backend]
        if fitting:
            return fitting[0]
        home = table.framework(other.framework).title
        raise AttnDoctorError(
            f"{name} is a name of {home}, for which {title} has none; add --framework"
            f" {other.framework}"
        )
    hint = did_you_mean(name, own, f"it has {', '.join(own)}")
    raise AttnDoctorError(f"{title} has no backend {name!r}; {hint}")


def _plain(name: str) -> str:
    return name.lower().strip("_").replace("-", "_")
