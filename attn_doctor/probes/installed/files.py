"""Finds files of installed packages that are gone or cut short, by what their RECORD lists.

Only packages that attention needs are looked at, and of these only what an import may execute. A
source that is shorter than recorded counts only if it is empty or ends within a line: people edit
installed files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attn_doctor.facts import IncompletePackage
from attn_doctor.host import Host
from attn_doctor.probes.distributions import Distribution, Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.interpreter.shadowing import MODULES

#: Further packages that the known ones import.
_FURTHER = ("filelock", "packaging", "pillow", "pyyaml", "regex", "tokenizers", "typing-extensions")
#: Seconds for each package; a cold disk takes longer.
SECONDS = 0.5
#: Shorter files of one package that are read.
MOST = 20


def read(host: Host, site: Site, gaps: Gaps) -> dict[str, Any]:
    """Return the field `incomplete_packages` of `Facts`."""
    unread = gaps.reasons.get("python.distribution_count", "")
    if unread:
        gaps.add("incomplete_packages", unread)
        return {"incomplete_packages": None}
    names = {name for names in MODULES.values() for name in names} | {*_FURTHER}
    chosen = [one for one in site.distributions if one.name in names]
    return {"incomplete_packages": tuple(_incomplete(host, chosen))}


def _incomplete(host: Host, chosen: list[Distribution]) -> Iterator[IncompletePackage]:
    for one in chosen:
        if not one.info.endswith(".dist-info"):
            continue
        try:
            changed = host.changed_files(one.info, SECONDS * host.patience)
        except OSError:
            continue  # Debian's packages and some others have no RECORD
        faults = [(path, "gone") for path, size in changed if size < 0]
        short = [path for path, size in changed if size >= 0]
        for path in short[:MOST]:
            fault = _cut(host, host.join(one.site, path))
            if fault:
                faults.append((path, fault))
        if faults:
            path, reason = faults[0]
            yield IncompletePackage(
                package=one.name,
                version=one.version,
                file=path,
                reason=reason,
                files=len(faults),
            )


def _cut(host: Host, path: str) -> str:
    """Return how a file that is shorter than recorded is damaged; empty if it may be edited."""
    if not path.endswith(".py"):
        try:
            return "cut short" if host.binary(path).damaged else ""
        except OSError:
            return ""
    text = host.try_read(path, 1 << 20)
    if text.strip():
        return "" if text.endswith("\n") else "cut short"
    return "empty"
