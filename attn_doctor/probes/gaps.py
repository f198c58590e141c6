"""What a probe could not read, and why."""

from __future__ import annotations


class Gaps:
    """Collects, for each fact that could not be read, one reason a user understands."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    def add(self, name: str, reason: str) -> None:
        """The fact (or group of facts) `name` is unknown because of `reason`. The first stays."""
        self.reasons.setdefault(name, " ".join(reason.split()))
