"""Figures of a backend that was run, as words: its shape, error, time, speed and memory."""

from __future__ import annotations

from collections.abc import Iterable

from attn_doctor.backends.live.outcome import Figures


def shape_of(figures: Iterable[Figures], dtype: str) -> str:
    """The realistic shape as words, or the small one where nothing else ran."""
    last = None
    for one in figures:
        if last is None or one.shape.name == "realistic":
            last = one.shape
    if last is None:
        return dtype
    model = f", {last.model}" if last.model else ""
    return f"batch×heads×tokens×head size {last.title}, {dtype}{model}"


def cells(figures: Figures) -> tuple[str, str, str, str, str]:
    """Error, time, TFLOP/s, memory and ratio, as text; empty where not measured."""
    return (
        error(figures),
        millis(figures.milliseconds),
        _tflops(figures.tflops),
        "" if figures.peak_mib is None else _mib(figures.peak_mib),
        "" if figures.ratio is None else f"{figures.ratio:.2f}",
    )


def error(figures: Figures) -> str:
    """The largest error among output and gradients."""
    if not figures.errors:
        return ""
    if any(error is None for error in figures.errors.values()):
        return "NaN"
    return f"{max(error for error in figures.errors.values() if error is not None):.1e}"


def millis(milliseconds: float | None) -> str:
    """A time in the unit that reads best."""
    if milliseconds is None:
        return ""
    if milliseconds < 1:
        return f"{milliseconds * 1000:.0f} µs"
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"


def _tflops(tflops: float | None) -> str:
    if tflops is None:
        return ""
    return f"{tflops:.0f}" if tflops >= 100 else f"{tflops:.2g}"


def _mib(mib: float) -> str:
    return f"{mib:.0f} MiB" if mib < 10240 else f"{mib / 1024:.1f} GiB"


def gib(mib: int) -> str:
    """Memory that is there, which is a matter of gibibytes."""
    return f"{mib / 1024:.1f} GiB"
