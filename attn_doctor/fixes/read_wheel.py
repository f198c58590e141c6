"""Reads a wheel before it is installed, and says whether it loads with the torch of the facts."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from attn_doctor.facts import Facts
from attn_doctor.files import is_folder
from attn_doctor.rulebook import library
from attn_doctor.wheels.ranges import WheelError
from attn_doctor.wheels.reading import WheelReading, read
from attn_doctor.wheels.torch_symbols import InstalledTorch, ReleasedTorch
from attn_doctor.wheels.verdict import WheelVerdict, compare


class ReadWheel(Struct, frozen=True, kw_only=True):
    """A wheel, and what was found."""

    source: str
    """The URL or path that was given."""
    verdict: WheelVerdict
    reading: WheelReading | None = None
    """None if it could not be read; `verdict.reason` says why."""


def symbol_table() -> str:
    """Return the path of the table with the symbols of released torch."""
    return str(Path(library.folder(), "tables", "wheels", "torch-symbols.tsv"))


def read_wheel(source: str, facts: Facts, *, gpu_code: bool = True) -> ReadWheel:
    """Read the wheel at a URL or a path and compare it with the torch of `facts`. Never raises."""
    try:
        reading = read(source, gpu_code=gpu_code)
    except WheelError as error:
        return ReadWheel(source=source, verdict=WheelVerdict(loads="unknown", reason=str(error)))
    try:
        verdict = _compared(reading, facts)
    except WheelError as error:
        verdict = WheelVerdict(loads="unknown", reason=str(error))
    return ReadWheel(source=source, verdict=verdict, reading=reading)


def _compared(reading: WheelReading, facts: Facts) -> WheelVerdict:
    torch = facts.torch
    if not torch.installed or not torch.version:
        raise WheelError("torch is not installed")
    if torch.path and is_folder(torch.path) and not facts.simulated:
        with InstalledTorch(torch.path, torch.version, torch.cuda or "") as there:
            return compare(reading, there)
    if torch.build != "cuda":
        raise WheelError(f"the symbols of torch {torch.version} are not known here")
    return compare(reading, ReleasedTorch(symbol_table(), torch.version, torch.cuda or ""))
