"""Whether the packages are installed that SimpleTuner's KohakuFA needs.

Source: `get_kohaku_fa_unavailable_reason` in helpers/training/attention_backend.py (4.10.1).
"""

from __future__ import annotations

from pathlib import Path

from packaging.version import InvalidVersion, Version

from attn_doctor.facts import Facts

#: Distributions and their least versions, on compute capability 8.9 and 9.0.
KOHAKU = {"nvidia-cutlass-dsl": "4.8", "apache-tvm-ffi": "0.1.14", "ninja": "1.11"}
EXTRA = "simpletuner[attention-cute]"


def lacking(facts: Facts) -> str | None:
    """The first requirement that is not met; None if the environment's folders are not here."""
    folders = [Path(one) for one in facts.python.site_packages or ()]
    if facts.simpletuner.installed is not True or not any(one.is_dir() for one in folders):
        return None
    found: dict[str, str] = {}
    for folder in folders:
        try:
            names = [one.name for one in folder.iterdir() if one.name.endswith(".dist-info")]
        except OSError:
            continue
        for name in names:
            project, _, version = name.removesuffix(".dist-info").partition("-")
            found.setdefault(project.lower().replace("_", "-"), version)
    if facts.torch.version and _older(facts.torch.version, "2.11"):
        return f"torch {facts.torch.version} is older than 2.11"
    for package, least in KOHAKU.items():
        if package not in found:
            return f"{package} is not installed"
        if _older(found[package], least):
            return f"{package} {found[package]} is older than {least}"
    return ""


def _older(version: str, least: str) -> bool:
    try:
        return Version(version.partition("+")[0]) < Version(least)
    except InvalidVersion:
        return False
