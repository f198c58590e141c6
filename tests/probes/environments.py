"""Environments with distributions in them, as installers leave them, on recorded machines."""

from __future__ import annotations

import json
from typing import Any

from attn_doctor.host import Host
from attn_doctor.host.recorded import RecordedHost
from attn_doctor.probes.distributions import Site, scan
from attn_doctor.probes.gaps import Gaps
from tests.probes.answers import machine

__all__ = ["SITE", "distribution", "environment", "site"]

SITE = "/env/lib/python3.12/site-packages"


def distribution(
    name: str,
    version: str,
    *,
    requires: tuple[str, ...] = (),
    python: str = ">=3.9",
    tags: tuple[str, ...] = ("py3-none-any",),
    files: tuple[str, ...] = (),
    texts: dict[str, str] | None = None,
    direct_url: Any = None,
    installer: str = "pip",
    folder: str = SITE,
) -> dict[str, str]:
    """Files (path → text) of an installed distribution. `files` are empty ones in site-packages."""
    info = f"{folder}/{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Python: {python}"] if python else []
    metadata += [f"Requires-Dist: {line}" for line in requires]
    found = {f"{info}/METADATA": "\n".join(metadata) + "\n\nRequires-Dist: not-a-header\n"}
    if tags:
        found[f"{info}/WHEEL"] = "Wheel-Version: 1.0\n" + "".join(f"Tag: {one}\n" for one in tags)
    if installer:
        found[f"{info}/INSTALLER"] = f"{installer}\n"
    if direct_url is not None:
        found[f"{info}/direct_url.json"] = json.dumps(direct_url)
    found |= {f"{folder}/{path}": "" for path in files}
    return found | {f"{folder}/{path}": text for path, text in (texts or {}).items()}


def environment(*parts: dict[str, str], **platform: Any) -> tuple[RecordedHost, Site]:
    """A machine with all files of `parts`, and its environment of Python 3.12.3 at /env."""
    host = machine({path: text for part in parts for path, text in part.items()}, **platform)
    return host, site(host)


def site(host: Host, python: str = "3.12.3", folder: str = SITE) -> Site:
    """The environment at /env."""
    tag = "cpython-" + "".join(python.split(".")[:2])
    return scan(host, (folder,), "/env", Gaps(), python=python, cache_tag=tag)
