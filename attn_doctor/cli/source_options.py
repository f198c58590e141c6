"""The options of `backends` and `check` that say where facts and rules come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from attn_doctor.cli.common_options import Python, Snapshot, Timeout
from attn_doctor.cli.facts_source import Pretend, examined
from attn_doctor.cli.rules_option import Folders, rule_folders

if TYPE_CHECKING:
    from collections.abc import Callable

    from attn_doctor.facts import Facts


class SourceOptions(Struct, frozen=True, kw_only=True):
    """Options for the machine, the environment and the rules."""

    python: Python = ""
    facts: Snapshot = ""
    pretend: Pretend = None
    rules: Folders = None
    timeout: Timeout = 4.0

    def read(self, prepare: Callable[[], None] | None = None) -> Facts:
        """The facts of the snapshot, else of this machine. `prepare`: work for later."""
        return examined(self.facts, self.python, self.timeout, self.pretend, prepare)

    @property
    def rule_folders(self) -> tuple[Path, ...]:
        """Folders of a team's own rules."""
        return rule_folders(self.rules)
