"""The gaps: facts that a probe could not read, and why."""

from __future__ import annotations


class Gaps:
    """Collects one reason, in a user's words, for each fact that could not be read."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    def add(self, name: str, reason: str) -> None:
        """Record why the fact, or group of facts, `name` is unknown. The first reason is kept."""
        self.reasons.setdefault(name, " ".join(reason.split()))
