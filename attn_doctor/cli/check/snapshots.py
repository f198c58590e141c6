"""`check --facts FOLDER`: evaluate the snapshots of many machines in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attn_doctor.cli.check.formats import Output, deliver
from attn_doctor.cli.facts_source import examined
from attn_doctor.cli.screen import terminal
from attn_doctor.cli.source_options import SourceOptions
from attn_doctor.diagnosis import CheckRequest, diagnose_snapshot
from attn_doctor.errors import SnapshotError
from attn_doctor.findings import Diagnosis
from attn_doctor.render.findings.machines import MachineResult, json, text
from attn_doctor.worker import reach

_FORMATS = ("text", "json")


def check_all(
    source: SourceOptions,
    request: CheckRequest,
    code_of: Callable[[Diagnosis], int],
    outputs: Sequence[Output],
    *,
    verbose: bool,
    quiet: bool,
) -> int:
    """Evaluate each `*.json` of the folder that `--facts` names, and show a line for each.

    Returns the exit code: 2 if a file could not be evaluated, else that of the worst machine.
    Raises `AttnDoctorError` for a folder without snapshots, `typer.BadParameter` for a format.
    """
    for one in outputs:
        if one.name not in _FORMATS:
            import typer

            raise typer.BadParameter(
                f"{one.name} is for one machine; many have text and json", param_hint="--format"
            )
    start = time.perf_counter()
    machines = [_result(path, source, request, code_of) for path in _snapshots(source.facts)]
    seconds = time.perf_counter() - start
    codes = {one.exit_code for one in machines}
    code = next((one for one in (2, 1, 4) if one in codes), 0)

    def written(output: Output) -> str:
        if output.name == "json":
            return json(machines, code, seconds)
        return text(machines, terminal(output.path), seconds, verbose=verbose, quiet=quiet)

    deliver(outputs, written)
    return code


def _snapshots(folder: str) -> list[Path]:
    """The files of a folder that can be snapshots, in the order of their names."""
    reach.refuse(folder)
    try:
        found = sorted(one for one in Path(folder).iterdir() if one.suffix == ".json")
    except OSError as error:
        raise SnapshotError(f"{folder} cannot be read: {error.strerror}") from None
    if not found:
        raise SnapshotError(
            f"{folder} has no *.json file; write snapshots into it with"
            f" `attn-doctor report -o FILE.json`"
        )
    return found


def _result(
    path: Path,
    source: SourceOptions,
    request: CheckRequest,
    code_of: Callable[[Diagnosis], int],
) -> MachineResult:
    try:
        facts = examined(str(path), source.python, source.timeout, source.pretend)
    except SnapshotError as error:
        return MachineResult(file=path.name, exit_code=2, error=str(error))
    diagnosis = diagnose_snapshot(request, facts)
    return MachineResult.of(path.name, diagnosis, code_of(diagnosis))
