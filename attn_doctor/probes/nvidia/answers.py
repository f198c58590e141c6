"""Asks the driver: NVML in a child process, and nvidia-smi if NVML itself cannot be reached.

NVML cannot be reached from a Python without ctypes.
Only the nvidia-smi that the driver installs in a known place is run, never one found on PATH.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from attn_doctor.clean import clean
from attn_doctor.host import Host

SMI_SECONDS = 2.0
PLACES = ("/usr/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")
FIELDS = (
    *("index", "name", "compute_cap", "uuid", "pci.bus_id", "memory.total", "memory.free"),
    *("compute_mode", "persistence_mode", "mig.mode.current", "driver_version"),
)
_MISMATCH = "Driver/library version mismatch"


class Smi(Struct, frozen=True, kw_only=True):
    """Answers of nvidia-smi."""

    code: int | None = None
    """0, or NVML's error number as nvidia-smi's exit code; None if it was not run."""
    error: str = ""
    """Its error message, or why it could not be run."""
    gpus: tuple[dict[str, str], ...] = ()
    """The `FIELDS` of each GPU, without those that nvidia-smi does not know."""


def _ask_smi(host: Host) -> Smi:
    """Ask nvidia-smi for the driver and the GPUs."""
    places: tuple[str, ...] = PLACES
    if host.windows:
        root = host.environ.get("SYSTEMROOT", "C:\\Windows")
        places = (host.join(root, "System32", "nvidia-smi.exe"),)
    program = next((path for path in places if host.is_file(path)), "")
    if not program:
        return Smi()
    query = f"--query-gpu={','.join(FIELDS)}"
    ran = host.run([program, query, "--format=csv,noheader,nounits"], SMI_SECONDS)
    if ran.ok:
        return Smi(code=0, gpus=tuple(map(_smi_fields, filter(None, ran.out.splitlines()))))
    if ran.outcome != "done" or not ran.code:
        return Smi(error=ran.why_not("nvidia-smi", SMI_SECONDS))
    # Failed to initialize NVML: Driver/library version mismatch
    # NVML library version: 570.86
    lines = (ran.out + ran.err).strip().splitlines()
    error = lines[0].removeprefix("Failed to initialize NVML: ") if lines else ""
    return Smi(code=18 if _MISMATCH in error else ran.code, error=error)


def _smi_fields(line: str) -> dict[str, str]:
    # 0, NVIDIA H100 80GB HBM3, 9.0, GPU-5a…, 00000000:18:00.0, 81559, 80970, Default, Enabled,
    # Disabled, 580.95.05
    values = zip(FIELDS, (value.strip() for value in line.split(",")), strict=False)
    return {field: value for field, value in values if not value.startswith("[")}


NVML_SECONDS = 2.5
#: A failure for which NVML has no number: it crashed, or could not be called.
BROKEN = -1


def short(text: str, length: int = 96) -> str:
    """Return a driver's text as one clean line, at most as long as NVML's own limit."""
    return clean(text)[:length]


class Answers(Struct, frozen=True, kw_only=True):
    """Answers of NVML, or of nvidia-smi in its place."""

    nvml: dict[str, Any] = {}
    """See `host/nvml_process.py`; empty if NVML was not asked."""
    smi: Smi = Smi()
    code: int | None = None
    """0, NVML's error number, `BROKEN`, or None if nothing could be asked."""
    error: str = ""
    """The error, in the driver's own words if it gave any; empty if there was none."""
    unanswered: str = ""
    """Why answers are missing; empty if all are there."""
    hung: bool = False
    """NVML did not answer in time."""


def ask(host: Host, present: bool) -> Answers:
    """Ask the driver; nvidia-smi is asked only if there are signs of a driver (`present`)."""
    seconds = NVML_SECONDS * host.patience
    nvml = host.nvml(seconds)
    reason = _unanswered(nvml, seconds)
    late = reason != "" and nvml.get("outcome") in ("timeout", "abandoned")
    if "init" in nvml or "init" in nvml.get("errors", {}):
        code, error = _failure(nvml)
        answer = f"NVML answered: {error}" if error else ""
        return Answers(
            nvml=nvml, code=code, error=error or reason, unanswered=reason or answer, hung=late
        )
    if nvml.get("last") == "start":  # it got as far as nvmlInit, and hung there or crashed
        return Answers(nvml=nvml, code=BROKEN, error=reason, unanswered=reason, hung=late)
    # NVML was not reached. If the time is used up, nvidia-smi is not asked.
    second = _ask_smi(host) if present and not late else Smi()
    why = "; ".join(filter(None, (reason, second.error if second.code is None else "")))
    error = short(second.error, 300)
    return Answers(nvml=nvml, smi=second, code=second.code, error=error, unanswered=why)


def _failure(nvml: dict[str, Any]) -> tuple[int, str]:
    """Return NVML's error number and text, for the driver as a whole or for a GPU."""
    errors = nvml["errors"]
    if "init" in errors:
        return errors["init"].get("code") or BROKEN, _words(errors["init"])
    code = 0 if nvml.get("complete") else BROKEN
    if "count" in errors:
        return code, _words(errors["count"])
    for one in nvml["gpus"]:
        if "handle" in one["errors"]:
            return code, f"GPU {one['index']}: {_words(one['errors']['handle'])}"
    return code, ""


def _words(error: dict[str, Any]) -> str:
    return short(str(error.get("text")), 300)


def _unanswered(nvml: dict[str, Any], seconds: float) -> str:
    """Return why NVML's answer is not complete after `seconds`; empty if it is complete."""
    if nvml.get("complete"):
        return ""
    outcome, last = nvml.get("outcome"), str(nvml.get("last", ""))
    if outcome == "missing":
        return "the process that asks NVML could not be started"
    if outcome == "refused":
        return f"the process that asks NVML could not be started: {nvml.get('err', '')}"
    if "import" in nvml.get("errors", {}):
        return f"NVML cannot be called: {nvml['errors']['import'].get('text')}"
    if outcome == "done":
        return f"NVML ended the process that asked it (code {nvml.get('code')}) {_place(last)}"
    if not last:
        return f"the process that asks NVML did not start within {seconds:g} s"
    left = f" (process {nvml.get('pid')} cannot be killed)" if outcome == "abandoned" else ""
    return f"NVML did not answer within {seconds:g} s {_place(last)}{left}"


def _place(last: str) -> str:
    """Return where NVML stopped, from the last question that it answered."""
    if last in ("", "start"):
        return "during its start"
    answered = re.fullmatch(r"gpus\.(\d{1,4})\.(\w+)", last)
    if answered is None and last != "count":
        return "when asked for the driver and its GPUs"
    if answered and answered[2] != "processes":
        return f"at GPU {answered[1]}"
    # That was the last question before the next GPU had to wake up.
    next_gpu = int(answered[1]) + 1 if answered else 0
    return f"at GPU {next_gpu}; without persistence mode a GPU takes 1 to 3 s to wake"
