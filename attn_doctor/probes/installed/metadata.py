"""Finds metadata that cannot be read, and packages that are installed more than once.

Only packages that attention backends use are looked at, CUDA wheels, and what Transformers and
Diffusers compare when they are imported; for two copies in one
folder every package, because installers and programs then disagree on its version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attn_doctor.facts import DamagedMetadata, Duplicate
from attn_doctor.facts.kinds import DuplicatePlace
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Distribution, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed.origin import said_by
from attn_doctor.probes.interpreter.shadowing import MODULES
from attn_doctor.requirement import parsed

#: Packages that attention backends use.
_KNOWN = frozenset(name for names in MODULES.values() for name in names)
#: Further packages whose versions Transformers or Diffusers read when they are imported.
_COMPARED = frozenset(
    ("filelock", "packaging", "peft", "pyyaml", "regex", "requests", "tokenizers", "tqdm")
)


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return the fields `damaged_metadata` and `duplicates` of `Facts`."""
    unread = gaps.reasons.get("python.distribution_count", "")
    if unread:
        gaps.add("damaged_metadata", unread)
        gaps.add("duplicates", unread)
        return {"damaged_metadata": None, "duplicates": None}
    return {
        "damaged_metadata": tuple(_damaged(site)),
        "duplicates": tuple(_duplicates(host, site)),
    }


def _damaged(site: Site) -> Iterator[DamagedMetadata]:
    known = _KNOWN
    if site.distributions.get("transformers") or site.distributions.get("diffusers"):
        known |= _COMPARED
    for one in site.distributions.all:
        reason = site.distributions.damage(one) if one.name in known else ""
        if reason:
            # Beside a good copy that one's release is kept.
            others = (
                other.version
                for other in site.distributions.copies(one.name)
                if other.site == one.site and not site.distributions.damage(other)
            )
            version = next(others, one.version)
            yield DamagedMetadata(package=one.name, version=version, folder=one.info, reason=reason)


def _duplicates(host: Host, site: Site) -> Iterator[Duplicate]:
    copies: dict[str, dict[str, Distribution]] = {}
    for one in site.distributions.all:
        if one.name in _KNOWN or one.name.startswith("nvidia-") or _beside(site, one):
            copies.setdefault(one.name, {}).setdefault(host.real(one.info), one)
    for name, by_path in sorted(copies.items()):
        found = [*by_path.values()]
        if len(found) > 1:
            folders = tuple(dict.fromkeys(one.site for one in found))
            path_file = next(filter(None, map(site.added_by.get, folders)), "")
            keep = _keep(host, site, found)
            others = (one for one in found if one.version != keep)
            yield Duplicate(
                package=name,
                versions=tuple(one.version for one in found),
                folders=folders,
                place=_place(host, folders, path_file),
                keep=keep,
                stray=next(others, found[-1]).info,
                pythonpath=_pythonpath(host, _not_kept(host, found, keep)),
                path_file=path_file,
            )


def _beside(site: Site, one: Distribution) -> bool:
    """Whether another copy is in the same folder."""
    copies = site.distributions.copies(one.name)
    return len(copies) > 1 and len({copy.site for copy in copies}) == 1


def _entries(host: Host) -> list[str]:
    text = host.environ.get("PYTHONPATH", "")
    return text.split(";" if host.windows else ":") if text else []


def _place(host: Host, folders: tuple[str, ...], path_file: str) -> DuplicatePlace:
    """Return where the copies are that should not be there."""
    if len(folders) == 1:
        return "folder"
    if path_file:
        return "path-file"
    here = host.platform.cwd
    if any(host.join(here, one) in folders for one in _entries(host) if one):
        return "pythonpath"
    users = tuple(_of_user(host))
    return "user" if any(one.startswith(users) for one in folders) else "environments"


def _of_user(host: Host) -> Iterator[str]:
    """Yield what the paths of a user's site-packages may begin with."""
    join, named = host.join, host.environ.get("PYTHONUSERBASE")
    if named:
        yield join(host.platform.cwd, named, "Python" if host.windows else "lib/python")
    elif host.windows:
        yield join(host.environ.get("APPDATA") or host.platform.home, "Python", "Python")
    else:
        yield join(host.platform.home, ".local", "lib")
        yield join(host.platform.home, "Library", "Python")


def _not_kept(host: Host, found: list[Distribution], keep: str) -> tuple[str, ...]:
    """The folders of copies, but for that of the kept one if PYTHONPATH has all of them."""
    listed = {host.join(host.platform.cwd, one) for one in _entries(host)}
    if all(one.site in listed for one in found):
        found = [one for one in found if one.version != keep]
    return tuple(one.site for one in found)


def _pythonpath(host: Host, folders: tuple[str, ...]) -> str:
    """Return PYTHONPATH without `folders`."""
    here = host.platform.cwd
    kept = [one for one in _entries(host) if host.join(here, one) not in folders]
    return (";" if host.windows else ":").join(kept)


def _keep(host: Host, site: Site, found: list[Distribution]) -> str:
    """Return the version that the module's own files have; else the newest one."""
    name = found[0].name
    module = next((one for one, names in MODULES.items() if name in names), name.replace("-", "_"))
    said = said_by(host, site.module(host, module))
    version = said.get("__version__", "").partition("+")[0]
    fitting = [one.version for one in found if version and one.version.startswith(version)]
    try:
        return max(fitting or [one.version for one in found], key=parsed)
    except ValueError:
        return found[0].version
