"""What CI systems need of each finding: a stable identity, and a file to point at.

A finding about the machine has no line in the repository; the file that says what the machine
should be (a configuration, a policy, requirements) stands for it, so that viewers which drop
results without a location still show it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from attn_doctor.findings import Finding, SourceLocation

#: Files of a repository that describe its environment, the most specific first.
_FILES = (
    "attn-doctor.toml",
    "pyproject.toml",
    "requirements.txt",
    "environment.yml",
    "Dockerfile",
    "README.md",
)


def fingerprint(finding: Finding) -> str:
    """Thirty-two hex digits, the same wherever and whenever the rule finds this subject.

    Versions and paths are left out: a finding keeps its identity when its details change.
    """
    identity = f"{finding.rule}\0{finding.subject}"
    if finding.location and finding.because:
        # A file may hold the same mistake twice, under two keys or in two calls.
        first = finding.because[0]
        identity += f"\0{first.fact}\0{first.seen}"
    return hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:32]


def location(finding: Finding, file: str) -> SourceLocation:
    """The location of a finding; `file` for a finding about the machine."""
    return finding.location or SourceLocation(file)


def default_file(folder: Path, names: Iterable[str] = _FILES) -> str:
    """The file in `folder` that findings about the machine point at; "" if there is none."""
    return next((name for name in names if (folder / name).is_file()), "")
