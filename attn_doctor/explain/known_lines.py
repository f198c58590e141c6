"""The lines that a log of a run that worked has as well: they do not explain a failure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from attn_doctor.explain.log_files import LogChunk
from attn_doctor.explain.normalize import LogLine, NormalizedLog

#: What differs between two runs: numbers, addresses, ids.
_VARIABLE = re.compile(r"0x[0-9a-f]+|\d+|\b[0-9a-f]{8,}\b")
#: Lines of a traceback. Both logs have them, and without them a failure has no structure.
_STRUCTURE = re.compile(r"\s|Traceback \(|During handling|The above exception|$")
#: Forms of lines that are kept of a log of any size.
_MOST = 500_000


class KnownLines:
    """The forms of the lines of some logs: two lines have one form if only numbers differ."""

    def __init__(self, chunks: Iterable[LogChunk]) -> None:
        self._chunks = chunks
        self.dropped = 0
        """Lines that were left out so far."""

    @cached_property
    def _forms(self) -> frozenset[int]:
        forms: set[int] = set()
        for chunk in self._chunks:
            if len(forms) > _MOST:
                break
            forms.update(_form(line) for line in NormalizedLog(chunk.first, chunk.data).lines)
        return frozenset(forms)

    def without(self, log: NormalizedLog) -> NormalizedLog:
        """The log without lines of a known form."""
        kept = [
            line
            for line in log.lines
            if _STRUCTURE.match(line.text) or _form(line) not in self._forms
        ]
        self.dropped += len(log.lines) - len(kept)
        return log.with_lines(kept)


def _form(line: LogLine) -> int:
    return hash(_VARIABLE.sub("0", line.text.strip().lower()))
