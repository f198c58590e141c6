"""A check as a whole: host → probes → facts → derived facts → rules → findings.

Probes run one after another in a thread: in threads of their own they would wait for Python's lock
again after each file, a sixth of a check on a quiet machine. While one waits for a program or a
slow disk, another thread goes on with the next. A probe that is late or fails costs only its own
facts; the reason is recorded as a gap.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor import derived, processes
from attn_doctor._version import __version__
from attn_doctor.derived.releases import parts
from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Dispatcher, Facts, Package, to_json
from attn_doctor.findings import Diagnosis, Finding, Verdict
from attn_doctor.host import Host
from attn_doctor.logger import Logger
from attn_doctor.probes import distributions, interpreter
from attn_doctor.probes.distributions import Site
from attn_doctor.probes.gaps import Gaps
from attn_doctor.probes.installed.broken import with_broken_imports
from attn_doctor.probes.registry import PROBES, Probe
from attn_doctor.rulebook import library
from attn_doctor.rulebook.evaluate import evaluate_rules

if TYPE_CHECKING:
    # Imported on demand: most commands only examine.
    from attn_doctor.backends.attention_call import AttentionCall
    from attn_doctor.backends.readiness import Matrix
    from attn_doctor.backends.required import Demand
    from attn_doctor.configs.prediction import Prediction, Wanted
    from attn_doctor.configs.readers.settings import Reading
    from attn_doctor.policy.policy import Policy

#: Seconds that the probes may take together. On a loaded machine they may take `processes.SLOWED`
#: times as long, while they are busy and have not used this much processor time.
LIMIT = 4.0

#: Another thread takes the next probe if none has begun for `NEXT` seconds, with less processor
#: time than `IDLE`, or for `NEXT_BUSY` seconds.
NEXT, IDLE, NEXT_BUSY = 0.01, 0.001, 0.25

_log = Logger(__name__)


class _Limit(Struct, frozen=True):
    """How long probes may take."""

    seconds: float
    start: float
    """By `time.monotonic`, as `usual` and `longest`."""
    work: float
    """The processor time that ends an examination, by `processes.work`."""

    @classmethod
    def of(cls, seconds: float) -> _Limit:
        """A limit that begins now."""
        return cls(seconds, time.monotonic(), processes.work() + seconds)

    @property
    def usual(self) -> float:
        return self.start + self.seconds

    @property
    def longest(self) -> float:
        """For probes that are busy."""
        return self.start + processes.SLOWED * self.seconds


class _Running:
    """One probe. Its result is read only after it has ended."""

    def __init__(self, probe: Probe, host: Host, site: Site) -> None:
        self.probe = probe
        self.result: dict[str, object] = {}
        self.gaps = Gaps()
        self.failure = ""
        self.ended = False
        self._host, self._site = host, site

    def run(self) -> None:
        start = time.perf_counter()
        try:
            self.result = self.probe.read(self._host, self._site, self.gaps)
        except Exception as error:  # a bug, or a machine of an unexpected kind: report it, go on
            self.failure = f"the {self.probe.name} probe failed: {type(error).__name__}: {error}"
            _log.debug("probe %s failed", self.probe.name, exc_info=True)
        _log.debug("probe %s took %.0f ms", self.probe.name, 1e3 * (time.perf_counter() - start))
        self.ended = True


class _Worker(threading.Thread):
    """A thread that runs probes until none waits."""

    def __init__(self, waiting: deque[_Running]) -> None:
        super().__init__(daemon=True)
        self._waiting = waiting

    def run(self) -> None:
        with suppress(IndexError):  # none is left
            while True:
                self._waiting.popleft().run()


def examine(host: Host, python: str = "", limit: float = LIMIT) -> Facts:
    """Return all facts of `host` and of the interpreter at `python`, by default the active one.

    Raises `ExaminationError` if that interpreter cannot be examined. Takes at most about
    `limit` seconds, or longer on a loaded machine; a probe that has not answered leaves gaps.
    """
    until = _Limit.of(limit)
    host.patience = max(1.0, limit / LIMIT)
    gaps = Gaps()
    chosen = interpreter.choose(host, python)
    site = distributions.scan(
        host,
        chosen.site_packages,
        chosen.prefix,
        gaps,
        chosen.plain,
        chosen.answer.version,
        chosen.answer.cache_tag,
        chosen.answer.stdlib,
    )
    running = [_Running(probe, host, site) for probe in PROBES]
    workers = _start(running, until)
    fields: dict[str, object] = {
        "python": interpreter.describe(host, chosen, site, gaps),
        "interpreters": chosen.candidates,
    }
    _collect(running, workers, host, fields, gaps, until)
    _read_dispatcher(host, site, fields, gaps, until)
    _read_code(host, fields)
    facts = Facts(
        attn_doctor=__version__,
        taken=datetime.fromtimestamp(host.now(), timezone.utc).isoformat(timespec="seconds"),
        gaps=gaps.reasons,
        **fields,  # type: ignore[arg-type]
    )
    return with_broken_imports(host, site, derive(_printable(facts)))


def _collect(
    running: Sequence[_Running],
    workers: Sequence[_Worker],
    host: Host,
    fields: dict[str, object],
    gaps: Gaps,
    until: _Limit,
) -> None:
    """Wait for probes, and add what they return to `fields` and `gaps`."""
    for worker in workers:
        worker.join(max(0.0, until.usual - time.monotonic()))
    _wait_while_busy(workers, until, host)
    waited = max(until.seconds, round(time.monotonic() - until.start))
    for one in running:
        reason = f"the {one.probe.name} probe did not answer within {waited:g} s"
        if not one.ended or one.failure:
            for name in one.probe.fields:
                gaps.add(name, one.failure or reason)
            continue
        fields.update(one.result)
        for name, why in one.gaps.reasons.items():
            gaps.add(name, why)


def _read_dispatcher(
    host: Host, site: Site, fields: dict[str, object], gaps: Gaps, until: _Limit
) -> None:
    """Read Diffusers' dispatcher, after the packages: its folder and version are needed."""
    diffusers = fields.get("diffusers")
    if not isinstance(diffusers, Package) or not diffusers.path:
        absent = isinstance(diffusers, Package) and diffusers.installed is False
        fields["dispatcher"] = Dispatcher(checksum="" if absent else None)
        return
    from attn_doctor.probes.installed import dispatcher

    rows = library.tables()["dispatcher"]["release"]
    known = frozenset(row["checksum"] for row in rows)
    read = partial(dispatcher.read, folder=diffusers.path, known=known)
    running = [_Running(Probe("dispatcher", ("dispatcher",), read), host, site)]
    _collect(running, _start(running, until), host, fields, gaps, until)


def _read_code(host: Host, fields: dict[str, object]) -> None:
    """Read what decides calls of a Transformers or xformers that the tables do not know."""
    for row in library.tables()["code"]["release"]:
        package = fields.get(row["name"])
        if not isinstance(package, Package) or not package.path or package.version is None:
            continue
        if parts(package.version) > parts(row["version"]):
            from attn_doctor.probes.installed import code

            read = code.read(host, row["name"], package.path)
            fields[row["name"]] = replace(package, code=read)


def _wait_while_busy(workers: Sequence[_Worker], until: _Limit, host: Host) -> None:
    """Wait for late probes while they get on, as a loaded machine or a slow disk lets them.

    They use processor time, or get answers: a scanner of viruses may work on each file in a process
    of its own. A probe that waits for a driver or a file system that never answers does neither.
    """
    while any(one.is_alive() for one in workers) and time.monotonic() < until.longest:
        before, answered = processes.work(), host.answered
        step = time.monotonic() + processes.STEP
        for one in workers:
            one.join(max(0.0, step - time.monotonic()))
        busy = before + processes.BUSY < processes.work()
        if processes.work() >= until.work or not (busy or host.answered > answered):
            return


def _start(running: Sequence[_Running], until: _Limit) -> list[_Worker]:
    """Begin all probes, and return the threads that run them.

    A thread is added where those that run wait for something else than the processor, or do not
    end. Raises `RuntimeError` if none can be started.
    """
    waiting = deque(running)
    workers: list[_Worker] = []
    while waiting and time.monotonic() < until.longest:
        if _get_on(waiting, workers):
            continue
        try:
            worker = _Worker(waiting)
            worker.start()
            workers.append(worker)
        except RuntimeError:  # no thread is free, or no memory for its stack
            if not any(one.is_alive() for one in workers):
                raise
    return workers


def _get_on(waiting: Sequence[_Running], workers: Sequence[_Worker]) -> bool:
    """Wait a moment, and tell whether `workers` begin probes, or may soon."""
    alive = [one for one in workers if one.is_alive()]
    left, patience = len(waiting), time.monotonic() + NEXT_BUSY
    while alive and time.monotonic() < patience:
        used = time.process_time()
        alive[-1].join(NEXT)
        if len(waiting) < left:
            return True
        if time.process_time() - used < IDLE:
            return False
    return False


def _printable(facts: Facts) -> Facts:
    """The facts without undecodable bytes, which paths and variables may hold on Linux."""
    try:
        to_json(facts)
    except UnicodeEncodeError:
        from attn_doctor.anonymize import rewritten

        return rewritten(facts, lambda text: text.encode("utf-8", "replace").decode())
    return facts


def facts_of(
    host: Callable[[], Host],
    snapshot: str,
    python: str,
    pretended: Sequence[str] = (),
    limit: float = LIMIT,
) -> Facts:
    """The facts of a snapshot, or else of a machine and its interpreter, with simulated parts.

    `host`: makes the machine, which a snapshot does not need. `pretended`: the simulated parts.
    Raises `AttnDoctorError` for what cannot be read or is not known.
    """
    if snapshot:
        from attn_doctor.snapshot import load

        facts = load(snapshot)
        if not pretended:
            return derive(facts)  # the tables may know more than at the time of the snapshot
    else:
        facts = examine(host(), python, limit)
        if not pretended:
            return facts
    from attn_doctor.pretend import pretend

    return derive(pretend(facts, pretended, library.tables()))


def derive(facts: Facts) -> Facts:
    """Return the facts with all that follows from them and from today's tables.

    Snapshots are derived again too: the tables may know more than at the time of the snapshot.
    """
    return derived.derive(facts, library.tables())


def diagnosis_of(
    facts: Facts, start: float | None = None, folders: Sequence[Path] = ()
) -> Diagnosis:
    """The findings of all rules on `facts`, those of a team's `folders` included.

    `start`: when the work began, by `time.perf_counter`.
    """
    rules = library.bare(folders)
    findings = evaluate_rules(facts, rules, library.harms(), library.whole)
    for finding in findings if _log.wanted else ():
        _log_unknown(finding)
    return Diagnosis(
        facts=facts,
        findings=findings,
        rules=len(rules),
        seconds=0.0 if start is None else time.perf_counter() - start,
    )


def _log_unknown(finding: Finding) -> None:
    """Log the facts that leave a rule undecided, with the reason why each is unknown."""
    if finding.verdict is Verdict.UNKNOWN:
        for line in (*finding.context, *finding.because):
            if line.truth is None:
                _log.debug("%s: %s is unknown: %s", finding.rule, line.fact, line.gap or "no value")


class CheckRequest(Struct, frozen=True, kw_only=True):
    """The inputs of a check."""

    facts: Callable[[], Facts]
    """Examines the machine, or reads a snapshot."""
    folder: Path = Path()
    """The working directory: a policy and a configuration are looked for here."""
    environ: Mapping[str, str] = {}
    rules: tuple[Path, ...] = ()
    """Folders of a team's own rules."""
    calls: tuple[AttentionCall, ...] = ()
    """The attention calls that backends are evaluated for."""
    framework: str = ""
    """The framework whose names are used; empty for the installed trainer, else Diffusers."""
    require: tuple[str, ...] = ()
    """Names of backends that must be ready."""
    required_calls: tuple[AttentionCall, ...] = ()
    """The calls that they must be ready for."""
    phase: Wanted = ""
    """The phases of configurations to predict; empty for all."""
    configs: tuple[str, ...] | None = None
    """Paths of training configurations; None for the one that SimpleTuner would read here."""
    policy: Policy | None = None
    baseline: str = ""
    """Path of an earlier JSON result, whose problems do not count."""


class CheckResult(Struct, frozen=True, kw_only=True):
    """The diagnosis of a check, and what was evaluated beside the rules."""

    diagnosis: Diagnosis
    backends: Matrix
    configs: tuple[Prediction, ...] = ()
    asked: bool = False
    """The user named the configurations: they are what the check is about."""
    unread: tuple[str, ...] = ()
    """Why a configuration that the user did not name was not read."""


def diagnose(request: CheckRequest) -> CheckResult:
    """Examine, then apply rules, required backends, configurations, policy and baseline.

    Raises `AttnDoctorError` for a configuration, baseline or name that is wrong. Configurations are
    read before anything is examined, since a wrong path should not cost a second.
    """
    from attn_doctor.backends.matrix import matrix
    from attn_doctor.backends.required import with_required

    readings, unread = _configurations(request)
    start = time.perf_counter()
    folders = (*request.rules, *(request.policy.folders if request.policy else ()))
    diagnosis = diagnosis_of(request.facts(), start, folders)
    facts, found = diagnosis.facts, diagnosis.findings
    backends = matrix(facts, found, request.calls, request.framework)
    diagnosis = with_required(diagnosis, _required(request))
    predictions: tuple[Prediction, ...] = ()
    if readings:
        from attn_doctor.configs.predict import predict

        predictions = tuple(
            predict(one, facts, diagnosis.findings, request.phase) for one in readings
        )
        added = [finding for one in predictions for finding in one.findings]
        diagnosis = _with_findings(diagnosis, added)
    diagnosis = _accepted(diagnosis, request)
    if _may_fail(diagnosis):
        from attn_doctor.install.offered import offered

        diagnosis = offered(diagnosis)
    return CheckResult(
        diagnosis=diagnosis,
        backends=backends,
        configs=predictions,
        asked=bool(request.configs),
        unread=tuple(unread),
    )


def diagnose_snapshot(request: CheckRequest, facts: Facts) -> Diagnosis:
    """Apply rules, required backends, policy and baseline to the facts of one of many machines.

    The facts and configurations of `request` are not used. Raises `AttnDoctorError` as `diagnose`.
    """
    folders = (*request.rules, *(request.policy.folders if request.policy else ()))
    diagnosis = diagnosis_of(facts, folders=folders)
    demands = [one for one in _required(request) if one.names]
    if demands:
        from attn_doctor.backends.required import with_required

        diagnosis = with_required(diagnosis, demands)
    return _accepted(diagnosis, request)


def _accepted(diagnosis: Diagnosis, request: CheckRequest) -> Diagnosis:
    """The diagnosis without the problems that the policy or the baseline accepts."""
    if request.policy is not None:
        from attn_doctor.policy.evaluate import apply_policy

        diagnosis = apply_policy(diagnosis, request.policy, date.today())
    if request.baseline:
        from attn_doctor.policy.baseline import read, suppress_known

        diagnosis = suppress_known(diagnosis, read(Path(request.baseline)), request.baseline)
    return diagnosis


def _may_fail(diagnosis: Diagnosis) -> bool:
    """Whether a fix may compile a package, or asks for a release that may not fit this Python.

    To find out takes longer than the rest of a check. Advisories only install another torch.
    """
    problems = (one for one in diagnosis.problems if not one.rule.startswith("advisories/"))
    words = {word for one in problems for fix in one.fixes for word in sum(fix.run, ())}
    return any(
        "flash-attn" in word
        or "SageAttention" in word
        or "xformers" in word
        or "diffusers" in word
        or ">=" in word
        or "==" in word
        for word in words
    )


def _configurations(request: CheckRequest) -> tuple[list[Reading], list[str]]:
    """The named configurations, or the one in this folder; and why one was not read."""
    if request.configs is not None and not request.configs:
        return [], []
    from attn_doctor.configs.readers.locations import found_in, named

    if request.configs is not None:
        from attn_doctor.configs.readers import kinds

        paths = [one for path in request.configs for one in named(Path(path), request.environ)]
        return [one for path in paths for one in kinds.read_all(*path)], []
    path = found_in(request.folder, request.environ)
    if path is None:
        return [], []
    # Imported only if there is something to read: it takes as long as the slowest probe.
    from attn_doctor.configs.readers import kinds

    try:
        return kinds.read_all(*path), []
    except AttnDoctorError as error:
        return [], [str(error)]


def _required(request: CheckRequest) -> list[Demand]:
    """The backends that must be ready: those of the request, and those of the policy."""
    from attn_doctor.backends.attention_call import AttentionCall
    from attn_doctor.backends.required import Demand

    demands = [Demand(request.require, request.required_calls, request.framework)]
    policy = request.policy
    if policy is not None:
        phases = ("inference", "training") if policy.training else ("inference",)
        calls = tuple(AttentionCall(phase=phase) for phase in phases)
        demands.append(Demand(policy.require, calls, policy.framework or "diffusers"))
    return demands


def _with_findings(diagnosis: Diagnosis, added: Sequence[Finding]) -> Diagnosis:
    """The diagnosis with further root causes, each among those of its severity."""
    if not added:
        return diagnosis
    problems = [one for one in diagnosis.findings if one.verdict is Verdict.PROBLEM]
    others = [one for one in diagnosis.findings if one.verdict is not Verdict.PROBLEM]
    # A consequence stays behind its root cause, and the added findings are all root causes.
    merged: list[Finding] = []
    for finding in sorted(added, key=lambda one: -one.severity.rank):
        while problems and (
            problems[0].caused_by or problems[0].severity.rank > finding.severity.rank
        ):
            merged.append(problems.pop(0))
        merged.append(finding)
    return replace(diagnosis, findings=(*merged, *problems, *others))
