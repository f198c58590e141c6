"""Wheels that were read and not installed, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attn_doctor._version import __version__
from attn_doctor.binaries.architectures import number
from attn_doctor.fixes.read_wheel import ReadWheel
from attn_doctor.render.json_text import json_text
from attn_doctor.render.terminal import Terminal, clean
from attn_doctor.wheels.reading import WheelReading

_MARKS = {"yes": ("✓", "green"), "no": ("✗", "red"), "unknown": ("?", "yellow")}
#: Version of the form of the JSON.
SCHEMA = 1


def read_wheels_text(wheels: Sequence[ReadWheel], terminal: Terminal) -> str:
    """Return each wheel with its verdict, the GPUs that it has code for, and what was fetched."""
    lines = []
    for one in wheels:
        mark, colour = _MARKS[one.verdict.loads]
        name = one.reading.name if one.reading else one.source
        lines.append(
            f"{terminal.style(mark, 'bold', colour)} {terminal.style(clean(name), 'bold')}"
        )
        lines += terminal.wrap(clean(one.verdict.text[0].upper() + one.verdict.text[1:]) + ".", 2)
        if one.reading is not None:
            for line in _details(one.reading):
                lines += terminal.wrap(clean(line), 2)
    return terminal.page(lines)


def _details(reading: WheelReading) -> Iterator[str]:
    codes = gpu_codes(reading)
    if codes:
        yield f"It has GPU code for {', '.join(map(_capability, codes))}."
    elif any(one.torch_symbols and one.gpu_code is None for one in reading.libraries):
        yield "Its GPU code was not read: it lies too far behind its start."
    if reading.fetched:
        share = 100 * reading.fetched / reading.size
        yield (
            f"{reading.fetched / 1e6:.1f} of {reading.size / 1e6:.1f} MB were fetched"
            f" ({share:.1f} %), and nothing was installed."
        )


def gpu_codes(reading: WheelReading) -> list[str]:
    """Return the GPU architectures of all its libraries, in order."""
    found = {code for one in reading.libraries for code in one.gpu_code or ()}
    return sorted(found, key=lambda code: ("+" in code, number(code.partition("+")[0]), code))


def _capability(code: str) -> str:
    """`90a` as `9.0a`, with `PTX` as it is."""
    name, plus, ptx = code.partition("+")
    digits = name.rstrip("af")
    return f"{digits[:-1]}.{name[len(digits) - 1 :]}{plus}{ptx}"


def read_wheels_json(wheels: Sequence[ReadWheel]) -> str:
    """Return the same as JSON."""
    return json_text(
        {"schema": SCHEMA, "attn_doctor": __version__, "wheels": [_data(one) for one in wheels]}
    )


def _data(one: ReadWheel) -> dict[str, Any]:
    reading = one.reading
    return {
        "source": one.source,
        "loads": one.verdict.loads,
        "reason": one.verdict.reason,
        "missing": one.verdict.missing,
        "libraries_at_fault": one.verdict.faulty,
        "gpu_code": gpu_codes(reading) if reading else None,
        "bytes": reading.size if reading else None,
        "bytes_fetched": reading.fetched if reading else None,
    }
