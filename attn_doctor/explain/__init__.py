"""Explain a failure from its log. `engine.explain` is the entry.

One log line passes through five forms: `LogChunk` (`log_files.py`), `LogLine` (`normalize.py`),
`SymptomMatch` with its position in a traceback (`symptom_match.py`, `tracebacks.py`), `ScoredRule`
and `RankedCause` (`ranking.py`). Nothing here prints or examines the machine.
"""
