"""The patterns of `rules/tables/log-signals.toml`, which say what kind of a line a line is."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from msgspec import Struct

from attn_doctor.rulebook import library


class LogSignals(Struct, frozen=True):
    """One pattern for each list of the table, which documents them."""

    general: re.Pattern[str]
    unrelated: re.Pattern[str]
    harmless: re.Pattern[str]
    replaced: re.Pattern[str]
    quoted: re.Pattern[str]
    listed: re.Pattern[str]
    passed: re.Pattern[str]
    benign: re.Pattern[str]
    fatal: re.Pattern[str]
    progress: re.Pattern[str]
    chosen: re.Pattern[str]
    optional_causes: frozenset[str]
    memory_causes: frozenset[str]


@cache
def log_signals() -> LogSignals:
    """The compiled table. It is read only for logs in which a symptom is found."""
    table = library.tables()["log-signals"]
    causes = ("optional_causes", "memory_causes")
    fields: dict[str, Any] = {
        name: frozenset(table[name]) if name in causes else re.compile("|".join(table[name]))
        for name in LogSignals.__struct_fields__
    }
    return LogSignals(**fields)
