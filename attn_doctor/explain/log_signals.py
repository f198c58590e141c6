"""The patterns of `rules/tables/log-signals.toml`, which say what kind of a line a line is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from attn_doctor.rulebook import library


class _Pattern:
    """A list of the table as one pattern. It is compiled when it is used first."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, signals: LogSignals, owner: type) -> re.Pattern[str]:
        pattern = re.compile("|".join(signals.table[self._name]))
        signals.__dict__[self._name] = pattern
        return pattern


class LogSignals:
    """One pattern for each list of the table, which documents them."""

    general = _Pattern()
    undecided = _Pattern()
    unrelated = _Pattern()
    own = _Pattern()
    harmless = _Pattern()
    replaced = _Pattern()
    quoted = _Pattern()
    listed = _Pattern()
    passed = _Pattern()
    benign = _Pattern()
    fatal = _Pattern()
    progress = _Pattern()
    chosen = _Pattern()
    not_found = _Pattern()
    unreached = _Pattern()
    reached = _Pattern()
    installed = _Pattern()
    no_operator = _Pattern()
    standing = _Pattern()
    no_gpu = _Pattern()

    def __init__(self, table: Mapping[str, Sequence[str]]) -> None:
        self.table = table
        self.optional_causes = frozenset(table["optional_causes"])
        self.memory_causes = frozenset(table["memory_causes"])
        self.operator_causes = frozenset(table["operator_causes"])
        self.gpu_causes = frozenset(table["gpu_causes"])
        self.installing_causes = frozenset(table["installing_causes"])


@cache
def log_signals() -> LogSignals:
    """The table. It is read only for logs in which a symptom is found."""
    return LogSignals(library.tables()["log-signals"])
