"""What the rules say of the text that a failed run printed, held against the machine's facts."""

from __future__ import annotations

from attn_doctor.backends.live.outcome import Cause
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.rulebook import library
from attn_doctor.rulebook.rule import Rule


class Explaining:
    """Finds the cause of a failure in its text. The rules are read once, when one is needed."""

    def __init__(self, facts: Facts) -> None:
        """`facts`: of the machine that printed the text."""
        self._facts = facts
        self._rules: tuple[Rule, ...] = ()

    def __call__(self, log: str) -> Cause | None:
        """The likeliest cause; None if no rule knows the text."""
        from attn_doctor.explain.engine import explanation, read

        self._rules = self._rules or library.load()
        try:
            reading = read([log], self._rules)
        except AttnDoctorError:
            return None  # it printed nothing, and its log does not exist
        if not reading.seen:
            return None
        found = explanation(reading, self._rules, library.tables, self._facts)
        # The text was written on this machine: what its facts confirm goes first, and what they
        # deny is not the cause.
        possible = [one for one in found.matches if not one.verdict.startswith("not confirmed")]
        confirmed = [one for one in possible if one.verdict == "confirmed by this machine"]
        match = next(iter(confirmed + possible), None)
        if match is None:
            return None
        return Cause(
            rule=match.rule,
            title=match.title,
            why=match.why,
            verdict=match.verdict,
            fixes=match.fixes,
        )
