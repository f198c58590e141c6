"""Finds the requirements that transformers and Diffusers test when they are imported.

They have a table of their own, which can differ from the metadata: of two copies of the metadata
only one belongs to the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from attn_doctor.host import Host
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.installed.requirement_graph import module_of, name_of
from attn_doctor.probes.installed.sources import Sources
from attn_doctor.requirement import normal_name, satisfies

_CHECK, _TABLE = ("dependency_versions_check", "dependency_versions_table")
#: What is tested only if it is there; of accelerate, whose version is compared first, only that it
#: has one.
_OPTIONAL = ("tokenizers", "accelerate")


def failing(host: Host, site: Site, sources: Sources, module: str) -> Iterator[tuple[str, str]]:
    """Yield the requirements that fail when `module` is imported, with the installed version."""
    check, table = (sources.file(f"{module}.{name}") for name in (_CHECK, _TABLE))
    text = host.try_read(check) if check and table else ""
    for name, wanted in re.findall(r'"([\w.-]+)": "([^"]+)"', host.try_read(table) if text else ""):
        if (
            name == "python"
            or name not in text
            or not re.search(rf"[\"'\s]{re.escape(name)}[\"'\s]", text)
        ):
            continue
        versions = {one.version for one in site.distributions.copies(name)}
        there = bool(sources.file(module_of(normal_name(name))))
        if name in _OPTIONAL and (not there or (name == "accelerate" and versions)):
            continue
        if not versions:
            yield wanted, ""
        elif not any(_fits(version, wanted) for version in versions):
            yield wanted, min(versions)


def _fits(version: str, wanted: str) -> bool:
    try:
        return satisfies(version, wanted.removeprefix(name_of(wanted)).strip())
    except ValueError:
        return True
