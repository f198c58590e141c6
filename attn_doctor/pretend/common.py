"""What all pretending shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts

Tables = Mapping[str, Any]

ABSENT = ("absent", "none", "no")
#: The gap of what belongs to a pretended thing and was not said.
REASON = "simulated: not given"


def checked(key: str, text: str) -> str:
    """`text`, if it is a version. Raises `AttnDoctorError` if not."""
    try:
        Version(text)
    except InvalidVersion:
        raise AttnDoctorError(f"--pretend {key}={text}: {text} is no version") from None
    return text


def without_gaps(facts: Facts, *groups: str) -> dict[str, str]:
    """The gaps of everything else; a pretended fact is no gap."""
    return {
        name: why
        for name, why in facts.gaps.items()
        if not any(f"{name}.".startswith((f"{one}.", f"{one}[")) for one in groups)
    }
