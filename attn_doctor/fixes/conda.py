"""Finds packages that conda installed: pip must not overwrite them, or conda's records are wrong.

conda writes its name into INSTALLER, as pip does; if that file is missing, a record of that name
and version in `conda-meta` decides. What pip installed into a conda environment belongs to pip.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from attn_doctor.facts import Facts
from attn_doctor.files import DATA, read_bytes
from attn_doctor.fixes.distributions import (
    Change,
    Installed,
    installed_by,
)
from attn_doctor.fixes.pip_arguments import PipCall, Wanted, pip_call
from attn_doctor.fixes.steps import Step
from attn_doctor.json_files import JsonError, decode
from attn_doctor.requirement import normal_name
from attn_doctor.shell import commands
from attn_doctor.shell.installers import CONDA_NAMES, conda_command, owned_by_conda


def owned(facts: Facts, there: Mapping[str, Installed]) -> dict[str, str]:
    """Return all distributions that conda installed in this environment, each with its channel.

    The channel is empty if the record does not name it. Reads the environment's files.
    """
    records = _records(facts.python.prefix or "")
    found = owned_by_conda(facts)
    installers = installed_by(facts.python.site_packages or ())
    for name, one in there.items():
        channel = records.get((CONDA_NAMES.get(name, name), one.version.partition("+")[0]))
        installer = installers.get(name, "")
        if installer == "conda" or (not installer and channel is not None) or name in found:
            found[name] = channel or ""
    return found


def _records(prefix: str) -> dict[tuple[str, str], str]:
    """Name and version of each of conda's packages, with its channel."""
    folder = os.path.join(prefix, "conda-meta")
    found: dict[tuple[str, str], str] = {}
    try:
        names = os.listdir(folder) if prefix else []
    except OSError:
        return found
    for entry in names:
        # `pytorch-2.11.0-cuda130_py312_0.json`: neither version nor build has a hyphen.
        parts = entry.removesuffix(".json").rsplit("-", 2)
        if entry.endswith(".json") and len(parts) == 3:
            found[normal_name(parts[0]), parts[1]] = _channel(os.path.join(folder, entry))
    return found


def _channel(path: str) -> str:
    """`conda-forge` of `https://conda.anaconda.org/conda-forge/linux-64`; empty if unclear."""
    try:
        url = decode(read_bytes(path, DATA)).get("channel")
    except (OSError, JsonError, AttributeError):
        return ""
    words = url.rstrip("/").split("/") if isinstance(url, str) else []
    if len(words) > 1 and ("-" in words[-1] or words[-1] == "noarch") and "://" in url:
        words.pop()  # the platform
    # Only names that need no credentials and no quoting are shown.
    last = words[-1] if words else ""
    return last if last.replace("-", "").replace("_", "").isalnum() else ""


def blocked_by(
    step: Step, owners: Mapping[str, str], prefix: str, changes: Sequence[Change] | None = None
) -> str:
    """Return why the step is not applied, with conda's command; empty if pip may apply it.

    `changes` are what the installer says it would change, with packages that no step names.
    """
    if step.kind not in ("install", "build"):
        return ""
    calls = [call for call in map(pip_call, step.run) if call]
    names = {name for call in calls for name in call.names}
    names |= {one.name for one in changes or () if one.old}
    hit = sorted(names & owners.keys())
    if not hit:
        return ""
    does = "remove" if {call.verb for call in calls} == {"uninstall"} else "overwrite"
    return (
        f"conda installed {' and '.join(hit)} here, and pip would {does} its files without"
        f" conda's knowledge; use conda: `{_command(calls, hit, owners, prefix)}`"
    )


def _command(
    calls: Sequence[PipCall], names: Sequence[str], owners: Mapping[str, str], prefix: str
) -> str:
    """The command to type: conda's install or, for what conda does not have, its removal."""
    wanted = {one.name: one for call in calls if call.verb == "install" for one in call.wanted}
    asked = [wanted.get(name, Wanted(name)) for name in names]
    # A wheel or a repository: pip may install it once conda's package is removed.
    verb = "install" if wanted and not any(one.url for one in asked) else "uninstall"
    channels = [*dict.fromkeys(owners[name] for name in names if owners[name])]
    words = ("pip", verb, *(one.name + one.specifier for one in asked))
    return commands.line(conda_command(words, names, prefix, channels))
