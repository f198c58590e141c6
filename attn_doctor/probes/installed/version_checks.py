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
    text = re.sub("#.*", "", host.try_read(check)) if check and table else ""
    if not text:
        return
    tested = {*re.findall(r"(?<=[\"'\s])[\w.-]+(?=[\"'\s])", text)} - {"python"}
    needs: dict[str, str] = dict(re.findall(r'"([\w.-]+)": "([^"]+)"', host.try_read(table)))
    for name, wanted in needs.items():
        if name not in tested:
            continue
        versions = {one.version for one in site.distributions.copies(name)}
        there = bool(sources.file(module_of(normal_name(name))))
        if name in _OPTIONAL and (not there or (name == "accelerate" and versions)):
            continue
        if not versions:
            yield wanted, ""
        elif not any(fits(version, wanted) for version in versions):
            yield wanted, min(versions)
    yield from _peft(host, site, sources, module, needs.get("peft", ""))


def _peft(
    host: Host, site: Site, sources: Sources, module: str, wanted: str
) -> Iterator[tuple[str, str]]:
    """Yield what Diffusers needs of a PEFT that it takes for new enough by another number.

    0.35 to 0.39 use PEFT from 0.6.0 on, and then test that it is 0.17.0.
    """
    peft = site.distributions.get("peft")
    path = sources.file(f"{module}.utils.constants") if peft is not None and wanted else ""
    text = host.try_read(path) if path else ""
    least = re.search(r'(?m)^MIN_PEFT_VERSION = "([\d.]+)"', text)
    off = host.environ.get("_CHECK_PEFT", "1").upper() in ("", "0", "OFF", "NO", "FALSE")
    if peft is None or least is None or 'dep_version_check("peft")' not in text or off:
        return
    used = sources.file("transformers") and fits(peft.version, f"peft>={least[1]}")
    if used and not fits(peft.version, wanted):
        yield wanted, peft.version


# @lru_cache
# def is_torchao_available():
#     TORCHAO_MINIMUM_VERSION = packaging.version.parse("0.16.0")
#         torchao_version = packaging.version.parse(importlib_metadata.version("torchao"))
#         raise ImportError(
def least_of_peft(host: Host, site: Site, sources: Sources) -> Iterator[str]:
    """Yield what PEFT wants of packages, where they are installed, before it changes a model."""
    path = sources.file("peft.import_utils") if site.distributions.get("peft") else ""
    for body in host.try_read(path).split("\ndef ")[1:] if path else ():
        least = re.search(r'_MINIMUM_VERSION = packaging\.version\.parse\("([\d.]+)"\)', body)
        name = re.search(r'importlib_metadata\.version\("([\w.-]+)"\)', body)
        if least and name and "raise ImportError(" in body:
            yield f"{normal_name(name[1])}>={least[1]}"


def fits(version: str, wanted: str) -> bool:
    """Whether a version fits a requirement such as `peft>=0.17`; true if that is not readable."""
    try:
        return satisfies(version, wanted.removeprefix(name_of(wanted)).strip())
    except ValueError:
        return True
