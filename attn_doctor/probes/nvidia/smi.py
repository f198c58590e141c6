"""Asks nvidia-smi, for the rare machine where NVML cannot be asked directly.

That is a Python without ctypes, or an environment that lacks nvidia-ml-py. Only the program that
the driver installs in a known place is run, never one that PATH happens to find.
"""

from __future__ import annotations

from msgspec import Struct

from attn_doctor.host import Host

SECONDS = 2.0
PLACES = ("/usr/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")
FIELDS = (
    *("index", "name", "compute_cap", "uuid", "pci.bus_id", "memory.total", "memory.free"),
    *("compute_mode", "persistence_mode", "mig.mode.current", "driver_version"),
)
_MISMATCH = "Driver/library version mismatch"


class Smi(Struct, frozen=True, kw_only=True):
    """What nvidia-smi said."""

    code: int | None = None
    """0, or NVML's error number, which nvidia-smi ends with; None if it was not run."""
    error: str = ""
    """Its message, or why it could not be asked."""
    gpus: tuple[dict[str, str], ...] = ()
    """For each GPU the `FIELDS`; one that nvidia-smi cannot tell is missing."""


def ask(host: Host) -> Smi:
    """The driver and the GPUs, as nvidia-smi lists them."""
    places: tuple[str, ...] = PLACES
    if host.windows:
        root = host.environ.get("SYSTEMROOT", "C:\\Windows")
        places = (host.join(root, "System32", "nvidia-smi.exe"),)
    program = next((path for path in places if host.is_file(path)), "")
    if not program:
        return Smi()
    query = f"--query-gpu={','.join(FIELDS)}"
    ran = host.run([program, query, "--format=csv,noheader,nounits"], SECONDS)
    if ran.ok:
        return Smi(code=0, gpus=tuple(map(_gpu, filter(None, ran.out.splitlines()))))
    if ran.outcome != "done" or not ran.code:
        return Smi(error=ran.why_not("nvidia-smi", SECONDS))
    # Failed to initialize NVML: Driver/library version mismatch
    # NVML library version: 570.86
    lines = (ran.out + ran.err).strip().splitlines()
    error = lines[0].removeprefix("Failed to initialize NVML: ") if lines else ""
    return Smi(code=18 if _MISMATCH in error else ran.code, error=error)


def _gpu(line: str) -> dict[str, str]:
    # 0, NVIDIA H100 80GB HBM3, 9.0, GPU-5a…, 00000000:18:00.0, 81559, 80970, Default, Enabled,
    # Disabled, 580.95.05
    values = zip(FIELDS, (value.strip() for value in line.split(",")), strict=False)
    return {field: value for field, value in values if not value.startswith("[")}
