"""Configurations in `check`: those that `--config` names, or the one that lies here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attn_doctor.cli.rules_option import here
from attn_doctor.errors import AttnDoctorError
from attn_doctor.findings import Diagnosis, Finding, Verdict

if TYPE_CHECKING:
    from attn_doctor.configs.prediction import Prediction
    from attn_doctor.configs.readers.settings import Reading

Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="PATH",
        help="Training configuration to predict the backend of: SimpleTuner's config.json, .toml or"
        " .env or their folder, a launch script, a Python script. May be repeated. Default: the one"
        " that SimpleTuner would read here; the word none for no file.",
        show_default=False,
    ),
]


class Preflight:
    """What was read and predicted."""

    def __init__(self, readings: Sequence[Reading] = (), unread: Sequence[str] = ()) -> None:
        self.readings = tuple(readings)
        self.unread = tuple(unread)
        """Why a configuration that nobody named was not read."""
        self.predictions: tuple[Prediction, ...] = ()

    def predict(self, diagnosis: Diagnosis) -> None:
        """Say of each what it will do on the machine that was examined."""
        if self.readings:
            from attn_doctor.configs.predict import predict

            facts, findings = diagnosis.facts, diagnosis.findings
            self.predictions = tuple(predict(one, facts, findings) for one in self.readings)


def read(paths: Sequence[str], *, search: bool) -> Preflight:
    """The configurations at `paths`, or what SimpleTuner would read here if `search`.

    Raises `AttnDoctorError` for a path that was named and cannot be read. Before anything is
    examined, since a wrong path should not cost a second.
    """
    if list(paths) == ["none"]:
        return Preflight()
    from attn_doctor.configs.readers.locations import found_in, named

    if paths:
        return Preflight([_read(*named(Path(one), os.environ)) for one in paths])
    found = found_in(here(), os.environ) if search else None
    if found is None:
        return Preflight()
    try:
        return Preflight([_read(*found)])
    except AttnDoctorError as error:
        return Preflight(unread=[str(error)])


def _read(path: Path, why: str) -> Reading:
    from attn_doctor.configs.readers import kinds

    return kinds.read(path, why)


def with_findings(diagnosis: Diagnosis, predictions: Sequence[Prediction]) -> Diagnosis:
    """The diagnosis with what is wrong with configurations, each severity among its own."""
    from msgspec.structs import replace

    added = [one for prediction in predictions for one in prediction.findings]
    if not added:
        return diagnosis
    problems = [one for one in diagnosis.findings if one.verdict is Verdict.PROBLEM]
    rest = [one for one in diagnosis.findings if one.verdict is not Verdict.PROBLEM]
    # A consequence stays behind its root cause, and the added findings are all root causes.
    merged: list[Finding] = []
    for finding in sorted(added, key=lambda one: -one.severity.rank):
        while problems and _before(problems[0], finding):
            merged.append(problems.pop(0))
        merged.append(finding)
    return replace(diagnosis, findings=(*merged, *problems, *rest))


def _before(one: Finding, added: Finding) -> bool:
    return bool(one.caused_by) or one.severity.rank > added.severity.rank
