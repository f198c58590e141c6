"""A check as a whole: facts → rules → findings, required backends, configurations, baselines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from attn_doctor.errors import AttnDoctorError
from attn_doctor.facts import Facts
from attn_doctor.findings import Diagnosis, Finding, Verdict
from attn_doctor.logger import Logger

if TYPE_CHECKING:
    # Imported on demand: most commands only examine.
    from attn_doctor.backends.attention_call import AttentionCall
    from attn_doctor.backends.readiness import Matrix
    from attn_doctor.configs.prediction import Prediction, Wanted
    from attn_doctor.configs.readers.settings import Reading
    from attn_doctor.policy.policy import Policy

_log = Logger(__name__)


def diagnosis_of(
    facts: Facts, start: float | None = None, folders: Sequence[Path] = ()
) -> Diagnosis:
    """The findings of all rules on `facts`, those of a team's `folders` included.

    `start`: when the work began, by `time.perf_counter`.
    """
    # Imported on demand: `check` imports them while the interpreter describes itself.
    from attn_doctor.rulebook import library
    from attn_doctor.rulebook.evaluate import evaluate_rules

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
    readings, unread = _configurations(request)
    start = time.perf_counter()
    folders = (*request.rules, *(request.policy.folders if request.policy else ()))
    diagnosis = diagnosis_of(request.facts(), start, folders)
    facts, found = diagnosis.facts, diagnosis.findings
    from attn_doctor.backends.matrix import matrix

    backends = matrix(facts, found, request.calls, request.framework)
    diagnosis = _with_required(diagnosis, request)
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
    return _accepted(_with_required(diagnosis, request), request)


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
    commands = {" ".join(argv) for one in problems for fix in one.fixes for argv in fix.run}
    return any(part in command for command in commands for part in _MAY_FAIL)


#: Parts of commands that install what has to fit torch, or a certain release.
_MAY_FAIL = (
    "attn-doctor install",
    "flash-attn",
    "SageAttention",
    "xformers",
    "diffusers",
    ">=",
    "==",
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


def _with_required(diagnosis: Diagnosis, request: CheckRequest) -> Diagnosis:
    """The diagnosis with the backends that must be ready: of the request, and of the policy."""
    policy = request.policy
    if not request.require and not (policy and policy.require):
        return diagnosis
    from attn_doctor.backends.attention_call import AttentionCall
    from attn_doctor.backends.required import Demand, with_required

    demands = [Demand(request.require, request.required_calls, request.framework)]
    if policy is not None:
        phases = ("inference", "training") if policy.training else ("inference",)
        calls = tuple(AttentionCall(phase=phase) for phase in phases)
        demands.append(Demand(policy.require, calls, policy.framework or "diffusers"))
    return with_required(diagnosis, demands)


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
