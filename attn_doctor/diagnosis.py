"""The whole way in one place: host → probes → facts → derived facts → rules → findings.

Probes run side by side, each in a thread of its own, because most of their time is waiting. A
probe that is late or fails costs its own facts, with the reason as a gap, and nothing else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from attn_doctor import derived
from attn_doctor._version import __version__
from attn_doctor.anonymize import rewritten
from attn_doctor.facts import Facts, to_json
from attn_doctor.findings import Diagnosis, Finding, Verdict
from attn_doctor.host import Host
from attn_doctor.probes import distributions, interpreter
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.registry import PROBES, Probe
from attn_doctor.rulebook import library
from attn_doctor.rulebook.evaluate import evaluate_rules

#: Seconds that the probes may take together; a check ends soon after, whatever happens.
LIMIT = 4.0

_log = logging.getLogger(__name__)


class _Running(threading.Thread):
    """One probe at work. Its result is read only once it has ended."""

    def __init__(self, probe: Probe, host: Host, site: Site) -> None:
        super().__init__(daemon=True, name=probe.name)
        self.probe = probe
        self.result: dict[str, object] = {}
        self.gaps = Gaps()
        self.failure = ""
        self._host, self._site = host, site
        self.start()

    def run(self) -> None:
        start = time.perf_counter()
        try:
            self.result = self.probe.read(self._host, self._site, self.gaps)
        except Exception as error:  # a bug, or a machine of an unexpected kind: report it, go on
            self.failure = f"the {self.probe.name} probe failed: {type(error).__name__}: {error}"
            _log.debug("probe %s failed", self.probe.name, exc_info=True)
        _log.debug("probe %s took %.0f ms", self.probe.name, 1e3 * (time.perf_counter() - start))


def examine(host: Host, python: str = "", limit: float = LIMIT) -> Facts:
    """All facts of `host` and of the interpreter at `python` (or the one `interpreter` chooses).

    Raises `ExaminationError` if that interpreter cannot be examined. Takes at most about
    `limit` seconds; what has not answered by then is a gap.
    """
    end = time.monotonic() + limit
    host.patience = max(1.0, limit / LIMIT)
    gaps = Gaps()
    chosen = interpreter.choose(host, python)
    site = distributions.scan(
        host,
        chosen.site_packages,
        chosen.prefix,
        gaps,
        chosen.plain,
        chosen.answer["version"],
        chosen.answer.get("cache_tag", ""),
    )
    running = [_Running(probe, host, site) for probe in PROBES]
    fields: dict[str, object] = {"python": interpreter.describe(host, chosen, site, gaps)}
    for one in running:
        one.join(max(0.0, end - time.monotonic()))
        late = one.is_alive()
        reason = f"the {one.probe.name} probe did not answer within {limit:g} s"
        if late or one.failure:
            for name in one.probe.fields:
                gaps.add(name, one.failure or reason)
            continue
        fields.update(one.result)
        for name, why in one.gaps.reasons.items():
            gaps.add(name, why)
    facts = Facts(
        attn_doctor=__version__,
        taken=datetime.fromtimestamp(host.now(), timezone.utc).isoformat(timespec="seconds"),
        gaps=gaps.reasons,
        **fields,  # type: ignore[arg-type]
    )
    return derive(_printable(facts))


def _printable(facts: Facts) -> Facts:
    """The facts without bytes that are no text, which paths and variables may hold on Linux."""
    try:
        to_json(facts)
    except UnicodeEncodeError:
        return rewritten(facts, lambda text: text.encode("utf-8", "replace").decode())
    return facts


def derive(facts: Facts) -> Facts:
    """The same facts with all that follows from them and from today's tables.

    Snapshots are derived anew as well: the tables may know more than when they were taken.
    """
    return derived.derive(facts, library.tables())


def diagnose(facts: Facts, start: float | None = None, folders: Sequence[Path] = ()) -> Diagnosis:
    """What the rules say of `facts`, those of a team in `folders` included.

    `start`: when the work began, by `time.perf_counter`.
    """
    rules = library.load(folders)
    findings = evaluate_rules(facts, rules)
    for finding in findings if _log.isEnabledFor(logging.DEBUG) else ():
        _log_unknown(finding)
    return Diagnosis(
        facts=facts,
        findings=findings,
        rules=sum(rule.has_conditions for rule in rules),
        seconds=0.0 if start is None else time.perf_counter() - start,
    )


def _log_unknown(finding: Finding) -> None:
    """Log the facts that leave a rule undecided, with the reason why each is unknown."""
    if finding.verdict is Verdict.UNKNOWN:
        for line in (*finding.context, *finding.because):
            if line.truth is None:
                _log.debug("%s: %s is unknown: %s", finding.rule, line.fact, line.gap or "no value")
